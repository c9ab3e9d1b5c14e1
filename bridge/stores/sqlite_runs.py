"""The run store in one SQLite file, which several processes of one machine may share; see `sqlite_file`.

A write wakes the readers of its process directly and hands them the entries. For writes of other processes the highest
entry number is polled, with one query for all waiters, and none while there are no waiters.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from bridge.errors import BridgeError
from bridge.liveness import Grace, no_grace
from bridge.stores import machine, schema
from bridge.stores import sqlite_log as log
from bridge.stores.base import plain_id, stored_id
from bridge.stores.memory_budget import Charge, charging
from bridge.stores.notifier import Notifier
from bridge.stores.runs import (
    CANCEL_QUEUED,
    NONE_BLOCKED,
    Blocked,
    Created,
    LeaseLost,
    LogEntry,
    Ownership,
    QueueLimits,
    RunConflict,
    RunKey,
    RunRecord,
    RunState,
    ThreadBusy,
    base_scope,
    leased,
    queue_full,
    stored_key,
)
from bridge.stores.sqlite_file import SQLiteFile
from bridge.stores.tails import Tails

POLL = 0.05
"""Seconds between two polls for entries of other processes."""
_QUEUE_POLL = 0.25
_BATCH = 100
_ENTRIES = 5_000
"""Entries that one transaction of a sweep deletes at most."""

_RECORD = f"""SELECT r.id, r.thread, r.token, r.expires, t.owner, t.scope, t.thread_id, r.run_id, r.task_id,
    r.fingerprint, r.created_at, r.ended_at, r.entries, r.last, r.whole, r.plan {log.FROM}"""

_SIZE = f"SELECT ifnull(length(CAST(r.plan AS BLOB)), 0) {log.FROM}"

_HELD = f"id = (SELECT r.id {log.FROM} WHERE {log.KEY}) AND token = ? AND ended_at IS NULL"


class SQLiteRuns:
    """A `RunStore` in the file at `path`, whose folder is created. `:memory:` is lost on close.

    A write waits up to `busy` seconds for another process before it raises `STORE_UNAVAILABLE`.
    """

    def __init__(self, path: str, *, busy: float = 5.0) -> None:
        self._file = SQLiteFile(path, (schema.RUNS,), busy)
        self._notifier: Notifier[log.Stored] = Notifier()
        self._tails: Tails[log.Stored] = Tails()
        self._own_events: set[int] = set()
        """Numbers of entries that this process wrote since the last poll."""
        self._queue: Notifier[str] = Notifier()
        self._turns = _Turns()
        self._watching: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._file.open()

    async def close(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        self._tails.clear()
        await self._file.close()

    # ------------------------------------------------------------------ runs

    async def create(
        self, key: RunKey, fingerprint: str, plan: str, *, alone: bool = False, limits: QueueLimits | None = None
    ) -> Created:
        where = stored_key(key)

        def work(db: sqlite3.Connection) -> Created:
            found = _find(db, where)
            if found is not None:
                if found.record.fingerprint != fingerprint:
                    raise RunConflict
                return Created(found.record, False, False)
            now = time.time()
            thread = _thread(db, where[:3], now)
            last = "SELECT ended_at FROM runs WHERE thread = ? ORDER BY id DESC LIMIT 1"
            latest = db.execute(last, (thread,)).fetchone()
            if alone and latest is not None and latest[0] is None:
                raise ThreadBusy
            if limits is not None:
                _check_limits(db, where, limits)
            db.execute(
                "INSERT INTO runs (thread, run_id, task_id, fingerprint, created_at, entries, whole, plan)"
                " VALUES (?, ?, ?, ?, ?, 0, 1, ?)",
                (thread, where[3], uuid.uuid4().hex, fingerprint, now, plan),
            )
            found = _find(db, where)
            assert found is not None
            return Created(found.record, True, latest is None)

        created = await self._file.write(work)
        self._queue.notify("")
        return created

    async def get(self, key: RunKey) -> RunRecord | None:
        where, charge = stored_key(key), charging()
        found = await self._file.read(lambda db: _find(db, where, charge))
        return found.record if found else None

    async def latest(self, owner: str, scope: str, thread_id: str) -> RunRecord | None:
        where, charge = stored_key(RunKey(owner, scope, thread_id, ""))[:3], charging()

        def work(db: sqlite3.Connection) -> RunRecord | None:
            last = f"SELECT r.run_id {log.FROM} WHERE {log.THREAD} ORDER BY r.id DESC LIMIT 1"
            row = db.execute(last, where).fetchone()
            found = _find(db, (*where, row[0]), charge) if row else None
            return found.record if found else None

        return await self._file.read(work)

    async def delete(self, key: RunKey) -> bool:
        where = stored_key(key)

        def work(db: sqlite3.Connection) -> bool:
            found = _find(db, where)
            if found is None or found.record.ended_at is None:
                return False
            db.execute("DELETE FROM run_entries WHERE run = ?", (found.id,))
            db.execute("DELETE FROM runs WHERE id = ?", (found.id,))
            return True

        self._tails.forget(where)
        return await self._file.write(work)

    async def thread(self, owner: str, scope: str, thread_id: str, *, make: bool = False) -> Ownership:
        where = stored_key(RunKey(owner, scope, thread_id, ""))[:3]

        def work(db: sqlite3.Connection) -> Ownership:
            if db.execute(f"SELECT 1 FROM run_threads t WHERE {log.THREAD}", where).fetchone():
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
        try:
            before, new = await self._file.write(lambda db: log.append(db, where, token, position, bodies, end))
        except LeaseLost:
            self._tails.forget(where)
            raise
        last = new[-1].number if new else before
        if self._notifier:
            self._own_events.update(entry.number for entry in new)
        self._tails.add(where, before, new)
        self._notifier.notify(where)
        return last

    async def read(self, key: RunKey, after: int = 0, *, wait: float = 0.0, limit: int = 500) -> list[LogEntry]:
        where = stored_key(key)
        if wait <= 0:
            return await self._entries(where, after, limit)
        clock = asyncio.get_running_loop().time
        until = clock() + wait
        # Listen before the first read, so that no entry is missed.
        with self._notifier.listen(where) as listener:
            found = self._tails.since(where, after) if after else None
            if found is None:
                found = await self._entries(where, after, limit)
                if not found and not after:
                    self._tails.forget(where)
            while not found and clock() < until:
                self._watch()
                await listener.wait(until - clock())
                found = self._tails.since(where, after) or await self._entries(where, after, limit)
        return found[:limit]

    async def _entries(self, where: log.Stored, after: int, limit: int) -> list[LogEntry]:
        return await self._file.read(lambda db: log.entries(db, where, after, limit))

    def _watch(self) -> None:
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._poll(), name="run-entries")

    async def _poll(self) -> None:
        """Poll for entries of other processes while there are listeners."""
        last: int | None = None
        while self._notifier:
            # A reader whose wait ends reads the store itself, and gets the error.
            with suppress(BridgeError):
                last = await self._newer(last)
            await asyncio.sleep(POLL)
        self._own_events.clear()

    async def _newer(self, last: int | None) -> int:
        """Notify readers of entries after number `last`. Return the number for the next poll."""
        highest = await self._file.read(log.highest)
        if last is None:
            # Other processes may have written while nothing polled.
            self._tails.clear()
            self._notifier.notify_all()
        elif highest - last > sum(last < number <= highest for number in self._own_events):
            ours = frozenset(self._own_events)
            for where in await self._file.read(lambda db: log.foreign(db, last, ours)):
                self._tails.forget(where)
                self._notifier.notify(where)
        self._own_events = {number for number in self._own_events if number > highest}
        return highest

    # ------------------------------------------------------------------ leases

    async def claim(
        self, token: str, lease: float, *, wait: float = 0.0, blocked: Blocked = NONE_BLOCKED
    ) -> RunRecord | None:
        def waiting(db: sqlite3.Connection) -> log.Stored | None:
            rows = db.execute(
                f"SELECT t.owner, t.scope, t.thread_id, r.run_id {log.FROM}"
                " WHERE r.token IS NULL AND r.ended_at IS NULL ORDER BY r.id"
            ).fetchall()
            return self._turns.first(rows, blocked)

        def work(db: sqlite3.Connection) -> RunRecord | None:
            where = waiting(db)
            record = _lease(db, where, token, lease) if where else None
            if record is not None:
                self._turns.served(record.key.owner)
            return record

        clock = asyncio.get_running_loop().time
        until = clock() + wait
        with self._queue.listen("") as listener:
            while True:
                # Poll by reading: an idle process must not take the write lock repeatedly.
                if await self._file.read(waiting) and (record := await leased(self, token, self._file.write(work))):
                    return record
                if clock() >= until:
                    return None
                await listener.wait(min(_QUEUE_POLL, until - clock()))

    async def acquire(self, key: RunKey, token: str, lease: float, *, grace: Grace = no_grace) -> RunRecord | None:
        where = stored_key(key)
        return await self._file.write(lambda db: _lease(db, where, token, lease, grace))

    async def renew(self, keys: Sequence[RunKey], token: str, lease: float) -> set[RunKey]:
        def work(db: sqlite3.Connection) -> set[RunKey]:
            until = machine.now() + lease
            held = set()
            for key in keys:
                row = (until, *stored_key(key), token)
                if db.execute(f"UPDATE runs SET expires = ? WHERE {_HELD}", row).rowcount:
                    held.add(key)
            return held

        return await self._file.write(work, first=True)

    async def release(self, key: RunKey, token: str) -> None:
        where = stored_key(key)

        def work(db: sqlite3.Connection) -> None:
            found = _find(db, where)
            if found is not None and found.token == token and found.record.ended_at is None:
                expiry_token, expires = (token, 0.0) if found.record.entries else (None, None)
                db.execute("UPDATE runs SET token = ?, expires = ? WHERE id = ?", (expiry_token, expires, found.id))

        await self._file.write(work)
        self._queue.notify("")

    async def lost(self, *, grace: Grace = no_grace) -> list[RunKey]:
        def work(db: sqlite3.Connection) -> list[RunKey]:
            rows = db.execute(
                f"SELECT t.owner, t.scope, t.thread_id, r.run_id {log.FROM} WHERE r.token IS NOT NULL"
                f" AND r.ended_at IS NULL AND r.expires <= ? ORDER BY r.expires LIMIT {_BATCH}",
                (machine.now() - grace(),),
            )
            return [RunKey(*map(plain_id, row)) for row in rows]

        return await self._file.read(work)

    # ------------------------------------------------------------------ cancels

    async def cancel(self, key: RunKey, reason: str = "") -> None:
        where = stored_key(key)

        def work(db: sqlite3.Connection) -> None:
            now = machine.now()
            db.execute("DELETE FROM run_cancels WHERE expires <= ?", (now,))
            row = (*where, now + CANCEL_QUEUED, reason)
            db.execute("INSERT OR REPLACE INTO run_cancels VALUES (?, ?, ?, ?, ?, ?)", row)

        await self._file.write(work)

    async def canceled(self, keys: Sequence[RunKey]) -> dict[RunKey, str]:
        def work(db: sqlite3.Connection) -> dict[RunKey, str]:
            now = machine.now()
            query = "SELECT reason FROM run_cancels t WHERE owner = ? AND scope = ? AND thread_id = ? AND run_id = ?"
            rows = ((k, db.execute(f"{query} AND expires > ?", (*stored_key(k), now)).fetchone()) for k in keys)
            return {key: row[0] for key, row in rows if row}

        return await self._file.read(work) if keys else {}

    # ------------------------------------------------------------------ reader slots

    async def enter(self, owner: str, token: str, limit: int, seconds: float, *, grace: Grace = no_grace) -> bool:
        name = stored_id(owner, "owner")

        def work(db: sqlite3.Connection) -> bool:
            now = machine.now()
            gone = (name, now - grace(), token)
            db.execute("DELETE FROM run_places WHERE owner = ? AND expires <= ? AND token <> ?", gone)
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
        def forget(db: sqlite3.Connection) -> tuple[int, int]:
            return _forget(db, time.time() - events)

        def forget_threads(db: sqlite3.Connection) -> tuple[int, int]:
            return 0, db.execute(
                "DELETE FROM run_threads WHERE id IN (SELECT id FROM run_threads t WHERE updated_at <= ? AND NOT EXISTS"
                f" (SELECT 1 FROM runs WHERE thread = t.id AND ended_at IS NULL) ORDER BY updated_at LIMIT {_BATCH})",
                (time.time() - threads,),
            ).rowcount

        self._tails.clear()
        total = 0
        for work in (forget, forget_threads):
            changed = 1
            while changed:
                began = time.monotonic()
                count, changed = await self._file.write(work)
                total += count
                # In small transactions, and idle for as long as each took, so that nobody waits for it.
                await asyncio.sleep(time.monotonic() - began)
        return total


@dataclass(slots=True)
class _Found:
    """A run's row: the record, and columns of this engine."""

    id: int
    thread: int
    token: str | None
    expires: float | None
    record: RunRecord


def _find(db: sqlite3.Connection, where: log.Stored, charge: Charge | None = None) -> _Found | None:
    """Return a run. `charge` is charged with its plan first; raises what that raises."""
    size = db.execute(f"{_SIZE} WHERE {log.KEY}", where).fetchone() if charge is not None else None
    if charge is not None and size is not None:
        charge(("plan", where), size[0])
    row = db.execute(f"{_RECORD} WHERE {log.KEY}", where).fetchone()
    if row is None:
        return None
    run, thread, token, expires, *key, task_id, fingerprint, created_at, ended_at, entries, last, whole, plan = row
    state = RunState.ENDED if ended_at is not None else RunState.QUEUED if token is None else RunState.RUNNING
    facts = (task_id, fingerprint, state, created_at, ended_at, entries, last, bool(whole), plan or "")
    record = RunRecord(RunKey(*map(plain_id, key)), *facts)
    return _Found(run, thread, token, expires, record)


class _Turns:
    """The order of owners in the queue, in this process: the owner served last comes last, new owners before them."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._count = 0

    def first(self, waiting: Sequence[log.Stored], blocked: Blocked) -> log.Stored | None:
        """Return the run whose owner's turn it is, of runs in order of age. Forgets owners without queued runs."""
        newcomer = self._count - 1
        self._served = {row[0]: self._served.get(row[0], newcomer) for row in waiting}
        free = (row for row in waiting if not blocked.blocks(RunKey(*map(plain_id, row))))
        return min(free, key=lambda row: self._served[row[0]], default=None)

    def served(self, owner: str) -> None:
        self._count += 1
        self._served[stored_id(owner, "owner")] = self._count


def _check_limits(db: sqlite3.Connection, where: log.Stored, limits: QueueLimits) -> None:
    """Raise `BackendError` (rate_limited) if one more run would exceed the limits."""
    owner, scope = where[0], base_scope(where[1])
    own, there, everywhere = db.execute(
        "SELECT coalesce(sum(t.owner = ?), 0), coalesce(sum(instr(t.scope || '#', ?) = 1), 0), count(*)"
        f" {log.FROM} WHERE r.ended_at IS NULL",
        (owner, f"{scope}#"),
    ).fetchone()
    for holder, count, most in (
        ("of this user", own, limits.owner),
        ("of this route", there, limits.scope),
        ("of this server", everywhere, limits.all),
    ):
        if most is not None and count >= most:
            raise queue_full(holder)


def _forget(db: sqlite3.Connection, before: float) -> tuple[int, int]:
    """Delete entries of runs that ended `before` then, at most `_ENTRIES`, and the plan of a run with its last one.

    Return the number of runs that are forgotten, and of those that were changed.
    """
    rows = db.execute(
        f"SELECT id FROM runs WHERE plan IS NOT NULL AND ended_at <= ? ORDER BY ended_at LIMIT {_BATCH}", (before,)
    ).fetchall()
    most, done = _ENTRIES, 0
    for (run,) in rows:
        first = "SELECT number FROM run_entries WHERE run = ? ORDER BY number LIMIT ?"
        most -= db.execute(f"DELETE FROM run_entries WHERE number IN ({first})", (run, most)).rowcount
        db.execute("UPDATE runs SET whole = 0 WHERE id = ?", (run,))
        if most <= 0:
            return done, done + 1
        db.execute("UPDATE runs SET plan = NULL WHERE id = ?", (run,))
        done += 1
    return done, done


def _thread(db: sqlite3.Connection, where: Sequence[str], now: float) -> int:
    """Return the row of the thread, which is created if it does not exist."""
    db.execute(
        "INSERT INTO run_threads (owner, scope, thread_id, updated_at, entries) VALUES (?, ?, ?, ?, 0)"
        " ON CONFLICT (owner, scope, thread_id) DO UPDATE SET updated_at = excluded.updated_at",
        (*where, now),
    )
    found: int = db.execute(f"SELECT id FROM run_threads t WHERE {log.THREAD}", where).fetchone()[0]
    return found


def _lease(
    db: sqlite3.Connection, where: log.Stored, token: str, seconds: float, grace: Grace = no_grace
) -> RunRecord | None:
    found, now = _find(db, where), machine.now()
    if found is None or found.record.ended_at is not None:
        return None
    if found.token not in (None, token) and (found.expires or 0.0) > now - grace():
        return None
    db.execute("UPDATE runs SET token = ?, expires = ? WHERE id = ?", (token, now + seconds, found.id))
    found.record.state = RunState.RUNNING
    return found.record
