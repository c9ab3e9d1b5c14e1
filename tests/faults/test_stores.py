"""Stores that are gone or full, and clocks that jump."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import registry
from bridge.stores.sqlite_file import SQLiteConnection
from bridge.testing import FakeBackend
from tests.faults.measure import setup
from tests.faults.wire import SPEAKING, Read, ask, read
from tests.server.harness import fake_backend, serving

# Fronts whose clients send what is new, so that the talk is kept here for a backend that wants all of it.
KEEPING = ["agentscope", "agentscope-java", "ag-kit", "agent-runs"]


def kept(front: str, backend: FakeBackend, folder: Path) -> dict[str, Any]:
    store = f"sqlite:///{folder}/talks.db"
    stores = {"history": store, "runs": store, "attachments": f"file:///{folder}/images"}
    return {**setup(front, "openai-chat", backend.url), "stores": stores}


async def says(base: str, front: str, text: str) -> Read:
    return read(registry.get(front), await ask(base, registry.get(front), "/it", text=text, run=f"run-{text}"))


def asked(backend: FakeBackend) -> list[str]:
    return [str(m["content"]) for m in backend.seen[-1].json["messages"]]


@pytest.mark.parametrize("front", KEEPING)
async def test_a_disk_that_is_full_is_told_and_loses_nothing(
    front: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite says "database or disk is full" for a file that may not grow, as it does for a disk that is full."""
    connections: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(*args: Any, **more: Any) -> sqlite3.Connection:
        connections.append(connect(*args, **more))
        return connections[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    async with fake_backend("openai-chat") as backend, serving(kept(front, backend, tmp_path)) as base:
        backend.says("Hello ")
        assert (await says(base, front, "one")).verdict == "whole"
        with closing(connect(tmp_path / "talks.db")) as other:
            pages = other.execute("PRAGMA page_count").fetchone()[0]
        for connection in connections:
            _limit(connection, pages)
        full = await says(base, front, "x" * 200_000)
        # Who waits for the answer gets it, and the log says that the talk was not kept; a run that would have to be
        # kept before it begins is refused.
        assert full.verdict == ("HTTP 503" if front == "agent-runs" else "whole")
        assert front == "agent-runs" or "the conversation was not stored" in caplog.text
        for connection in connections:
            _limit(connection, 2**30)
        assert (await says(base, front, "two")).verdict == "whole"
    assert asked(backend)[0] == "one"
    assert asked(backend)[-1] == "two"


@pytest.mark.parametrize("front", [front for front in KEEPING if front != "agent-runs"])
async def test_a_disk_without_a_single_block_still_gives_the_answer(
    front: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even the lock of the conversation can be written, for one that is stored and for a new one."""
    async with fake_backend("openai-chat") as backend, serving(kept(front, backend, tmp_path)) as base:
        backend.says("Hello ")
        assert (await says(base, front, "one")).verdict == "whole"
        with monkeypatch.context() as patched:
            patched.setattr(SQLiteConnection, "__enter__", _full(SQLiteConnection.__enter__))
            assert (await says(base, front, "lost")).verdict == "whole"
            assert asked(backend)[0] == "one", "what is stored can be read"
            dialect = registry.get(front)
            saw = await ask(base, dialect, "/it", text="another", run="run-another", thread="t2")
            assert read(dialect, saw).verdict == "whole"
        assert "the conversation was not stored" in caplog.text
        assert (await says(base, front, "two")).verdict == "whole"
    assert asked(backend)[0] == "one"
    assert asked(backend)[-1] == "two"
    assert "lost" not in asked(backend)


def _full(begin: Callable[[SQLiteConnection], sqlite3.Connection]) -> Callable[[SQLiteConnection], sqlite3.Connection]:
    def full(connection: SQLiteConnection) -> sqlite3.Connection:
        if connection._begin == "BEGIN IMMEDIATE":
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error
        return begin(connection)

    return full


def _limit(connection: sqlite3.Connection, pages: int) -> None:
    with suppress(sqlite3.ProgrammingError):  # closed meanwhile
        connection.execute(f"PRAGMA max_page_count = {pages}")


@pytest.mark.parametrize("front", KEEPING)
async def test_a_store_that_is_locked_is_told_and_comes_back(front: str, tmp_path: Path) -> None:
    async with fake_backend("openai-chat") as backend, serving(kept(front, backend, tmp_path)) as base:
        backend.says("Hello ")
        assert (await says(base, front, "one")).verdict == "whole"
        with closing(sqlite3.connect(tmp_path / "talks.db")) as other:
            other.execute("BEGIN EXCLUSIVE")
            refused = await says(base, front, "lost")
            other.rollback()
        assert refused.verdict != "whole"
        assert (await says(base, front, "two")).verdict == "whole"
    assert asked(backend)[0] == "one"
    assert asked(backend)[-1] == "two"


@pytest.mark.parametrize("jump", [-86_400.0 * 365, 86_400.0], ids=["a year back", "a day on"])
@pytest.mark.parametrize("front", SPEAKING)
async def test_a_clock_that_jumps_ends_no_run(
    front: str, jump: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limits are counted by the monotonic clock, so that wall time may be set while a run is going on."""
    real, shift = time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: real() + shift)
    async with fake_backend("openai-chat") as backend, serving(kept(front, backend, tmp_path)) as base:
        backend.says("Hello ")
        for text in ("one", "two", "three"):
            seen = await says(base, front, text)
            assert (seen.verdict, seen.text) == ("whole", "Hello ")
            shift = jump if shift == 0.0 else 0.0
        assert asked(backend)[-1] == "three"
