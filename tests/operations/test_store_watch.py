"""Operators learn which stores cannot be written to, before clients do."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import yaml

from bridge.engine import store_watch
from bridge.engine.bridge import Bridge
from bridge.errors import ConfigError
from tests.docs.helpers import bridge
from tests.server.harness import free_port, serving
from tests.stores.conftest import SECRET, Engine, Postgres, engine, postgres, postgres_schema  # noqa: F401


def keeping(history: str, folder: Path, **server: Any) -> dict[str, Any]:
    """A configuration whose route stores conversations."""
    stores = {"history": history, "runs": f"sqlite:///{folder}/runs.db", "attachments": f"file:{folder}/files"}
    route = {"dialect": "agentscope", "path": "/it", "backend": "llm"}
    return {
        "backends": {"llm": {"dialect": "openai-chat", "url": "http://127.0.0.1:9/v1", "model": "m"}},
        "routes": [route],
        "stores": stores,
        "server": server,
    }


async def until(caplog: pytest.LogCaptureFixture, words: str) -> None:
    async with asyncio.timeout(30):
        while words not in caplog.text:
            await asyncio.sleep(0.01)


async def ready(base: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{base}/readyz") as answer:
        return answer.status, await answer.json()


async def test_the_log_names_each_store_at_the_start(
    engine: Engine,  # noqa: F811
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "bridge.stores"):
        async with serving(keeping(engine.url, tmp_path)) as base:
            await until(caplog, f"store history, {engine.name}")
            assert "is ready" in caplog.text
            assert await ready(base) == (200, {"status": "ok"})
    assert SECRET not in caplog.text or engine.name == "sqlite"


async def test_a_store_that_never_worked_makes_the_server_unready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_watch, "EVERY", 0.05)
    port = free_port()
    async with serving(keeping(f"postgresql://ann:{SECRET}@127.0.0.1:{port}/talks", tmp_path)) as base:
        await until(caplog, "cannot be written to")
        assert f"store history, postgresql at 127.0.0.1:{port}, database talks, cannot be written to: " in caplog.text
        assert "no server listens at this address" in caplog.text
        assert SECRET not in caplog.text
        status, told = await ready(base)
        assert (status, told["status"]) == (503, "stores cannot be written to")
        assert str(port) not in str(told)
        await asyncio.sleep(0.3)
    assert caplog.text.count("cannot be written to: ") == 1, "once, not with each look"


async def test_a_store_that_goes_away_and_comes_back(
    postgres_schema: Postgres,  # noqa: F811
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failover does not make a server unready; a longer failure does."""
    monkeypatch.setattr(store_watch, "EVERY", 0.05)
    with caplog.at_level(logging.INFO, "bridge.stores"):
        async with serving(keeping(postgres_schema.url, tmp_path)) as base:
            await until(caplog, "is ready")
            await postgres_schema.down()
            await until(caplog, "cannot be written to")
            assert (await ready(base))[0] == 200
            monkeypatch.setattr(store_watch, "PATIENCE", 0.0)
            assert (await ready(base))[0] == 503
            caplog.clear()
            await postgres_schema.up()
            await until(caplog, "is ready")
            assert (await ready(base))[0] == 200


async def test_a_file_that_allows_no_writing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(keeping("sqlite:////proc/talks.db", tmp_path)) as base:
        await until(caplog, "store history, sqlite file /proc/talks.db, cannot be written to")
        assert (await ready(base))[0] == 503


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("sslmode=bogus", "sslmode: expected one of disable, allow"),
        ("sslmode=verify-full", "needs the certificates of the authorities to trust"),
        ("sslmode=require&sslrootcert=/nowhere/ca.pem", "sslrootcert: there is no such file: /nowhere/ca.pem"),
        ("connect_timeout=3", "unknown parameter connect_timeout; known are host"),
        ("statement_cache_size=no", "statement_cache_size: expected a number"),
    ],
)
def test_mistakes_in_a_url_are_refused_with_host_database_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, reason: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        Bridge.from_config(keeping(f"postgresql://ann:{SECRET}@db.example/talks?{query}", tmp_path))
    assert "stores.history" in str(caught.value)
    assert "postgresql at db.example:5432, database talks" in str(caught.value)
    assert reason in str(caught.value)
    assert SECRET not in str(caught.value)


def connected(folder: Path, config: dict[str, Any]) -> tuple[int, str, str]:
    path = folder / "bridge.yaml"
    path.write_text(yaml.safe_dump(config))
    return bridge("check", "--connect", str(path), NO_COLOR="1")


async def test_check_opens_the_stores(engine: Engine, tmp_path: Path) -> None:  # noqa: F811
    code, out, err = await asyncio.to_thread(connected, tmp_path, keeping(engine.url, tmp_path))
    assert (code, err) == (0, "")
    assert f"store history, {engine.name}" in out
    assert "is ready.\n" in out
    assert await engine.execute("SELECT count(*) FROM places") == 0


async def test_check_says_what_is_wrong_with_a_store(postgres_schema: Postgres, tmp_path: Path) -> None:  # noqa: F811
    """Host, database, right and reason."""
    role = f"guest_{postgres_schema.schema}"
    await postgres_schema.execute(f"CREATE ROLE {role} LOGIN")
    try:
        url = urlsplit(postgres_schema.url)._replace(netloc=f"{role}:{SECRET}@").geturl()
        for right in ("", f"GRANT USAGE ON SCHEMA {postgres_schema.schema} TO {role}"):
            if right:
                await postgres_schema.execute(right)
            code, out, err = await asyncio.to_thread(connected, tmp_path, keeping(url, tmp_path))
            assert code == 1
            words = "the role lacks a right; to make the tables it needs CREATE" if right else "there is no schema"
            assert "database postgres, cannot be written to: " + words in err
            assert SECRET not in err + out
    finally:
        for statement in (f"DROP OWNED BY {role}", f"DROP ROLE {role}"):
            await postgres_schema.execute(statement)


def test_check_says_that_a_file_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("these are notes" * 100)
    code, _, err = connected(tmp_path, keeping(f"sqlite:///{tmp_path}/notes.db", tmp_path))
    assert code == 1
    assert f"sqlite file {tmp_path}/notes.db, cannot be written to: the file is no SQLite database" in err
    with pytest.raises(sqlite3.DatabaseError), closing(sqlite3.connect(tmp_path / "notes.db")) as db:
        db.execute("SELECT * FROM sqlite_master")
