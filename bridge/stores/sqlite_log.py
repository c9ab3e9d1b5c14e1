"""The log of runs in SQLite: writing and reading entries within one transaction."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Sequence

from bridge.stores.runs import LeaseLost, LogEntry, fitting

Stored = tuple[str, str, str, str]
"""Owner, scope, thread id and run id as they are stored."""

THREAD = "t.owner = ? AND t.scope = ? AND t.thread_id = ?"
FROM = "FROM runs r JOIN run_threads t ON t.id = r.thread"
KEY = f"{THREAD} AND r.run_id = ?"

# Without the plan, which is as long as the request: this is read for every entry.
_HEAD = f"SELECT r.id, r.thread, r.token, r.ended_at, r.entries, r.last {FROM} WHERE {KEY}"


def append(
    db: sqlite3.Connection, where: Stored, token: str, position: int, bodies: Sequence[str], end: bool
) -> tuple[int, list[LogEntry]]:
    """See `RunStore.append`. Return the number of the last entry before the new ones, and the new entries."""
    found = db.execute(_HEAD, where).fetchone()
    if found is None or found[2] != token or found[4] < position:
        raise LeaseLost  # fewer entries than were written: the file was replaced
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
    """Return the run's entries after number `after`, at most `limit`, and no more than `fitting` takes."""
    run = db.execute(f"SELECT r.id {FROM} WHERE {KEY}", where).fetchone()
    if run is None:
        return []
    rows = db.execute(
        "SELECT number, body FROM run_entries WHERE run = ? AND number > ? ORDER BY number LIMIT ?",
        (run[0], after, limit),
    )
    return fitting(LogEntry(*row) for row in rows)


def highest(db: sqlite3.Connection) -> int:
    """Return the highest number that an entry of the file ever had."""
    found = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'run_entries'").fetchone()
    return int(found[0]) if found else 0


def foreign(db: sqlite3.Connection, after: int, ours: Collection[int]) -> list[Stored]:
    """Return the runs whose last entry after number `after` is not among `ours`."""
    last = dict(db.execute("SELECT run, number FROM run_entries WHERE number > ? ORDER BY number", (after,)))
    name = f"SELECT t.owner, t.scope, t.thread_id, r.run_id {FROM} WHERE r.id = ?"
    rows = (db.execute(name, (run,)).fetchone() for run, number in last.items() if number not in ours)
    return [row for row in rows if row is not None]
