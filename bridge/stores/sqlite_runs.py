"""The run store in one SQLite file, which several processes of one machine may share; see `sqlite_file`.

Readers of this process are woken by the write itself. For what other processes write, the highest entry number is
looked at again and again, with one query for all who wait, and none while nobody does.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from bridge.errors import BridgeError
from bridge.stores import schema
from bridge.stores.base import plain_id, stored_id
from bridge.stores.bells import Bells
from bridge.stores.runs import (
    CANCEL_KEPT,
    MAX_ENTRIES,
    Created,
    Entry,
    Ownership,
    RunKey,
    RunRecord,
    RunState,
    lease_lost,
    leased,
    run_conflict,
    stored_key,
    thread_busy,
)
from bridge.stores.sqlite_file import SQLiteFile

POLL = 0.05
"""Seconds between two looks for what other processes wrote."""
_QUEUE_POLL = 0.25
_BATCH = 100

_Stored = tuple[str, str, str, str]

_THREAD = "t.owner = ? AND t.scope = ? AND t.thread_id = ?"
_FROM = "FROM runs r JOIN run_threads t ON t.id = r.thread"
_KEY = f"{_THREAD} AND r.run_id = ?"
_RECORD = f"""SELECT r.id, r.thread, r.token, r.expires, t.owner, t.scope, t.thread_id, r.run_id, r.task_id,
    r.fingerprint, r.created_at, r.ended_at, r.entries, r.last, r.whole, r.plan {_FROM}"""


class SQLiteRuns:
    """A `RunStore` in the file at `path`; its folder is made. `:memory:` is forgotten on close.

    `busy` is how many seconds a write waits for another process before it is `STORE_UNAVAILABLE`.
    """

    def __init__(self, path: str, *, max_entries: int = MAX_ENTRIES, busy: float = 5.0) -> None:
        self._file = SQLiteFile(path, schema.RUNS, busy)
        self._max_entries = max_entries
        self._bells: Bells[_Stored] = Bells()
        self._queue: Bells[str] = Bells()
        self._watching: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._file.open()

    async def close(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await self._file.close()

    # ------------------------------------------------------------------ runs

    async def create(self, key: RunKey, fingerprint: str, plan: str, *, alone: bool = False) -> Created:
        where = stored_key(key)

        def work(db: sqlite3.Connection) -> Created:
            found = _find(db, where)
            if found is not None:
                if found.record.fingerprint != fingerprint:
                    raise run_conflict()
                return Created(found.record, False, False)
            now = time.time()
            thread = _thread(db, where[:3], now)
            last = "SELECT ended_at FROM runs WHERE thread = ? ORDER BY id DESC LIMIT 1"
            latest = db.execute(last, (thread,)).fetchone()
            if alone and latest is not None and latest[0] is None:
                raise thread_busy()
            db.execute(
                "INSERT INTO runs (thread, run_id, task_id, fingerprint, created_at, entries, whole, plan)"
                " VALUES (?, ?, ?, ?, ?, 0, 1, ?)",
                (thread, where[3], uuid.uuid4().hex, fingerprint, now, plan),
            )
            found = _find(db, where)
            assert found is not None
            return Created(found.record, True, latest is None)

        created = await self._file.write(work)
        self._queue.ring("")
        return created

    async def get(self, key: RunKey) -> RunRecord | None:
        where = stored_key(key)
        found = await self._file.read(lambda db: _find(db, where))
        return found.record if found else None

    async def latest(self, owner: str, scope: str, thread_id: str) -> RunRecord | None:
        where = stored_key(RunKey(owner, scope, thread_id, ""))[:3]

        def work(db: sqlite3.Connection) -> RunRecord | None:
            last = f"SELECT r.run_id {_FROM} WHERE {_THREAD} ORDER BY r.id DESC LIMIT 1"
            row = db.execute(last, where).fetchone()
            found = _find(db, (*where, row[0])) if row else None
            return found.record if found else None

        return await self._file.read(work)

    async def delete(self, key: RunKey) -> bool:
        where = stored_key(key)

        def work(db: sqlite3.Connection) -> bool:
            found = _find(db, where)
            if found is None or found.record.ended_at is None:
                return False
            gone = db.execute("DELETE FROM run_entries WHERE run = ?", (found.id,)).rowcount
            db.execute("UPDATE run_threads SET entries = entries - ? WHERE id = ?", (gone, found.thread))
            db.execute("DELETE FROM runs WHERE id = ?", (found.id,))
            return True

        return await self._file.write(work)

    async def thread(self, owner: str, scope: str, thread_id: str, *, make: bool = False) -> Ownership:
        where = stored_key(RunKey(owner, scope, thread_id, ""))[:3]

        def work(db: sqlite3.Connection) -> Ownership:
            if db.execute(f"SELECT 1 FROM run_threads t WHERE {_THREAD}", where).fetchone():
                return Ownership.OWN
            if db.execute("SELECT 1 FROM run_threads WHERE scope = ? AND thread_id = ?", where[1:]).fetchone():
                return Ownership.FOREIGN
            if make:
                _thread(db, where, time.time())
            return Ownership.NONE

        return await (self._file.write(work) if make else self._file.read(work))

    # ------------------------------------------------------------------ the log

    async def append(self, key: RunKey, token: str, position: int, bodies: Sequence[str], *, end: bool = False) -> int:
        where = stored_key(key)

        def work(db: sqlite3.Connection) -> int:
            found = _find(db, where)
            if found is None or found.token != token:
                raise lease_lost()
            record = found.record
            if record.entries < position:
                raise lease_lost()  # the file was replaced under us
            new = bodies[record.entries - position :]
            if record.ended_at is not None:
                if new or not end:
                    raise lease_lost()
                return record.last or 0
            last = record.last
            for body in new:
                last = db.execute(
                    "INSERT INTO run_entries (run, thread, body) VALUES (?, ?, ?)", (found.id, found.thread, body)
                ).lastrowid
            db.execute("UPDATE runs SET entries = entries + ?, last = ? WHERE id = ?", (len(new), last, found.id))
            db.execute("UPDATE run_threads SET entries = entries + ? WHERE id = ?", (len(new), found.thread))
            if end:
                # These times have indexes, each of which would be one more page to write with every entry.
                now = time.time()
                db.execute("UPDATE runs SET ended_at = ? WHERE id = ?", (now, found.id))
                db.execute("UPDATE run_threads SET updated_at = ? WHERE id = ?", (now, found.thread))
            self._bound(db, found.thread)
            return last or 0

        last = await self._file.write(work)
        self._bells.ring(where)
        return last

    def _bound(self, db: sqlite3.Connection, thread: int) -> None:
        """Deletes the oldest entries of a thread that has too many."""
        (kept,) = db.execute("SELECT entries FROM run_threads WHERE id = ?", (thread,)).fetchone()
        if kept <= self._max_entries:
            return
        oldest = "(SELECT number FROM run_entries WHERE thread = ? ORDER BY number LIMIT ?)"
        over = (thread, kept - self._max_entries)
        db.execute(
            f"UPDATE runs SET whole = 0 WHERE id IN (SELECT run FROM run_entries WHERE number IN {oldest})", over
        )
        db.execute(f"DELETE FROM run_entries WHERE number IN {oldest}", over)
        db.execute("UPDATE run_threads SET entries = ? WHERE id = ?", (self._max_entries, thread))

    async def read(self, key: RunKey, after: int = 0, *, wait: float = 0.0, limit: int = 500) -> list[Entry]:
        where = stored_key(key)

        def work(db: sqlite3.Connection) -> list[Entry]:
            run = db.execute(f"SELECT r.id {_FROM} WHERE {_KEY}", where).fetchone()
            if run is None:
                return []
            rows = db.execute(
                "SELECT number, body FROM run_entries WHERE run = ? AND number > ? ORDER BY number LIMIT ?",
                (run[0], after, limit),
            )
            return [Entry(*row) for row in rows]

        if wait <= 0:
            return await self._file.read(work)
        clock = asyncio.get_running_loop().time
        until = clock() + wait
        # Before the first look: what is written after it must ring.
        with self._bells.listen(where) as bell:
            while not (found := await self._file.read(work)) and clock() < until:
                self._watch()
                await bell.wait(until - clock())
        return found

    def _watch(self) -> None:
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._look(), name="run-entries")

    async def _look(self) -> None:
        """Rings for what other processes write, for as long as somebody waits."""
        last: int | None = None
        while self._bells:
            highest, names = last, list[_Stored]()
            # Whoever waits looks for himself when his time is over, and is told what is wrong.
            with suppress(BridgeError):
                highest, names = await self._file.read(partial(_news, last=last))
            if last is None:
                self._bells.ring_all()  # what came between their look and ours
            for name in names:
                self._bells.ring(name)
            last = highest
            await asyncio.sleep(POLL)

    # ------------------------------------------------------------------ who drives it

    async def claim(self, token: str, lease: float, *, wait: float = 0.0) -> RunRecord | None:
        def waiting(db: sqlite3.Connection) -> _Stored | None:
            found: _Stored | None = db.execute(
                f"SELECT t.owner, t.scope, t.thread_id, r.run_id {_FROM}"
                " WHERE r.token IS NULL AND r.ended_at IS NULL ORDER BY r.id LIMIT 1"
            ).fetchone()
            return found

        def work(db: sqlite3.Connection) -> RunRecord | None:
            where = waiting(db)
            return _lease(db, where, token, lease) if where else None

        clock = asyncio.get_running_loop().time
        until = clock() + wait
        with self._queue.listen("") as bell:
            while True:
                # Looking is for the reading lane: an idle process must not take the write lock again and again.
                if await self._file.read(waiting) and (record := await leased(self, token, self._file.write(work))):
                    return record
                if clock() >= until:
                    return None
                await bell.wait(min(_QUEUE_POLL, until - clock()))

    async def acquire(self, key: RunKey, token: str, lease: float) -> RunRecord | None:
        where = stored_key(key)
        return await self._file.write(lambda db: _lease(db, where, token, lease))

    async def renew(self, keys: Sequence[RunKey], token: str, lease: float) -> set[RunKey]:
        def work(db: sqlite3.Connection) -> set[RunKey]:
            until = time.time() + lease
            held = set()
            for key in keys:
                found = _find(db, stored_key(key))
                if found is not None and found.token == token and found.record.ended_at is None:
                    db.execute("UPDATE runs SET expires = ? WHERE id = ?", (until, found.id))
                    held.add(key)
            return held

        return await self._file.write(work) if keys else set()

    async def release(self, key: RunKey, token: str) -> None:
        where = stored_key(key)

        def work(db: sqlite3.Connection) -> None:
            found = _find(db, where)
            if found is not None and found.token == token and found.record.ended_at is None:
                kept, expires = (token, 0.0) if found.record.entries else (None, None)
                db.execute("UPDATE runs SET token = ?, expires = ? WHERE id = ?", (kept, expires, found.id))

        await self._file.write(work)
        self._queue.ring("")

    async def lost(self) -> list[RunKey]:
        def work(db: sqlite3.Connection) -> list[RunKey]:
            rows = db.execute(
                f"SELECT t.owner, t.scope, t.thread_id, r.run_id {_FROM} WHERE r.token IS NOT NULL"
                f" AND r.ended_at IS NULL AND r.expires <= ? ORDER BY r.expires LIMIT {_BATCH}",
                (time.time(),),
            )
            return [RunKey(*map(plain_id, row)) for row in rows]

        return await self._file.read(work)

    # ------------------------------------------------------------------ cancels

    async def cancel(self, key: RunKey, reason: str = "") -> None:
        where = stored_key(key)

        def work(db: sqlite3.Connection) -> None:
            now = time.time()
            db.execute("DELETE FROM run_cancels WHERE expires <= ?", (now,))
            row = (*where, now + CANCEL_KEPT, reason)
            db.execute("INSERT OR REPLACE INTO run_cancels VALUES (?, ?, ?, ?, ?, ?)", row)

        await self._file.write(work)

    async def canceled(self, keys: Sequence[RunKey]) -> dict[RunKey, str]:
        def work(db: sqlite3.Connection) -> dict[RunKey, str]:
            now = time.time()
            asked = "SELECT reason FROM run_cancels t WHERE owner = ? AND scope = ? AND thread_id = ? AND run_id = ?"
            rows = ((k, db.execute(f"{asked} AND expires > ?", (*stored_key(k), now)).fetchone()) for k in keys)
            return {key: row[0] for key, row in rows if row}

        return await self._file.read(work) if keys else {}

    # ------------------------------------------------------------------ readers' places

    async def enter(self, owner: str, token: str, limit: int, seconds: float) -> bool:
        name = stored_id(owner, "owner")

        def work(db: sqlite3.Connection) -> bool:
            now = time.time()
            db.execute("DELETE FROM run_places WHERE owner = ? AND expires <= ? AND token <> ?", (name, now, token))
            others = "SELECT count(*) FROM run_places WHERE owner = ? AND token <> ?"
            if db.execute(others, (name, token)).fetchone()[0] >= limit:
                return False
            db.execute("INSERT OR REPLACE INTO run_places VALUES (?, ?, ?)", (name, token, now + seconds))
            return True

        return await self._file.write(work)

    async def leave(self, owner: str, token: str) -> None:
        where = (stored_id(owner, "owner"), token)
        await self._file.write(lambda db: db.execute("DELETE FROM run_places WHERE owner = ? AND token = ?", where))

    # ------------------------------------------------------------------ retention

    async def sweep(self, events: float, threads: float) -> int:
        def forget(db: sqlite3.Connection) -> int:
            rows = db.execute(
                "SELECT id, thread FROM runs WHERE plan IS NOT NULL AND ended_at <= ?"
                f" ORDER BY ended_at LIMIT {_BATCH}",
                (time.time() - events,),
            ).fetchall()
            for run, thread in rows:
                gone = db.execute("DELETE FROM run_entries WHERE run = ?", (run,)).rowcount
                db.execute("UPDATE run_threads SET entries = entries - ? WHERE id = ?", (gone, thread))
                db.execute("UPDATE runs SET plan = NULL, whole = 0 WHERE id = ?", (run,))
            return len(rows)

        def forget_threads(db: sqlite3.Connection) -> int:
            return db.execute(
                "DELETE FROM run_threads WHERE id IN (SELECT id FROM run_threads t WHERE updated_at <= ? AND NOT EXISTS"
                f" (SELECT 1 FROM runs WHERE thread = t.id AND ended_at IS NULL) ORDER BY updated_at LIMIT {_BATCH})",
                (time.time() - threads,),
            ).rowcount

        total = 0
        # In small transactions, so that nobody waits for it.
        while count := await self._file.write(forget):
            total += count
        while await self._file.write(forget_threads):
            pass
        return total


@dataclass(slots=True)
class _Found:
    """A run's row: the record, and what only this engine knows of it."""

    id: int
    thread: int
    token: str | None
    expires: float | None
    record: RunRecord


def _find(db: sqlite3.Connection, where: _Stored) -> _Found | None:
    row = db.execute(f"{_RECORD} WHERE {_KEY}", where).fetchone()
    if row is None:
        return None
    run, thread, token, expires, *key, task_id, fingerprint, created_at, ended_at, entries, last, whole, plan = row
    record = RunRecord(
        RunKey(*map(plain_id, key)),
        task_id,
        fingerprint,
        _state(token, ended_at),
        created_at,
        ended_at,
        entries,
        last,
        bool(whole),
        plan or "",
    )
    return _Found(run, thread, token, expires, record)


def _state(token: str | None, ended_at: float | None) -> RunState:
    if ended_at is not None:
        return RunState.ENDED
    return RunState.QUEUED if token is None else RunState.RUNNING


def _thread(db: sqlite3.Connection, where: Sequence[str], now: float) -> int:
    """The row of the thread, which is made when it is not there."""
    db.execute(
        "INSERT INTO run_threads (owner, scope, thread_id, updated_at, entries) VALUES (?, ?, ?, ?, 0)"
        " ON CONFLICT (owner, scope, thread_id) DO UPDATE SET updated_at = excluded.updated_at",
        (*where, now),
    )
    found: int = db.execute(f"SELECT id FROM run_threads t WHERE {_THREAD}", where).fetchone()[0]
    return found


def _lease(db: sqlite3.Connection, where: _Stored, token: str, seconds: float) -> RunRecord | None:
    found, now = _find(db, where), time.time()
    if found is None or found.record.ended_at is not None:
        return None
    if found.token not in (None, token) and (found.expires or 0.0) > now:
        return None
    db.execute("UPDATE runs SET token = ?, expires = ? WHERE id = ?", (token, now + seconds, found.id))
    found.record.state = RunState.RUNNING
    return found.record


def _news(db: sqlite3.Connection, last: int | None) -> tuple[int | None, list[_Stored]]:
    """The highest number of an entry, and the runs that have entries after `last`."""
    found = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'run_entries'").fetchone()
    highest = int(found[0]) if found else 0
    if last is None or highest <= last:
        return highest, []
    rows = db.execute(
        "SELECT DISTINCT t.owner, t.scope, t.thread_id, r.run_id FROM run_entries e JOIN runs r ON r.id = e.run"
        " JOIN run_threads t ON t.id = r.thread WHERE e.number > ?",
        (last,),
    )
    return highest, rows.fetchall()
