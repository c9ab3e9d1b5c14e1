"""Backends that take several requests for one run, as the dialect's `SteppedRun` requires."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp

from bridge.codec import Context, FrameLike, Losses, SteppedRun, SteppedRunDialect, WireRequest, WireResponse
from bridge.errors import BackendError, BridgeError, ErrorCode, Failure
from bridge.framing import sse
from bridge.model import Event, Request, RunFailed
from bridge.model.events import TERMINAL
from bridge.pipeline.backend import Call, CallInfo
from bridge.transports.answers import AT_ONCE, bounded, broken_off, drain, failure_of, headers_of, outcome_of, unread
from bridge.transports.http import HttpBackend

log = logging.getLogger("bridge.http")

_LAST_EVENTS = 5.0
"""Seconds in which a canceled run may still report its id, and then may end by itself."""
_LAST_WORDS = 2.0
"""Seconds that the next request of a conversation waits for that."""
_CANCEL_AGAIN = (0.2, 0.4, 0.8)
"""Seconds without the end of a run before it is cancelled again: less than `_LAST_WORDS`, for the next run's sake."""


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
    """One attempt. See `bridge.pipeline.backend.Call` for what each method promises."""

    def __init__(self, backend: HttpBackend, run: SteppedRun, info: CallInfo, context: Context) -> None:
        self.context = context
        self.frames: list[FrameLike] = []
        self.whole: WireResponse | None = None
        self.wire_ended = False
        self.received = 0
        self.sent: WireRequest | None = None
        self._backend = backend
        self._run = run
        self._info = info
        self._splitter = sse.Splitter(backend.max_event)
        self._response: aiohttp.ClientResponse | None = None
        self._first: list[Event] = []
        self._over = False

    # ------------------------------------------------------------------ asking

    async def open(self) -> None:
        while self._response is None and not self._first:
            self._first = await self._step()

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
        backend = self._backend
        try:
            response = await backend.ask(wire)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            error.__traceback__ = None  # as in `HttpCall.read`
            return self._unless_refused(backend.explained(failure_of(error), wire, *outcome_of(error)))
        if response.status >= 300 and response.status != 304:
            async with response:
                failure = await backend.refusal_in(response, wire)
            return self._unless_refused(failure)
        is_stream = response.content_type == sse.CONTENT_TYPE
        if is_stream and most is None:
            if self._response is not None:
                response.close()
                raise BackendError("The backend opened a second event stream.", code=ErrorCode.BACKEND_PROTOCOL)
            self._response = response
            self._splitter = sse.Splitter(backend.max_event)
            backend.reads(response)
            return []
        try:
            async with response:
                body = b"" if is_stream else await bounded(response.content.read, most or backend.max_event)
        except (aiohttp.ClientError, OSError) as error:
            return self._unless_refused(backend.explained(broken_off(error), wire, "broke off"))
        except BackendError as error:
            outcome = f"answered {response.status} with more than that"
            return self._unless_refused(backend.explained(error.failure, wire, outcome))
        self.received += len(body)
        answer = self.whole = WireResponse(response.status, headers_of(response), body)
        try:
            events = self._run.whole(answer)
        except BackendError as error:
            backend.explained(backend.secrets.hide(error.failure), wire, f"answered {response.status}")
            raise
        self.wire_ended = _ends(events)
        return events

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
            if self._first:
                events, self._first = self._first, []
            elif self._response is not None:
                events = await self._read_or_ask(self._response)
            else:
                events = await self._step()
            return self._passed_on(events)
        except BridgeError as error:
            return self._passed_on(self._run.close(error.failure))

    async def _read_or_ask(self, response: aiohttp.ClientResponse) -> list[Event]:
        """What comes on the stream, or sends what is to be sent beside it once it was silent for that long."""
        step = self._run.next()
        if step is None:
            return await self._read(response)
        if step.after:
            try:
                async with asyncio.timeout(step.after):
                    return await self._read(response)
            except TimeoutError:
                pass
        return await self._send(step.wire, step.most)

    async def _read(self, response: aiohttp.ClientResponse) -> list[Event]:
        failure: Failure | None = None
        try:
            data = await response.content.read(AT_ONCE)
            ended = not data
        except (aiohttp.ClientError, OSError) as error:
            error.__traceback__ = None  # as in `HttpCall.read`
            data, ended, failure = unread(response), True, broken_off(error)
        self.received += len(data)
        frames = self.frames = self._splitter.feed(data) if data else []
        if ended and failure is None:
            frames = self.frames = [*frames, *self._splitter.close()]
        events = self._run.feed(frames)
        if ended:
            self._let_go(response)
            response.release()
            if not _ends(events):
                events += self._run.ended(failure)
        self.wire_ended = _ends(events)
        return events

    def _passed_on(self, events: list[Event]) -> list[Event]:
        if _ends(events):
            self._over = True
            if isinstance(events[-1], RunFailed):
                self._backend.secrets.hide(events[-1].error)
        return events

    def _let_go(self, response: aiohttp.ClientResponse) -> None:
        self._response = None
        self._backend.forget(response)

    def fail(self, failure: Failure) -> list[Event]:
        self._over = True
        return self._run.close(failure)

    # ------------------------------------------------------------------ the end

    async def close(self) -> None:
        self._over = True
        response = self._response
        if response is not None:
            self._let_go(response)
        if self._run.working:
            # Waited for, though not for long: sent later, it could end the next run of the same conversation.
            await asyncio.wait({self._backend.later(self._cancel(response))}, timeout=_LAST_WORDS)
        elif response is not None:
            self._backend.later(drain(response))

    async def _cancel(self, response: aiohttp.ClientResponse | None) -> None:
        """Cancel the run at the backend as soon as it has reported its id, and wait for its end."""
        backend = self._backend
        wire = self._run.cancel()
        try:
            async with asyncio.timeout(_LAST_EVENTS):
                while wire is None and response is not None and (data := await response.content.read(AT_ONCE)):
                    self._run.feed(self._splitter.feed(data))
                    wire = self._run.cancel()
            if wire is not None:
                await backend.whole_answer(self._addressed(wire), _LAST_EVENTS)
                for pause in _CANCEL_AGAIN if self._run.misses_cancels else ():
                    if response is None or await self._told_end(response, pause):
                        break
                    await backend.whole_answer(self._addressed(wire), _LAST_EVENTS)
        except (aiohttp.ClientError, OSError, BridgeError) as error:
            log.debug("backend %s: a run was not cancelled: %s", backend.name, type(error).__name__)
        finally:
            # Also if the backend is closed in the meantime, as nothing else refers to this connection.
            if response is not None:
                await drain(response)

    async def _told_end(self, response: aiohttp.ClientResponse, within: float) -> bool:
        """Return whether the stream reports the end of a canceled run, or ends, within this time."""
        try:
            async with asyncio.timeout(within):
                while data := await response.content.read(AT_ONCE):
                    if _ends(self._run.feed(self._splitter.feed(data))):
                        break
        except TimeoutError:
            return False
        return True


def _ends(events: list[Event]) -> bool:
    return bool(events) and type(events[-1]) in TERMINAL
