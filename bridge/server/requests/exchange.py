"""One request and its response: `ServerExchange` carries both from the first check to the log line.

`ServerExchange.answer` is the one place where a failure becomes a response. It knows whether the head of a response is
out: from then on a failure can only close the connection. An operation is a function from an exchange to a response;
`RouteHandler` gives it what belongs to a route, and can end all requests that are open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from os import urandom
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self

from aiohttp import web

from bridge.contract import Context, Dialect, Operation, StoredResponses, WireRequest
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route, RunCaller
from bridge.engine.watching import RequestEnd, RunWatch, WatchedRequest
from bridge.errors import BridgeError, ErrorCode, Failure, RequestError, unexpected_failure
from bridge.model import Event, Request
from bridge.model.error_paths import note_places
from bridge.model.jsontext import repeats
from bridge.run.run import Run
from bridge.server.auth.audit_log import AuditLog
from bridge.server.auth.cors import PREFLIGHT, Initiator
from bridge.server.requests.access_log import AccessRecord
from bridge.server.requests.bodies import Bodies
from bridge.server.requests.guard import Guard
from bridge.server.requests.http_messages import REQUEST_ID, ErrorResponse, decoded, error_of, is_request_id
from bridge.server.requests.limits import RouteLimiter
from bridge.server.requests.nearest import nearest_dialect
from bridge.server.requests.spans import spanned
from bridge.server.requests.writing import HeldResource, StreamedResponse, abort, has_left, is_whole, send

if TYPE_CHECKING:
    from bridge.engine.config import ServerSection

log = logging.getLogger("bridge.server")

_NO_QUERY: Mapping[str, str] = MappingProxyType({})


Refusal = Callable[[web.Request, web.HTTPException], Failure]
"""Returns the failure for what aiohttp itself refuses."""


class RunLock(Protocol):
    """Ends a run from elsewhere. `run` is set when the run of the request has begun."""

    run: Run | None

    def last_events(self) -> list[Event] | None:
        """Return the events that end the run; None if its end was not requested."""
        ...


class ServerExchange:
    """One request and its response. Each message of a connection, and each message of a batch, has one of its own.

    The attributes from `route` to `report` are set by `begin`, which is called before the operation of a route.

    Attributes:
        http: The request as aiohttp has it.
        request_id: The client's own id if it is well formed, else one made here.
        run_id: The id of the run that the request starts.
        user: The user who sent it, who owns all that is made with it; empty where anybody may call.
        guard: The checks of its endpoint; None if nothing serves its path.
        initiator: The page for which a browser sent it; None for a program.
        begun: The response whose head was sent, or is being sent: there can be no other one.
        is_preflight: It is a browser's CORS preflight.
        is_own_page: The bridge's own page sent it: no page of another origin may read the answer.
        is_served: `begin` was called, so that it has a log line.
        route: The route that serves it.
        context: What the codecs of the route know of it.
        report: The facts of its log line.
        lock: May end the run from elsewhere.
        stream: Takes the answer to a message of a connection.
        known: Adds what the connection remembers to the stored responses.
        observe: Is called with the events of the answer before they are written.
    """

    route: Route
    context: Context
    limiter: RouteLimiter
    handler: RouteHandler
    report: AccessRecord
    _task: asyncio.Task[object]
    user = ""
    guard: Guard | None = None
    initiator: Initiator | None = None
    begun: web.StreamResponse | None = None
    is_own_page = False
    is_served = False
    lock: RunLock | None = None
    stream: web.StreamResponse | None = None
    known: Callable[[StoredResponses | None], StoredResponses] | None = None
    observe: Callable[[Sequence[Event]], None] | None = None
    _shape: Dialect | None = None
    _is_message = False
    _span: AbstractContextManager[None] | None = None
    _watch: RunWatch | None = None
    _leaving: asyncio.Task[None] | None = None

    def __init__(self, http: web.Request, bridge: Bridge, audit_log: AuditLog) -> None:
        sent = http.headers.get(REQUEST_ID)
        self.http = http
        self.bridge = bridge
        self.server: ServerSection = bridge.config.server
        self.is_preflight = http.method == "OPTIONS" and PREFLIGHT in http.headers
        self.run_id = urandom(16).hex()
        self.request_id = sent if sent is not None and is_request_id(sent) else self.run_id
        self._audit_log = audit_log
        self._held: tuple[HeldResource, ...] = ()

    def message(self) -> ServerExchange:
        """Return the exchange of one message that came over this request's connection."""
        own = ServerExchange(self.http, self.bridge, self._audit_log)
        own.request_id, own.user, own.guard, own.initiator = self.request_id, self.user, self.guard, self.initiator
        own._is_message = True
        return own

    def part(self) -> ServerExchange:
        """Return the exchange of one message of a batch: it has a run of its own, and the log line of the batch."""
        own = self.message()
        own._set_route(self.handler)
        own.report, own.context.site, own.is_served = self.report, self.context.site, True
        return own

    # ------------------------------------------------------------------ who sent it

    async def admit(self) -> None:
        """Check one more message of a connection or a batch as if it had come alone. Raises what `Guard.identify`
        raises.
        """
        assert self.guard is not None, "a message is one of an endpoint's"
        try:
            self.user = await self.guard.identify(self.http, is_message=True)
        except BridgeError as error:
            self._refused(error.failure)  # the connection, or the batch, has a line of its own
            raise

    async def permit(self, operation: Operation) -> None:
        """Check that its sender may do what its body asks for. Raises what `Guard.permit` raises."""
        assert self.guard is not None, "a body is read for an endpoint"
        await self.guard.permit(self.http, self.initiator, operation)

    def check_named_origin(self) -> None:
        """Raise `RequestError` (forbidden) for a page whose origin the configuration does not name."""
        if self.initiator is not None:
            self.initiator.check_named()

    # ------------------------------------------------------------------ what it asks

    async def read(self) -> WireRequest:
        """Return the whole request.

        Raises `RequestError` for a body that cannot be read, is too large or too late, and for one of a page that is
        not declared as JSON; `BackendError` where too many are being read.
        """
        http, guard = self.http, self.guard
        assert guard is not None, "a body is read for an endpoint"
        if self.initiator is not None:
            self.initiator.check_json(http)
        body = await guard.bodies.read(http, self.user)
        query = http.query if "?" in http.raw_path else _NO_QUERY
        return WireRequest(http.method, self.path, http.headers, query, http.match_info, body)

    @property
    def bodies(self) -> Bodies:
        """What reads the bodies of requests."""
        assert self.guard is not None, "a body is read for an endpoint"
        return self.guard.bodies

    @property
    def path(self) -> str:
        """The path below the mount path of its route."""
        return self.http.path.removeprefix(self.guard.mount if self.guard is not None else "")

    def begin(self, handler: RouteHandler) -> None:
        """Begin to serve it on a route: from now on it is open, and has a log line."""
        self._set_route(handler)
        route, host, self.is_served = self.route, self.bridge.host, True
        self.report = AccessRecord(self.request_id, route.path, route.dialect.name, self.run_id, self.user, host)
        self._task = handler.opened()
        if self.bridge.tracing is not None:
            self._span = spanned(self.bridge.tracing, self.http, self.report)
            self._span.__enter__()
        if self.bridge.watchers:
            self._watch = self.bridge.watch_of(self.http.headers, self._watched)
        if handler.watches:
            self._watch_client()

    def _set_route(self, handler: RouteHandler) -> None:
        route = handler.route
        self.handler, self.route, self.limiter = handler, route, handler.limiter
        self.context = Context(self.run_id, None, time.time(), route.options, route.default_model)
        self.context.untouched = route.passthrough

    def _endpoint_details(self) -> dict[str, Any]:
        """Return what the shape of an error may depend on."""
        return {"operation": self.guard.operation, "path": self.http.path} if self.guard is not None else {}

    def _watched(self) -> WatchedRequest:
        report = self.report
        return WatchedRequest(self.http.headers, self.user, self.run_id, report.front, lambda: report.sent)

    def _watch_client(self) -> None:
        """Cancel the request when its client leaves."""
        task = asyncio.current_task()
        assert task is not None
        self._leaving = asyncio.get_running_loop().create_task(_disconnected(self.http))
        self._leaving.add_done_callback(lambda done: None if done.cancelled() else task.cancel())

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
        self.limiter.check_model(self.user, request.model or route.usual_model(request))
        if route.passthrough and self.limiter.is_limited_to_models(self.user) and repeats(wire.body, "model"):
            raise RequestError("model: named more than once.", param="model")
        context.request, context.thread_id, context.model = request, request.thread_id, request.model
        return request, self.caller(wire)

    def caller(self, wire: WireRequest | None = None) -> RunCaller:
        """Return its sender, as backends are told of it; without `wire`, nothing of what came is passed on."""
        context = self.context
        return RunCaller(
            self.user,
            self.request_id,
            wire.headers if wire is not None else {},
            wire.body if wire is not None else None,
            self.route.capabilities,
            context.lost,
            context.run_id,
            context.created_at,
        )

    async def hold(self, place: HeldResource) -> None:
        """Enter a slot until the response is written. Raises `BridgeError` where there is none."""
        await place.enter()
        self._held = (*self._held, place)

    def run_began(self, run: Run) -> None:
        """Note the run of the request, which is about to ask its backend."""
        self.report.back = run.backend.name
        if self.lock is not None:
            self.lock.run = run

    def run_ended(self, run: Run) -> None:
        """Note how the run came out, and count what it used."""
        self.report.of(run)

    # ------------------------------------------------------------------ what is answered

    async def answer(
        self, serve: Callable[[Self], Awaitable[web.StreamResponse]], refusal: Refusal | None = None
    ) -> web.StreamResponse:
        """Serve the request, write its response unless `serve` has, and what is said of it afterwards.

        Returns the response that was written. Raises only `asyncio.CancelledError`, for a client that has left, and
        responses that are raised: `web.HTTPException`, with `refusal` only those with a status below 400.
        """
        try:
            try:
                serving = serve(self)
                del serve  # what it refers to is not held while it is awaited
                response = await serving
            except (Exception, asyncio.CancelledError) as error:
                failed = self._failed(error, refusal)
                if failed is None:
                    raise
                response = failed
            if self.is_served:
                self.report.http = response.status
            response = await self._write(response)
        except ConnectionError:
            # The client is gone, or does not read; nobody sees this response.
            if self.is_served:
                self.report.status = "canceled"
            response = self._broken_off() or web.Response(status=499)
        except asyncio.CancelledError:
            self._canceled()
            begun = self._broken_off()
            if begun is None or not self._is_cut:
                raise
            response = begun
        except Exception as error:
            # The response could not be written: it is not of the length that its head has promised.
            failed = self._failed(error)
            if failed is None:
                raise
            response = failed
        finally:
            self._finish()
        return response

    async def _write(self, response: web.StreamResponse) -> web.StreamResponse:
        if self._is_message:
            return response
        if self.begun is None:
            return await send(self.http, response, self.server.slow_reader)
        if response is not self.begun or not is_whole(response):
            self._broken_off()
        return self.begun

    def _canceled(self) -> None:
        # A client that has all of its answer may leave while the run is put away: that is none that was canceled.
        if self.is_served:
            self.report.status = self.report.status or "canceled"

    def _broken_off(self) -> web.StreamResponse | None:
        """Close the connection if the head of a response is out, and return that response."""
        if self.begun is not None:
            abort(self.http)
        return self.begun

    def _failed(
        self, error: Exception | asyncio.CancelledError, refusal: Refusal | None = None
    ) -> web.StreamResponse | None:
        """Return the response for an error: that which was begun, whose connection is closed, if there is one.

        None if the client is gone, or if the error is itself a response. Nothing is raised here: the error would refer
        to this frame, which refers to it, and so hold all that its traceback holds, such as a body, until that is
        collected.
        """
        if isinstance(error, asyncio.CancelledError):
            self._canceled()
            if not self._is_cut:
                return None
            failure = stopping()
        elif isinstance(error, BridgeError):
            failure = error.failure
        elif isinstance(error, web.HTTPException):
            if refusal is None or error.status < 400:
                return None
            failure = refusal(self.http, error)
        elif isinstance(error, ConnectionError) and has_left(self.http):
            return None
        else:
            failure = unexpected_failure(log, f"request {self.request_id} broke", error)
        if self.is_served and not isinstance(error, asyncio.CancelledError):
            self.report.ended(None, failure)
        if self.begun is None:
            return self.refuse(failure)
        self.audit(self.begun.status, failure)
        return self._broken_off()

    def refuse(self, failure: Failure) -> web.Response:
        """Return the failure as a response of its own; its shape may depend on the request."""
        details = self.context.error_details if self.is_served else {}
        failure.details = {**failure.details, **self._endpoint_details(), **details}
        return error_of(self._dialect, failure)

    def answer_as(self, dialect: Dialect) -> None:
        """Answer an unknown path in the shape of this dialect, unless a route is nearer."""
        self._shape = dialect

    @property
    def _dialect(self) -> Dialect | None:
        """The dialect that serves it, else the one with the nearest mount path."""
        if self.guard is not None:
            return self.guard.dialect
        return nearest_dialect(self.bridge.routes, self.http.path, self.http.headers) or self._shape

    @property
    def _is_cut(self) -> bool:
        """True if the server ends all requests that are open."""
        return self.is_served and self.handler.cutting

    def last_events(self, run: Run) -> list[Event] | None:
        """Return what ends the stream of a request that was canceled from this side; None if its client left."""
        if self.lock is not None and (events := self.lock.last_events()) is not None:
            return events
        return run.cut(stopping()) if self._is_cut else None

    def begin_response(self, response: web.StreamResponse) -> None:
        """Note that the head of a response goes out. Raises `ConnectionError` if that is the second one."""
        if self.begun is not None:
            abort(self.http)
            raise ConnectionResetError("A response was begun already; the connection was closed.")
        self.begun = response
        if isinstance(response, (ErrorResponse, StreamedResponse)) and response.failure is not None:
            self.audit(response.status, response.failure)

    # ------------------------------------------------------------------ what is said of it

    def audit(self, status: int, failure: Failure) -> None:
        """Log that no route has served it, or that its sender may not do that."""
        if failure.code in (ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN):
            self._refused(failure)
        elif not self.is_served:
            # The path as it was sent: spaces in it could look like further facts of the line.
            http = self.http
            self._audit_log.unserved(
                failure,
                http=status,
                method=http.method,
                path=http.rel_url.raw_path,
                peer=http.remote,
                user=self.user,
                request_id=self.request_id,
            )

    def _refused(self, failure: Failure) -> None:
        http = self.http
        self._audit_log.refused(
            failure, path=http.rel_url.raw_path, peer=http.remote, user=self.user, request_id=self.request_id
        )

    def _finish(self) -> None:
        """Write the log line, and let go of what the request holds: its response is written, or never will be."""
        if self.is_served:
            report = self.report
            report.write()
            if self._watch is not None:
                code = str(report.failure.code) if report.failure is not None else None
                lost = self.context.lost.details or dict.fromkeys(report.lost, "")
                self._watch.ended(RequestEnd(report.run_id, report.status, code, report.http, report.back, lost))
            if self._span is not None:
                self._span.__exit__(None, None, None)
            if self._leaving is not None:
                self._leaving.cancel()
            self.handler.closed(self._task)
            # aiohttp keeps the last request of a connection until the next one comes; the prompt need not stay with it.
            del self.context
            self.observe = self.known = self.lock = None
        held, self._held = self._held, ()
        for place in reversed(held):
            place.leave()


EXCHANGE = web.RequestKey("exchange", ServerExchange)

Serve = Callable[[ServerExchange], Awaitable[web.StreamResponse]]
"""An operation."""


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

    def __call__(self, exchange: ServerExchange) -> Awaitable[web.StreamResponse]:
        exchange.begin(self)
        return self._serve(exchange)

    def opened(self) -> asyncio.Task[object]:
        """A request is served by the current task, which is returned."""
        task = asyncio.current_task()
        assert task is not None
        self.active.add(task)
        return task

    def closed(self, task: asyncio.Task[object]) -> None:
        """The response to the request of this task is written."""
        self.active.discard(task)

    def cut(self) -> None:
        """End all open requests now; streams end with an error that says that the server stops."""
        self.cutting = True
        for task in self.active:
            task.cancel()

    def stop_accepting(self) -> None:
        """Take no further request over connections that are open; those that are served go on."""


def stopping() -> Failure:
    """Return why a request ends that is open when the server stops."""
    return Failure(ErrorCode.OVERLOADED, "The server is shutting down; the run was aborted.")


async def _disconnected(http: web.Request) -> None:
    """Return when the client has closed its connection."""
    while (transport := http.transport) is not None and not transport.is_closing():  # noqa: ASYNC110
        await asyncio.sleep(0.25)
