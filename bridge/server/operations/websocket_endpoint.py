"""WebSocket connections whose messages are requests: each is answered as over HTTP, by a message for each event.

One request is served at a time and one more may wait. Each is authenticated, counted, limited, logged and canceled like
a separate request. A connection remembers its last answer, so that the next request may continue it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web
from multidict import CIMultiDict

from bridge.contract import SocketDialect, StoredAnswer, StoredResponses, WireRequest, WireResponse, require
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route
from bridge.errors import BackendError, BridgeError, ErrorCode, Failure, RequestError
from bridge.model import FinishReason, RunFinished, RunStarted, UsageReported
from bridge.server.operations.run_endpoint import attend
from bridge.server.operations.websocket_frames import ReceivedFrames
from bridge.server.requests.bodies import Bodies, HeldBody
from bridge.server.requests.exchange import RouteHandler, ServerExchange
from bridge.server.requests.limits import RouteLimiter
from bridge.server.requests.writing import abort, in_time
from bridge.translation import Writer
from bridge.translation.framing import sse

_Refused = asyncio.Future[Failure]
_DATA = frozenset({WSMsgType.TEXT, WSMsgType.BINARY})


class _Message:
    """A request that was received. It is held within the budget of all bodies until it is decoded, or is `refused`."""

    def __init__(self, text: str, bodies: Bodies) -> None:
        self.text = text
        self.size = len(text.encode("utf-8", "replace"))
        self.refused: BackendError | None = None
        self._held: HeldBody | None = None
        try:
            self._held = bodies.held(self.size)
        except BackendError as error:
            self.text, self.refused = "", error

    def release(self) -> None:
        """Clear the text."""
        self.text = ""
        if self._held is not None:
            self._held.release()


class Arriving:
    """The message that a client is sending: within the budget of all bodies, and `seconds` for all of its fragments.

    `refused` gets the reason for which the connection is to be closed.
    """

    def __init__(self, frames: ReceivedFrames, bodies: Bodies) -> None:
        self._loop = asyncio.get_running_loop()
        self.refused: _Refused = self._loop.create_future()
        self._frames = frames
        self._held = bodies.held(0)
        self._seconds = bodies.seconds
        self._message = 0
        self._timer: asyncio.TimerHandle | None = None
        frames.changed = self._changed
        self._changed()

    def _changed(self) -> None:
        frames = self._frames
        if not frames.are_masked:
            self._refuse(RequestError("Expected masked frames, as RFC 6455 requires of clients."))
            return
        try:
            self._held.resize(frames.size)
        except BackendError as error:
            self._refuse(error)
        if self._timer is not None and (frames.count != self._message or not frames.is_open):
            self._timer.cancel()
            self._timer = None
        if frames.is_open and self._timer is None:
            self._message = frames.count
            late = RequestError(f"The message did not arrive within {self._seconds:g} s.", status=408)
            self._timer = self._loop.call_later(self._seconds, self._refuse, late)

    def _refuse(self, error: BridgeError) -> None:
        self._frames.stop()
        if not self.refused.done():
            self.refused.set_result(error.failure)

    def close(self) -> None:
        """The connection is closed: nothing of the message is held."""
        self._frames.changed = None
        self.refused.cancel()
        self._held.release()
        if self._timer is not None:
            self._timer.cancel()


class _Connection:
    """One connection: its next request, and its last answer.

    An answer is remembered as long as the requests and answers that led to it are no larger than one request may be.
    """

    def __init__(self, socket: web.WebSocketResponse, limit: int) -> None:
        self.socket = socket
        self.message: _Message | None = None
        self.last: StoredAnswer | None = None
        self._size = 0
        self._limit = limit

    def known(self, stored: StoredResponses | None) -> StoredResponses:
        """Return what is stored together with what this connection remembers."""
        stored = StoredResponses(stores=False) if stored is None else stored
        stored.connected = True
        if self.last is not None:
            stored.found.setdefault(self.last.id, self.last)
        return stored

    def remember(self, stored: StoredResponses | None, sent: int) -> None:
        """Remember the answer to the current request, if it was answered well."""
        answer = stored.answer if stored is not None else None
        goes_on = self.last is not None and stored is not None and stored.previous == self.last.id
        asked = self.message.size if self.message is not None else 0
        self._size = asked + sent + (self._size if goes_on else 0)
        self.last = answer if self._size <= self._limit else None


CONNECTION = web.RequestKey("connection", _Connection)


class SocketHandler(RouteHandler):
    """Serves the connections of one route."""

    def __init__(self, bridge: Bridge, route: Route, limiter: RouteLimiter, *, watches: bool = True) -> None:
        serve = partial(_serve, require(route.dialect, SocketDialect))
        super().__init__(bridge, route, limiter, serve, watches=watches)
        self._idle: set[asyncio.Task[WSMessage]] = set()
        self._stopping = False

    def stop_accepting(self) -> None:
        self._stopping = True
        for waiting in self._idle:
            waiting.cancel()

    async def __call__(self, exchange: ServerExchange) -> web.StreamResponse:
        http = exchange.http
        if http.headers.get("upgrade", "").lower() != "websocket":
            raise web.HTTPMethodNotAllowed("GET", ["POST"])
        async with self.limiter.socket_slot(exchange.user):
            server = self.server
            socket = web.WebSocketResponse(
                timeout=2.0, heartbeat=server.keepalive, compress=False, max_msg_size=server.max_body
            )
            if not socket.can_prepare(http).ok:
                raise RequestError("Expected the upgrade of a WebSocket, version 13, with a Sec-WebSocket-Key.")
            await socket.prepare(http)
            http[CONNECTION] = connection = _Connection(socket, server.max_body)
            frames = getattr(http.protocol, "frames", None)  # other servers than ours have none
            arriving = Arriving(frames, exchange.bodies) if frames is not None else None
            try:
                await self._converse(exchange, connection, arriving.refused if arriving is not None else None)
            except BridgeError as error:
                await _refuse(http, socket, error)
                raise
            finally:
                with suppress(ConnectionError, asyncio.CancelledError):
                    await socket.close(code=WSCloseCode.GOING_AWAY)
                if arriving is not None:
                    arriving.close()
            return socket

    async def _converse(self, exchange: ServerExchange, connection: _Connection, refused: _Refused | None) -> None:
        """Serve requests until the connection is closed, idle for too long, `refused`, or is to rest."""
        loop, bodies = asyncio.get_running_loop(), exchange.bodies
        waiting, run = loop.create_task(connection.socket.receive()), None
        pending: list[_Message] = []
        try:
            while True:
                if run is None and self._stopping:
                    return
                if run is None and pending:
                    connection.message = pending.pop()
                    run = loop.create_task(self._answer(exchange.message(), connection))
                if run is None:
                    self._idle.add(waiting)
                awaited: set[asyncio.Future[Any]] = {each for each in (waiting, run, refused) if each is not None}
                done, _ = await asyncio.wait(
                    awaited,
                    timeout=self.server.limits.socket_idle if run is None else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                self._idle.discard(waiting)
                if not done or waiting.cancelled():
                    return
                if refused is not None and refused.done():
                    raise BridgeError.of(refused.result())
                if run in done:
                    run = None
                if waiting in done:
                    message = waiting.result()
                    if message.type not in _DATA:
                        return
                    if pending:
                        await connection.socket.close(code=WSCloseCode.POLICY_VIOLATION, message=_ONE_AT_A_TIME)
                        return
                    text = message.data
                    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
                    pending.append(_Message(text, bodies))
                    del message, text  # a message is held once, and within the budget
                    waiting = loop.create_task(connection.socket.receive())
        finally:
            self._idle.discard(waiting)
            for task in (waiting, run):
                if task is not None:
                    task.cancel()
            await asyncio.wait({task for task in (waiting, run) if task is not None})
            for held in (*pending, connection.message):
                if held is not None:
                    held.release()

    async def _answer(self, exchange: ServerExchange, connection: _Connection) -> None:
        # Each request counts what it loads, not the connection.
        with suppress(ConnectionError), self.bridge.counting():
            response = await exchange.answer(super().__call__)
            if isinstance(response, web.Response) and isinstance(response.body, bytes):
                wire = WireResponse(response.status, dict(response.headers), response.body)
                refusal = require(self.route.dialect, SocketDialect).encode_refusal(wire)
                await connection.socket.send_str(refusal.decode())


async def _refuse(http: web.Request, socket: web.WebSocketResponse, error: BridgeError) -> None:
    """Close the connection for a message that will not be received.

    Without a word where memory is short: a client in the middle of a message would be read on until it takes notice.
    """
    if error.code is ErrorCode.OVERLOADED:
        abort(http)
        return
    is_late = error.failure.http_status == HTTPStatus.REQUEST_TIMEOUT
    code = WSCloseCode.POLICY_VIOLATION if is_late else WSCloseCode.PROTOCOL_ERROR
    await socket.close(code=code, message=error.message.encode())


_ONE_AT_A_TIME = b"one request is served at a time, and one more may wait"


class _Messages(web.StreamResponse):
    """Takes an event stream, and sends the payload of each event as a message, which gets `slow_reader` seconds."""

    def __init__(self, socket: web.WebSocketResponse, exchange: ServerExchange) -> None:
        super().__init__()
        self._socket = socket
        self._exchange = exchange
        self._splitter = sse.Splitter()

    async def prepare(self, request: web.BaseRequest) -> None:
        """The connection is open already."""

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        exchange = self._exchange
        exchange.report.sent += len(data)
        for frame in self._splitter.feed(bytes(data)):
            payload = frame if isinstance(frame, bytes) else frame.data
            await in_time(exchange.http, exchange.server.slow_reader, self._socket.send_str(payload.decode()))

    async def write_eof(self, data: bytes = b"") -> None:
        await self.write(data)


async def _serve(dialect: SocketDialect, exchange: ServerExchange) -> web.StreamResponse:
    """Answer the request that the connection has read last."""
    connection = exchange.http[CONNECTION]
    message = connection.message
    assert message is not None, "a connection serves what it has received"
    exchange.stream, exchange.known = _Messages(connection.socket, exchange), connection.known
    try:
        await exchange.admit()
        if message.refused is not None:
            raise message.refused
        wire = dialect.decode_message(message.text)
        headers = CIMultiDict(exchange.http.headers)
        headers["content-type"] = "application/json"
        wire = WireRequest(wire.method, wire.path, headers, exchange.http.query, {}, wire.body)
        request, caller = await exchange.decode(wire)
        del wire
        message.release()
        stored = exchange.context.stored_responses
        if stored is not None and stored.prepares:
            return await _prepare(exchange, exchange.stream)
        return await attend(exchange, request, caller)
    finally:
        message.release()
        connection.remember(exchange.context.stored_responses, exchange.report.sent)


async def _prepare(exchange: ServerExchange, stream: web.StreamResponse) -> web.StreamResponse:
    """Answer a request that wants no answer, without a backend."""
    context = exchange.context
    begun = RunStarted(context.run_id, context.thread_id, context.model, context.created_at)
    nothing = UsageReported(0, 0, 0)
    await stream.write(Writer(exchange.route.dialect, context).write([begun, nothing, RunFinished(FinishReason.STOP)]))
    exchange.report.status = "stop"
    return stream
