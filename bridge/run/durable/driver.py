"""Drives one run from its plan into its log. However it ends, the log gets exactly one terminal event."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from bridge.contract import Losses
from bridge.errors import BridgeError, ErrorCode, Failure, log_unexpected
from bridge.model import Event, FinishReason, RunFailed, RunFinished, RunStarted
from bridge.model.closing import OpenParts
from bridge.run.durable.log import UNREADABLE, from_body
from bridge.run.durable.plan import RunPlan
from bridge.run.durable.recorder import PATIENCE, RunRecorder
from bridge.run.run import Run
from bridge.stores import RunKey, RunRecord, RunStore
from bridge.stores.joint import Joint
from bridge.stores.memory_budget import MemorySpent

log = logging.getLogger("bridge.runs")

Drive = Callable[[RunKey, RunPlan, Losses], Awaitable[Run]]
"""Makes the run of a plan: backend chosen, conversation loaded, nothing sent yet. Raises `BridgeError`."""

_ROOM_SECONDS = 30.0
"""Seconds for which a run waits until what it loads fits in memory."""
_ROOM_POLL = 0.25

LOST = Failure(ErrorCode.RUN_LOST, "The process that executed the run stopped.")
SUPERSEDED = "superseded"
"""The reason of a cancellation by another run of the session."""
TAKEN_OVER = Failure(ErrorCode.CANCELED, "Another request of this session superseded this run.")
LOST_PLAN = Failure(ErrorCode.INTERNAL, UNREADABLE)


class RunDriver:
    """One run that this process has leased. `work` is awaited once."""

    def __init__(
        self,
        store: RunStore,
        record: RunRecord,
        plan: RunPlan,
        token: str,
        drive: Drive,
        *,
        patience: float = PATIENCE,
        limit: int | None = None,
    ) -> None:
        """The run fails when its log reaches `limit` bytes."""
        self.key = record.key
        self._store = store
        self.plan = plan
        self._make = drive
        self._limit = limit
        self._recorder = RunRecorder(store, record.key, token, record.entries, self.abandon, patience)
        self._lost = Losses()
        self._run: Run | None = None
        self._driving: asyncio.Task[None] | None = None
        self._end: Callable[[], list[Event]] | None = None
        self.outcome: RunFinished | RunFailed | None = None
        """The last event of the run, when this process has written it."""

    @property
    def run(self) -> Run | None:
        """The run, once it was made."""
        return self._run

    # ------------------------------------------------------------------ ending it

    def cancel(self, reason: str = "") -> None:
        """Finish the run as canceled, or fail it if the reason is `SUPERSEDED`."""
        self._stop(partial(self._failed, TAKEN_OVER) if reason == SUPERSEDED else self._canceled)

    def cut(self, failure: Failure) -> None:
        """Fail the run."""
        self._stop(partial(self._failed, failure))

    def abandon(self) -> None:
        """Stop without writing: another process has the run."""
        self._stop(list)

    def _stop(self, end: Callable[[], list[Event]]) -> None:
        """End the run with the events of `end`. The first call counts, and none after the run has ended by itself."""
        if self._end is not None or (self._run is not None and self._run.ended):
            return
        self._end = end
        if self._driving is not None:
            self._driving.cancel()

    # ------------------------------------------------------------------ the run

    async def work(self) -> None:
        """Drive the run to its end, and return when all of it is written."""
        clock = self._set_clock()
        try:
            if self._end is None:
                self._driving = asyncio.create_task(self._drive(), name="run")
                await asyncio.wait({self._driving})
            if self._end is not None:
                events = self._end()
                joint: Joint | None = None
                if self._run is not None and events:
                    # The conversation is stored with the end, or before: the client may read it back at once.
                    await self._run.settle()
                    joint = self._run.joint
                self._put(events, joint)
                if joint is not None:
                    await self._recorder.close()
        finally:
            if clock is not None:
                clock.cancel()
            if self._driving is not None:
                self._driving.cancel()
                await asyncio.gather(self._driving, return_exceptions=True)
            if self._run is not None:
                await self._run.close()
            await self._recorder.close()

    def release(self) -> None:
        """Let go of the run and its log, when all of it is written: both refer to the driver."""
        self._run = None
        del self._recorder

    def _set_clock(self) -> asyncio.TimerHandle | None:
        limit = self.plan.limit
        if limit is None:
            return None
        late = Failure(ErrorCode.RUN_TIMEOUT, f"Task exceeded timeout of {limit}s")
        return asyncio.get_running_loop().call_later(limit, self.cut, late)

    async def _drive(self) -> None:
        try:
            run = self._run = await self._made()
            joint = run.joint = self._store.joint()
            if self.plan.eager:
                self._put(run.head())
            run.pass_deltas(self._passes)
            while not run.ended and self._end is None:
                events = await run.read()
                self._put(events, joint)
                # Only the store can slow the backend down here, not a reader.
                await self._recorder.wait_for_space()
            if joint.work is not None:
                # Until then, the next request of this conversation waits.
                await self._recorder.close()
        except BridgeError as error:
            self._put(self._failed(error.failure))
        except Exception as error:
            log_unexpected(log, f"run {self.key.run_id} broke", error)
            self._put(self._failed(Failure(ErrorCode.INTERNAL, "The bridge failed while it handled this run.")))

    async def _made(self) -> Run:
        """Return the run of the plan. What it loads is waited for while other requests hold too much in memory."""
        until = time.monotonic() + _ROOM_SECONDS
        while True:
            try:
                return await self._make(self.key, self.plan, self._lost)
            except MemorySpent:
                if time.monotonic() >= until:
                    raise
            await asyncio.sleep(_ROOM_POLL)

    def _passes(self, events: list[Event]) -> bool:
        """Record deltas where they arrive, unless the run is at its end or the store is behind."""
        if self._end is not None or self._recorder.is_full:
            return False
        self._put(events)
        return True

    def _put(self, events: list[Event], joint: Joint | None = None) -> None:
        self._recorder.put(events, self._lost.names, joint)
        if events and isinstance(events[-1], RunFinished | RunFailed) and self.outcome is None:
            self.outcome = events[-1]
        if self._limit is not None and self._recorder.size > self._limit:
            text = f"The run is longer than the limit of {self._limit} bytes (stores.max_run)."
            self.cut(Failure(ErrorCode.BACKEND_PROTOCOL, text, backend_code="too_large"))

    def _canceled(self) -> list[Event]:
        if self._run is not None:
            return self._run.cancel()
        return [self.plan.head(), RunFinished(FinishReason.CANCELED, time.time())]

    def _failed(self, failure: Failure) -> list[Event]:
        return self._run.cut(failure) if self._run is not None else [self.plan.head(), RunFailed(failure, time.time())]


async def write_failure(
    store: RunStore,
    record: RunRecord,
    plan: RunPlan | None,
    token: str,
    failure: Failure = LOST,
    *,
    patience: float = PATIENCE,
) -> None:
    """End a run that no process drives: close the open parts in its log, then fail. `token` holds its lease.

    `plan` is None if it cannot be read.
    """
    parts, after = OpenParts(), 0
    head = RunStarted(record.key.run_id, record.key.thread_id, None, record.created_at)
    if plan is not None:
        head = plan.head()
    try:
        while entries := await store.read(record.key, after):
            for entry in entries:
                parts.feed(from_body(entry.body).events)
            after = entries[-1].number
    except ValueError as error:
        # Written by another version of the bridge: it must end all the same.
        log_unexpected(log, f"run {record.key.run_id} cannot be read", error)
    recorder = RunRecorder(store, record.key, token, record.entries, lambda: None, patience)
    recorder.put(parts.fail(failure, head))
    await recorder.close()
