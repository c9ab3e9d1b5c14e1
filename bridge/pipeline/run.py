"""A run from request to last event: the try or tries at the backend, the stages, the clock, the end.

`Run.read` returns batches, never single events: what one network read brought stays together down to one write. There
is one task and no queue, so a reader that is slow simply does not read on, and a reader that goes away cancels.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Protocol

from bridge.codec import Losses
from bridge.errors import BridgeError, ErrorCode, Failure
from bridge.model import Event, FinishReason, Request, RunFailed, RunFinished, RunStarted
from bridge.model.closing import PIECES, OpenParts
from bridge.model.events import CONTENT, TERMINAL, UsageReported
from bridge.errors import log_unexpected
from bridge.pipeline.backend import Backend, Call, Sink
from bridge.pipeline.breaker import Pass
from bridge.pipeline.clock import Clock
from bridge.pipeline.pace import Pace
from bridge.pipeline.seam import Differs, Seam
from bridge.pipeline.stages import through
from bridge.pipeline.tries import failed_at_once, may_ask_elsewhere, may_repeat
from bridge.pipeline.way import NextWay, Way

log = logging.getLogger("bridge.run")

_CONTENT_OR_END = CONTENT | TERMINAL


class Outlet(Protocol):
    """Where batches go in the middle of a read."""

    @property
    def ready(self) -> bool:
        """Whether it takes more at once; asked before each batch."""
        ...

    def take(self, events: list[Event]) -> None: ...


class Run:
    """One run: `read` until `done`, then `close` (always).

    Attributes for whoever reports on it: `reason` or `failure` after the end, `usage`, `lost`, `tried` (names of the
    backends that were asked, in order), `retries` (tries at a backend after its first), `joined` (how many characters
    the client had when another backend went on, for each time), `pace`, `started` and `first`, the monotonic times of
    the start and of the first content.
    """

    __slots__ = (
        "_attempt",
        "_broke",
        "_clock",
        "_open",
        "_others",
        "_outlet",
        "_pass",
        "_seam",
        "_way",
        "done",
        "failure",
        "first",
        "joined",
        "pace",
        "reason",
        "retries",
        "started",
        "tried",
        "usage",
    )

    def __init__(self, way: Way, others: Sequence[NextWay] = (), seam: Seam | None = None) -> None:
        """`others`: where to ask instead, in order, while nothing of the backend's content was passed on; with `seam`
        also later.
        """
        self._way = way
        self._others = list(others)
        self._open = OpenParts()
        self._seam = seam if self._others else None
        self._broke: Failure | None = None
        self._attempt = 1
        self._pass: Pass | None = None
        self._outlet: Outlet | None = None
        self.pace = Pace()
        self.tried = [way.backend.name]
        self.retries = 0
        self.joined: list[int] = []
        self.done = False
        self.usage: UsageReported | None = None
        self.reason: str | None = None
        self.failure: Failure | None = None
        self.started = time.monotonic()
        self.first: float | None = None
        self._clock = Clock(way.backend.timeouts, self.started)

    @property
    def backend(self) -> Backend:
        """The backend that answers, or was asked last."""
        return self._way.backend

    @property
    def call(self) -> Call:
        """The call whose answer is read."""
        return self._way.call

    @property
    def request(self) -> Request:
        """What the backend was sent."""
        return self._way.request

    @property
    def lost(self) -> Losses:
        return self._way.lost

    @property
    def waiting(self) -> float | None:
        """Since when the backend is waited for, in monotonic seconds; None while it is not."""
        return self._clock.waiting

    # ------------------------------------------------------------------ reading

    def head(self) -> list[Event]:
        """`RunStarted`, now, for clients that want life before the backend answered."""
        head = self._way.head()
        head.model = self._way.request.model
        return self._passed_on([head])

    async def read(self, outlet: Outlet | None = None) -> list[Event]:
        """The next batch, through all stages; possibly empty. The batch after which `done` is set ends the run.

        Never raises for what the backend or a stage does: a failure is the last event. Cancellation goes through.
        `outlet` may be given batches in the middle of the read, as they come; the batch with the end is returned.
        """
        if self.done:
            return []
        clock = self._clock
        pour: Sink | None = None
        if outlet is not None and clock.opened and self._seam is None:
            self._outlet, pour = outlet, self._pour
        clock.enter()
        try:
            if clock.opened:
                events = await self._way.call.read(pour)
                self.pace.add(time.monotonic() - (clock.waiting or 0.0))
            else:
                events = await self._first_read()
            if (late := clock.late()) is not None:
                # An agent may swallow its cancellation; its time is over all the same.
                events = self._late(late)
        except asyncio.CancelledError:
            late = clock.late()
            if late is None:
                raise
            events = self._late(late)
        except Exception as error:
            return await self._ended(self._broken(error))
        finally:
            clock.leave()
            self._outlet = None
        if self._passes(events):
            return events
        try:
            events = self._heard(events)
            if self._seam is not None:
                events = await self._seamed(self._seam, events)
        except Exception as error:
            events = self._broken(error)
        return await self._ended(events)

    def _passes(self, events: list[Event]) -> bool:
        """Whether nothing is to be done with a batch: pieces of open parts, as most are. Notes what is to be kept."""
        way = self._way
        if not way.plain or self._seam is not None or not PIECES.issuperset(map(type, events)):
            return False
        if way.said is not None:
            way.said.feed(events)
        return True

    def _pour(self, events: list[Event]) -> bool:
        """A batch in the middle of a read, on its way to the outlet."""
        outlet = self._outlet
        assert outlet is not None
        if not outlet.ready:
            return False
        if not self._passes(events):
            if events and type(events[-1]) in TERMINAL:
                return False
            events = self._passed_on(self._heard(events))
        if events:
            outlet.take(events)
        now = time.monotonic()
        clock = self._clock
        self.pace.add(now - (clock.waiting or now))
        clock.waiting = now
        return True

    async def _ended(self, events: list[Event]) -> list[Event]:
        """The batch, passed on; the conversation is kept when it is the last one."""
        events = self._passed_on(events)
        if events and type(events[-1]) in TERMINAL:
            # Before the client sees the end: its next request must find this turn.
            await self._keep(self.failure)
        return events

    def _heard(self, events: list[Event]) -> list[Event]:
        """What the backend said, as the client is shown it."""
        way = self._way
        if way.info.shown_thread is not None and events and isinstance(events[0], RunStarted):
            events[0].thread_id = way.info.shown_thread
        if self._seam is not None:
            self._seam.saw(events)
        if way.begun is not None:
            events = way.begun(events)
        if way.names is not None:
            events = way.names.restore(events)
        if way.turn is not None and way.said is not None:
            # Before the stages: a conversation holds what the backend said, not what this client is shown.
            events = way.turn.amend(events, way.said.answer)
            way.said.feed(events)
        return through(way.stages, events) if way.stages else events

    def _passed_on(self, events: list[Event]) -> list[Event]:
        """Bookkeeping for a batch that is about to leave."""
        if not events:
            return events
        if self._open.started and type(events[0]) is RunStarted:
            events = events[1:]
        self._open.feed(events)
        if events and type(events[-1]) in TERMINAL:
            self._end(events)
        return events

    def _end(self, events: list[Event]) -> None:
        self.done = True
        self._clock.stop()
        last = events[-1]
        if isinstance(last, RunFailed):
            self.failure = last.error
        elif isinstance(last, RunFinished):
            self.reason = str(last.reason)
        self._report(self.failure)
        # A codec has no clock; the end of the run is known here, before anybody else saw the event.
        last.ended_at = last.ended_at or time.time()  # type: ignore[union-attr]
        for event in events[-3:-1]:
            if isinstance(event, UsageReported):
                self.usage = event

    def _broken(self, error: Exception) -> list[Event]:
        """Something between backend and client raised: the run ends, well formed, and the client learns a code."""
        if isinstance(error, BridgeError):
            failure = error.failure
        else:
            log_unexpected(log, f"run {self._way.info.run_id} broke in the pipeline", error)
            failure = Failure(ErrorCode.INTERNAL, "The bridge failed while it handled this run.")
        return self._open.fail(failure, self._way.head())

    # ------------------------------------------------------------------ the tries

    async def _first_read(self) -> list[Event]:
        """Opens the call and reads until content or the end came; what failed before content is tried again.

        First at the same backend, as its `retry` says, then at the others.
        """
        self._first_call()
        self._clock.watch()
        while True:
            events = await self._try()
            failure = failed_at_once(events)
            if failure is None or not await self._next(failure):
                break
        if failure is None:
            self.first = self.first or time.monotonic()
            if self._pass is not None:
                self._pass.answered()
        self._clock.opened = True
        if type(events[-1]) not in TERMINAL:
            # From now on the idle limit counts, which may pass before the one that was watched so far.
            self._clock.watch()
        return events

    async def _try(self) -> list[Event]:
        way = self._way
        try:
            if way.backend.breaker is not None and not way.asks_nobody:
                self._pass = way.backend.breaker.admit()
            await way.call.open()
            call = way.call
            events = await call.read()
            while _CONTENT_OR_END.isdisjoint(map(type, events)):
                frames = call.frames
                events += await call.read()
                call.frames = [*frames, *call.frames]
            return events
        except BridgeError as error:
            return [self._way.head(), RunFailed(error.failure)]
        except asyncio.CancelledError:
            late = self._clock.late()
            if late is None:
                raise
            return [self._way.head(), RunFailed(late)]

    def _first_call(self) -> None:
        if self.backend.retry.attempts > 1:
            self.backend.budget.called()

    async def _next(self, failure: Failure) -> bool:
        """Goes on to the next try, here or at another backend; False when there is none."""
        self._report(failure)
        pause = self._pause(failure)
        self._clock.between_tries(failure)
        if pause is not None:
            await asyncio.sleep(pause)
            await self._way.again()
            self._attempt += 1
            self.retries += 1
        elif may_ask_elsewhere(failure) and await self._fall_over(failure):
            self._first_call()
        else:
            return False
        self._clock.try_again()
        return True

    def _pause(self, failure: Failure) -> float | None:
        """Seconds until this backend is asked once more; None when it is not."""
        retry, breaker = self.backend.retry, self.backend.breaker
        if not may_repeat(failure) or self._attempt >= retry.attempts or (breaker is not None and breaker.refuses):
            return None
        pause = retry.pause(failure, self._attempt)
        return pause if pause is not None and self.backend.budget.take() else None

    async def _fall_over(self, failure: Failure) -> bool:
        """On to the next backend that can be told the request; False when there is none."""
        while self._others:
            failed, prepare = self.backend.name, self._others.pop(0)
            # Before the next one is prepared: it has to have the conversation.
            await self._way.leave()
            try:
                way = await prepare(self._seam.text if self._seam is not None else "")
            except BridgeError as error:
                log.warning("run %s: the next backend cannot be asked: %s", self._way.info.run_id, error.message)
                continue
            self._way, self._attempt = way, 1
            self._clock.elsewhere(way.backend.timeouts)
            self.tried.append(way.backend.name)
            log.warning("run %s: %s failed (%s), now %s", way.info.run_id, failed, failure.code, way.backend.name)
            return True
        return False

    async def _seamed(self, seam: Seam, events: list[Event]) -> list[Event]:
        """What leaves of a batch, where another backend may go on when one breaks in the middle of its words."""
        try:
            events = seam.join(events)
        except Differs:
            assert self._broke is not None
            log.warning("run %s: %s began otherwise, the run ends", self._way.info.run_id, self.backend.name)
            self._forgive()
            return self._open.fail(self._broke, self._way.head())
        end = events[-1] if events else None
        if not isinstance(end, RunFailed):
            seam.passed(events)
            return events
        self._broke, kept = end.error, seam.left_open(events)
        if seam.holds and may_ask_elsewhere(end.error):
            self._report(end.error)
            if await self._fall_over(end.error):
                seam.begin()
                self._clock.start_over()
                self.joined.append(len(seam.text))
                return kept
        if not self.joined:
            return events
        self._open.feed(kept)
        return kept + self._open.fail(end.error, self._way.head())

    def _late(self, failure: Failure) -> list[Event]:
        """A limit has passed: the backend is given up."""
        return self._way.call.fail(failure) if self._clock.opened else [self._way.head(), RunFailed(failure)]

    def _report(self, failure: Failure | None) -> None:
        """Tells the backend's breaker how the call came out."""
        admitted, self._pass = self._pass, None
        if admitted is not None:
            admitted.ended(failure)

    def _forgive(self) -> None:
        """The run ends for a reason of ours: the call says nothing of the backend."""
        admitted, self._pass = self._pass, None
        if admitted is not None:
            admitted.dropped()

    # ------------------------------------------------------------------ the end

    def cancel(self) -> list[Event]:
        """Ends the run because somebody asked for it, when no `read` is waiting: what is known by now, then the end."""
        if self.done:
            return []
        self._forgive()
        failure = _canceled()
        try:
            events = self._heard(self._way.call.fail(failure)) if self._clock.opened and not self.joined else []
        except Exception as error:
            return self._passed_on(self._broken(error))
        if not events or type(events[-1]) not in TERMINAL:
            events = self._open.fail(failure, self._way.head())
        if isinstance(events[-1], RunFailed) and events[-1].error.code is ErrorCode.CANCELED:
            events[-1] = RunFinished(FinishReason.CANCELED)
        return self._passed_on(events)

    def cut(self, failure: Failure) -> list[Event]:
        """Ends the run from this side, now: the events that tell the client so."""
        self._forgive()
        return self._passed_on(self._open.fail(failure, self._way.head()))

    async def close(self) -> None:
        """Lets go of the backend; cancels its work when the run is not over. Never raises but `CancelledError`."""
        self._clock.stop()
        self._forgive()
        await self._way.call.close()
        turn = self._way.turn
        if turn is not None:
            try:
                if self._way.said is not None:  # it was not kept at an end of its own
                    await self._keep(_canceled())
            finally:
                await turn.close()

    async def _keep(self, failure: Failure | None) -> None:
        """Keeps the conversation, once; a store that fails now is logged, since the client has its answer already."""
        turn, said, self._way.said = self._way.turn, self._way.said, None
        if turn is None or said is None:
            return
        said.cut()
        said.answer.failure = said.answer.failure or failure
        try:
            await turn.keep(said.answer)
        except BridgeError as error:
            log.error("run %s: the conversation was not kept: %s", self._way.info.run_id, error.message)


def _canceled() -> Failure:
    return Failure(ErrorCode.CANCELED, "The run was canceled.")
