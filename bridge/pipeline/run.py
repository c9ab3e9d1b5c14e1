"""A run from request to last event: the try or tries at the backend, the stages, the clock, the end.

`Run.read` returns batches, never single events: what one network read brought stays together down to one write. There
is one task and no queue, so a reader that is slow simply does not read on, and a reader that goes away cancels.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import replace

from bridge.codec import Card, Losses
from bridge.errors import BackendError, BridgeError, ErrorCode, Failure
from bridge.model import Event, Request, RunFailed, RunFinished, RunStarted
from bridge.model.closing import OpenParts
from bridge.model.events import CONTENT, TERMINAL, UsageReported
from bridge.pipeline.backend import Backend, Call, CallInfo
from bridge.pipeline.stages import AUTOMATIC, StageContext, StageFactory, build

log = logging.getLogger("bridge.run")

_CONTENT_OR_END = CONTENT | TERMINAL


class Run:
    """One run. `prepare` without I/O, then `read` until `done`, then `close` (always).

    Attributes for whoever reports on it: `reason` or `failure` after the end, `usage`, `lost`, and the loop
    times `started`, `first`, `last` of start, first content and last read.
    """

    def __init__(
        self,
        request: Request,
        backend: Backend,
        front: Card,
        info: CallInfo,
        *,
        options: object = None,
        stages: Sequence[StageFactory] = (),
        lost: Losses | None = None,
        untouched: bool = False,
    ) -> None:
        """`untouched`: no stage may change the stream (passthrough). Raises `Unsupported` from the back's codec."""
        self.lost = lost if lost is not None else Losses()
        self.backend = backend
        self._info = info
        self._head = RunStarted(info.run_id, info.thread_id, None, info.created_at)
        self._open = OpenParts()
        context = StageContext(request, front, backend.card, options, self.lost)
        self._stages = [] if untouched else build((*AUTOMATIC, *stages), context)
        self.request = context.request
        self.call: Call = backend.call(self.request, info, self.lost)
        self._attempt = 1
        self._opened = False
        self._watch: asyncio.TimerHandle | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._waiting: float | None = None
        self._expired: Failure | None = None
        self.done = False
        self.usage: UsageReported | None = None
        self.reason: str | None = None
        self.failure: Failure | None = None
        self.started = time.monotonic()
        self.first: float | None = None
        self.last = self.started

    # ------------------------------------------------------------------ reading

    def head(self) -> list[Event]:
        """`RunStarted`, now, for clients that want life before the backend answered."""
        self._head.model = self.request.model
        out: list[Event] = [self._head]
        self._open.feed(out)
        return out

    async def read(self) -> list[Event]:
        """The next batch, through all stages; possibly empty. The batch after which `done` is set ends the run.

        Never raises for what the backend does: a failure is the last event. Cancellation goes through.
        """
        if self.done:
            return []
        try:
            if self._opened:
                self._waiting = time.monotonic()
                events = await self.call.read()
                self._waiting = None
            else:
                events = await self._first_read()
            self.last = time.monotonic()
            for stage in self._stages:
                events = stage(events)
        except Exception as error:
            events = self._broken(error)
        return self._passed_on(events)

    def _passed_on(self, events: list[Event]) -> list[Event]:
        """Bookkeeping for a batch that is about to leave."""
        if not events:
            return events
        if self._open.started and type(events[0]) is RunStarted:
            events = events[1:]
        self._open.feed(events)
        if events and type(events[-1]) in TERMINAL:
            events = self._end(events)
        return events

    def _end(self, events: list[Event]) -> list[Event]:
        self.done = True
        self._stop_timers()
        last = events[-1]
        for event in events[-3:]:
            if isinstance(event, UsageReported):
                self.usage = event
        if isinstance(last, RunFailed):
            self.failure = last.error
        elif isinstance(last, RunFinished):
            self.reason = str(last.reason)
        if isinstance(last, (RunFailed, RunFinished)) and last.ended_at is None:
            # A codec has no clock; the end of the run is known here.
            events = [*events[:-1], replace(last, ended_at=time.time())]
        return events

    def _broken(self, error: Exception) -> list[Event]:
        """Something between backend and client raised: the run ends, well formed, and the client learns a code."""
        if isinstance(error, BridgeError):
            failure = error.failure
        else:
            log.exception("run %s: %s in the pipeline", self._info.run_id, type(error).__name__)
            failure = Failure(ErrorCode.INTERNAL, "The bridge failed while it handled this run.")
        return self._open.fail(failure, self._head)

    # ------------------------------------------------------------------ the tries

    async def _first_read(self) -> list[Event]:
        """Opens the call and reads until content or the end came; repeats a try that failed before content."""
        if self._limit is None and (total := self.backend.timeouts.total):
            self._limit = asyncio.get_running_loop().call_later(total, self._expire_total, total)
        while True:
            events = await self._try()
            self.first = self.first or time.monotonic()
            failure = _failure_without_content(events)
            if failure is None or not self._again(failure):
                self._opened = True
                if events and type(events[-1]) not in TERMINAL:
                    self._arm_watch()
                return events
            await asyncio.sleep(self._pause(failure))
            await self.call.close()
            self._attempt += 1
            self.call = self.backend.call(self.request, self._info, self.lost)

    async def _try(self) -> list[Event]:
        limits = self.backend.timeouts
        left = None if limits.total is None else self.started + limits.total - time.monotonic()
        seconds = min((s for s in (limits.first_event, left) if s is not None), default=None)
        try:
            async with asyncio.timeout(seconds):
                await self.call.open()
                events = await self.call.read()
                while _CONTENT_OR_END.isdisjoint(map(type, events)):
                    events += await self.call.read()
                return events
        except TimeoutError:
            if seconds is not None and seconds == left:
                return self._failed(Failure(ErrorCode.RUN_TIMEOUT, f"The run took longer than {limits.total:g} s."))
            message = f"The backend sent no content within {limits.first_event or 0:g} s."
            return self._failed(Failure(ErrorCode.BACKEND_TIMEOUT, message))
        except BackendError as error:
            return self._failed(self._expired or error.failure)

    def _failed(self, failure: Failure) -> list[Event]:
        return [self._head, RunFailed(failure)]

    def _again(self, failure: Failure) -> bool:
        return failure.may_retry and self._attempt < self.backend.retry.attempts and self._expired is None

    def _pause(self, failure: Failure) -> float:
        """Seconds until the next try: what the backend asked for, bounded, else doubling with jitter."""
        retry = self.backend.retry
        asked = failure.headers.get("retry-after", "")
        if asked.replace(".", "", 1).isdigit():
            return min(float(asked), retry.max_backoff)
        pause = min(retry.backoff * 2 ** (self._attempt - 1), retry.max_backoff)
        return float(pause * random.uniform(0.5, 1.0))

    # ------------------------------------------------------------------ time

    # A timer per event would cost 8-9 us (PERFORMANCE: timers); reads only note the time, and one timer per idle
    # limit looks whether it has passed.

    def _arm_watch(self) -> None:
        idle = self.backend.timeouts.idle
        if idle:
            self._watch = asyncio.get_running_loop().call_later(idle, self._look, idle)

    def _look(self, idle: float) -> None:
        """Only waiting for the backend counts: a client that reads slowly is not the backend's silence."""
        left = idle if self._waiting is None else self._waiting + idle - time.monotonic()
        if left > 0:
            self._watch = asyncio.get_running_loop().call_later(left, self._look, idle)
        else:
            self._expire(ErrorCode.BACKEND_TIMEOUT, f"The backend fell silent for {idle:g} s.")

    def _expire_total(self, total: float) -> None:
        self._expire(ErrorCode.RUN_TIMEOUT, f"The run took longer than {total:g} s.")

    def _expire(self, code: ErrorCode, message: str) -> None:
        if not self.done:
            self._expired = Failure(code, message)
            self.call.abort(self._expired)

    def _stop_timers(self) -> None:
        for timer in (self._watch, self._limit):
            if timer is not None:
                timer.cancel()

    # ------------------------------------------------------------------ the end

    def cut(self, failure: Failure) -> list[Event]:
        """Ends the run from this side, now: the events that tell the client so."""
        return self._passed_on(self._open.fail(failure, self._head))

    async def close(self) -> None:
        """Lets go of the backend; cancels its work when the run is not over. Never raises."""
        self._stop_timers()
        await self.call.close()


def _failure_without_content(events: list[Event]) -> Failure | None:
    """The failure of a try that brought nothing a client could have seen."""
    last = events[-1] if events else None
    if isinstance(last, RunFailed) and CONTENT.isdisjoint(map(type, events)):
        return last.error
    return None


def failed_at_once(events: list[Event]) -> Failure | None:
    """The failure, when this first batch holds nothing but a failed run: it can still be an HTTP status."""
    return _failure_without_content(events)
