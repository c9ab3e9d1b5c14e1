"""An SQLite file that another process holds: every write waits for its own time, not for those before it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bridge.errors import BridgeError, ErrorCode
from bridge.stores import schema, sqlite_file
from bridge.stores.sqlite_file import SQLiteFile

BUSY = 0.4


@contextmanager
def held(path: Path) -> Iterator[sqlite3.Connection]:
    """Another process that writes, such as a backup."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


async def opened(path: Path) -> tuple[SQLiteFile, list[str]]:
    """The file, and the attempts to begin a transaction."""
    file = SQLiteFile(str(path), (schema.HISTORY,), BUSY)
    await file.open()
    begun: list[str] = []
    await file.write(lambda db: db.set_trace_callback(begun.append))
    begun.clear()
    return file, begun


def attempts(begun: list[str]) -> int:
    return begun.count("BEGIN IMMEDIATE")


@pytest.mark.parametrize("count", [1, 2, 40, 200])
async def test_all_that_wait_fail_together(tmp_path: Path, count: int) -> None:
    file, begun = await opened(tmp_path / "f.db")
    with held(tmp_path / "f.db"):
        failures = await asyncio.gather(*(file.write(lambda db: None) for _ in range(count)), return_exceptions=True)
    assert all(isinstance(each, BridgeError) and each.code is ErrorCode.STORE_UNAVAILABLE for each in failures)
    assert "SQLITE_BUSY" in str(failures[0])
    # The time of one write for all of them, and one attempt more for each batch of 64.
    assert attempts(begun) <= 2 + BUSY / sqlite_file._RETRY + count // 64
    await file.close()


async def test_a_write_that_came_later_has_its_own_time(tmp_path: Path) -> None:
    file, _ = await opened(tmp_path / "f.db")
    with held(tmp_path / "f.db") as other:
        first = asyncio.create_task(file.write(lambda db: "first"))
        await asyncio.sleep(BUSY / 2)
        later = asyncio.create_task(file.write(lambda db: "later"))
        with pytest.raises(BridgeError):
            await first
        assert not later.done()
        other.execute("ROLLBACK")
        assert await later == "later"
    await file.close()


async def test_renewals_are_the_first_to_get_in(tmp_path: Path) -> None:
    file, _ = await opened(tmp_path / "f.db")
    done: list[str] = []
    with held(tmp_path / "f.db") as other:
        tasks = [asyncio.create_task(file.write(lambda db, n=n: done.append(f"write {n}"))) for n in range(3)]
        await asyncio.sleep(0.05)
        tasks += [asyncio.create_task(file.write(lambda db, n=n: done.append(f"late {n}"))) for n in range(100)]
        tasks.append(asyncio.create_task(file.write(lambda db: done.append("renewal"), first=True)))
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
        await asyncio.gather(*tasks)
    assert done.index("renewal") == 3, "after those that were begun"
    assert len(done) == 104
    await file.close()


async def test_an_error_of_one_write_does_not_make_the_others_wait_again(tmp_path: Path) -> None:
    file, _ = await opened(tmp_path / "f.db")

    def wrong(db: sqlite3.Connection) -> None:
        raise ValueError("no")

    found = await asyncio.gather(
        file.write(lambda db: 1), file.write(wrong), file.write(lambda db: 2), return_exceptions=True
    )
    assert found[0] == 1
    assert isinstance(found[1], ValueError)
    assert found[2] == 2
    await file.close()
