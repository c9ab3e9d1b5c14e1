"""Backends that take several requests for one run, as the dialect's `SteppedRun` requires."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp

from bridge.contract import Context, FrameLike, Losses, Step, SteppedRun, SteppedRunDialect, WireRequest, WireResponse
from bridge.errors import BackendError, BridgeError, ErrorCode, Failure
from bridge.model import Event, Request, RunFailed
from bridge.model.closing import PIECES
from bridge.model.events import TERMINAL
from bridge.run.backend import Call, CallInfo
from bridge.run.backends.http_answer import AT_ONCE, HttpAnswer, bounded, broken_off
from bridge.run.backends.http_backend import HttpBackend, has_content
from bridge.translation.framing import sse

log = logging.getLogger("bridge.http")

_LAST_EVENTS = 5.0
"""Seconds in which a canceled run may still report its id, and then may end by itself."""
_MOST_NAMELESS = 100
"""Canceled runs of a backend whose answers in one piece are waited for; further ones have `_LAST_EVENTS`."""
_LAST_WORDS = 2.0
"""Seconds that the next request of a conversation waits for that."""
_CANCEL_AGAIN = (0.2, 0.4, 0.8)
"""Seconds without the end of a run before it is cancelled again: less than `_LAST_WORDS`, for the next run's sake."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that was sent, and what waits for the head of its answer."""

    answer: Awaitable[HttpAnswer]
    wire: WireRequest
    most: int | None


class SteppedBackend(HttpBackend):
    """An HTTP backend whose runs are made of several requests."""

    def __init__(self, name: str, dialect: SteppedRunDialect, url: str, **settings: Any) -> None:
        """Accept the settings of `HttpBackend`."""
        super().__init__(name, dialect, url, **settings)
        self._stepped = dialect.stepped
        self._memo: dict[str, Any] = {}

    def call(self, request: Request, info: CallInfo, lost: Losses) -> Call:
        context = self.context(request, info, lost)
        return SteppedCall(self, self._stepped(request, context, self._memo), info, context)


class SteppedCall:
    """One attempt. See `bridge.run.backend.Call` for what each method promises."""

    def __init__(self, backend: HttpBackend, run: SteppedRun, info: CallInfo, context: Context) -> None:
        self.context = context
        self.frames: list[FrameLike] = []
        self.whole: WireResponse | None = None
        self.awaits_whole = False
        self.wire_ended = False
        self.received = 0
        self.sent: WireRequest | None = None
        self._backend = backend
        self._run = run
        self._info = info
        self._splitter = sse.Splitter(backend.max_event)
        self._answer: HttpAnswer | None = None  # the open stream
        self._asked: _Asked | None = None  # a request that may start work, until the head of its answer is there
        self._due: Step | None = None  # what to ask beside it
        self._take: Callable[[list[Event]], bool] | None = None
        self._decoded: list[Event] | None = None  # what waits for `read`
        self._over = False
        self._is_late = False  # a limit of time has passed
        self._understood = False

    # ------------------------------------------------------------------ asking

    async def open(self) -> None:
        self._decoded = await self._step() or None

    async def _step(self) -> list[Event]:
        """One request and, unless a stream opened, its answer; the end when nothing is left to ask."""
        step = self._run.next()
        if step is None:
            return self._run.close()
        if step.after:
            await asyncio.sleep(step.after)
        return await self._send(step.wire, step.most)

    async def _send(self, wire: WireRequest, most: int | None) -> list[Event]:
        """Raise `BridgeError`, unless the run continues with another request."""
        wire = self.sent = self._addressed(wire)
        asks_agent = wire.method == "POST" and most is None
        self.awaits_whole = asks_agent and wire.headers.get("accept") == "application/json"
        answering = self._backend.answer(wire)
        if not asks_agent:
            return await self._answered(_Asked(answering, wire, most))
        # Whoever leaves before the head is there does not know whether a run has begun: see `close`.
        task = asyncio.ensure_future(answering)
        asked = self._asked = _Asked(task, wire, most)
        await asyncio.wait({task})
        self._asked = None
        return await self._answered(asked)

    async def _answered(self, asked: _Asked) -> list[Event]:
        """Handle the answer to a request, as `_send` does."""
        backend, wire, most = self._backend, asked.wire, asked.most
        try:
            answer = await asked.answer
        except (aiohttp.ClientError, OSError, ValueError) as error:
            error.__traceback__ = None  # as in `HttpCall.read`
            return self._unless_refused(backend.unanswered(error, wire))
        is_stream = answer.headers.get("content-type", "").partition(";")[0].strip().lower() == sse.CONTENT_TYPE
        if is_stream and most is None and answer.status < 300:
            if self._answer is not None:
                answer.release()
                second = Failure(ErrorCode.BACKEND_PROTOCOL, "The backend opened a second event stream.")
                advice = "the url and the dialect"
                raise BackendError.of(backend.explained(second, wire, f"answered {answer.status}", advice))
            self._stream(answer)
            return []
        failure, body = None, b""
        try:
            if answer.status >= 300 and answer.status != 304:
                failure = await backend.refused(answer.status, answer.headers, answer.read, wire)
            elif not is_stream:
                body = await bounded(answer.read, most or backend.max_event)
        except (aiohttp.ClientError, OSError) as error:
            failure = backend.explained(broken_off(error), wire, "broke off")
        except BackendError as error:
            failure = backend.explained(error.failure, wire, f"answered {answer.status} with more than that")
        finally:
            answer.release()
        if failure is not None:
            return self._unless_refused(failure)
        self.received += len(body)
        self.whole = WireResponse(answer.status, answer.headers, body)
        try:
            if most is None and (frames := self._frames_of(body)):
                events = self._run.feed(frames)
                if not _ends(events):
                    events += self._run.ended(None)
            else:
                events = self._run.whole(self.whole)
        except BackendError as error:
            backend.explained(backend.secrets.hide(error.failure), wire, f"answered {answer.status}")
            raise
        self.wire_ended = _ends(events)
        return events

    def _frames_of(self, body: bytes) -> list[FrameLike]:
        """Return the frames of an event stream that its server declared as something else; none for any other body."""
        if not sse.is_stream(body):
            return []
        splitter = sse.Splitter(self._backend.max_event)
        return [*splitter.feed(body), *splitter.close()]

    def _unless_refused(self, failure: Failure) -> list[Event]:
        if self._run.refused(failure):
            return []
        raise BackendError.of(failure)

    def _addressed(self, wire: WireRequest) -> WireRequest:
        """The request with all its headers; a body of the client's own would be that of one step only."""
        info = self._info
        body, wire.body = wire.body, b""
        wire = self._backend.addressed(wire, info)
        wire.body = body
        return wire

    # ------------------------------------------------------------------ reading

    async def read(self) -> list[Event]:
        if self._over:
            return []
        try:
            if self._decoded is not None:
                events, self._decoded = self._decoded, None
            elif self._answer is not None:
                events = await self._read_or_ask(self._answer)
            else:
                events = await self._step()
            return self._passed_on(events)
        except BridgeError as error:
            return self._passed_on(self._run.close(error.failure))

    async def _read_or_ask(self, answer: HttpAnswer) -> list[Event]:
        """What comes on the stream, or sends what is to be sent beside it once it was silent for that long."""
        step = self._due = self._due or self._run.next()
        if step is None:
            return await self._read(answer)
        try:
            if step.after:
                with suppress(TimeoutError):
                    async with asyncio.timeout(step.after):
                        return await self._read(answer)
        finally:
            self._due = None
        return await self._send(step.wire, step.most)

    async def _read(self, answer: HttpAnswer) -> list[Event]:
        failure: Failure | None = None
        try:
            data = await answer.read(AT_ONCE)
            ended = not data and self._decoded is None
        except (aiohttp.ClientError, OSError) as error:
            error.__traceback__ = None  # as in `HttpCall.read`
            data, ended, failure = answer.unread(AT_ONCE), True, broken_off(error)
        events, self._decoded = self._decoded or [], None
        events += self._received(data)
        if ended and failure is None and not self._run.reads_again:
            events += self._run.feed(self._splitter.close())
        if ended:
            self._answer = None
            answer.release()
            if not _ends(events):
                events += self._run.ended(failure)
        self.wire_ended = _ends(events)
        return events

    def _received(self, data: bytes) -> list[Event]:
        """The events of these bytes of the stream. Raises `BackendError` for what is too long."""
        self.received += len(data)
        return self._run.feed(self._splitter.feed(data)) if data else []

    def pass_deltas(self, take: Callable[[list[Event]], bool]) -> None:
        """As of `HttpCall`."""
        self._take = take
        if self._answer is not None:
            self._answer.pass_on(self._taken)

    def _taken(self, data: bytes) -> bool:
        """Pass deltas on where they arrive, unless something is to be asked as soon as the stream is silent."""
        assert self._take is not None
        try:
            events = self._received(data)
        except BackendError as error:
            events = self._run.close(error.failure)
        self._due = self._due or self._run.next()
        if self._due is None and PIECES.issuperset(map(type, events)) and (self._take(events) or not events):
            self._understood = self._understood or bool(events)
            return True
        self._decoded = events
        return False

    def _passed_on(self, events: list[Event]) -> list[Event]:
        self._understood = self._understood or has_content(events)
        if _ends(events):
            self._over = True
            if isinstance(events[-1], RunFailed):
                failure = self._backend.secrets.hide(events[-1].error)
                if not failure.cause and self.sent is not None:
                    unread = failure.code is ErrorCode.TRUNCATED_STREAM and not self._understood
                    is_foreign = unread or failure.code is ErrorCode.BACKEND_PROTOCOL
                    advice = "the url and the dialect" if is_foreign else ""
                    self._backend.explained(failure, self.sent, "answered", advice)
        return events

    def _stream(self, answer: HttpAnswer) -> None:
        """A stream opened."""
        self._answer, self.awaits_whole = answer, False
        self._run.opened(answer.headers)
        self._splitter = sse.Splitter(self._backend.max_event)
        if self._take is not None:
            answer.pass_on(self._taken)

    def fail(self, failure: Failure) -> list[Event]:
        self._over = True
        self._is_late = failure.code in (ErrorCode.BACKEND_TIMEOUT, ErrorCode.RUN_TIMEOUT)
        if not failure.cause and self.sent is not None:
            advice = "the timeouts" if failure.code in (ErrorCode.BACKEND_TIMEOUT, ErrorCode.RUN_TIMEOUT) else ""
            self._backend.explained(failure, self.sent, "has not answered to its end", advice)
        return self._run.close(failure)

    # ------------------------------------------------------------------ the end

    async def close(self) -> None:
        self._over, self._take = True, None
        answer = self._answer
        asked, self._asked = self._asked, None
        if answer is not None:
            answer.pass_on(None)
        if self._run.working or asked is not None:
            # Waited for, though not for long: sent later, it could end the next run of the same conversation.
            await asyncio.wait({self._backend.later(self._cancel(asked))}, timeout=_LAST_WORDS)
        elif answer is not None:
            self._answer = None
            answer.release(drain=True)

    async def _cancel(self, asked: _Asked | None) -> None:
        """Cancel the run at the backend as soon as it has reported its id, and wait for its end.

        `asked` is a request without an answer, of which only that shows whether there is anything to cancel. An agent
        that answers in one piece may take as long for it as a run may.
        """
        backend = self._backend
        try:
            async with asyncio.timeout(self._patience):
                if asked is not None:
                    with suppress(BridgeError):
                        await self._answered(asked)
                    if not self._run.working:
                        return
                answer = self._answer
                wire = self._run.cancel()
                while wire is None and answer is not None and (data := await answer.read(AT_ONCE)):
                    self._received(data)
                    wire = self._run.cancel()
            if wire is not None:
                await backend.whole_answer(self._addressed(wire), _LAST_EVENTS)
                for pause in _CANCEL_AGAIN if self._run.misses_cancels else ():
                    if answer is None or await self._told_end(answer, pause):
                        break
                    await backend.whole_answer(self._addressed(wire), _LAST_EVENTS)
        except (aiohttp.ClientError, OSError, BridgeError) as error:
            log.debug("backend %s: a run was not cancelled: %s", backend.name, type(error).__name__)
        finally:
            # Also if the backend is closed in the meantime, as nothing else refers to this connection.
            answer, self._answer = self._answer, None
            if answer is not None:
                answer.release(drain=True)

    @property
    def _patience(self) -> float | None:
        """Seconds in which the canceled run may report its id; for an answer in one piece, those of a whole run."""
        waits = self.awaits_whole and not self._is_late and self._backend.chores <= _MOST_NAMELESS
        return self._backend.timeouts.total if waits else _LAST_EVENTS

    async def _told_end(self, answer: HttpAnswer, within: float) -> bool:
        """Return whether a canceled run is over, or its stream ends, within this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._run.working and (data := await answer.read(AT_ONCE)):
                    self._received(data)
            return True
        return not self._run.working


def _ends(events: list[Event]) -> bool:
    return bool(events) and type(events[-1]) in TERMINAL
