"""`RpcConnection`: calls and handlers over a carrier, with asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self, TypedDict, Unpack

from bridge.errors import log_unexpected
from bridge.jsonrpc.carrier import Carrier, CarrierEnded, FrameTooLong
from bridge.jsonrpc.peer import Ignored, Received, RpcPeer
from bridge.jsonrpc.rpc_messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    REQUEST_CANCELLED,
    RpcError,
    RpcId,
    RpcNotification,
    RpcParams,
    RpcRequest,
    RpcResponse,
)

log = logging.getLogger("bridge.jsonrpc")

RequestHandler = Callable[[RpcRequest], Awaitable[Any]]
"""Returns the result, any JSON value, or raises `RpcError`."""
NotificationHandler = Callable[[RpcNotification], Awaitable[None]]
CancelNotice = Callable[[RpcId], tuple[str, RpcParams]]
"""Returns the protocol's notification, method and parameters, that cancels the request of this id."""

_UNSENT = 256 * 1024
"""Bytes that may wait to be sent; then this side's own calls and notifications wait."""
_REFUSALS = 100
"""Automatic answers that may wait to be sent; then nothing more is read."""
_PATIENCE = 10.0
"""Seconds that the other side has to read them."""
_FLUSH = 2.0
"""Seconds that frames have to be sent when the connection is closed."""
_HANDLERS = 5.0
"""Seconds that cancelled handlers have to end."""

_NONE: Mapping[str, Any] = MappingProxyType({})


class PeerSettings(TypedDict, total=False):
    """The settings of `RpcPeer`."""

    batches: bool
    answers_invalid: bool
    max_open: int
    max_pending: int
    max_frame: int


class RpcConnection:
    """JSON-RPC over a carrier, which the connection owns: `async with` starts it, and closes the carrier at the end.

    `requests` and `notifications`: a handler for each method that the other side may call. Messages are handled in the
    order in which they come:

    * A notification's handler is awaited before the next message is read, so a slow one slows the other side down. It
      cannot await a call of this connection, whose response would be read only afterwards.
    * A request's handler runs in a task of its own, and has run to its first `await` before the next message is read.
      It may await calls. Any exception but `RpcError` is logged and answered with -32603.
    * The response to a call is there after the handlers of all notifications before it.

    Requests for other methods are answered with -32601, other notifications are ignored.

    `cancel_notice`: returns the notification, method and parameters, that cancels a call of this id; it is sent when a
    call is cancelled or times out. `linger`: seconds that handlers have to answer after the other side has ended its
    input. `settings` are those of `RpcPeer`.
    """

    def __init__(
        self,
        carrier: Carrier,
        *,
        requests: Mapping[str, RequestHandler] = _NONE,
        notifications: Mapping[str, NotificationHandler] = _NONE,
        cancel_notice: CancelNotice | None = None,
        linger: float = 0.0,
        **settings: Unpack[PeerSettings],
    ) -> None:
        self.carrier = carrier
        self.peer = RpcPeer(requests, notifications, **settings)
        self.ended: CarrierEnded | None = None
        """Why the connection ended; None while it is open."""
        self.faults = 0
        """How many invalid messages came."""
        self._requests = requests
        self._notifications = notifications
        self._cancel_notice = cancel_notice
        self._linger = linger
        self._calls: dict[RpcId, asyncio.Future[Any]] = {}
        self._handlers: dict[RpcId, asyncio.Task[None]] = {}
        self._unanswered: set[RpcId] = set()
        self._input_ended: CarrierEnded | None = None
        self._closing = asyncio.Event()
        self._news = asyncio.Event()
        self._progress = asyncio.Event()
        self._is_last = False
        self._task: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # ------------------------------------------------------------------ calls of this side

    async def call(self, method: str, params: RpcParams | None = None, *, timeout: float | None = None) -> Any:
        """Call a method of the other side and return its result.

        When this task is cancelled or `timeout` seconds have passed, the `cancel_notice` is sent, and the response is
        ignored.

        Raises `RpcError` if the response is an error, `TimeoutError`, `CarrierEnded` when the connection ends before
        the response, `RuntimeError` when too many calls are pending or a handler of notifications calls, `ValueError`
        for a message that is too long.
        """
        if asyncio.current_task() is self._reading:
            raise RuntimeError(f"{method}: the handler of a notification cannot await a call; start a task for it")
        try:
            async with asyncio.timeout(timeout):
                await self._room()
                if self._input_ended is not None:
                    raise CarrierEnded(str(self._input_ended))
                request_id = self.peer.request(method, params)
                response = self._calls[request_id] = asyncio.get_running_loop().create_future()
                self._news.set()
                try:
                    return await response
                finally:
                    del self._calls[request_id]
                    self._abandon(request_id)
        except TimeoutError:
            raise TimeoutError(f"{method}: no response within {timeout:g} s") from None

    def _abandon(self, request_id: RpcId) -> None:
        """Stop waiting for a response. If it has not come, send the `cancel_notice`."""
        if self.peer.abandon(request_id) and self._cancel_notice is not None and self.ended is None:
            self.peer.notify(*self._cancel_notice(request_id))
            self._news.set()

    async def notify(self, method: str, params: RpcParams | None = None) -> int:
        """Send a notification, and return its bytes; wait first while the other side does not read.

        Raises `CarrierEnded` when the connection has ended, `ValueError` for a message that is too long.
        """
        await self._room()
        size = self.peer.notify(method, params)
        self._news.set()
        return size

    async def _room(self) -> None:
        while self.ended is None and self.peer.unsent > _UNSENT:
            await self._sent()
        if self.ended is not None:
            raise CarrierEnded(str(self.ended))

    async def _sent(self) -> None:
        """Wait until something was sent, or the connection has ended."""
        self._progress.clear()
        await self._progress.wait()

    # ------------------------------------------------------------------ calls of the other side

    def cancel(self, request_id: RpcId, *, answer: bool = True) -> bool:
        """Cancel the handler of a request, as a notification of the other side asks.

        The request is answered with what the handler makes of its cancellation, by default the error -32800, or, if
        `answer` is false, not at all. Return False if the request is unknown or was answered.
        """
        handler = self._handlers.get(request_id)
        if handler is None:
            return False
        if not answer:
            self._unanswered.add(request_id)  # the id stays in use until the handler has ended
        handler.cancel()
        return True

    # ------------------------------------------------------------------ life

    async def wait(self) -> CarrierEnded:
        """Wait for the end of the connection, and return why it ended. The carrier is closed by then."""
        if self._task is None:
            raise RuntimeError("the connection was not started: use `async with`")
        await asyncio.shield(self._task)
        assert self.ended is not None
        return self.ended

    async def close(self) -> None:
        """End the connection: cancel all handlers, send what waits, close the carrier. Repeating it is harmless."""
        self._closing.set()
        if self._task is not None:
            await asyncio.shield(self._task)
        else:
            await self.carrier.close()

    async def _run(self) -> None:
        reading = self._reading = asyncio.create_task(self._read())
        writing = asyncio.create_task(self._write())
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait({reading, writing, closing}, return_when=asyncio.FIRST_COMPLETED)
            if writing.done() and not reading.done():
                # The other side reads no more, but what it has sent may be on its way.
                await asyncio.wait({reading, closing}, timeout=_FLUSH, return_when=asyncio.FIRST_COMPLETED)
            await self._end(reading, writing, closing)
        finally:
            tasks: set[asyncio.Task[Any]] = {reading, writing, closing}
            for task in tasks:
                task.cancel()
            try:
                done, _ = await asyncio.wait(tasks, timeout=_HANDLERS)
                for task in done:
                    if not task.cancelled():
                        task.exception()  # else asyncio logs it as never retrieved
            finally:
                await self.carrier.close()

    async def _end(self, reading: asyncio.Task[None], writing: asyncio.Task[None], closing: asyncio.Task[Any]) -> None:
        """End everything that waits, and send the rest."""
        reasons = [_reason(task) for task in (reading, writing)]
        reason = reasons[0] or reasons[1] or CarrierEnded("the connection was closed")
        reading.cancel()
        self._input_ended = reason
        for response in self._calls.values():
            if not response.done():
                response.set_exception(CarrierEnded(str(reason)))
        if isinstance(reason, FrameTooLong):
            self.peer.refuse(RpcError(INVALID_REQUEST, f"Invalid request: {reason}."))
        if self._linger and self._handlers:
            answers = asyncio.gather(*self._handlers.values(), return_exceptions=True)
            ends: list[asyncio.Future[Any]] = [answers, writing, closing]
            await asyncio.wait(ends, timeout=self._linger, return_when=asyncio.FIRST_COMPLETED)
        self.ended = reason
        self._progress.set()
        if handlers := list(self._handlers.values()):
            for handler in handlers:
                handler.cancel()
            _, stuck = await asyncio.wait(handlers, timeout=_HANDLERS)
            for handler in stuck:
                log.error("the handler of %s does not end", handler.get_name())
        self._is_last = True
        self._news.set()
        await asyncio.wait({writing}, timeout=_FLUSH)

    async def _write(self) -> None:
        while True:
            while frames := self.peer.take():
                await self.carrier.send(frames)
                self._progress.set()
            if self._is_last:
                return
            await self._news.wait()
            self._news.clear()

    async def _read(self) -> None:
        while True:
            await self._receive(await self.carrier.receive())

    async def _receive(self, frames: Sequence[bytes]) -> None:
        """Handle frames, which are not held while the next ones are awaited."""
        for frame in frames:
            for event in self.peer.receive(frame):
                await self._handle(event)
            if self.peer.refusals:
                self._news.set()
                await self._wait_for_reader()

    async def _wait_for_reader(self) -> None:
        """Wait while the other side leaves too many automatic answers unread."""
        try:
            async with asyncio.timeout(_PATIENCE):
                while self.peer.refusals > _REFUSALS:
                    await self._sent()
        except TimeoutError:
            raise CarrierEnded("the other side sends invalid messages and does not read the answers") from None

    async def _handle(self, event: Received) -> None:
        match event:
            case RpcNotification():
                try:
                    await self._notifications[event.method](event)
                except Exception as error:
                    log_unexpected(log, f"the handler of the notification {event.method} failed", error)
            case RpcRequest():
                handler = asyncio.create_task(self._answer(event), name=event.method)
                self._handlers[event.id] = handler
                await asyncio.sleep(0)  # it runs to its first await
            case RpcResponse():
                response = self._calls.get(event.id)
                if response is not None and not response.done():
                    if (refusal := event.error) is not None:
                        response.set_exception(refusal)
                    else:
                        response.set_result(event.result)
            case Ignored(reason, fault):
                self.faults += fault is not None
                level = logging.WARNING if fault is not None and self.faults == 1 else logging.DEBUG
                log.log(level, "ignored: %s", reason)

    async def _answer(self, request: RpcRequest) -> None:
        answer: Any
        try:
            answer = await self._requests[request.method](request)
        except RpcError as error:
            answer = error
        except asyncio.CancelledError:
            answer = RpcError(REQUEST_CANCELLED, "Request cancelled")
        except Exception as error:
            log_unexpected(log, f"the handler of {request.method} failed", error)
            answer = RpcError(INTERNAL_ERROR, "Internal error")
        if request.id in self._unanswered:
            self._unanswered.remove(request.id)
            self.peer.withdraw(request.id)
        try:
            self.peer.respond(request.id, answer)
        except Exception as error:
            log_unexpected(log, f"the result of {request.method} is not JSON", error)
            self.peer.respond(request.id, RpcError(INTERNAL_ERROR, "Internal error"))
        del self._handlers[request.id]
        self._news.set()


def _reason(task: asyncio.Task[None]) -> CarrierEnded | None:
    """Return why reading or writing ended; None if it has not."""
    error = task.exception() if task.done() and not task.cancelled() else None
    if error is None or isinstance(error, CarrierEnded):
        return error
    log_unexpected(log, "a JSON-RPC connection failed", error)
    return CarrierEnded("the connection failed")
