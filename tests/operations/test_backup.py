"""Backup and restore, with the commands of `docs/backup.md`, beside a server that is writing."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
import urllib.request
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
import pytest

from bridge.model import Message, Text
from bridge.stores import Conversation, RunState, open_conversations, open_runs
from tests.docs.tables import ROOT
from tests.operations.processes import SECONDS, Process, demo_config, started, until
from tests.stores.conftest import Postgres, Server
from tests.stores.test_run_store import begun, key

PAGE = (ROOT / "docs" / "backup.md").read_text(encoding="utf-8")


def commands(heading: str, language: str) -> list[str]:
    """The code blocks in this language in a section of the page."""
    section = re.split(r"^##+ ", PAGE.partition(f" {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", section, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


def shell(command: str, folder: Path, **variables: str) -> None:
    environment = {**os.environ, **variables}
    subprocess.run(["sh", "-ec", command], cwd=folder, env=environment, check=True, timeout=SECONDS)


def config(**stores: Any) -> dict[str, Any]:
    return {
        **demo_config(),
        "stores": stores,
        "routes": [{"dialect": "openai-responses", "path": "/v1", "backend": "it"}],
    }


def asked(server: Process, text: str, previous: str | None = None) -> str:
    """The id of a stored response."""
    body: dict[str, Any] = {"model": "m", "input": text}
    if previous is not None:
        body["previous_response_id"] = previous
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/v1/responses", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        made: str = json.load(answer)["id"]
        return made


@pytest.mark.parametrize("way", ["sqlite3", "python"])
def test_a_sqlite_file_is_saved_and_restored(tmp_path: Path, way: str) -> None:
    (tmp_path / "data" / "attachments" / "me" / "t").mkdir(parents=True)
    (tmp_path / "data" / "attachments" / "me" / "t" / "a.png").write_bytes(b"a picture")
    (of_shell, of_files), (of_python,) = commands("SQLite", "sh"), commands("SQLite", "python")
    with started(tmp_path, config(), forked=True) as server:
        server.until_served()
        first = asked(server, "one")
        second = asked(server, "two", first)
        later: list[str] = []
        writing = threading.Event()

        def write() -> None:
            while not writing.is_set():
                later.append(asked(server, "later", second))

        writer = threading.Thread(target=write)
        writer.start()
        until(lambda: len(later) > 2)
        if way == "sqlite3":
            shell(of_shell, tmp_path)
        else:
            subprocess.run([sys.executable, "-c", of_python], cwd=tmp_path, check=True, timeout=SECONDS)
        writing.set()
        writer.join()
        shell(of_files, tmp_path)
        newest = asked(server, "after the backup")
        server.process.kill()
        server.process.wait(SECONDS)
    with closing(sqlite3.connect(tmp_path / "backup.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    shutil.rmtree(tmp_path / "data" / "attachments")
    (tmp_path / "data" / "attachments").mkdir()
    assert (tmp_path / "data" / "bridge.db-wal").exists(), "a killed process leaves one"
    shell(commands("Restore", "sh")[0], tmp_path)
    assert (tmp_path / "data" / "attachments" / "me" / "t" / "a.png").read_bytes() == b"a picture"
    with started(tmp_path, config(), forked=True) as server:
        server.until_served()
        for known in (first, second, later[0]):
            assert server.get(f"/v1/responses/{known}")[0] == 200
        assert server.get(f"/v1/responses/{newest}")[0] == 404
        asked(server, "three", second)


async def test_a_queue_is_restored_or_not(tmp_path: Path) -> None:
    """What ran is ended as lost; what waited runs, unless its rows are deleted as the page says."""
    runs = open_runs(f"sqlite:///{tmp_path}/bridge.db")
    await begun(runs, key("running"), "a process that is gone")
    await runs.append(key("running"), "a process that is gone", 0, ["x"])
    await runs.create(key("waiting", "t2"), "f", "p")
    await runs.close()
    (statements,) = commands("Restore", "sql")
    with closing(sqlite3.connect(tmp_path / "bridge.db")) as db:
        db.executescript(statements)
        assert db.execute("SELECT count(*) FROM run_plans").fetchone() == (1,)
    runs = open_runs(f"sqlite:///{tmp_path}/bridge.db")
    assert (await runs.get(key("waiting", "t2")), await runs.claim("me", 30)) == (None, None)
    record = await runs.get(key("running"))
    assert record is not None
    assert record.state is RunState.RUNNING
    await runs.close()


async def test_a_postgresql_database_is_saved_and_restored(postgres_schema: Postgres, tmp_path: Path) -> None:
    history, runs = open_conversations(postgres_schema.url), open_runs(postgres_schema.url)
    await history.commit("o", "s", Conversation("base"), [Message("user", [Text("one")])])
    await history.commit("o", "s", Conversation("next"), [Message("user", [Text("two")])], after="base")
    await begun(runs, key(), "me")
    await runs.append(key(), "me", 0, ["a", "b"], end=True)
    (dump,), (_, restore) = commands("PostgreSQL", "sh"), commands("Restore", "sh")
    path = {"PATH": f"{Server.binaries()}{os.pathsep}{os.environ['PATH']}"}
    shell(
        dump.replace("pg_dump ", f"pg_dump --schema={postgres_schema.schema} "),
        tmp_path,
        **path,
        DATABASE_URL=postgres_schema.server,
    )
    await history.commit("o", "s", Conversation("later"), [])
    await runs.close()
    await history.close()
    name = f"restored_{uuid.uuid4().hex}"
    server = await asyncpg.connect(postgres_schema.server)
    await server.execute(f"CREATE DATABASE {name}")
    try:
        restored = urlunsplit(urlsplit(postgres_schema.server)._replace(path=f"/{name}"))
        shell(restore, tmp_path, **path, NEW_DATABASE_URL=restored)
        parts = urlsplit(restored)
        query = urlencode({**dict(parse_qsl(parts.query)), "search_path": postgres_schema.schema})
        url = urlunsplit(parts._replace(query=query))
        history, runs = open_conversations(url), open_runs(url)
        found = await history.load("o", "s", "next")
        assert found is not None
        assert [part.text for m in found.messages for part in m.parts if isinstance(part, Text)] == ["one", "two"]
        assert await history.load("o", "s", "later") is None
        assert [entry.body for entry in await runs.read(key())] == ["a", "b"]
        await history.commit("o", "s", Conversation("new"), [])
        await begun(runs, key("r2"), "me")
        await runs.close()
        await history.close()
    finally:
        await server.execute(f"DROP DATABASE {name}")
        await server.close()
