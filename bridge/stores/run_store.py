"""The store of durable runs: event logs, queue, leases and cancellations.

It is on SQLite for the processes of one machine, on PostgreSQL for any number of machines.

A run belongs to (owner, scope, thread id, run id), as a conversation does (`bridge.stores.conversation_store`). Its log
is a sequence of entries; an entry is one opaque text, and its number grows over all runs of the thread. One process at
a time drives a run, under a lease; a process that lost it cannot write any more, so that a run gets each entry once and
one end, whatever happens to processes and connections.

There is one append in flight for all runs of this process; what arrives meanwhile is the next one, which begins
`GATHER` seconds after it at the earliest. Its entries are handed to the readers of this process. Entries and runs of
other processes are found by one look for all readers and for the queue, and there is no look while nothing waits for
one.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bridge.errors import BridgeError, log_unexpected
from bridge.stores import run_scripts as scripts
from bridge.stores.conversation_store import LEASE, stored_id
from bridge.stores.joint import Joint
from bridge.stores.liveness import Grace, no_grace
from bridge.stores.memory_budget import charging
from bridge.stores.notifier import Listener, Notifier
from bridge.stores.recent_entries import Tails
from bridge.stores.run_records import (
    NONE_BLOCKED,
    Blocked,
    Created,
    LeaseLost,
    LogEntry,
    LogSource,
    Ownership,
    Pulse,
    QueueLimits,
    RunKey,
    RunRecord,
    Take,
    stored_key,
)
from bridge.stores.run_scripts import Append, Stored
from bridge.stores.scripts import Database, Script, T, Work

log = logging.getLogger("bridge.runs")

GATHER = 0.04
"""Seconds between the beginnings of two transactions of appends at least: what arrives meanwhile shares the next one.

A model sends some 40 tokens a second in each stream, so that a commit and one frame for its reader often serve two of
them: with 0.02, an event costs a third more CPU in SQLite and in PostgreSQL (`docs/scale.md`). A reader gets 25 frames
a second, which is smooth. An idle store appends at once.
"""
_ENOUGH = 100
"""Runs that wait to append with which a transaction begins at once: the commit is a small part of its cost then."""
LOOK = 0.1
"""Seconds between two looks for what other processes did."""
_OWN = 10
"""Every so many looks, runs that this process holds are looked at, too: another process may have taken them over."""
_MARGIN = 3.0
"""Seconds by which looks for cancellations overlap: a transaction is seen later than its time says."""
_TOGETHER = 200
"""Entries of one transaction at most, beside those of a single append."""


class _One:
    """The `LogSource` of a single append, whose outcome is the future `done`: the number of the last entry."""

    def __init__(self, key: RunKey, token: str, position: int, bodies: Sequence[str], end: bool) -> None:
        self.key = key
        self.token = token
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._taken = (position, bodies, end)

    def take(self) -> tuple[int, Sequence[str], bool] | None:
        return None if self.done.done() else self._taken

    def stored(self, last: int) -> None:
        if not self.done.done():
            self.done.set_result(last)

    def failed(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class _Reader(Listener):
    """A reader that waits for entries after number `after`. What `take` takes of them does not wake its task."""

    def __init__(self, take: Take | None) -> None:
        super().__init__()
        self.take = take
        self.after = 0
        self.silent_since = asyncio.get_running_loop().time()

    def offer(self, before: int, entries: Sequence[LogEntry], now: float) -> bool:
        """Pass on the entries after number `before`. Return False if the task has to read them itself."""
        if self.take is None or self.after != before or not self.waits:
            return False
        try:
            if not self.take(entries):
                return False
        except Exception as error:
            self.fail(error)
        self.after, self.silent_since = entries[-1].number, now
        return True


@dataclass(slots=True)
class _Watch:
    """A run that readers of this process wait for. `run` is None while it does not exist."""

    run: int | None
    position: int
    readers: int = 0


class RunStore:
    """The runs of one or many processes that share an engine.

    A process names itself by a `token`. It is alive for `lease` seconds after each call that has one; while it is, it
    holds the runs that it took.

    Every method may raise `BridgeError` with `STORE_UNAVAILABLE` if the engine fails, with a message that contains
    neither address nor credentials; later calls try again. All calls are idempotent. Ids longer than `MAX_KEY` bytes
    raise `RequestError`. A store belongs to the event loop that uses it first.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._numbers: dict[RunKey, int] = {}
        """Ids of the rows of runs that this process holds."""
        self._waiting: list[LogSource] = []
        self._writing: asyncio.Task[None] | None = None
        self._began = float("-inf")
        self._readers: Notifier[Stored, _Reader] = Notifier()
        self._queue: Notifier[str, Listener] = Notifier()
        self._tails: Tails[Stored] = Tails()
        self._watched: dict[Stored, _Watch] = {}
        self._looking: asyncio.Task[None] | None = None
        self._looks = 0
        self._looked_at = 0.0
        self._version: int | None = None
        """The version of an SQLite file as of the last look: nothing was written since, if it is the same."""
        self._is_fresh = True
        """Somebody has begun to wait since the last look, or it has failed."""
        self._canceled_at: float | None = None

    async def open(self) -> None:
        """Connect, and create or migrate the schema. Without it, the first call does so."""
        await self._database.open()

    async def close(self) -> None:
        """Disconnect. May be called twice; `open` opens again."""
        tasks = [task for task in (self._looking, self._writing) if task is not None]
        if self._looking is not None:
            self._looking.cancel()
        self._looking = None
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tails.clear()
        self._numbers.clear()
        await self._database.close()

    async def _read(self, work: Work[T], *, snapshot: bool = True) -> T:
        return await self._database.read(work, snapshot=snapshot)

    async def _write(self, work: Work[T], *, first: bool = False) -> T:
        return await self._database.write(work, first=first)

    # ------------------------------------------------------------------ runs

    async def create(
        self,
        key: RunKey,
        fingerprint: str,
        plan: str,
        *,
        format: int = 0,
        alone: bool = False,
        limits: QueueLimits | None = None,
        token: str | None = None,
        lease: float = LEASE,
        previous: str | None = None,
    ) -> Created:
        """Queue a run. A run that exists with the same fingerprint is returned unchanged.

        With a `token`, that process holds it at once if no other run waits. `format` is the version of the plan's form:
        a process that does not know it leaves the run to others. `previous` is stored as it is.

        Raises `StoreConflict` if it exists with another fingerprint. For a new run, raises `ThreadBusy` if it is to run
        `alone` and the latest run of its thread has not ended, and `BackendError` (rate_limited) beyond the `limits`.
        """
        where, task = stored_key(key), uuid.uuid4().hex
        made = await self._write(
            lambda: scripts.create(
                where,
                fingerprint,
                plan,
                task,
                format=format,
                alone=alone,
                limits=limits,
                token=token,
                lease=lease,
                previous=previous,
            )
        )
        if made.held:
            self._hold(made.record)
        elif made.new:
            self._queue.notify("")
        return made

    async def get(self, key: RunKey) -> RunRecord | None:
        """Return the newest run of a thread. If it was deleted, return None or an earlier one."""
        where = stored_key(key)
        return await self._read(lambda: scripts.find(where), snapshot=False)

    async def latest(self, owner: str, scope: str, thread_id: str) -> RunRecord | None:
        where = stored_key(RunKey(owner, scope, thread_id, ""))
        return await self._read(lambda: scripts.latest(where), snapshot=False)

    async def plan(self, key: RunKey) -> str | None:
        """Return the plan passed to `create`, which is as long as a request; None if it has expired."""
        where, charge = stored_key(key), charging()
        return await self._read(lambda: scripts.plan(where, charge), snapshot=False)

    async def delete(self, key: RunKey) -> bool:
        """Delete a run that has ended, with its entries. Return False if there is none, or it has not ended."""
        where = stored_key(key)
        self._tails.forget(where)
        return await self._write(lambda: scripts.delete(where))

    async def thread(self, owner: str, scope: str, thread_id: str, *, make: bool = False) -> Ownership:
        """Return who owns the thread. With `make`, one without an owner becomes this owner's; returns `NONE`."""
        where = stored_key(RunKey(owner, scope, thread_id, ""))
        run = self._write if make else self._read
        return await run(lambda: scripts.thread(where, make))

    # ------------------------------------------------------------------ the log

    def joint(self) -> Joint:
        """Return a transaction for `append`, with a change of another store in the same database."""
        return Joint(self._database.place)

    async def append(
        self,
        key: RunKey,
        token: str,
        position: int,
        bodies: Sequence[str],
        *,
        end: bool = False,
        joint: Joint | None = None,
    ) -> int:
        """Append entries, the first of which is the run's entry at `position` (from 0). Return the last one's number.

        With `end`, the last entry holds the terminal event, and the lease ends. Entries that exist already from that
        position on, after an interrupted attempt, are not written again.

        What the `joint` transaction has taken is stored with the end of the run, or neither is. It raises what that
        raises.

        Raises `LeaseLost` unless `token` holds the run, and where an entry before `position` is missing. An expired
        lease is valid until another process acquires one.
        """
        stored_key(key)  # raises for ids that are too long
        self._database.check_open()
        if end and joint is not None and (work := joint.work) is not None:
            return await self._finish(key, token, position, bodies, joint, work)
        one = _One(key, token, position, bodies, end)
        self.feed(one)
        return await one.done

    async def _finish(
        self, key: RunKey, token: str, position: int, bodies: Sequence[str], joint: Joint, work: Work[Any]
    ) -> int:
        try:
            append = Append(await self._number(key), position, bodies, True)
            joint.done(await self._write(lambda: scripts.finish(append, token, work)))
        except LeaseLost:
            self._release(key)
            raise
        return self._stored(key, append)

    async def _number(self, key: RunKey) -> int:
        """Return the id of the run's row. Raises `LeaseLost` if there is none."""
        run = self._numbers.get(key)
        if run is None:
            where = stored_key(key)
            run = await self._read(lambda: scripts.number(where), snapshot=False)
        if run is None:
            raise LeaseLost
        return run

    def _stored(self, key: RunKey, append: Append) -> int:
        """Hand what was committed to the readers of this process. Return the number of the last entry."""
        run, first, where = append.run, append.position, stored_key(key)
        before = scripts.number_of(run, first - 1)
        entries = [LogEntry(before + n, body) for n, body in enumerate(append.bodies, 1)]
        self._tails.add(where, before, entries)
        now = asyncio.get_running_loop().time()
        for reader in self._readers.listeners(where):
            # The end is for the task itself, which has to end the stream.
            if append.end or not reader.offer(before, entries, now):
                reader.notify()
        if (watch := self._watched.get(where)) is not None and watch.run == run:
            watch.position = max(watch.position, append.after)
        if append.end:
            self._numbers.pop(key, None)
        return before + len(entries)

    def feed(self, source: LogSource) -> None:
        """Append, once, the entries that this source has when the transaction begins. The source gets the outcome.

        Unlike `append`, this needs no task and no future for each entry.
        """
        self._waiting.append(source)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(), name="run-appends")

    async def _write_all(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while self._waiting:
                if len(self._waiting) < _ENOUGH and (pause := self._began + GATHER - clock()) > 0:
                    await asyncio.sleep(pause)
                self._began = clock()
                await self._write_some()
        finally:
            self._writing = None

    async def _write_some(self) -> None:
        """Carry out the appends that wait, of each run one, in one transaction."""
        waiting, self._waiting = self._waiting, []
        chosen: dict[int, tuple[LogSource, Append]] = {}
        size, token = 0, waiting[0].token
        for source in waiting:
            try:
                run = self._numbers.get(source.key) or await self._number(source.key)
            except BridgeError as failure:
                self._fail(source, failure)
                continue
            if run in chosen or source.token != token or size >= _TOGETHER:
                self._waiting.append(source)
            elif (taken := source.take()) is not None:
                chosen[run] = source, Append(run, *taken)
                size += len(taken[1])
        if not chosen:
            return
        error: Exception | None = None
        lost: set[int] = set()
        try:
            lost = await self._append_all([append for _, append in chosen.values()], token)
        except Exception as failure:
            error = failure
        for run, (source, append) in chosen.items():
            if error is not None or run in lost:
                self._fail(source, error or LeaseLost())
            else:
                source.stored(self._stored(source.key, append))

    def _fail(self, source: LogSource, error: Exception) -> None:
        if isinstance(error, LeaseLost):
            self._release(source.key)
        source.failed(error)

    async def _append_all(self, appends: list[Append], token: str) -> set[int]:
        """Return the runs that are lost."""
        if any(append.end for append in appends):
            values, expected = scripts.held_and_ended(appends, token), len(appends)
            done = await self._database.change(scripts.ADD_AND_END, values)
        else:
            rows = scripts.held_rows(appends, token)
            done, expected = await self._database.change(scripts.ADD_HELD, {"a": rows}), len(rows)
        if done == expected:
            return set()
        # The others are lost, or repeated: a script finds out.
        return await self._write(lambda: scripts.append(appends, token))

    async def read(
        self, key: RunKey, after: int = 0, *, wait: float = 0.0, limit: int = 500, take: Take | None = None
    ) -> list[LogEntry]:
        """Return the run's next entries after number `after`, in order: at most `limit`, and no more than `fitting`
        takes. If there are none, wait up to `wait` seconds.

        While it waits, `take` may be called with entries that this process has stored, except the end of the run. Those
        that it takes are not returned, and the wait begins again. What it raises is raised here.

        The run need not exist yet.
        """
        where = stored_key(key)
        if wait <= 0:
            return (await self._query(where, after, limit))[1]
        if (held := self._numbers.get(key)) is not None:
            after = max(after, scripts.number_of(held, -1))  # this process writes it from its beginning
        found = self._tails.since(where, after) if after else None
        if found:
            return found[:limit]
        clock = asyncio.get_running_loop().time
        until = clock() + wait
        # Listen before the first read, so that no entry is missed.
        with self._readers.listening(where, _Reader(take)) as reader:
            while not found and clock() < until:
                run: int | None = scripts.run_of(after)
                if found is None:
                    run, found = await self._query(where, after, limit)
                    if found:
                        break
                    if not after:
                        self._tails.forget(where)
                reader.after = after
                with self._watching(where, run, after):
                    await reader.wait(until - clock())
                after, until = reader.after, reader.silent_since + wait
                found = self._tails.since(where, after)
            if found is None:
                found = (await self._query(where, after, limit))[1]
        return found[:limit]

    async def _query(self, where: Stored, after: int, limit: int) -> tuple[int | None, list[LogEntry]]:
        return await self._read(lambda: scripts.read(where, after, limit), snapshot=False)

    # ------------------------------------------------------------------ other processes

    @contextmanager
    def _watching(self, where: Stored, run: int | None, after: int) -> Iterator[None]:
        """A reader waits for entries of this run after number `after`."""
        position = scripts.next_position(run, after) if run is not None else None
        watch = self._watched.setdefault(where, _Watch(run, position or 0))
        if watch.run is None and run is not None:
            watch.run, watch.position = run, position or 0
        elif position is not None:
            watch.position = min(watch.position, position)
        watch.readers += 1
        self._is_fresh = True
        self._look_on()
        try:
            yield
        finally:
            watch.readers -= 1
            if not watch.readers and self._watched.get(where) is watch:
                del self._watched[where]

    def _look_on(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_all(), name="run-looks")

    async def _look_all(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._watched or self._queue:
            await asyncio.sleep(self._looked_at + LOOK - clock())
            self._looked_at, self._looks = clock(), self._looks + 1
            try:
                await self._look(with_own=self._looks % _OWN == 0)
            except BridgeError:
                self._is_fresh = True  # a reader whose wait ends reads the store itself, and gets the error
            except Exception as error:
                log_unexpected(log, "runs of other processes cannot be looked for", error)

    async def _look(self, *, with_own: bool) -> None:
        """Notify readers of new entries, and claims of runs that wait."""
        own = frozenset() if with_own else frozenset(self._numbers.values())
        watched = {
            watch.run: (where, watch.position)
            for where, watch in self._watched.items()
            if watch.run is not None and watch.run not in own
        }
        unknown = [where for where, watch in self._watched.items() if watch.run is None]
        queue = bool(self._queue)
        positions = [(run, position) for run, (_, position) in watched.items()]
        if not positions and not unknown and not queue:
            return
        fresh, self._is_fresh = self._is_fresh, False
        since = None if fresh or with_own else self._version
        seen = await self._read(lambda: scripts.look(positions, unknown, queue, since), snapshot=False)
        self._version = seen.version
        for run, entries in seen.entries.items():
            where, position = watched[run]
            self._tails.add(where, scripts.number_of(run, position - 1), entries)
            if (watch := self._watched.get(where)) is not None and watch.run == run:
                watch.position = max(watch.position, position + len(entries))
            self._readers.notify(where)
        for where, run in seen.known.items():
            if (watch := self._watched.get(where)) is not None and watch.run is None:
                watch.run, watch.position = run, 0
        if seen.waits:
            self._queue.notify("")

    # ------------------------------------------------------------------ leases

    def _hold(self, record: RunRecord) -> None:
        self._numbers[record.key] = record.number
        if not record.entries:
            self._tails.add(stored_key(record.key), scripts.number_of(record.number, -1), [])

    def _release(self, key: RunKey) -> None:
        """Another process may write this run now: its readers look for entries themselves."""
        where = stored_key(key)
        if self._numbers.pop(key, None) is not None:
            self._tails.forget(where)
            self._readers.notify(where)

    async def claim(
        self,
        token: str,
        lease: float,
        *,
        wait: float = 0.0,
        blocked: Blocked = NONE_BLOCKED,
        format: int = 0,
    ) -> RunRecord | None:
        """Lease a queued run that is not `blocked`, of at most this `format`; wait up to `wait` seconds for one.

        Owners take turns. The runs of an owner are leased in order, except those with a blocked scope. A canceled call
        releases its lease.
        """
        owners = {stored_id(owner, "owner") for owner in blocked.owners}

        async def attempt() -> RunRecord | None:
            return await self._write(lambda: scripts.claim(token, lease, blocked, owners, format))

        clock = asyncio.get_running_loop().time
        until = clock() + wait
        with self._queue.listening("", Listener()) as listener:
            while True:
                # Look by reading: an idle process must not take the write lock repeatedly.
                if (await self._read(lambda: scripts.look([], [], True), snapshot=False)).waits:
                    record = await self._leased(token, attempt())
                    if record is not None:
                        self._hold(record)
                        return record
                if clock() >= until:
                    return None
                self._is_fresh = True
                self._look_on()
                await listener.wait(until - clock())

    async def _leased(self, token: str, leasing: Awaitable[RunRecord | None]) -> RunRecord | None:
        """Return the result of `leasing`. If the caller is canceled meanwhile, the lease is released."""
        task = asyncio.ensure_future(leasing)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            record = await task
            if record is not None:
                await self.release(record.key, token)
            raise

    async def acquire(
        self,
        key: RunKey,
        token: str,
        lease: float,
        *,
        grace: Grace = no_grace,
        queued: bool = False,
        format: int | None = None,
    ) -> RunRecord | None:
        """Lease this run if it has not ended, and any other process that held it expired `grace()` seconds ago.

        With `queued`, only if nobody holds it, this process neither: a claim may be about to release it. With a
        `format`, only if the plan is of at most this.
        """
        where = stored_key(key)
        record = await self._write(lambda: scripts.acquire(where, token, lease, grace, queued, format))
        if record is not None:
            self._hold(record)
        return record

    async def renew(self, token: str, lease: float, *, grace: Grace = no_grace) -> set[RunKey]:
        """Renew the lease of this process. Return the runs that it holds.

        `grace` is called with the seconds that the lease had left.

        Also without runs, this raises where the engine cannot be written to.
        """
        before = set(self._numbers)
        held = await self._write(lambda: scripts.renew(token, lease, grace), first=True)
        for key in before - held:
            self._release(key)
        return held

    async def release(self, key: RunKey, token: str) -> None:
        """Give up a run. One without entries returns to the queue; any other run is lost at once."""
        where = stored_key(key)
        self._release(key)
        await self._write(lambda: scripts.release(where, token))
        self._queue.notify("")

    async def lost(self, token: str = "", *, grace: Grace = no_grace) -> list[RunKey]:
        """Return some of the runs that have not ended and whose process expired `grace()` seconds ago.

        `token` is that of the process that asks, whose own lease tells whether the clock of the store was set.
        """
        return await self._read(lambda: scripts.lost(token, grace), snapshot=False)

    async def take_lost(self, token: str, lease: float, *, grace: Grace = no_grace) -> list[RunRecord]:
        """Lease some of the runs of other processes that are `lost`; none if there is none left."""
        records = await self._write(lambda: scripts.take_lost(token, lease, grace))
        for record in records:
            self._hold(record)
        return records

    # ------------------------------------------------------------------ cancels

    async def cancel(self, key: RunKey, reason: str = "") -> None:
        """Request the cancellation of a run, which need not exist; stored for `CANCEL_QUEUED` seconds.

        The process that drives the run receives `reason`; the last one counts.
        """
        where = stored_key(key)
        await self._write(lambda: scripts.cancel(where, reason))

    async def canceled(self, keys: Sequence[RunKey]) -> dict[RunKey, str]:
        """Return those of these runs that are to be canceled, with the reasons."""
        asked = [stored_key(key) for key in keys]
        return await self._read(lambda: scripts.canceled(asked), snapshot=False) if asked else {}

    async def pulse(self, token: str = "", *, grace: Grace = no_grace) -> Pulse:
        """Return what was canceled since the last call, all that is stored with the first one, and what is `lost`."""
        now = asyncio.get_running_loop().time()
        since = now - self._canceled_at + _MARGIN if self._canceled_at is not None else float("inf")

        def script() -> Script[Pulse]:
            canceled = yield from scripts.canceled_since(since)
            lost = yield from scripts.lost(token, grace)
            return Pulse(canceled, lost, (yield from scripts.waiting(canceled)) if canceled else [])

        pulse: Pulse = await self._read(script, snapshot=False)
        self._canceled_at = now
        return pulse

    # ------------------------------------------------------------------ retention

    async def sweep(self, events: float, threads: float, *, grace: Grace = no_grace) -> int:
        """Delete entries and plans of runs that ended `events` seconds ago. Return the number of runs.

        Their ids stay until their thread was unused for `threads` seconds, so that readers get an error and no run is
        repeated.
        """
        self._tails.clear()
        total = 0
        for work in (lambda: scripts.forget(events), lambda: scripts.forget_threads(threads)):
            changed = 1
            while changed:
                began = time.monotonic()
                count, changed = await self._write(work)
                total += count
                # In small transactions, and idle for as long as each took, so that nobody waits for it.
                await asyncio.sleep(time.monotonic() - began)
        await self._write(lambda: scripts.forget_processes(grace))
        if total:
            await self._database.shrink()
        return total
