"""The runs of one bridge in one process: takes them from the queue, drives them, and ends those of dead processes.

Any process that shares the store may start, read, cancel and delete any run; the store decides which one drives it. A
run is independent of its readers.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

import orjson

from bridge.contract import AgentTasksDialect, Dialect, TaskCall, TaskStatus
from bridge.errors import LOG_FACTS, BridgeError, ErrorCode, Failure, FailureLog, log_unexpected
from bridge.model import RunFailed, RunFinished
from bridge.run.durable.answer_stream import AnswerStream
from bridge.run.durable.driver import LOST, LOST_PLAN, Drive, RunDriver, write_failure
from bridge.run.durable.log import LogReader, from_body
from bridge.run.durable.plan import FORMAT, RunPlan
from bridge.run.durable.recorder import PATIENCE
from bridge.run.durable.subscription import START, Cursor, Subscription
from bridge.run.durable.task_stream import TaskStream
from bridge.run.run import Run
from bridge.stores import LEASE, Ownership, RunKey, RunRecord, RunState, RunStore
from bridge.stores.liveness import Liveness
from bridge.stores.memory_budget import LoadedBytes, MemoryBudget
from bridge.stores.run_records import NONE_BLOCKED, Blocked, Created, QueueLimits
from bridge.toolkit.redact import explained

log = logging.getLogger("bridge.runs")

Ended = Callable[[RunKey, RunPlan], Awaitable[None]]
"""Called when a run has ended that this process drove or that it ended for a dead one."""

Drove = Callable[[RunKey, RunPlan, Run], None]
"""Called with each run that this process drove, when it has ended."""

Begun = Callable[[RunKey, RunPlan, int], Awaitable[None]]
"""Called when this process begins to drive or to end a run, with the number of entries in its log.

The run does not wait for it, and a stop only for a moment.
"""


class RunSlots(Protocol):
    """Admits the runs that a process drives, and bounds those that wait for it."""

    freed: asyncio.Event
    """Set when an owner or scope that `blocked` returned may have a free slot again."""

    def blocked(self) -> Blocked | None:
        """Return the owners and scopes without a free slot; None if there is no slot at all."""

    async def take(self, key: RunKey) -> Callable[[], None] | None:
        """Take a slot for this run and return the function that releases it; None if there is no slot."""

    def queue_limits(self, key: RunKey) -> QueueLimits | None:
        """Return how many unfinished runs the store may hold for one more like this to be admitted."""


class _SharedSlots:
    """A number of slots for all owners together, and an unbounded queue."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self.freed = asyncio.Event()

    def blocked(self) -> Blocked | None:
        return NONE_BLOCKED if self._free else None

    async def take(self, key: RunKey) -> Callable[[], None] | None:
        if not self._free:
            return None
        self._free -= 1
        return self._release

    def _release(self) -> None:
        self._free += 1
        self.freed.set()

    def queue_limits(self, key: RunKey) -> QueueLimits | None:
        return None


POLL = 0.5
"""Seconds between two checks for cancellations and for runs of dead processes."""
_SWEEP = 600.0
_WAIT = 5.0
"""Seconds of one wait at the queue, and the longest pause while the store is not available."""
_STOP_SECONDS = 10.0
"""Seconds that runs have to end when the process stops."""
_BESIDE_SECONDS = 2.0
"""Seconds that other tasks, beside the runs, have then."""
STOPPED = Failure(ErrorCode.RUN_LOST, "The server stopped during the run.")


class Runs:
    """The runs of one store, as one process sees them: call `open`, then any operation, then `close`.

    `concurrent` is the number of runs that this process drives at once if `slots` returns None; others wait in the
    queue. A run counts as lost `lease` seconds after the process that drives it has died, once this process has renewed
    its own leases for as long (`bridge.stores.liveness`). `events` and `threads` are retention times in seconds. A run
    fails when its log reaches `max_run` bytes; None is no limit. `ended` may also be called for a run that another
    process has taken over. `memory`: what the plans of runs and what they load may take; no run is taken from the queue
    while it is spent.
    """

    def __init__(
        self,
        store: RunStore,
        drive: Drive,
        *,
        concurrent: int = 1000,
        slots: Callable[[], RunSlots | None] = lambda: None,
        lease: float = LEASE,
        events: float = 86400.0,
        threads: float = 90 * 86400.0,
        patience: float = PATIENCE,
        max_run: int | None = None,
        ended: Ended | None = None,
        drove: Drove | None = None,
        begun: Begun | None = None,
        memory: MemoryBudget | None = None,
    ) -> None:
        self._store = store
        self._drive = drive
        self._ended = ended
        self._drove = drove
        self._begun = begun
        self._memory = memory or MemoryBudget(None)
        self._shared_slots = _SharedSlots(concurrent)
        self._given_slots = slots
        self._lease = lease
        self._life = Liveness(lease)
        self._events = events
        self._threads = threads
        self._patience = patience
        self._max_run = max_run
        self._token = uuid.uuid4().hex
        self._workers: dict[RunKey, RunDriver] = {}
        self._beginning: set[RunKey] = set()
        """Runs that this process holds, or is about to, without a worker yet."""
        self._strays: set[RunKey] = set()
        """Runs that the last renewal found to be held by this process, which does not drive them."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._beside: set[asyncio.Task[None]] = set()
        self._failures = FailureLog(log)
        self._taking: asyncio.Task[None] | None = None
        self._maintaining: list[asyncio.Task[None]] = []
        self._has_less = asyncio.Event()
        """Set when a new run took the last slot of an owner or scope, so that a claim is repeated without them."""

    # ------------------------------------------------------------------ life

    async def open(self) -> None:
        """Start to take runs from the queue. The first call that needs the store opens it."""
        if not self._maintaining:
            self._taking = asyncio.create_task(self._take(), name="runs-take")
            beat = min(POLL, self._lease / 4)
            # Renewals wait for nothing else: a lease that expires meanwhile ends a run.
            self._maintaining = [
                asyncio.create_task(self._repeat(self._renew, beat, "leases cannot be renewed"), name="runs-renew"),
                asyncio.create_task(
                    self._repeat(self._look_after, beat, "runs cannot be monitored"), name="runs-watch"
                ),
                asyncio.create_task(
                    self._repeat(self._sweep, _SWEEP, "expired runs stay", at_once=True), name="runs-sweep"
                ),
            ]

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The tasks that are at work; an orderly stop waits for them."""
        return set(self._tasks)

    async def stop_taking(self) -> None:
        """Stop taking runs from the queue; other processes may."""
        await _stop(self._taking)
        self._taking = None

    async def retire(self) -> None:
        """End the runs that this process drives with the failure `STOPPED`."""
        await self.stop_taking()
        for worker in list(self._workers.values()):
            worker.cut(STOPPED)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STOP_SECONDS)

    async def close(self) -> None:
        await self.retire()
        for task in self._maintaining:
            await _stop(task)
        self._maintaining = []
        if self._beside:
            await asyncio.wait(self._beside, timeout=_BESIDE_SECONDS)
        for task in [*self._tasks, *self._beside]:
            await _stop(task)
        await self._store.close()

    # ------------------------------------------------------------------ operations

    async def start(self, key: RunKey, plan: RunPlan, fingerprint: str, *, alone: bool = False) -> Created:
        """Queue a run. A run that exists with the same fingerprint is not queued again.

        Raises `StoreConflict` for another fingerprint, `ThreadBusy` for a run that has to be `alone` while another one
        of its thread has not ended, and `BridgeError`: rate_limited when the queue is full, store_unavailable.
        """
        # Not interrupted: a run that this process holds has to be driven, also if the client leaves now.
        return await asyncio.shield(asyncio.ensure_future(self._start(key, plan, fingerprint, alone)))

    async def _start(self, key: RunKey, plan: RunPlan, fingerprint: str, alone: bool) -> Created:
        text, slots = plan.dump(), self._slots
        release = await self._free_slot(slots, key)
        self._beginning.add(key)
        try:
            created = await self._store.create(
                key,
                fingerprint,
                text,
                format=FORMAT,
                alone=alone,
                limits=slots.queue_limits(key),
                token=self._token if release is not None else None,
                lease=self._lease,
                previous=plan.previous,
            )
            if created.held and release is not None:
                self._drive_plan(created.record, plan, len(text), release, is_new=True)
                if created.canceled is not None:
                    self._workers[key].cancel(created.canceled)
                release = None
            return created
        finally:
            self._beginning.discard(key)
            if release is not None:
                release()

    async def _free_slot(self, slots: RunSlots, key: RunKey) -> Callable[[], None] | None:
        """Take a slot for a new run, if this process takes runs and has one."""
        if self._taking is None or self._memory.is_spent:
            return None
        blocked = slots.blocked()
        if blocked is None or blocked.blocks(key):
            return None
        release = await slots.take(key)
        if slots.blocked() != blocked:
            self._has_less.set()
        return release

    def subscribe(self, key: RunKey, dialect: Dialect, options: object = None, cursor: Cursor = START) -> Subscription:
        """Return the run's frames in this dialect, after the cursor."""
        return Subscription(self._store, key, dialect, options, cursor, plan=self._known_plan(key))

    def stream(self, key: RunKey, dialect: Dialect, options: object, have: int = 0) -> AnswerStream:
        """Return the stream of a run in the background, after its first `have` frames."""
        return AnswerStream(self._store, key, dialect, options, have)

    def follow(self, key: RunKey) -> LogReader:
        """Return a reader of the run's events."""
        return LogReader(self._store, key, self._known_plan(key))

    def _known_plan(self, key: RunKey) -> RunPlan | None:
        """Return the plan of a run that this process drives: its readers need not load it."""
        worker = self._workers.get(key)
        return None if worker is None else worker.plan

    async def status(self, key: RunKey) -> RunRecord | None:
        return await self._store.get(key)

    async def latest(self, owner: str, scope: str, thread_id: str) -> RunRecord | None:
        """Return the newest run of a thread; None if there is none."""
        return await self._store.latest(owner, scope, thread_id)

    async def end_of(self, record: RunRecord) -> RunFinished | RunFailed | None:
        """Return the terminal event of a run; None before its end, and after it has expired."""
        if record.state is not RunState.ENDED or record.last is None or not record.whole:
            return None
        for entry in await self._store.read(record.key, record.last - 1):
            last = from_body(entry.body).events[-1]
            return last if isinstance(last, RunFinished | RunFailed) else None
        return None

    def watch(
        self, key: RunKey, dialect: AgentTasksDialect, options: object, call: TaskCall, before: Sequence[TaskStatus]
    ) -> TaskStream:
        """Return the stream of a task whose last run this is, from its present state on."""
        return TaskStream(self._store, key, dialect, options, call, before)

    async def running(self, owner: str, scope: str, thread_id: str) -> RunRecord | None:
        """Return the latest run of a thread; None if it has ended."""
        latest = await self._store.latest(owner, scope, thread_id)
        return latest if latest is not None and latest.state is not RunState.ENDED else None

    async def ended(self, key: RunKey, seconds: float) -> bool:
        """Wait up to `seconds` for the end of a run. Return whether it has ended."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while (record := await self._store.get(key)) is not None and record.state is not RunState.ENDED:
            if clock() >= until:
                return False
            await self._store.read(key, record.last or 0, wait=until - clock())
        return True

    async def cancel(self, key: RunKey, reason: str = "") -> None:
        """Request the end of a run in any state, known or not. Repeating it has no effect.

        The run finishes as canceled; with the reason `SUPERSEDED` it fails instead, as its readers did not request it.
        """
        await self._store.cancel(key, reason)
        worker = self._workers.get(key)
        if worker is not None:
            worker.cancel(reason)
            return
        record = await self._store.get(key)
        if key in self._workers:  # begun meanwhile
            self._workers[key].cancel(reason)
        elif record is not None and record.state is RunState.QUEUED:
            await self._end_queued(key)

    async def _end_queued(self, key: RunKey) -> None:
        """End a canceled run that waits, instead of when its turn comes.

        While a process holds it that has no slot for it, this has no effect: the next look finds it in the queue again.
        A run whose plan is of a newer version is left to a process that can read it.
        """
        leased = await self._store.acquire(
            key, self._token, self._lease, grace=self._life.grace, queued=True, format=FORMAT
        )
        if leased is not None:
            self._drive_run(leased, lambda: None)

    async def delete(self, key: RunKey) -> bool:
        """Delete a run that has ended. Return False if there is none, or it has not ended."""
        return await self._store.delete(key)

    async def thread(self, owner: str, scope: str, thread_id: str, *, make: bool = False) -> Ownership:
        """Return who owns the thread. With `make`, a thread without an owner becomes this owner's."""
        return await self._store.thread(owner, scope, thread_id, make=make)

    # ------------------------------------------------------------------ the queue

    @property
    def _slots(self) -> RunSlots:
        return self._given_slots() or self._shared_slots

    async def _take(self) -> None:
        pause = 0.05
        while True:
            slots = self._slots
            slots.freed.clear()
            self._has_less.clear()
            blocked = slots.blocked()
            if blocked is None:
                await slots.freed.wait()
                continue
            if self._memory.is_spent:
                await asyncio.sleep(POLL)
                continue
            try:
                record = await self._claim(slots, blocked)
                release = await self._slot_of(slots, record)
                if record is not None and release is None:
                    # Another run took the last slot, or the memory, in the meantime.
                    await self._store.release(record.key, self._token)
                    continue
            except BridgeError as error:
                self._failures.failed("runs cannot be claimed", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _WAIT)
                continue
            except Exception as error:
                log_unexpected(log, "runs cannot be claimed", error)
                await asyncio.sleep(_WAIT)
                continue
            self._failures.works("runs cannot be claimed")
            pause = 0.05
            if record is not None and release is not None:
                self._drive_run(record, release)

    async def _slot_of(self, slots: RunSlots, record: RunRecord | None) -> Callable[[], None] | None:
        """Take a slot for a run that this process has leased."""
        if record is None or self._memory.is_spent:
            return None
        try:
            return await slots.take(record.key)
        except BaseException:
            self._spawn(self._store.release(record.key, self._token))
            raise

    async def _claim(self, slots: RunSlots, blocked: Blocked) -> RunRecord | None:
        """Return the next run; None if none came, or if others are blocked now than those in `blocked`."""
        claim = self._store.claim(self._token, self._lease, wait=_WAIT, blocked=blocked, format=FORMAT)
        claiming = asyncio.ensure_future(claim)
        changed = [asyncio.ensure_future(self._has_less.wait())]
        if blocked:
            changed.append(asyncio.ensure_future(slots.freed.wait()))
        try:
            await asyncio.wait({claiming, *changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for change in changed:
                change.cancel()
            if not claiming.done():
                claiming.cancel()
            await asyncio.wait({claiming})
        return None if claiming.cancelled() else claiming.result()

    # ------------------------------------------------------------------ workers

    def _drive_run(self, record: RunRecord, release: Callable[[], None]) -> None:
        """Drive a run that this process has leased. One that another process began, or that cannot be read, is ended.

        `release` frees its slot.
        """
        self._beginning.add(record.key)
        if record.entries:
            release()
            self._spawn(self._end_lost(record, LOST))
        else:
            self._spawn(self._load(record, release))

    async def _load(self, record: RunRecord, release: Callable[[], None]) -> None:
        try:
            text = await self._store.plan(record.key)
            plan = RunPlan.load(text or "")
        except ValueError:
            release()
            await self._end_lost(record, LOST_PLAN)
            return
        except BaseException:
            release()
            self._beginning.discard(record.key)
            with suppress(BridgeError):  # else it is found to be a stray
                await self._store.release(record.key, self._token)
            raise
        self._drive_plan(record, plan, len(text or ""), release)

    def _drive_plan(
        self, record: RunRecord, plan: RunPlan, size: int, release: Callable[[], None], *, is_new: bool = False
    ) -> None:
        """Drive a run whose plan has this size in bytes. One that is not new may have been canceled while it waited."""
        worker = RunDriver(
            self._store, record, plan, self._token, self._drive, patience=self._patience, limit=self._max_run
        )
        self._workers[record.key] = worker
        self._beginning.discard(record.key)
        self._call_begun(record, plan)
        self._spawn(self._work(worker, size, release, is_new))

    async def _end_lost(self, record: RunRecord, failure: Failure) -> None:
        """End a run that this process holds and nobody drives."""
        LOG_FACTS.set(record.key.facts)
        log.warning("run failed: %s", explained(failure), extra={"facts": {"status": str(failure.code)}})
        self._beginning.add(record.key)
        try:
            plan: RunPlan | None = None
            with suppress(ValueError):  # the plan is of another version of the bridge
                plan = RunPlan.load(await self._store.plan(record.key) or "")
            if plan is not None:
                self._call_begun(record, plan)
            await write_failure(self._store, record, plan, self._token, failure, patience=self._patience)
            if plan is not None:
                await self._call_ended(record.key, plan)
        finally:
            self._beginning.discard(record.key)

    def _call_begun(self, record: RunRecord, plan: RunPlan) -> None:
        if self._begun is not None:
            self._spawn(self._begun(record.key, plan, record.entries), self._beside)

    async def _call_ended(self, key: RunKey, plan: RunPlan) -> None:
        if self._ended is not None:
            await self._ended(key, plan)

    async def _work(self, worker: RunDriver, size: int, release: Callable[[], None], is_new: bool) -> None:
        LOG_FACTS.set(worker.key.facts)
        try:
            if not is_new:
                with suppress(BridgeError):
                    for reason in (await self._store.canceled([worker.key])).values():
                        worker.cancel(reason)
            with LoadedBytes(self._memory) as loaded:
                loaded.charge(("plan", worker.key), size, is_loaded=True)
                await worker.work()
            _log_end(worker)
            if self._drove is not None and worker.run is not None:
                self._drove(worker.key, worker.plan, worker.run)
            await self._call_ended(worker.key, worker.plan)
        finally:
            del self._workers[worker.key]
            worker.release()
            release()

    def _spawn(self, work: Awaitable[None], among: set[asyncio.Task[None]] | None = None) -> None:
        tasks = self._tasks if among is None else among
        task = asyncio.create_task(self._guarded(work), name="runs-work")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except BridgeError as error:
            log.error("a run could not be ended: %s", error.message)
        except Exception as error:
            log_unexpected(log, "a run broke", error)

    # ------------------------------------------------------------------ looking after

    async def _repeat(
        self, work: Callable[[], Awaitable[None]], seconds: float, trouble: str, *, at_once: bool = False
    ) -> None:
        """Do this again and again, `seconds` apart. `trouble` names its failure in the log."""
        if not at_once:
            await asyncio.sleep(seconds)
        while True:
            try:
                await work()
                self._failures.works(trouble)
            except BridgeError as error:
                self._failures.failed(trouble, error)
            except Exception as error:
                log_unexpected(log, trouble, error)
            await asyncio.sleep(seconds)

    async def _look_after(self) -> None:
        """Pass on cancellations, and end the runs that were canceled in the queue and those of dead processes."""
        pulse = await self._store.pulse(self._token, grace=self._life.grace)
        for key, reason in pulse.canceled.items():
            if key in self._workers:
                self._workers[key].cancel(reason)
        for key in pulse.waiting:
            await self._end_queued(key)
        if pulse.lost:
            await self._find_lost()

    async def _sweep(self) -> None:
        """Delete what has expired."""
        await self._store.sweep(self._events, self._threads, grace=self._life.grace)

    async def _renew(self) -> None:
        """Renew the lease of this process when it is due, and at once after a failure."""
        if not self._life.due:
            return
        workers = dict(self._workers)
        try:
            held = await self._store.renew(self._token, self._lease, grace=self._life.grace)
        except BaseException:
            self._life.failed()
            raise
        self._life.renewed()
        for key in workers.keys() - held:
            # It has ended, or this process was suspended for too long and another one has taken it over.
            workers[key].abandon()
        # Taken by a call whose answer got lost: it goes back to the queue, or is ended as lost.
        strays = held - self._workers.keys() - self._beginning
        for key in strays & self._strays:
            await self._store.release(key, self._token)
        self._strays = strays

    async def _find_lost(self) -> None:
        """End all runs of dead processes, in as many batches as the store returns."""
        while records := await self._store.take_lost(self._token, self._lease, grace=self._life.grace):
            for record in records:
                self._beginning.add(record.key)
                self._spawn(self._end_lost(record, LOST))


def _log_end(worker: RunDriver) -> None:
    """Log the end of a run here, as it may have no readers."""
    outcome, run, plan = worker.outcome, worker.run, worker.plan
    if outcome is None:
        return  # another process has it
    facts: dict[str, object] = {"run_id": plan.run_id, "route": plan.route, "front": plan.front}
    if run is not None:
        facts["back"] = run.backend.name
    if isinstance(outcome, RunFailed):
        facts["status"] = str(outcome.error.code)
        log.warning("run failed: %s", explained(outcome.error), extra={"facts": facts})
    else:
        facts["status"] = str(outcome.reason)
        log.info("run ended", extra={"facts": facts})


async def _stop(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def fingerprint(body: bytes) -> str:
    """Return the SHA-256 of a request's body, by which a repeated run is recognized.

    For JSON the value counts, not the spelling: a client may serialize it differently when it repeats the request.
    """
    with suppress(ValueError, TypeError):
        body = orjson.dumps(orjson.loads(body), option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(body).hexdigest()
