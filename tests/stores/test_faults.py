"""What goes wrong in an engine is one error, tells no secrets, and is over when it is over."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bridge.errors import BridgeError, ConfigError, ErrorCode
from bridge.model import Message, Text
from bridge.stores import Conversation, ConversationStore, open_conversations, schema
from bridge.stores.sqlite import SQLite
from bridge.stores.sqlite_file import SQLiteFile
from tests.stores.conftest import SECRET, Engine, Server


def says(text: str) -> Message:
    return Message("user", [Text(text)])


def local(path: str, *, busy: float = 5.0) -> ConversationStore:
    return ConversationStore(SQLite(path, (schema.HISTORY, schema.PLACES), busy=busy))


def file_of(history: ConversationStore) -> SQLiteFile:
    database = history._database
    assert isinstance(database, SQLite)
    return database.file


def operations(history: ConversationStore) -> dict[str, Callable[[], Awaitable[object]]]:
    async def turn() -> None:
        async with history.turn("o", "s", "t"):
            pytest.fail("nobody can know whether it is our turn")

    return {
        "load": lambda: history.load("o", "s", "t"),
        "commit": lambda: history.commit("o", "s", Conversation("new"), [says("hi")]),
        "find": lambda: history.find("o", "s", "d"),
        "delete": lambda: history.delete("o", "s", "t"),
        "prune": lambda: history.prune(0),
        "turn": turn,
        "open": history.open,
    }


async def refused(work: Callable[[], Awaitable[object]], *secrets: str) -> BridgeError:
    with pytest.raises(BridgeError) as caught:
        async with asyncio.timeout(40):
            await work()
    assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(caught.value.failure)
    for secret in (SECRET, "bridge.db", "bridge-door-", "bridge-pg-", *secrets):
        assert secret not in told
    assert caught.value.__context__ is None, "nothing for a log to dig out"
    return caught.value


async def test_a_database_that_went_away_and_came_back(engine: Engine, history: ConversationStore) -> None:
    conversation = Conversation("t")
    await history.commit("o", "s", conversation, [says("1")], digest="d")
    await engine.down()
    for name, work in operations(history).items():
        error = await refused(work)
        assert error.message.startswith("the history store is not available ("), name
        assert error.failure.http_status == 503
        assert error.failure.may_retry
    await engine.up()
    assert await history.load("o", "s", "t") == conversation
    await history.commit("o", "s", conversation, [says("2")])
    async with history.turn("o", "s", "t"):
        assert len(conversation.messages) == 2


async def test_a_store_that_never_was_there(engine: Engine) -> None:
    await engine.down()
    history = engine.history()
    await refused(history.open)
    for work in operations(history).values():
        await refused(work)
    await history.close()


async def test_several_stores_make_one_schema(engine: Engine) -> None:
    stores = [engine.history() for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    assert await engine.execute("SELECT version FROM schema_version WHERE room = 'history'") == schema.HISTORY.newest
    assert await engine.execute("SELECT count(*) FROM schema_version") == 2


async def test_an_old_schema_is_migrated(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = engine.history()
    conversation = Conversation("t")
    await first.commit("o", "s", conversation, [says("1")])
    await first.close()
    step = ("ALTER TABLE history_conversations ADD COLUMN title text", "CREATE TABLE history_more (id {serial})")
    monkeypatch.setattr(schema.HISTORY, "migrations", (*schema.HISTORY.migrations, step))
    second = engine.history()
    assert await second.load("o", "s", "t") == conversation
    assert await engine.execute("SELECT title FROM history_conversations") is None
    assert await engine.execute("SELECT count(*) FROM history_more") == 0
    assert await engine.execute("SELECT version FROM schema_version WHERE room = 'history'") == schema.HISTORY.newest


async def test_a_failed_migration_changes_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = engine.history()
    await first.open()
    await first.close()
    before = schema.HISTORY.migrations
    monkeypatch.setattr(
        schema.HISTORY, "migrations", (*before, ("CREATE TABLE history_more (id text)", "CREATE NONSENSE"))
    )
    await refused(engine.history().open)
    monkeypatch.setattr(schema.HISTORY, "migrations", before)
    assert await engine.execute("SELECT version FROM schema_version WHERE room = 'history'") == len(before)
    await engine.execute("CREATE TABLE history_more (id text)")


async def test_a_newer_schema_is_refused(engine: Engine) -> None:
    first = engine.history()
    await first.open()
    await engine.execute("UPDATE schema_version SET version = 99, needs = 98")
    with pytest.raises(ConfigError, match="created by a newer version of dialect-bridge"):
        await engine.history().open()


async def test_a_newer_schema_that_only_has_more_is_used(engine: Engine) -> None:
    first = engine.history()
    conversation = Conversation("t")
    await first.commit("o", "s", conversation, [says("1")])
    await engine.execute(
        f"UPDATE schema_version SET version = 99, needs = {schema.HISTORY.newest} WHERE room = 'history'"
    )
    assert await engine.history().load("o", "s", "t") == conversation
    assert await engine.execute("SELECT version FROM schema_version WHERE room = 'history'") == 99


async def test_a_table_of_versions_without_the_oldest_that_works(engine: Engine) -> None:
    """As versions before this column made it."""
    first = engine.history()
    conversation = Conversation("t")
    await first.commit("o", "s", conversation, [says("1")])
    await first.close()
    await engine.execute("ALTER TABLE schema_version DROP COLUMN needs")
    assert await engine.history().load("o", "s", "t") == conversation
    assert await engine.execute("SELECT count(*) FROM schema_version WHERE needs IS NULL") == 2


# ---------------------------------------------------------------------- SQLite


async def test_a_locked_database(tmp_path: Path) -> None:
    path = tmp_path / "bridge.db"
    history = local(str(path), busy=0.05)
    conversation = Conversation("t")
    await history.commit("o", "s", conversation, [says("1")])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        error = await refused(lambda: history.commit("o", "s", conversation, [says("2")]))
        assert "SQLITE_BUSY" in error.message
        assert await history.load("o", "s", "t") == conversation, "reading does not wait"
        other.execute("ROLLBACK")
    await history.commit("o", "s", conversation, [says("2")])
    await history.close()


async def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "bridge.db"
    history = local(str(path))
    await history.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(history.commit("o", "s", Conversation("t"), [says("1")]))
        assert await history.load("o", "s", "t") is None
        other.execute("COMMIT")
        await task
    await history.close()


async def test_a_full_disk(tmp_path: Path) -> None:
    history = local(str(tmp_path / "bridge.db"))
    conversation = Conversation("t")
    await history.commit("o", "s", conversation, [says("1")])
    await file_of(history).write(lambda db: db.execute("PRAGMA max_page_count = 30"))
    error = await refused(lambda: history.commit("o", "s", conversation, [says("x" * 1_000_000)]))
    assert "SQLITE_FULL" in error.message
    assert conversation.version == 1
    assert await history.load("o", "s", "t") == conversation
    await history.commit("o", "s", conversation, [says("2")])
    assert await history.load("o", "s", "t") == conversation
    await history.close()


async def test_a_read_only_database(tmp_path: Path) -> None:
    history = local(str(tmp_path / "bridge.db"))
    await history.open()
    await file_of(history).write(lambda db: db.execute("PRAGMA query_only = ON"))
    error = await refused(lambda: history.commit("o", "s", Conversation("t"), [says("1")]))
    assert "SQLITE_READONLY" in error.message
    await history.commit("o", "s", Conversation("t"), [says("1")])
    await history.close()


async def test_a_deleted_database_is_made_anew(tmp_path: Path) -> None:
    history = local(str(tmp_path / "bridge.db"))
    conversation = Conversation("t")
    await history.commit("o", "s", conversation, [says("1")])
    for name in os.listdir(tmp_path):
        os.unlink(tmp_path / name)
    assert await history.load("o", "s", "t") is None
    await history.commit("o", "s", Conversation("t"), [says("1")])
    with closing(sqlite3.connect(tmp_path / "bridge.db")) as db:
        assert db.execute("SELECT count(*) FROM history_messages").fetchone() == (1,)
    await history.close()


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "bridge.db").write_text("these are notes" * 100)
    history = local(str(tmp_path / "bridge.db"))
    assert "SQLITE_NOTADB" in (await refused(history.open)).message
    (tmp_path / "bridge.db").unlink()
    await history.open()
    await history.close()


async def test_the_file_is_where_the_url_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative, absolute = open_conversations("sqlite:///a/b c/h.db"), open_conversations(f"sqlite:///{tmp_path}/d/h.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await relative.open()
    await absolute.open()
    assert (tmp_path / "a/b c/h.db").exists()
    assert (tmp_path / "d/h.db").exists()
    await relative.close()
    await absolute.close()


async def test_in_memory_it_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    history = open_conversations("sqlite:///:memory:")
    conversation = Conversation("t")
    async with history.turn("o", "s", "t"):
        await history.commit("o", "s", conversation, [says("1")])
    assert await history.load("o", "s", "t") == conversation
    await history.close()
    await history.open()
    assert await history.load("o", "s", "t") is None
    await history.close()
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------------- PostgreSQL


async def test_a_server_that_is_stopped_and_started() -> None:
    server = Server()
    try:
        history = open_conversations(server.url)
        conversation = Conversation("t")
        await history.commit("o", "s", conversation, [says("1")])
        await asyncio.to_thread(server.stop)
        for work in operations(history).values():
            await refused(work)
        await asyncio.to_thread(server.start)
        assert await history.load("o", "s", "t") == conversation
        await history.commit("o", "s", conversation, [says("2")])
        async with history.turn("o", "s", "t"):
            pass
        await history.close()
    finally:
        server.remove()


async def test_a_database_that_does_not_exist(postgres: str) -> None:
    history = open_conversations(urlsplit(postgres)._replace(path="/no-such-database").geturl())
    await refused(history.open, "no-such-database")


async def test_many_more_runs_than_connections(engine: Engine) -> None:
    history = engine.history()
    await asyncio.gather(*(history.commit("o", "s", Conversation(f"t{n}"), [says("1")]) for n in range(100)))
    found = await asyncio.gather(*(history.load("o", "s", f"t{n}") for n in range(100)))
    assert all(found)


# ---------------------------------------------------------------------- URLs


@pytest.mark.parametrize(
    "url",
    ["", "x", "sqlite:", "sqlite://", "sqlite:///", "sqlite:x.db", "sqlite://host/x.db", "sqlite:///folder/",
     f"mysql://u:{SECRET}@h/d", f"redis://:{SECRET}@h"],
)  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_conversations(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("url", [f"postgresql://u:{SECRET}@h:port/d", f"postgresql://u:{SECRET}@h/d?sslmode=never"])
async def test_a_wrong_postgres_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await open_conversations(url).open()
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


def test_without_the_extra_its_name_is_told() -> None:
    code = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from bridge.stores import open_conversations\n"
        "open_conversations('sqlite:///x.db')\n"
        "try: open_conversations('postgresql://h/d')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "ConfigError stores.history: postgresql needs the extra postgres: pip install 'dialect-bridge[postgres]'\n"
    )


def test_engines_are_imported_when_they_are_needed() -> None:
    code = "import sys, bridge.stores\nprint(sorted({'sqlite3', 'asyncpg', 'aiohttp', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
