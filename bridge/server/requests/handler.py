"""The scope of one request, and the handler around operations that end in a log line.

An operation is a function from a `RequestScope` to a response. `RouteHandler` makes the scope, gives every failure the
dialect's shape, writes the log line, and can end all requests that are open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from bridge.contract import Context, StoredResponses, WireRequest
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route, RunCaller
from bridge.engine.watching import RequestEnd, WatchedRequest
from bridge.errors import BridgeError, ErrorCode, Failure, unexpected_failure
from bridge.model import Event, Request
from bridge.model.error_paths import note_places
from bridge.run.run import Run
from bridge.server.requests.access_log import AccessRecord
from bridge.server.requests.guard import GUARD
from bridge.server.requests.http_messages import REPORTED, USER, decoded, error_of, read_request, request_id
from bridge.server.requests.limits import RouteLimiter
from bridge.server.requests.spans import spanned
from bridge.server.requests.writing import BEGUN, HeldResource, abort, has_left, hold, send

if TYPE_CHECKING:
    from bridge.engine.config import ServerSection

log = logging.getLogger("bridge.server")


class RunLock(Protocol):
    """Ends a run from elsewhere. `run` is set when the run of the request has begun."""

    run: Run | None

    def last_events(self) -> list[Event] | None:
        """Return the events that end the run; None if its end was not requested."""
        ...


class RequestScope:
    """One request: where it came in, what its codec knows, what is reported of it.

    `user` is empty where anybody may call. `lock` may end the run from elsewhere. Of a request that came over a
    connection with others, `stream` takes the answer, and `known` adds what the connection remembers. `observe` is
    called with the events of the answer before they are written.
    """

    def __init__(self, http: web.Request, handler: RouteHandler, context: Context, report: AccessRecord) -> None:
        self.http = http
        self.handler = handler
        self.context = context
        self.report = report
        self.bridge: Bridge = handler.bridge
        self.route: Route = handler.route
        self.limiter: RouteLimiter = handler.limiter
        self.server: ServerSection = handler.server
        self.user = report.user
        self.lock: RunLock | None = None
        self.stream: web.StreamResponse | None = None
        self.known: Callable[[StoredResponses | None], StoredResponses] | None = None
        self.observe: Callable[[Sequence[Event]], None] | None = None

    async def read(self) -> WireRequest:
        """Return the whole request. Raises what `read_request` raises."""
        return await read_request(self.http, self.route.path)

    async def decode(self, wire: WireRequest | None = None) -> tuple[Request, RunCaller]:
        """Return the request, decoded, and its caller. `wire` is the request if it was read already."""
        route, context = self.route, self.context
        if wire is None:
            wire = await self.read()
        if route.keeps_answers:
            context.stored_responses = await self.bridge.stored_responses(route, self.user, wire)
        if self.known is not None:
            context.stored_responses = self.known(context.stored_responses)
        request = await decoded(route.dialect.decode_request, wire, context)
        note_places(request)
        self.limiter.check_model(self.user, request.model or route.default_model)
        context.request, context.thread_id, context.model = request, request.thread_id, request.model
        return request, RunCaller(self.user, self.report.request_id, wire.headers, wire.body)

    @property
    def begun(self) -> web.StreamResponse | None:
        """The response whose head is out: there can be no other one. A WebSocket takes any number of messages."""
        return self.http.get(BEGUN) if self.stream is None else None

    async def hold(self, place: HeldResource) -> None:
        """Enter a slot until the response of this request is written."""
        await hold(self.http, place)

    def refuse(self, failure: Failure) -> web.Response:
        """Return the failure as a response of its own; its shape may depend on the request."""
        failure.details = {**failure.details, **self.context.error_details}
        return error_of(self.route.dialect, failure)

    def last_events(self, run: Run) -> list[Event] | None:
        """Return what ends the stream of a request that was canceled from this side; None if its client left."""
        if self.lock is not None and (events := self.lock.last_events()) is not None:
            return events
        return run.cut(_stopping()) if self.handler.cutting else None


Serve = Callable[[RequestScope], Awaitable[web.StreamResponse]]


class RouteHandler:
    """Serves one operation of one route.

    `watches`: it looks for clients that left, as the server does not cancel handlers by itself. `active`: the tasks of
    the requests that are open, waiting ones included.
    """

    def __init__(
        self, bridge: Bridge, route: Route, limiter: RouteLimiter, serve: Serve, *, watches: bool = True
    ) -> None:
        self.bridge = bridge
        self.route = route
        self.limiter = limiter
        self.server = bridge.config.server
        self.watches = watches
        self.active: set[asyncio.Task[object]] = set()
        self.cutting = False
        self._serve = serve

    def cut(self) -> None:
        """End all open requests now; streams end with an error that says that the server stops."""
        self.cutting = True
        for task in self.active:
            task.cancel()

    def stop_accepting(self) -> None:
        """Take no further request over connections that are open; those that are served go on."""

    async def __call__(self, http: web.Request) -> web.StreamResponse:
        route, run_id = self.route, token_hex(16)
        user, metrics = http.get(USER, ""), self.bridge.host.metrics
        report = AccessRecord(request_id(http, run_id), route.path, route.dialect.name, run_id, user, metrics=metrics)
        details = http[GUARD].details(http)
        context = Context(run_id, None, time.time(), route.options, route.default_model, error_details=details)
        task = asyncio.current_task()
        assert task is not None
        self.active.add(task)
        leaving = asyncio.get_running_loop().create_task(_disconnected(http)) if self.watches else None
        if leaving is not None:
            leaving.add_done_callback(lambda done: None if done.cancelled() else task.cancel())
        try:
            scope = RequestScope(http, self, context, report)
            with spanned(self.bridge.tracing, http, report):
                return await self._reported(scope)
        finally:
            self.active.discard(task)
            if leaving is not None:
                leaving.cancel()

    async def _reported(self, scope: RequestScope) -> web.StreamResponse:
        """Write the response and the log line, whatever goes wrong."""
        report, context = scope.report, scope.context
        scope.http[REPORTED] = True
        headers = scope.http.headers
        watch = self.bridge.watch_of(
            headers, lambda: WatchedRequest(headers, scope.user, report.run_id, report.front, lambda: report.sent)
        )
        try:
            try:
                response = await self._serve(scope)
                report.http = response.status
            except (Exception, asyncio.CancelledError) as error:
                failed = self._failed(scope, error)
                if failed is None:
                    raise
                response = failed
            if scope.stream is None:
                response = await send(scope.http, response, self.server.slow_reader)
        except ConnectionError:
            # The client is gone, or does not read; nobody sees this response.
            report.status = "canceled"
            response = scope.begun or web.Response(status=499)
        except asyncio.CancelledError:
            # A client that has all of its answer may leave while the run is put away: that is none that was canceled.
            report.status = report.status or "canceled"
            begun = scope.begun
            if not self.cutting or begun is None:
                raise
            abort(scope.http)
            response = begun
        finally:
            report.write()
            if watch is not None:
                code = str(report.failure.code) if report.failure is not None else None
                lost = context.lost.details or dict.fromkeys(report.lost, "")
                watch.ended(RequestEnd(report.run_id, report.status, code, report.http, report.back, lost))
        return response

    def _failed(self, scope: RequestScope, error: Exception | asyncio.CancelledError) -> web.StreamResponse | None:
        """Return the response for an error; that which was begun, whose connection is aborted, if there is one.

        None if the client is gone. Nothing is raised here: the error would refer to this frame, which refers to it, and
        so hold all that its traceback holds, such as a body, until that is collected.
        """
        report, begun = scope.report, scope.begun
        if isinstance(error, asyncio.CancelledError):
            report.status = report.status or "canceled"
            if not self.cutting:
                return None
            failure = _stopping()
        elif isinstance(error, BridgeError):
            failure = error.failure
            report.ended(None, failure)
        elif isinstance(error, ConnectionError) and has_left(scope.http):
            return None  # the client went away while it was still sending, or before it was answered
        else:
            failure = unexpected_failure(log, f"request {report.request_id} broke", error)
            report.ended(None, failure)
        if begun is not None:
            abort(scope.http)
        response = scope.refuse(failure) if begun is None else begun
        report.http = response.status
        return response


def _stopping() -> Failure:
    return Failure(ErrorCode.OVERLOADED, "The server is shutting down; the run was aborted.")


async def _disconnected(http: web.Request) -> None:
    """Return when the client has closed its connection."""
    while (transport := http.transport) is not None and not transport.is_closing():  # noqa: ASYNC110
        await asyncio.sleep(0.25)
