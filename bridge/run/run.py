"""A run from request to last event: the attempts at its backends, the clock, the conversation that is kept.

`Run.read` returns batches, never single events: what one network read brought stays together down to one write. There
is one task and no queue, so a reader that is slow simply does not read on, and a reader that goes away cancels.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from bridge.errors import BridgeError, ErrorCode, Failure, unexpected_failure
from bridge.model import Answer, Event, FinishReason, RunFailed, RunFinished, UsageReported, estimate_tokens
from bridge.model.events import CONTENT, TERMINAL
from bridge.run.attempt import BackendAttempt, NextAttempt
from bridge.run.backend import Backend, Call
from bridge.run.continuation import StreamContinuation
from bridge.run.conversation.turns import Turn
from bridge.run.retries import Tries, failed_at_once, may_ask_elsewhere
from bridge.run.timeouts import Clock
from bridge.run.timer_wheel import TimerWheel
from bridge.stores.joint import Joint
from bridge.translation import Reader
from bridge.translation.stage import Stage, as_stage

log = logging.getLogger("bridge.run")

_CONTENT_OR_END = CONTENT | TERMINAL
_EVENT_SIZE = 64
"""Bytes that each event counts for at least: an endless stream of tiny events fills memory, too."""
_STREAMED_TOKEN, _WHOLE_TOKEN = 200, 4
"""About what a token takes in a stream, and in an answer in one piece, in bytes."""


class Run:
    """One run: `read` until `ended`, then `close` (always).

    Attributes:
        reader: Applies the stages and knows how the run came out.
        lost: The features that this run could not carry so far.
        tries: The tries at backends, of which the last one answers.
        continued_at: How many characters the client had each time that another backend continued the answer.
        clock: Its timeouts, and how regular its reads are.
        started: The monotonic time of the start.
        first: The monotonic time of the first content.
        joint: A transaction that is to store the conversation at the end of the run, if it can.
    """

    __slots__ = (
        "_broke", "_continuation", "_max_answer", "_size", "_write", "clock", "continued_at", "first", "joint", "lost",
        "reader", "started", "tries",
    )  # fmt: skip

    def __init__(
        self,
        attempt: BackendAttempt,
        others: Sequence[NextAttempt] = (),
        continuation: StreamContinuation | None = None,
        max_answer: int | None = None,
        wheel: TimerWheel | None = None,
    ) -> None:
        """`others`: where to ask instead, in order, while nothing of the backend's content was passed on; with
        `continuation` also later. `max_answer` limits the whole answer, in bytes as they come from the backend.
        `wheel` has the deadlines of all runs; by default this one has a wheel of its own.
        """
        self.tries = Tries(attempt, others)
        self._continuation = continuation if others else None
        self._max_answer = max_answer
        self._size = 0
        self._broke: Failure | None = None
        self._write: Callable[[list[Event]], bool] = _unwritten
        self.reader = Reader(attempt.head, self._stages(), clock=time.time)
        self.lost = attempt.lost
        self.continued_at: tuple[int, ...] = ()
        self.started = time.monotonic()
        self.first: float | None = None
        self.joint: Joint | None = None
        self.clock = Clock(self.started, self.tries, wheel or TimerWheel())

    @property
    def ended(self) -> bool:
        """The terminal event was read."""
        return self.reader.ended

    @property
    def failure(self) -> Failure | None:
        """Why the run failed, if it did."""
        return self.reader.failure

    @property
    def used(self) -> UsageReported | None:
        """The tokens that the backend reported, or an estimate if it did not; None for a request that it refused."""
        reader, attempt = self.reader, self.tries.attempt
        was_left = not reader.ended or reader.finish_reason == FinishReason.CANCELED
        if reader.usage is not None or attempt.asks_nobody or not (reader.has_content or was_left):
            return reader.usage
        size = _STREAMED_TOKEN if attempt.request.stream else _WHOLE_TOKEN
        return UsageReported(estimate_tokens(attempt.request), attempt.call.received // size, estimated=True)

    @property
    def backend(self) -> Backend:
        """The backend that answers, or was asked last."""
        return self.tries.attempt.backend

    @property
    def call(self) -> Call:
        """The call whose answer is read."""
        return self.tries.attempt.call

    @property
    def waiting(self) -> float | None:
        """Since when the backend is waited for, in monotonic seconds; None while it is not."""
        return self.clock.waiting

    # ------------------------------------------------------------------ reading

    def head(self) -> list[Event]:
        """Returns `RunStarted` at once, for clients that expect a sign of life before the backend answered."""
        head = self.tries.attempt.head()
        head.model = self.tries.attempt.request.model
        return self.reader.commit([head])

    async def read(self) -> list[Event]:
        """Returns the next batch, through all stages; possibly empty. The batch after which `ended` is set is the last.

        Never raises for what the backend or a stage does: a failure is the last event. Cancellation goes through.
        """
        reader, clock = self.reader, self.clock
        if reader.ended:
            return []
        clock.enter()
        try:
            if clock.opened:
                events = await self.tries.attempt.call.read()
                clock.go_on()
            else:
                events = await self._first_read()
            if self.tries.attempt.linked is not None:
                events = await self.tries.attempt.linked.events(events)
            if clock.expired is not None and (late := clock.late()) is not None:
                # An agent may swallow its cancellation; its time is over all the same.
                events = self._late(late)
        except asyncio.CancelledError:
            late = clock.late()
            if late is None:
                raise
            events = self._late(late)
        except Exception as error:
            what = f"run {self.tries.attempt.info.run_id} broke in the pipeline"
            known = error.failure if isinstance(error, BridgeError) else None
            events = reader.fail(known or unexpected_failure(log, what, error, "handled this run"))
            await self._end()
            return events
        finally:
            clock.waiting = None
        if self._max_answer is not None:
            self._size += _EVENT_SIZE * len(events)
            if self._size + self.tries.attempt.call.received > self._max_answer and not _ends(events):
                events = [*events, *self._too_large(self._max_answer)]
        if self._continuation is None:
            events = reader.take(events)
        else:
            events = reader.commit(await self._continued(events))
        if events and type(events[-1]) in TERMINAL:
            await self._end()
        return events

    def pass_deltas(self, write: Callable[[list[Event]], bool]) -> None:
        """Call `write` with deltas that arrive while `read` waits, where the backend's transport can do that; where
        `write` returns False, `read` returns them. Only for a run with nothing between backend and client that needs
        more than a look at what passes.
        """
        if self._continuation is None:
            self._write = write
            if self.clock.opened:
                self.tries.attempt.call.pass_deltas(self._passed)

    def _passed(self, events: list[Event]) -> bool:
        size = self._size + _EVENT_SIZE * len(events)
        clock, reader = self.clock, self.reader
        if clock.expired is not None or clock.waiting is None or reader.ended:
            return False
        if not events:
            clock.waiting = time.monotonic()
            return True
        if self._max_answer is not None and size + self.tries.attempt.call.received > self._max_answer:
            return False
        for stage in reader.stages:
            if not stage.passes_deltas:
                return False
        if not self._write(events) or reader.ended:
            return False  # ended: it could not be encoded
        for observer in reader.observers:
            observer.passed(events)
        self._size = size
        clock.go_on()
        return True

    async def _end(self) -> None:
        """The run has ended. The conversation is kept before the client sees that."""
        self.clock.stop()
        self.tries.ended(self.reader.failure)
        if (turn := self.tries.attempt.turn) is not None:
            turn.joint = self.joint
            await self._keep(turn, self.reader.failure)

    # ------------------------------------------------------------------ the tries

    async def _first_read(self) -> list[Event]:
        """Opens the call and reads until content or the end came; what failed before content is tried again.

        First at the same backend, as its `retry` says, then at the others.
        """
        self.clock.watch()
        while True:
            events = await self._ask()
            failure = failed_at_once(events)
            if failure is None or not await self._next(failure):
                break
        if failure is None:
            self.tries.answered()
            self.first = self.first or time.monotonic()
        self.clock.opened = True
        if self._write is not _unwritten:
            self.tries.attempt.call.pass_deltas(self._passed)
        if type(events[-1]) not in TERMINAL:
            # From now on the idle limit counts, which may pass before the one that was watched so far.
            self.clock.watch()
        return events

    async def _ask(self) -> list[Event]:
        tries = self.tries
        attempt = tries.attempt
        try:
            tries.begin()
            call, hear = attempt.call, self.clock.hear
            await call.open()
            hear()
            events = await call.read()
            while _CONTENT_OR_END.isdisjoint(map(type, events)):
                frames = call.frames
                if self._max_answer is not None and call.received > self._max_answer:
                    events += self._too_large(self._max_answer)
                    break
                hear()
                events += await call.read()
                call.frames = [*frames, *call.frames]
            return events
        except BridgeError as error:
            return [self.tries.attempt.head(), RunFailed(error.failure)]
        except asyncio.CancelledError:
            late = self.clock.late()
            if late is None:
                raise
            events = attempt.call.fail(late)
            late.cause = late.cause or f"Backend {attempt.backend.name!r} has not answered"
            return events

    async def _next(self, failure: Failure) -> bool:
        """Go on to the next try, here or at another backend; return False when there is none."""
        self.clock.between_tries(failure)
        before = self.tries.attempt
        if not await self.tries.next(failure, self._continuation.text if self._continuation is not None else ""):
            return False
        if self.tries.attempt is not before:
            self._follow()
        self.clock.try_again()
        return True

    def _follow(self) -> None:
        """Read the answer of another backend from now on."""
        self.reader.pass_through(self._stages())
        self.clock.elsewhere(self.backend.timeouts)

    def _stages(self) -> Sequence[Stage]:
        """Return the stages that events pass: those of the attempt, then the join with an earlier backend's answer."""
        stages = self.tries.attempt.stages
        return stages if self._continuation is None else (*stages, as_stage(self._continuation.join))

    async def _continued(self, events: list[Event]) -> list[Event]:
        """Returns a batch through all stages, where another backend may continue the answer when one breaks off."""
        continuation = self._continuation
        assert continuation is not None
        continuation.observe(events)
        events = self.reader.apply(events)
        if continuation.differs:
            assert self._broke is not None
            run_id = self.tries.attempt.info.run_id
            log.warning("run %s: %s sent a different text, the run ends", run_id, self.backend.name)
            self.tries.dropped()
            return self.reader.closing(self._broke)
        end = events[-1] if events else None
        if not isinstance(end, RunFailed):
            continuation.record(events)
            return events
        self._broke, left = end.error, continuation.left_open(events)
        if continuation.possible and may_ask_elsewhere(end.error):
            self.tries.ended(end.error)
            if await self.tries.elsewhere(end.error, continuation.text):
                self._follow()
                continuation.begin()
                self.clock.start_over()
                self.continued_at = (*self.continued_at, len(continuation.text))
                return left
        if not self.continued_at:
            return events
        return self.reader.commit(left) + self.reader.closing(end.error)

    def _late(self, failure: Failure) -> list[Event]:
        """A limit has passed: the backend is given up."""
        return (
            self.tries.attempt.call.fail(failure)
            if self.clock.opened
            else [self.tries.attempt.head(), RunFailed(failure)]
        )

    def _too_large(self, limit: int) -> list[Event]:
        """Gives the answer up, for good: no other backend continues it. A client may have asked for a long one, so that
        it does not count against the backend.
        """
        self.tries.dropped()
        self.tries.give_up()
        text = f"The backend's answer is longer than the limit of {limit} bytes (server.limits.answer)."
        return self.tries.attempt.call.fail(Failure(ErrorCode.BACKEND_PROTOCOL, text))

    # ------------------------------------------------------------------ the end

    def cancel(self) -> list[Event]:
        """Ends the run on request, when no `read` is waiting: what is known by now, then the end."""
        if self.ended:
            return []
        self.tries.dropped()
        self.clock.stop()
        failure, events = _canceled(), list[Event]()
        if self.clock.opened and not self.continued_at:
            events = self.reader.apply(self.tries.attempt.call.fail(failure))
        if not _ends(events):
            events = self.reader.closing(failure)
        if isinstance(events[-1], RunFailed) and events[-1].error.code is ErrorCode.CANCELED:
            events[-1] = RunFinished(FinishReason.CANCELED)
        return self.reader.commit(events)

    def cut(self, failure: Failure) -> list[Event]:
        """Ends the run from this side, now: the events that tell the client so."""
        self.tries.dropped()
        self.clock.stop()
        return self.reader.fail(failure)

    async def settle(self) -> None:
        """Lets go of the backend after `cancel` or `cut`, and hands the conversation to `joint`, if there is one.

        The next request of the conversation waits until `close`.
        """
        self.clock.stop()
        await self.tries.attempt.call.close()
        if (turn := self.tries.attempt.turn) is not None:
            turn.joint = self.joint
            await self._keep(turn, _canceled())

    async def close(self) -> None:
        """Lets go of the backend; cancels its work when the run is not over. Never raises but `CancelledError`."""
        self.clock.stop()
        self.tries.dropped()
        await self.tries.attempt.call.close()
        turn = self.tries.attempt.turn
        if turn is not None:
            try:
                await self._keep(turn, _canceled())  # unless it was kept at an end of its own
            finally:
                await turn.close()
        # They refer to the run, which would hold its request until the collector finds them.
        self.joint, self._write = None, _unwritten

    async def _keep(self, turn: Turn, failure: Failure | None) -> None:
        """Keeps the conversation, once; a store that fails now is logged, since the client has its answer already."""
        recorded = self.tries.attempt.recorded()
        if recorded is None:
            return
        answer, shown = recorded
        answer.failure = answer.failure or failure
        if self.joint is not None:
            self.joint.otherwise = partial(self._store, turn, answer, shown)
        await self._store(turn, answer, shown)

    async def _store(self, turn: Turn, answer: Answer, shown: Answer) -> None:
        try:
            await turn.keep(answer, shown)
        except BridgeError as error:
            log.error("run %s: the conversation was not stored: %s", self.tries.attempt.info.run_id, error.message)
        finally:
            turn.joint = None  # what comes later is stored at once


def _unwritten(events: list[Event]) -> bool:
    """Leave deltas to `read`."""
    return False


def _ends(events: list[Event]) -> bool:
    return bool(events) and type(events[-1]) in TERMINAL


def _canceled() -> Failure:
    return Failure(ErrorCode.CANCELED, "The run was canceled.")
