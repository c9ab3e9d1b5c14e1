"""Runs of the version before: their logs are read on, and what waited runs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from bridge.stores import RunState, open_runs, schema
from bridge.stores.run_records import LogEntry
from bridge.stores.sqlite_file import run_statement
from tests.stores.test_run_store import key

BEFORE = 4
"""Migrations of the version before."""


def old_file(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        run_statement(db, schema.VERSIONS)
        for statement in (statement for step in schema.RUNS.migrations[:BEFORE] for statement in step):
            run_statement(db, statement)
        run_statement(db, schema.RECORD, {"room": "run", "version": BEFORE, "needs": BEFORE})
        db.execute("INSERT INTO run_threads VALUES (7, 'o', 's#tasks', 't', 1e9, 0)")
        columns = "id, thread, run_id, task_id, fingerprint, created_at, token, expires, ended_at, entries, last, whole"
        for row in (
            (1, 7, "gone", "1", "f", 1.0, None, None, 2.0, 2, 4, 0, None),
            (2, 7, "ended", "2", "f", 1.0, "me", 5.0, 2.0, 2, 6, 1, "plan of ended"),
            (3, 7, "running", "3", "f", 1.0, "dead", 5.0, None, 1, 7, 1, "plan of running"),
            (4, 7, "waiting", "4", "f", 1.0, None, None, None, 0, None, 1, "plan of waiting"),
        ):
            db.execute(f"INSERT INTO runs ({columns}, plan) VALUES ({', '.join('?' * len(row))})", row)
        for number, run, body in ((5, 2, "a"), (6, 2, "b"), (7, 3, "x")):
            db.execute("INSERT INTO run_entries VALUES (?, ?, 7, ?)", (number, run, body))


async def test_runs_are_carried_over(tmp_path: Path) -> None:
    old_file(tmp_path / "bridge.db")
    store = open_runs(f"sqlite:///{tmp_path}/bridge.db")
    runs = {name: key(name, scope="s#tasks") for name in ("gone", "ended", "running", "waiting")}
    records = {name: await store.get(run) for name, run in runs.items()}
    assert {name: record and (record.state, record.whole, record.entries) for name, record in records.items()} == {
        "gone": (RunState.ENDED, False, 2),
        "ended": (RunState.ENDED, True, 2),
        "running": (RunState.RUNNING, True, 1),
        "waiting": (RunState.QUEUED, True, 0),
    }
    base = 2 << 24
    assert await store.read(runs["ended"]) == [LogEntry(base + 1, "a"), LogEntry(base + 2, "b")]
    assert await store.plan(runs["ended"]) == "plan of ended"
    assert await store.plan(runs["gone"]) is None
    assert await store.lost() == [runs["running"]]
    record = await store.claim("me", 30)
    assert record is not None
    assert record.key == runs["waiting"]
    assert await store.acquire(runs["running"], "me", 30)
    await store.append(runs["running"], "me", 1, ["y"], end=True)
    assert await store.sweep(0, 1e12) == 2
    await store.close()


async def test_a_transaction_of_runs_is_on_the_disk(tmp_path: Path) -> None:
    """Not only in the journal's pages in memory: 2 is FULL."""
    store = open_runs(f"sqlite:///{tmp_path}/bridge.db")
    await store.open()
    file = store._database.file  # type: ignore[attr-defined]
    assert await file.write(lambda db: db.execute("PRAGMA synchronous").fetchone()) == (2,)
    await store.close()
