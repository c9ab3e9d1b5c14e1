"""The runs of one bridge in one process: takes them from the queue, drives them, looks after those of dead processes.

Any process that shares the store may start, read, cancel and delete any run; which one drives it is the store's
matter. A run does not know who reads it: readers come and go.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import orjson

from bridge.codec import CONNECTIONS, Dialect
from bridge.errors import BackendError, BridgeError, ErrorCode, Failure, log_unexpected
from bridge.pipeline import Run
from bridge.runs.log import LogReader
from bridge.runs.plan import RunPlan
from bridge.runs.recorder import PATIENCE
from bridge.runs.responses import AnswerStream
from bridge.runs.subscription import START, Cursor, Subscription
from bridge.runs.worker import LOST, LOST_PLAN, Drive, RunWorker, bury
from bridge.stores import LEASE, Ownership, RunKey, RunRecord, RunState, RunStore
from bridge.stores.runs import NOBODY, Created, Full, Room

log = logging.getLogger("bridge.runs")

Ended = Callable[[RunKey, RunPlan], Awaitable[None]]
"""Is told when a run has ended that this process drove or buried."""

Drove = Callable[[RunPlan, Run], None]
"""Is told of a run that this process drove, when it has ended."""


class RunSlots(Protocol):
    """Where the runs that a process drives, and those that wait for it, have their places."""

    freed: asyncio.Event
    """Set when somebody whom `full` named may have a place again."""

    def full(self) -> Full | None:
        """Who has no place for one more run; None = nobody has one."""

    def take(self, key: RunKey) -> Callable[[], None] | None:
        """Takes a place for this run; what gives it back. None when there is none."""

    def room(self, key: RunKey) -> Room | None:
        """How many runs may be in the store that have not ended, for one more like this."""


class _Number:
    """A number of places, whoever they are for, and no limit of what waits."""

    def __init__(self, most: int) -> None:
        self._free = most
        self.freed = asyncio.Event()

    def full(self) -> Full | None:
        return NOBODY if self._free else None

    def take(self, key: RunKey) -> Callable[[], None] | None:
        self._free -= 1
        return self._leave

    def _leave(self) -> None:
        self._free += 1
        self.freed.set()

    def room(self, key: RunKey) -> Room | None:
        return None


LOOK = 0.5
"""Seconds between two looks for cancels and for runs of dead processes."""
_SWEEP = 600.0
_WAIT = 5.0
"""Seconds of one wait at the queue, and the longest pause while the store is not available."""
_LAST_WORDS = 10.0
"""Seconds that the ends of runs may take when the process stops."""
STOPPED = Failure(ErrorCode.RUN_LOST, "The server that ran this was stopped.")


class Runs:
    """`open`, then any of the operations, then `close`.

    `concurrent`: how many runs this process drives at once, where `places` says nothing else; others wait in the queue.
    `lease`: after how many seconds a
    run counts as lost when the process that drives it is gone. `events`, `threads`: retention in seconds. `max_run`:
    bytes of the log of one run, at which it fails; None = no limit. `ended` may be called for a run that another
    process has taken over by then.
    """

    def __init__(
        self,
        store: RunStore,
        drive: Drive,
        *,
        concurrent: int = 1000,
        places: Callable[[], RunSlots | None] = lambda: None,
        lease: float = LEASE,
        events: float = 86400.0,
        threads: float = 90 * 86400.0,
        patience: float = PATIENCE,
        max_run: int | None = None,
        ended: Ended | None = None,
        drove: Drove | None = None,
    ) -> None:
        self._store = store
        self._drive = drive
        self._ended = ended
        self._drove = drove
        self._number = _Number(concurrent)
        self._given_places = places
        self._lease = lease
        self._events = events
        self._threads = threads
        self._patience = patience
        self._max_run = max_run
        self._token = uuid.uuid4().hex
        self._workers: dict[RunKey, RunWorker] = {}
        self._readers: dict[str, tuple[str, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._troubles: set[str] = set()
        self._taking: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ life

    async def open(self) -> None:
        """Begins to take runs from the queue. The store is opened by the first call that needs it."""
        if self._keeping is None:
            self._taking = asyncio.create_task(self._take(), name="runs-take")
            self._keeping = asyncio.create_task(self._keep(), name="runs-keep")

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """What is at work: an orderly stop waits for these."""
        return set(self._tasks)

    async def rest(self) -> None:
        """Takes no more runs from the queue; other processes may."""
        await _stop(self._taking)
        self._taking = None

    async def retire(self) -> None:
        """Ends the runs that this process drives: their readers are told that the server stopped."""
        await self.rest()
        for worker in list(self._workers.values()):
            worker.cut(STOPPED)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_WORDS)

    async def close(self) -> None:
        await self.retire()
        await _stop(self._keeping)
        self._keeping = None
        for task in list(self._tasks):
            await _stop(task)
        await self._store.close()

    # ------------------------------------------------------------------ operations

    async def start(self, key: RunKey, plan: RunPlan, fingerprint: str, *, alone: bool = False) -> Created:
        """Puts a run on the queue. The same run with the same fingerprint is not run again.

        Raises `StoreConflict` for another fingerprint, `ThreadBusy` for a run that has to be `alone` while another one
        of its thread has not ended, and `BridgeError`: rate_limited when the queue is full, store_unavailable.
        """
        return await self._store.create(key, fingerprint, plan.dump(), alone=alone, room=self._places.room(key))

    def subscribe(self, key: RunKey, dialect: Dialect, options: object = None, cursor: Cursor = START) -> Subscription:
        """The run's frames in this dialect, from behind the cursor on."""
        return Subscription(self._store, key, dialect, options, cursor)

    def stream(self, key: RunKey, dialect: Dialect, options: object, have: int = 0) -> AnswerStream:
        """The stream of a run in the background, behind the first `have` frames."""
        return AnswerStream(self._store, key, dialect, options, have)

    def follow(self, key: RunKey) -> LogReader:
        """The run's events, as they were written."""
        return LogReader(self._store, key)

    async def status(self, key: RunKey) -> RunRecord | None:
        return await self._store.get(key)

    async def running(self, owner: str, scope: str, thread_id: str) -> RunRecord | None:
        """The latest run of a thread, unless it has ended."""
        latest = await self._store.latest(owner, scope, thread_id)
        return latest if latest is not None and latest.state is not RunState.ENDED else None

    async def ended(self, key: RunKey, seconds: float) -> bool:
        """Waits until a run has ended, or so long; whether it has."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while (record := await self._store.get(key)) is not None and record.state is not RunState.ENDED:
            if clock() >= until:
                return False
            await self._store.read(key, record.last or 0, wait=until - clock())
        return True

    async def cancel(self, key: RunKey, reason: str = "") -> None:
        """Asks for the end of a run in whatever state, known or not; repeating it is harmless.

        It finishes as canceled, or, with the reason `SUPERSEDED`, fails with that: its readers did not ask for it.
        """
        await self._store.cancel(key, reason)
        worker = self._workers.get(key)
        if worker is not None:
            worker.cancel(reason)
            return
        record = await self._store.get(key)
        if record is not None and record.state is RunState.QUEUED:
            # It would only come to its turn to be told that it is over.
            leased = await self._store.acquire(key, self._token, self._lease)
            if leased is not None:
                self._employ(leased, lambda: None)

    async def delete(self, key: RunKey) -> bool:
        """Forgets a run that has ended; False when there is none, or it has not ended."""
        return await self._store.delete(key)

    async def thread(self, owner: str, scope: str, thread_id: str, *, make: bool = False) -> Ownership:
        """Whose the thread is; with `make` it becomes the owner's when it was nobody's."""
        return await self._store.thread(owner, scope, thread_id, make=make)

    @asynccontextmanager
    async def place(self, owner: str, limit: int) -> AsyncIterator[None]:
        """Holds one of the owner's `limit` places of readers, over all processes; it is free again some seconds after
        this process died. Raises `BackendError` (rate_limited)."""
        token = uuid.uuid4().hex
        if not await self._store.enter(owner, token, limit, self._lease):
            raise BackendError(
                f"There are {limit} open streams of this user already.",
                code=ErrorCode.RATE_LIMITED,
                headers={"retry-after": "1"},
                details={"reason": CONNECTIONS},
            )
        self._readers[token] = (owner, limit)
        try:
            yield
        finally:
            del self._readers[token]
            self._spawn(self._leave(owner, token))

    async def _leave(self, owner: str, token: str) -> None:
        with suppress(BridgeError):  # it runs out by itself
            await self._store.leave(owner, token)

    # ------------------------------------------------------------------ the queue

    @property
    def _places(self) -> RunSlots:
        return self._given_places() or self._number

    async def _take(self) -> None:
        pause = 0.05
        while True:
            places = self._places
            places.freed.clear()
            full = places.full()
            if full is None:
                await places.freed.wait()
                continue
            try:
                record = await self._claim(places, full)
                leave = places.take(record.key) if record is not None else None
                if record is not None and leave is None:
                    # Others took the last place in the meantime.
                    await self._store.release(record.key, self._token)
                    continue
            except BridgeError as error:
                self._failing("runs cannot be taken", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _WAIT)
                continue
            except Exception as error:
                log_unexpected(log, "runs cannot be taken", error)
                await asyncio.sleep(_WAIT)
                continue
            self._working("runs cannot be taken")
            pause = 0.05
            if record is not None and leave is not None:
                self._employ(record, leave)

    async def _claim(self, places: RunSlots, full: Full) -> RunRecord | None:
        """The next run; None when none came, or when who was full may not be any more."""
        claim = self._store.claim(self._token, self._lease, wait=_WAIT, full=full)
        if not full:
            return await claim
        claiming, freed = asyncio.ensure_future(claim), asyncio.ensure_future(places.freed.wait())
        try:
            await asyncio.wait({claiming, freed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            freed.cancel()
            if not claiming.done():
                claiming.cancel()
            await asyncio.wait({claiming})
        return None if claiming.cancelled() else claiming.result()

    # ------------------------------------------------------------------ workers

    def _employ(self, record: RunRecord, leave: Callable[[], None]) -> None:
        """Drives a run that is leased to us; one that another process began, or that cannot be read, only ends.

        `leave` gives its place back.
        """
        if record.entries:
            leave()
            self._bury(record, LOST)
            return
        try:
            worker = RunWorker(
                self._store, record, self._token, self._drive, patience=self._patience, limit=self._max_run
            )
        except ValueError:
            leave()
            self._bury(record, LOST_PLAN)
            return
        self._workers[record.key] = worker
        self._spawn(self._work(worker, leave))

    def _bury(self, record: RunRecord, failure: Failure) -> None:
        self._spawn(self._burial(record, failure))

    async def _burial(self, record: RunRecord, failure: Failure) -> None:
        await bury(self._store, record, self._token, failure, patience=self._patience)
        with suppress(ValueError):  # of another version of us, which knows what becomes of it
            await self._tell_end(record.key, RunPlan.load(record.plan))

    async def _tell_end(self, key: RunKey, plan: RunPlan) -> None:
        if self._ended is not None:
            await self._ended(key, plan)

    async def _work(self, worker: RunWorker, leave: Callable[[], None]) -> None:
        try:
            # Somebody may have cancelled before we came.
            with suppress(BridgeError):
                for reason in (await self._store.canceled([worker.key])).values():
                    worker.cancel(reason)
            await worker.work()
            if self._drove is not None and worker.run is not None:
                self._drove(worker.plan, worker.run)
            await self._tell_end(worker.key, worker.plan)
        finally:
            del self._workers[worker.key]
            leave()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._guarded(work), name="runs-work")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BridgeError as error:
            log.error("a run could not be ended: %s", error.message)
        except Exception as error:
            log_unexpected(log, "a run broke", error)

    # ------------------------------------------------------------------ looking after

    async def _keep(self) -> None:
        """Renews what is ours, notes cancels, ends the runs of dead processes, and sweeps."""
        clock = asyncio.get_running_loop().time
        renewed, swept = clock(), -_SWEEP
        while True:
            await asyncio.sleep(min(LOOK, self._lease / 4))
            try:
                if clock() - renewed >= self._lease / 3:
                    renewed = clock()
                    await self._renew()
                for key, reason in (await self._store.canceled(list(self._workers))).items():
                    if key in self._workers:
                        self._workers[key].cancel(reason)
                await self._find_lost()
                if clock() - swept >= _SWEEP:
                    swept = clock()
                    await self._store.sweep(self._events, self._threads)
                self._working("runs are not looked after")
            except BridgeError as error:
                self._failing("runs are not looked after", error)
            except Exception as error:
                log_unexpected(log, "runs are not looked after", error)

    def _failing(self, what: str, error: BridgeError) -> None:
        """Says so once, not with every try."""
        if what not in self._troubles:
            self._troubles.add(what)
            log.warning("%s: %s", what, error.message)

    def _working(self, what: str) -> None:
        if what in self._troubles:
            self._troubles.discard(what)
            log.info("no longer: %s", what)

    async def _renew(self) -> None:
        mine = dict(self._workers)
        held = await self._store.renew(list(mine), self._token, self._lease)
        for key in mine.keys() - held:
            # It has ended by now, or we stood still for too long and somebody else has it.
            mine[key].abandon()
        for token, (owner, limit) in list(self._readers.items()):
            await self._store.enter(owner, token, limit, self._lease)

    async def _find_lost(self) -> None:
        """Ends the runs of dead processes: all of them in one look, however many the store tells at a time."""
        busy = True
        while busy:
            busy = False
            for key in await self._store.lost():
                if key in self._workers:
                    continue  # ours, and only late
                record = await self._store.acquire(key, self._token, self._lease)
                if record is not None:
                    busy = True
                    log.warning("run %s is lost: the process that drove it is gone", key.run_id)
                    self._bury(record, LOST)


async def _stop(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def fingerprint(body: bytes) -> str:
    """What tells whether a run that is asked for again is the same one: SHA-256 of the request's body.

    Of JSON the value counts, not the spelling: a client that comes back may have written it anew.
    """
    with suppress(ValueError, TypeError):
        body = orjson.dumps(orjson.loads(body), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(body).hexdigest()
