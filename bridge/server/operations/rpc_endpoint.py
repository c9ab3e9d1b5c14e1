"""The operation `connect`: WebSockets over which both sides ask.

A connection is admitted like a request, and so is each of its calls that a store or a backend answers: keys may have
been withdrawn, and rates count. A run has a slot only while a backend works on it, not while a person is asked. Stored
sessions can be read over a connection, so that pages need an origin that is named (`server.cors.origins`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from importlib.metadata import version
from secrets import token_hex
from typing import Any

from aiohttp import web

from bridge.contract import Losses, Operation, RpcDialect, RpcService, require
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route
from bridge.errors import BridgeError, ErrorCode, Failure, RequestError, unexpected_failure
from bridge.jsonrpc.carrier import CarrierEnded
from bridge.jsonrpc.websocket import WebSocketCarrier
from bridge.run.run import Run
from bridge.server.operations.websocket_endpoint import Arriving
from bridge.server.requests.access_log import AccessRecord
from bridge.server.requests.exchange import RouteHandler, ServerExchange
from bridge.server.requests.limits import RouteLimiter
from bridge.server.requests.spans import spanned
from bridge.server.requests.writing import abort, in_time
from bridge.server.sessions import SessionConnection

log = logging.getLogger("bridge.server")


class ReportedRun:
    """One run of a prompt, with the log line at its end."""

    def __init__(self, bridge: Bridge, route: Route, user: str, of_request: str | None = None) -> None:
        self.run_id = token_hex(16)
        self.request_id = of_request or self.run_id
        self.lost = Losses()
        self.report = AccessRecord(self.request_id, route.path, route.dialect.name, self.run_id, user, bridge.host)
        self._run: Run | None = None

    def began(self, run: Run) -> None:
        self._run, self.report.back = run, run.backend.name

    def wrote(self, size: int) -> None:
        self.report.sent += size

    def ended(self, error: BaseException | None) -> None:
        """Write the line. `error` is what the run was left with."""
        if self._run is not None:
            self.report.of(self._run)
        if isinstance(error, BridgeError):
            self.report.ended(None, error.failure)
        elif isinstance(error, asyncio.CancelledError | CarrierEnded):
            self.report.status = self.report.status or "canceled"
        elif isinstance(error, Exception):
            self.report.ended(None, unexpected_failure(log, f"run {self.run_id} broke", error))
        self.report.write()


class _Client:
    """The client of one connection; an `RpcHost`."""

    def __init__(self, exchange: ServerExchange, handler: RpcHandler) -> None:
        self.dialect = handler.dialect
        self.service = handler.service
        self.busy = handler.busy
        self.owner = exchange.user
        self.headers: Mapping[str, str] = exchange.http.headers
        self._exchange = exchange
        self._handler = handler

    def greeted(self) -> None:
        """The bridge is open already."""

    async def opened(self) -> tuple[Bridge, Route]:
        return self._handler.bridge, self._handler.route

    async def admit(self, operation: Operation | None) -> None:
        await self._exchange.admit()
        if operation is not None:
            await self._exchange.permit(operation)

    def allows(self, model: str) -> bool:
        return self._handler.limiter.allows(self.owner, model)

    def check_model(self, model: str | None) -> None:
        self._handler.limiter.check_model(self.owner, model)

    def counting(self) -> AbstractContextManager[object]:
        return self._handler.bridge.counting()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ReportedRun]:
        handler = self._handler
        scope = ReportedRun(handler.bridge, handler.route, self.owner, self._exchange.request_id)
        error: BaseException | None = None
        try:
            with spanned(handler.bridge.tracing, self._exchange.http, scope.report):
                await self.admit(Operation.RUN)
                async with handler.limiter.slot(self.owner):
                    yield scope
        except BaseException as raised:
            error = raised
            raise
        finally:
            scope.ended(error)


class RpcHandler(RouteHandler):
    """Serves the connections of one route."""

    def __init__(self, bridge: Bridge, route: Route, limiter: RouteLimiter, *, watches: bool = True) -> None:
        super().__init__(bridge, route, limiter, _nothing, watches=watches)
        self.dialect = require(route.dialect, RpcDialect)
        self.service = RpcService.of(
            [backend.capabilities for backend in route.backends],
            stores=bridge.config.stores.history is not None,
            version=version("dialect-bridge"),
            options=route.options,
        )
        self.busy: set[tuple[str, str]] = set()
        self._connections: set[SessionConnection] = set()
        self._finishing: set[asyncio.Task[None]] = set()

    def stop_accepting(self) -> None:
        for connection in self._connections:
            task = asyncio.get_running_loop().create_task(connection.finish())
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)

    async def __call__(self, exchange: ServerExchange) -> web.StreamResponse:
        http = exchange.http
        if http.headers.get("upgrade", "").lower() != "websocket":
            raise RequestError("Expected the upgrade of a WebSocket.", status=426, param="upgrade")
        server = self.server
        async with self.limiter.socket_slot(exchange.user):
            try:
                headers = self.dialect.handshake_headers(token_hex(16))
                carrier = await WebSocketCarrier.accept(
                    http, headers=headers, max_frame=server.max_body, heartbeat=server.keepalive
                )
            except web.HTTPBadRequest as error:
                text = "Expected the upgrade of a WebSocket, version 13, with a Sec-WebSocket-Key."
                raise RequestError(text) from error
            connection = SessionConnection(_Client(exchange, self))
            frames = getattr(http.protocol, "frames", None)  # other servers than ours have none
            arriving = Arriving(frames, exchange.bodies) if frames is not None else None
            if arriving is not None:
                arriving.refused.add_done_callback(lambda refused: _refuse(http, carrier, refused))
            task = self.opened()
            self._connections.add(connection)
            try:
                watched = _Watched(http, carrier, connection, server.limits.socket_idle, server.slow_reader)
                ended = await connection.serve(watched, max_frame=server.max_body)
                log.debug("a connection ended: %s", ended)
            finally:
                self._connections.discard(connection)
                self.closed(task)
                if arriving is not None:
                    arriving.close()
            return carrier.socket  # type: ignore[return-value]  # that of a server


class _Watched:
    """A carrier that ends when nothing comes for `seconds` without an open prompt, or when its client does not read."""

    def __init__(
        self,
        http: web.Request,
        carrier: WebSocketCarrier,
        connection: SessionConnection,
        seconds: float,
        slow_reader: float | None,
    ) -> None:
        self._http = http
        self._slow_reader = slow_reader
        self._carrier = carrier
        self._connection = connection
        self._seconds = seconds
        self._receiving: asyncio.Task[list[bytes]] | None = None

    async def receive(self) -> list[bytes]:
        receiving = self._receiving = self._receiving or asyncio.create_task(self._carrier.receive())
        began = time.monotonic()
        while not receiving.done():
            left, idle_since = self._seconds, self._connection.idle_since
            if idle_since is not None:
                left += max(began, idle_since) - time.monotonic()
            done, _ = await asyncio.wait({receiving}, timeout=max(0.0, left))
            if not done and left <= 0:
                raise CarrierEnded(f"nothing came for {self._seconds:g} s (limits.socket_idle)")
        self._receiving = None
        return receiving.result()

    async def send(self, frames: Sequence[bytes]) -> None:
        try:
            await in_time(self._http, self._slow_reader, self._carrier.send(frames))
        except ConnectionError as error:
            raise CarrierEnded(str(error)) from None

    async def close(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.wait({self._receiving})
            self._receiving = None
        await self._carrier.close()


def _refuse(http: web.Request, carrier: WebSocketCarrier, refused: asyncio.Future[Failure]) -> None:
    """End a connection for a message that will not be received."""
    if refused.cancelled():
        return
    log.warning("a connection was closed: %s", refused.result().message)
    abort(http)


async def _nothing(scope: Any) -> web.StreamResponse:
    raise RequestError("Expected a call over the connection.", code=ErrorCode.UNSUPPORTED)
