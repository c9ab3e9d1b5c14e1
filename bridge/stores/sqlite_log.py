"""The log of runs in SQLite: what is done within one transaction to write and to read entries."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Sequence

from bridge.stores.runs import LeaseLost, LogEntry

Stored = tuple[str, str, str, str]
"""Owner, scope, thread id and run id as they are kept."""

THREAD = "t.owner = ? AND t.scope = ? AND t.thread_id = ?"
FROM = "FROM runs r JOIN run_threads t ON t.id = r.thread"
KEY = f"{THREAD} AND r.run_id = ?"

# Not the plan: it is as long as the request of the run, and this is done for every entry.
_HEAD = f"SELECT r.id, r.thread, r.token, r.ended_at, r.entries, r.last {FROM} WHERE {KEY}"


def append(
    db: sqlite3.Connection, where: Stored, token: str, position: int, bodies: Sequence[str], end: bool
) -> tuple[int, list[LogEntry]]:
    """`RunStore.append`: the number of the run's last entry before it, and the new ones."""
    found = db.execute(_HEAD, where).fetchone()
    if found is None or found[2] != token or found[4] < position:
        raise LeaseLost  # with fewer entries than we wrote, the file was replaced under us
    run, thread, _, ended_at, entries, last = found
    before, new = last or 0, bodies[entries - position :]
    if ended_at is not None:
        if new or not end:
            raise LeaseLost
        return before, []
    written = []
    for body in new:
        row = db.execute("INSERT INTO run_entries (run, thread, body) VALUES (?, ?, ?)", (run, thread, body))
        last = row.lastrowid
        assert last is not None
        written.append(LogEntry(last, body))
    db.execute("UPDATE runs SET entries = entries + ?, last = ? WHERE id = ?", (len(new), last, run))
    if end:
        # These times have indexes, each of which would be one more page to write with every entry.
        now = time.time()
        db.execute("UPDATE runs SET ended_at = ? WHERE id = ?", (now, run))
        db.execute("UPDATE run_threads SET updated_at = ? WHERE id = ?", (now, thread))
    return before, written


def entries(db: sqlite3.Connection, where: Stored, after: int, limit: int) -> list[LogEntry]:
    """The run's entries behind number `after`, at most `limit`."""
    run = db.execute(f"SELECT r.id {FROM} WHERE {KEY}", where).fetchone()
    if run is None:
        return []
    rows = db.execute(
        "SELECT number, body FROM run_entries WHERE run = ? AND number > ? ORDER BY number LIMIT ?",
        (run[0], after, limit),
    )
    return [LogEntry(*row) for row in rows]


def highest(db: sqlite3.Connection) -> int:
    """The highest number that an entry of the file ever had."""
    found = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'run_entries'").fetchone()
    return int(found[0]) if found else 0


def foreign(db: sqlite3.Connection, after: int, ours: Collection[int]) -> list[Stored]:
    """The runs whose last entry behind number `after` is none of `ours`."""
    last = dict(db.execute("SELECT run, number FROM run_entries WHERE number > ? ORDER BY number", (after,)))
    name = f"SELECT t.owner, t.scope, t.thread_id, r.run_id {FROM} WHERE r.id = ?"
    rows = (db.execute(name, (run,)).fetchone() for run, number in last.items() if number not in ours)
    return [row for row in rows if row is not None]
