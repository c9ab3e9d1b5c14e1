"""Backends that queue runs: one request starts a run, others read it and resume where a stream broke off.

The dialect's `QueuedRun` builds the requests and keeps the position; this module repeats, waits and gives up. Rules:
docs/dialects/agent-runs.md.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import suppress
from typing import Any

import aiohttp

from bridge.contract import Context, Losses, QueuedRun, QueuedRunsDialect, WireRequest, WireResponse
from bridge.errors import BackendError, BridgeError, ErrorCode, Failure
from bridge.model import Event, Request, RunFailed
from bridge.model.events import TERMINAL
from bridge.run.backend import BaseCall, Call, CallInfo
from bridge.run.backends.http_answer import AT_ONCE, HttpAnswer
from bridge.run.backends.http_backend import HttpBackend
from bridge.run.retries import asked_pause
from bridge.translation.framing import sse

log = logging.getLogger("bridge.http")

_ASK_AGAIN = (1.0, 2.0, 4.0)
"""Seconds before a request that is answered at once is repeated; a backend that wants longer ones is not waited for."""
_MOST_START = 15.0
"""Seconds for the answer to the request that queues a run."""
_BUSY = frozenset({429, 503})
_LAST_EVENTS = 5.0
"""Seconds in which a run that was cancelled may still end by itself."""
_ENDED = Failure(ErrorCode.TRUNCATED_STREAM, "the backend's streams ended before the run.")
_MOST_EMPTY = 2
"""Consecutive event streams without a byte after which no more events are expected."""


class QueuedRunsBackend(HttpBackend):
    """An HTTP backend whose runs are started by one request and read by others."""

    def __init__(self, name: str, dialect: QueuedRunsDialect, url: str, **settings: Any) -> None:
        """Accept the settings of `HttpBackend`."""
        super().__init__(name, dialect, url, **settings)
        self._queued = dialect.queued

    def call(self, request: Request, info: CallInfo, lost: Losses) -> Call:
        context = self.context(request, info, lost)
        return QueuedCall(self, self._queued(request, context), info, context)


class QueuedCall(BaseCall):
    """One attempt. See `bridge.run.backend.Call` for what each method promises."""

    def __init__(self, backend: HttpBackend, run: QueuedRun, info: CallInfo, context: Context) -> None:
        self.context = context
        super().__init__()
        self.sent: WireRequest | None = None
        self._last: WireRequest | None = None
        self._backend = backend
        self._run = run
        self._info = info
        self._decoder = backend.dialect.decoder(context)
        self._splitter = sse.Splitter(backend.max_event)
        self._answer: HttpAnswer | None = None
        self._started = False
        self._over = False
        self._all_read = False
        # Of the stream that is read now, or was last: its bytes, and whether it was cut. Before it: tries that brought
        # nothing, streams in a row that were empty.
        self._came = 0
        self._broke = False
        self._tries = 0
        self._empty = 0

    # ------------------------------------------------------------------ asking

    async def open(self) -> None:
        limit = self._backend.timeouts.first_event
        uploaded = [await self._ask(wire, limit) for wire in self._run.uploads]
        start = self._run.start(uuid.uuid4().hex, uploaded)
        # From here on there may be a run, whatever becomes of the answer.
        self._started, self.sent, self._last = True, start, start
        try:
            # A part of the time in which content has to come: a request that got lost is sent again.
            await self._ask(start, min(limit / 4, _MOST_START) if limit else None)
        except BridgeError as error:
            self._started = "backend_status" not in error.failure.details
            raise
        await self._connect()

    async def _ask(self, wire: WireRequest, seconds: float | None) -> WireResponse:
        """The answer to a request that may be repeated. Raises `BridgeError`."""
        wire = self._addressed(wire)
        for pause in (*_ASK_AGAIN, None):
            requested: float | None = None
            try:
                answer = await self._backend.whole_answer(wire, seconds)
                if 200 <= answer.status < 300:
                    return answer
                failure = self._backend.refusal(answer, wire)
                requested = asked_pause(failure)
                # If retries are configured, only the configuration applies.
                alone = self._backend.retry.attempts == 1
                again = alone and answer.status in _BUSY and (requested or 0.0) <= _ASK_AGAIN[-1]
            except BackendError as error:
                # A refused connection is not repeated; after a timeout, the run may have been queued.
                failure, again = error.failure, error.code is ErrorCode.BACKEND_TIMEOUT
            if pause is None or not again:
                break
            await asyncio.sleep(pause if requested is None else requested)
        raise BackendError.of(failure)

    def _addressed(self, wire: WireRequest) -> WireRequest:
        return self._backend.addressed(wire, self._info)

    # ------------------------------------------------------------------ reading

    async def _connect(self) -> None:
        """Open the stream after the received events; set `_all_read` if there is nothing more. Raises `BridgeError`."""
        while True:
            wire = self._run.subscribe()
            if wire is None:
                raise _gave_up("its events have no ids to resume from.", "")
            self._last = wire
            try:
                answer = await self._backend.answer(self._addressed(wire))
            except (aiohttp.ClientError, OSError, ValueError) as error:
                failure = self._backend.unanswered(error, wire)
            else:
                if answer.status == 200:
                    self._answer, self._came = answer, 0
                    self._splitter = sse.Splitter(self._backend.max_event)
                    return
                try:
                    if answer.status == 204:
                        self._all_read = True
                        return
                    failure = await self._backend.refused(answer.status, answer.headers, answer.read, wire)
                finally:
                    answer.release()
                if answer.status != 429 and answer.status < 500:
                    raise BackendError.of(failure)
            await self._wait(failure)

    async def _wait(self, failure: Failure) -> None:
        """The pause before the next try to read on. Raises `BackendError` after the last one."""
        waits, requested = self._run.waits, asked_pause(failure) or 0.0
        if self._tries >= len(waits) or requested > max(waits):
            raise _gave_up(failure.message, failure.cause)
        self._tries += 1
        await asyncio.sleep(max(waits[self._tries - 1], requested))

    async def read(self) -> list[Event]:
        if self._over:
            return []
        try:
            if self._answer is None and not self._all_read:
                await self._go_on()
            if self._answer is None:
                return self._passed_on(self._decoder.close())
            return await self._read(self._answer)
        except BridgeError as error:
            return self.fail(error.failure)

    async def _read(self, answer: HttpAnswer) -> list[Event]:
        try:
            data = await answer.read(AT_ONCE)
            ended = not data
            self._broke = False
        except (aiohttp.ClientError, OSError) as error:
            # aiohttp keeps the exception, and with its traceback this call and all it holds, in a cycle.
            error.__traceback__ = None
            data, ended, self._broke = answer.unread(AT_ONCE), True, True
        self._came += len(data)
        self.received += len(data)
        # What is incomplete when a stream ends is left: it comes again, whole.
        frames = self.frames = self._run.fresh(self._splitter.feed(data)) if data else []
        if frames:
            self._tries = 0
        if ended:
            self._answer = None
            answer.release()
        return self._passed_on(self._decoder.feed(frames))

    def _passed_on(self, events: list[Event]) -> list[Event]:
        if events and type(events[-1]) in TERMINAL:
            self._over = True
            if isinstance(events[-1], RunFailed):
                self._explained(self._backend.secrets.hide(events[-1].error), "answered 200")
            # After invalid data only this side has ended, and the backend still works on the run.
            last = events[-1]
            is_invalid = isinstance(last, RunFailed) and last.error.code is ErrorCode.BACKEND_PROTOCOL
            self.wire_ended = not self._all_read and not is_invalid
        return events

    async def _go_on(self) -> None:
        """After a stream that ended before its run did. Raises `BridgeError`."""
        self._empty = 0 if self._came or self._broke else self._empty + 1
        if self._empty == _MOST_EMPTY:
            self._all_read = True
            return
        if self._came and not self._broke:
            self._tries = 0  # closed at its idle limit: the backend is available, and the run continues
        await self._wait(_ENDED)
        await self._connect()

    def fail(self, failure: Failure) -> list[Event]:
        self._over = True
        outcome = "has not answered" if self.sent is self._last else "answered 200"
        return self._decoder.close(self._explained(failure, outcome))

    def _explained(self, failure: Failure, outcome: str) -> Failure:
        """Return the failure with a cause for the log, if it has none."""
        if failure.cause or self._last is None:
            return failure
        timed_out = failure.code in (ErrorCode.BACKEND_TIMEOUT, ErrorCode.RUN_TIMEOUT)
        return self._backend.explained(failure, self._last, outcome, "the timeouts" if timed_out else "")

    # ------------------------------------------------------------------ the end

    async def close(self) -> None:
        answer, self._answer = self._answer, None
        if self._started and not (self.wire_ended or self._all_read):
            self._backend.later(self._cancel(answer))
        elif answer is not None:
            # The server closes the connection itself after the end.
            answer.release(drain=True)

    async def _cancel(self, answer: HttpAnswer | None) -> None:
        """Cancel the run at the backend, and let it come to its end."""
        try:
            try:
                await self._backend.whole_answer(self._addressed(self._run.cancel()), _LAST_EVENTS)
            except BridgeError as error:
                log.debug("backend %s: a run was not cancelled: %s", self._backend.name, error.message)
            with suppress(aiohttp.ClientError, OSError):
                async with asyncio.timeout(_LAST_EVENTS):
                    while answer is not None and await answer.read(AT_ONCE):
                        pass
        finally:
            if answer is not None:
                answer.release()


def _gave_up(reason: str, cause: str) -> BackendError:
    error = BackendError(
        f"The events of the run could not be read to their end: {reason}", code=ErrorCode.TRUNCATED_STREAM
    )
    error.failure.cause = cause
    return error
