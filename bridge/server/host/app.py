"""The aiohttp application: one handler per operation, mounted where the dialects' surfaces say.

Nothing here knows a dialect by name. Endpoints of two dialects may share a path when a header tells them apart; a
request that fits nothing gets its 404 or 405 in the shape of the dialect whose mount path is nearest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import cast

from aiohttp import web
from aiohttp.typedefs import Middleware
from multidict import istr

from bridge.contract import Endpoint, Operation
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route
from bridge.engine.services import Host
from bridge.errors import BridgeError, ErrorCode, Failure, shortened
from bridge.server.auth.resource_metadata import mount_metadata
from bridge.server.host.server_connection import ServerConnection
from bridge.server.operations.route_operations import RouteOperations
from bridge.server.page.site import Page
from bridge.server.requests.exchange import EXCHANGE, Serve, ServerExchange
from bridge.server.requests.guard import Guard
from bridge.server.requests.http_messages import REQUEST_ID
from bridge.server.requests.state import STATE, Hosting, State, Task
from bridge.server.requests.writing import StreamedResponse
from bridge.stores.memory_budget import LoadedBytes

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

STREAMED = frozenset({Operation.SUBSCRIBE, Operation.RETRIEVE, Operation.SOCKET, Operation.CONNECT, Operation.TASKS})
"""Operations behind GET whose answer may be a stream, which a HEAD would wait for."""
_SERVER = istr("server")
UNKNOWN_PATH = "unknown_url"
"""The code of a 404 for a path, which is none for a model."""


def make_app(bridge: Bridge, hosting: Hosting | None = None) -> web.Application:
    """Return an application that serves all routes of `bridge`. It opens and closes the bridge itself.

    `hosting`: what the program that runs the application does for it; by default nothing beyond what aiohttp does.
    """
    server = bridge.config.server
    state = State(bridge, hosting)
    metrics = None
    if server.metrics is not None:
        from bridge.engine.telemetry.metrics import metrics as of_process

        metrics = of_process()
    spent = state.limits.spent if state.limits.has_rates else None
    bridge.serve_for(Host(slots=state.limits, metrics=metrics, spent=spent))
    page = Page(bridge, state.identity) if server.has_page else None
    app = web.Application(client_max_size=server.max_body, middlewares=[_serving(state)])
    app[STATE] = state
    app.on_response_prepare.append(_adding_headers(state))
    app.cleanup_ctx.append(_bridge_life)
    if page is not None:
        page.mount(app)
    _mount(app, bridge, state, page)
    mount_metadata(app, bridge)
    if server.metrics is not None:
        from bridge.server.operations.metrics_endpoint import MetricsEndpoint

        assert metrics is not None
        endpoint = MetricsEndpoint(bridge, metrics, state.limits, state.identity, server.metrics)
        app.cleanup_ctx.append(endpoint.life)
        app.router.add_get(server.metrics.path, endpoint.answer)
    app.router.add_get(server.health.live, _live)
    app.router.add_get(server.health.ready, _ready)
    return app


async def _bridge_life(app: web.Application) -> AsyncIterator[None]:
    bridge = app[STATE].bridge
    try:
        if bridge.is_open:
            yield
            return
        await bridge.start()
        yield
        await bridge.close()
    finally:
        app[STATE].refusals.close()
        await app[STATE].identity.close()
        await app[STATE].limits.close()


# ---------------------------------------------------------------------- routing


def _mount(app: web.Application, bridge: Bridge, state: State, page: Page | None) -> None:
    """One aiohttp route per method and path; where several endpoints share it, headers decide.

    A dialect's health endpoint that falls on the server's own path (one mounted at "/") is answered by that, and so is
    its description where the page is. A health endpoint at the page's path answers programs, the page browsers.
    """
    health = bridge.config.server.health
    own = {("GET", health.live, Operation.HEALTH), ("GET", health.ready, Operation.HEALTH)}
    if page is not None:
        own.add(("GET", "/", Operation.DESCRIBE))
    table: dict[tuple[str, str], list[tuple[Endpoint, Handler]]] = {}
    for route in bridge.routes:
        if route.dialect.over_grpc:
            continue
        operations = RouteOperations(route, state)
        for endpoint in route.surface:
            path = route.path.rstrip("/") + endpoint.path
            if (endpoint.method, path or "/", endpoint.operation) in own:
                continue
            choices = table.setdefault((endpoint.method, path or "/"), [])
            if endpoint.shared and any(known.shared for known, _ in choices):
                continue  # the first route there answers for all of them
            handler = _guarded(operations.handler(endpoint.operation), endpoint, route, state)
            choices.append((endpoint, handler))
    for (method, path), choices in table.items():
        handler = _chosen(choices)
        # Clients write paths with and without a slash at the end.
        if (method, path) == ("GET", "/") and page is not None:
            page.beside = handler
            continue
        for known in (path, f"{path}/") if path != "/" else (path,):
            app.router.add_route(method, known, handler)
            if method == "GET" and not any(endpoint.operation in STREAMED for endpoint, _ in choices):
                app.router.add_route("HEAD", known, handler)


def _chosen(choices: list[tuple[Endpoint, Handler]]) -> Handler:
    if len(choices) == 1:
        return choices[0][1]
    ordered = sorted(choices, key=lambda c: c[0].header is None)

    async def handle(http: web.Request) -> web.StreamResponse:
        for endpoint, handler in ordered:
            if endpoint.header is None or endpoint.header in http.headers:
                return await handler(http)
        raise web.HTTPNotFound

    return handle


def _guarded(operation: Serve, endpoint: Endpoint, route: Route, state: State) -> Handler:
    """Return what serves an endpoint: the checks of its caller, then its operation."""
    guard = Guard(endpoint, route, state.bridge, state.origins, state.identity, state.limits, state)

    async def handle(http: web.Request) -> web.StreamResponse:
        exchange = http[EXCHANGE]
        exchange.guard = guard
        guard.check(http, exchange.initiator)
        if guard.identifies:
            exchange.user = await guard.identify(http)
        with LoadedBytes(state.bridge.memory_budget):
            return await operation(exchange)

    return handle


# ---------------------------------------------------------------------- around every request


def _serving(state: State) -> Middleware:
    """Makes the exchange of a request, and lets it answer.

    Probes of the process reach it by whatever address it has, and learn nothing but its state.
    """
    health = state.bridge.config.server.health
    probes = {health.live, health.ready}

    @web.middleware
    def serve(request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
        http = request
        exchange = http[EXCHANGE] = ServerExchange(http, state.bridge, state.refusals)

        def handle(exchange: ServerExchange) -> Awaitable[web.StreamResponse]:
            connection = http.protocol
            if isinstance(connection, ServerConnection) and connection.refused is not None:
                raise BridgeError.of(connection.refused)
            if http.path not in probes:
                state.origins.check_host(http)
                exchange.initiator = state.origins.initiator_of(http)
            return _allowed(http) if exchange.is_preflight else handler(http)

        return exchange.answer(handle, _refusal)

    return serve


async def _allowed(http: web.Request) -> web.StreamResponse:
    """Answer a preflight."""
    return web.Response(status=200)


def _refusal(http: web.Request, error: web.HTTPException) -> Failure:
    """Return the failure for what aiohttp itself refuses."""
    match error.status:
        case 404:
            failure = _nowhere(http)
        case 405 if http.headers.get("upgrade", "").lower() == "websocket":
            # Codex asks for a WebSocket first: after 426 it falls back at once, after 405 it tries again.
            message = f"{shortened(http.path)} is not served over WebSocket; send {error.headers.get('allow', 'POST')}."
            failure = Failure(ErrorCode.INVALID_REQUEST, message, status=426, headers={"upgrade": "HTTP/1.1"})
        case 405:
            allowed = error.headers.get("allow", "")
            message = f"{http.method} is not allowed at {http.path[:200]}; allowed: {allowed}."
            failure = Failure(ErrorCode.INVALID_REQUEST, message, status=405, headers={"allow": allowed})
        case status:
            failure = Failure(ErrorCode.INVALID_REQUEST, error.reason, status=status)
    failure.details["path"] = http.path
    return failure


def _nowhere(http: web.Request) -> Failure:
    """Return the failure for an unknown path. They are named where anybody may know them; the log always names them."""
    bridge = http.app[STATE].bridge
    routes = [route for route in bridge.routes if not route.dialect.over_grpc]
    likely = ""
    server = bridge.config.server
    own = [server.health.live, server.health.ready, *([server.metrics.path] if server.metrics else [])]
    if http.path == "/" and not server.has_page:
        likely = "The page is off: server.page_key gives it a key. "
    elif (meant := _meant(http.path, routes, own)) is not None:
        path, route = meant
        likely = f"Did you mean {path}{f' ({route.dialect.name})' if route is not None else ''}? "
        if route is not None:
            http[EXCHANGE].answer_as(route.dialect)
    hint = f"{likely}Routes: {', '.join(f'{known.dialect.name} at {known.path}' for known in routes)}."
    text = f"There is nothing at {http.method} {shortened(http.path)}."
    failure = Failure(ErrorCode.NOT_FOUND, text, backend_code=UNKNOWN_PATH)
    if server.is_open:
        failure.message += f" {hint}"
    else:
        failure.cause = hint.removesuffix(".")
    return failure


def _meant(path: str, routes: list[Route], own: Iterable[str]) -> tuple[str, Route | None] | None:
    """What a client with an unknown path probably meant: a method and path, and the route that serves it.

    In this order: an endpoint with which the path ends, one that ends with the path, a similar one or one of
    the server's `own`, and the endpoint for runs of a route at this path or, if that has no path of its own, above it.
    """
    path = path[:200].rstrip("/")
    found: dict[str, tuple[str, Route | None]] = {}
    filled: list[tuple[str, Route]] = []
    below: list[tuple[str, Route]] = []
    for route, endpoint in [(known, endpoint) for known in routes for endpoint in known.surface]:
        mount = route.path.rstrip("/")
        if "{" in endpoint.path:
            head, tail = endpoint.path.partition("{")[0], endpoint.path.rpartition("}")[2]
            if endpoint.operation is Operation.RUN and path.endswith(tail) and (at := path.find(head)) >= 0:
                filled.append((f"{endpoint.method} {mount}{path[at:]}", route))
            continue
        whole = f"{mount}{endpoint.path}"
        meant = found.setdefault(whole, (f"{endpoint.method} {whole}", route))
        if endpoint.path and path.endswith(endpoint.path):
            return meant
        above = not endpoint.path and path.startswith(f"{mount}/")
        starts = endpoint.operation in (Operation.RUN, Operation.START, Operation.TOOLS)
        if starts and mount and (path == mount or above):
            below.append((f"{endpoint.method} {whole}", route))
    if filled:
        return max(filled, key=lambda each: len(each[0]))
    for whole, meant in found.items():
        if path and whole.endswith(path):
            return meant
    import difflib  # here, as most servers never need it

    found.update({each: (f"GET {each}", None) for each in own})
    similar = difflib.get_close_matches(path, found, 1, 0.85)
    return found[similar[0]] if similar else below[0] if below else None


def _adding_headers(state: State) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """The headers of every response: request id and CORS. There is one response for each request."""

    async def add_headers(http: web.Request, response: web.StreamResponse) -> None:
        exchange = http.get(EXCHANGE)
        if exchange is None:  # of an aiohttp server that is not ours, which answers an unknown `Expect` by itself
            exchange = ServerExchange(http, state.bridge, state.refusals)
        exchange.begin_response(response)
        if not (exchange.is_served or exchange.is_own_page) and isinstance(response, (web.Response, StreamedResponse)):
            # A route's handler knows the task until the response is written.
            task = cast("Task", asyncio.current_task())
            state.writing.add(task)
            task.add_done_callback(state.writing.discard)
        headers = response.headers
        headers[REQUEST_ID] = exchange.request_id
        guard = exchange.guard
        if guard is not None and guard.dialect.request_id_header:
            headers[guard.dialect.request_id_header] = exchange.request_id
        headers[_SERVER] = "dialect-bridge"
        if state.draining or state.retired:
            headers["connection"] = "close"
            response.force_close()
        if not exchange.is_own_page:
            state.origins.add_headers(http, exchange.initiator, headers, is_preflight=exchange.is_preflight)

    return add_headers


async def _live(http: web.Request) -> web.StreamResponse:
    return web.json_response({"status": "ok"})


async def _ready(http: web.Request) -> web.StreamResponse:
    state = http.app[STATE]
    if state.draining:
        return web.json_response({"status": "draining"}, status=503)
    if silent := state.hosting.silent_workers():
        return web.json_response({"status": "workers do not answer", "silent_workers": silent}, status=503)
    if failing := state.bridge.store_watch.failing:
        return web.json_response({"status": "stores cannot be written to", "stores": failing}, status=503)
    return web.json_response({"status": "ok"})
