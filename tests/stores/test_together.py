"""What waits for the SQLite file is done in one transaction, and each piece as if it were alone."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import BridgeError, ErrorCode
from bridge.stores import StoreConflict, schema, sqlite_file
from bridge.stores.sqlite_file import SQLiteFile

TABLE = "CREATE TABLE t (n INTEGER PRIMARY KEY)"


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[SQLiteFile]:
    file = SQLiteFile(str(tmp_path / "f.db"), (schema.HISTORY,), 5.0)
    await file.open()
    await file.write(lambda db: db.execute(TABLE))
    yield file
    await file.close()


def adds(number: int) -> Any:
    def work(db: sqlite3.Connection) -> int:
        db.execute("INSERT INTO t VALUES (?)", (number,))
        return number

    return work


async def numbers(file: SQLiteFile) -> list[int]:
    return await file.read(lambda db: [n for (n,) in db.execute("SELECT n FROM t ORDER BY n")])


class HeldConversation:
    """Keeps the thread of the file busy until `release`, so that what comes meanwhile waits together."""

    def __init__(self, file: SQLiteFile) -> None:
        self._begun, self._go_on = threading.Event(), threading.Event()
        self.task = asyncio.create_task(file.write(self._wait))

    def _wait(self, _: sqlite3.Connection) -> None:
        self._begun.set()
        self._go_on.wait(20)

    async def begin(self) -> None:
        while not self._begun.is_set():
            await asyncio.sleep(0.001)

    async def release(self) -> None:
        self._go_on.set()
        await self.task


async def waiting(file: SQLiteFile, *works: Any) -> tuple[HeldConversation, list[asyncio.Task[Any]]]:
    held = HeldConversation(file)
    await held.begin()
    tasks = [asyncio.create_task(file.write(work)) for work in works]
    await asyncio.sleep(0)
    return held, tasks


async def test_who_waits_for_another_process_gets_into_the_pause_between_two_of_its_transactions(
    file: SQLiteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause is so short that only one attempt falls into it."""
    with closing(sqlite3.connect(tmp_path / "f.db", isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        attempts = 0

        def sleep(seconds: float) -> None:
            nonlocal attempts
            attempts += 1
            match attempts:
                case 3:
                    other.execute("COMMIT")
                case 4:
                    other.execute("BEGIN IMMEDIATE")
                case _:
                    pass

        monkeypatch.setattr(sqlite_file.time, "sleep", sleep)
        assert await file.write(adds(1)) == 1
    assert attempts == 3


async def test_what_waits_shares_a_transaction(file: SQLiteFile) -> None:
    counts = []

    def noting(number: int) -> Any:
        def work(db: sqlite3.Connection) -> int:
            counts.append(db.total_changes)
            return int(adds(number)(db))

        return work

    begun: list[str] = []
    await file.write(lambda db: db.set_trace_callback(begun.append))
    held, tasks = await waiting(file, *(noting(n) for n in range(20)))
    begun.clear()
    await held.release()
    assert await asyncio.gather(*tasks) == list(range(20))
    assert await numbers(file) == list(range(20))
    assert begun.count("BEGIN IMMEDIATE") == 1
    assert len(counts) == 20


async def test_what_one_turn_of_the_loop_wants_shares_a_transaction(file: SQLiteFile) -> None:
    begun: list[str] = []
    await file.write(lambda db: db.set_trace_callback(begun.append))
    await asyncio.gather(*(file.write(adds(n)) for n in range(20)))
    assert begun.count("BEGIN IMMEDIATE") == 1
    assert not any("SAVEPOINT" in statement for statement in begun)
    assert await numbers(file) == list(range(20))


async def test_who_raises_undoes_only_his_own(file: SQLiteFile) -> None:
    def refuses(db: sqlite3.Connection) -> None:
        adds(7)(db)
        raise ValueError("no")

    held, tasks = await waiting(file, adds(1), refuses, adds(2))
    await held.release()
    first, refused, second = await asyncio.gather(*tasks, return_exceptions=True)
    assert (first, second) == (1, 2)
    assert isinstance(refused, ValueError)
    assert await numbers(file) == [1, 2]


@pytest.mark.parametrize("changes", [False, True], ids=["before a change", "after a change"])
async def test_who_refuses_costs_the_others_nothing(file: SQLiteFile, changes: bool) -> None:
    """A client that provokes conflicts must not turn off that writes share a transaction."""

    def refuses(db: sqlite3.Connection) -> None:
        if changes:
            db.execute("INSERT INTO t VALUES (999)")
        raise StoreConflict

    begun: list[str] = []
    await file.write(lambda db: db.set_trace_callback(begun.append))
    held, tasks = await waiting(file, *(refuses if n % 3 == 0 else adds(n) for n in range(30)))
    begun.clear()
    await held.release()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [n for n, each in enumerate(found) if isinstance(each, StoreConflict)] == list(range(0, 30, 3))
    assert await numbers(file) == [n for n in range(30) if n % 3]
    assert begun.count("COMMIT") == 2, "of the one that was held, and of all that waited"


async def test_an_error_of_the_engine_fails_nobody_else(file: SQLiteFile) -> None:
    held, tasks = await waiting(file, adds(1), adds(1), adds(2))
    await held.release()
    first, twice, second = await asyncio.gather(*tasks, return_exceptions=True)
    assert (first, second) == (1, 2)
    assert isinstance(twice, BridgeError)
    assert twice.code is ErrorCode.STORE_UNAVAILABLE
    assert await numbers(file) == [1, 2]


async def test_who_was_cancelled_before_his_turn_does_nothing(file: SQLiteFile) -> None:
    held, tasks = await waiting(file, adds(1), adds(2))
    tasks[0].cancel()
    await asyncio.sleep(0)
    await held.release()
    assert await tasks[1] == 2
    assert await numbers(file) == [2]


async def test_what_waits_is_done_before_the_file_is_closed(tmp_path: Path) -> None:
    path = str(tmp_path / "closed.db")
    file = SQLiteFile(path, (schema.HISTORY,), 5.0)
    await file.open()
    await file.write(lambda db: db.execute(TABLE))
    held, tasks = await waiting(file, *(adds(n) for n in range(200)))
    closing = asyncio.create_task(file.close())
    await asyncio.sleep(0)
    await held.release()
    await closing
    assert await asyncio.gather(*tasks) == list(range(200))
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM t").fetchone() == (200,)
    db.close()


async def test_deleted_pages_go_back_to_the_file_system(file: SQLiteFile) -> None:
    """In few transactions, each of which gives back more than a page."""
    rows = 3_000
    await file.write(lambda db: db.execute("CREATE TABLE pages (n INTEGER PRIMARY KEY, body BLOB)"))
    await file.write(
        lambda db: db.executemany("INSERT INTO pages VALUES (?, zeroblob(4000))", ((n,) for n in range(rows)))
    )
    await file.write(lambda db: db.execute("DELETE FROM pages"))
    begun: list[str] = []
    await file.write(lambda db: db.set_trace_callback(begun.append))
    await file.shrink()
    [(pages,)] = await file.read(lambda db: db.execute("PRAGMA page_count").fetchall())
    assert 2_000 < pages < 2_100, "two thousand free pages are kept"
    assert 2 <= begun.count("COMMIT") <= 12
