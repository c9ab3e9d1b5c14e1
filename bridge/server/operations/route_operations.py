"""The operations of one route: which function or handler serves each."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

from bridge.contract import (
    AgentTasksDialect,
    AnsweringDialect,
    Context,
    CountingDialect,
    DescribedDialect,
    EmbeddingsDialect,
    ModelInfo,
    ModelsDialect,
    Operation,
    QueuedRunsDialect,
    ResumableDialect,
    RouteFacts,
    WireRequest,
    require,
)
from bridge.engine.route import Route, RunCaller
from bridge.errors import BackendError, ConfigError, ErrorCode, RequestError
from bridge.model import UsageReported
from bridge.server.operations.agent_task_endpoints import serve_task_call
from bridge.server.operations.attachment_service import AttachmentService
from bridge.server.operations.descriptions import described
from bridge.server.operations.durable import serve_durable, serve_resume
from bridge.server.operations.forwarding import serve_forward
from bridge.server.operations.history import HistoryHandler
from bridge.server.operations.queued_run_endpoints import serve_cancel, serve_start, serve_subscribe
from bridge.server.operations.response_endpoints import (
    serve_cancel_response,
    serve_delete,
    serve_items,
    serve_retrieve,
    serve_run_or_background,
)
from bridge.server.operations.rpc_endpoint import RpcHandler
from bridge.server.operations.run_endpoint import attend, serve_answer_or_run
from bridge.server.operations.single_run_endpoints import SessionLocks, serve_single_durable, serve_stop, single_run
from bridge.server.operations.task_endpoints import serve_status, serve_task
from bridge.server.operations.tool_calls import ToolServer
from bridge.server.operations.uploads import UploadHandlers, files_of
from bridge.server.operations.websocket_endpoint import SocketHandler
from bridge.server.requests.exchange import RouteHandler, Serve, ServerExchange
from bridge.server.requests.http_messages import decoded, response_of

if TYPE_CHECKING:
    from bridge.server.requests.state import State

H = TypeVar("H", bound=RouteHandler)


class RouteOperations:
    """Makes the handlers of one route."""

    def __init__(self, route: Route, state: State) -> None:
        self._route = route
        self._state = state
        self._bridge = state.bridge
        self._limiter = state.limits.at(route)
        self._locks = SessionLocks()
        self._watches = not state.hosting.cancels
        self._tools: ToolServer | None = None

    def handler(self, operation: Operation) -> Serve:
        """Return a new handler of this operation. Raises `ConfigError` for one that is not served over HTTP."""
        bridge, route = self._bridge, self._route
        match operation:
            case Operation.RUN:
                return self._serves(self._run())
            case Operation.TASKS:
                return self._serves(serve_task_call)
            case Operation.TOOLS:
                return self._serves(self._tool_server())
            case Operation.CONNECT:
                return self._made(RpcHandler(bridge, route, self._limiter, watches=self._watches))
            case Operation.SOCKET:
                return self._made(SocketHandler(bridge, route, self._limiter, watches=self._watches))
            case Operation.STOP:
                return partial(serve_stop, bridge, route, self._locks)
            case Operation.START:
                return self._serves(serve_task if route.serves(Operation.STATUS) else serve_start)
            case Operation.STATUS:
                return partial(serve_status, bridge, route)
            case Operation.SUBSCRIBE:
                return self._serves(serve_resume if isinstance(route.dialect, ResumableDialect) else serve_subscribe)
            case Operation.CANCEL:
                is_queued = isinstance(route.dialect, QueuedRunsDialect)
                return self._serves(serve_cancel if is_queued else serve_cancel_response)
            case Operation.HISTORY:
                return HistoryHandler(bridge, route, files_of(bridge, route))
            case Operation.ATTACH:
                return self._uploads().attach
            case Operation.SIGN:
                return self._uploads().sign
            case Operation.FETCH:
                return partial(_content, files_of(bridge, route))
            case Operation.TRANSCRIBE:
                return self._uploads().transcribe
            case Operation.DESCRIBE:
                return self._describe
            case Operation.FORWARD:
                return self._serves(serve_forward)
            case Operation.MODELS:
                return self._models
            case Operation.ANSWER:
                return self._answer
            case Operation.EMBED:
                return self._embed
            case Operation.COUNT:
                return self._count
            case Operation.RETRIEVE:
                return self._serves(serve_retrieve)
            case Operation.DELETE:
                return self._serves(serve_delete)
            case Operation.ITEMS:
                return self._serves(serve_items)
            case Operation.HEALTH:
                return self._health
            case _:
                raise ConfigError(f"dialect {route.dialect.name!r}: no handler serves {operation}")

    def _serves(self, serve: Serve) -> RouteHandler:
        return self._made(RouteHandler(self._bridge, self._route, self._limiter, serve, watches=self._watches))

    def _made(self, handler: H) -> H:
        self._state.handlers.append(handler)
        return handler

    def _run(self) -> Serve:
        route = self._route
        if isinstance(route.dialect, AgentTasksDialect):
            return serve_task_call
        if route.serves(Operation.STOP):
            return serve_single_durable if route.durable else single_run(self._locks, self._bridge.places)
        if route.durable:
            return serve_durable
        if isinstance(route.dialect, AnsweringDialect):
            return serve_answer_or_run
        return serve_run_or_background if route.in_background else attend

    def _tool_server(self) -> Serve:
        """What serves all messages to this route: those of one endpoint may concern the calls of another."""
        self._tools = self._tools or ToolServer(self._bridge, self._route)
        return self._tools

    def _uploads(self) -> UploadHandlers:
        return UploadHandlers(self._bridge, self._route, files_of(self._bridge, self._route), self._limiter)

    async def _answer(self, exchange: ServerExchange) -> web.StreamResponse:
        route = self._route
        http = exchange.http
        wire = WireRequest(http.method, exchange.path, http.headers, http.query, http.match_info)
        return response_of(require(route.dialect, AnsweringDialect).answer(wire, RouteFacts(route.options)))

    async def _models(self, exchange: ServerExchange) -> web.StreamResponse:
        route = self._route
        dialect = require(route.dialect, ModelsDialect)
        if isinstance(dialect, AnsweringDialect):
            wire = await exchange.read()
            await exchange.hold(self._limiter.slot(exchange.user))
            served = [m for m in await route.served_models() if self._limiter.allows(exchange.user, m.info.id)]
            return response_of(dialect.answer(wire, RouteFacts(route.options, served)))
        await exchange.hold(self._limiter.slot(exchange.user))
        listed = [info for info in await self._list_models() if self._limiter.allows(exchange.user, info.id)]
        requested = exchange.http.match_info.get("id")
        if requested is None:
            return response_of(dialect.encode_models(listed))
        requested = requested.removesuffix("/")  # as after any other path
        for info in listed:
            if info.id == requested:
                return response_of(dialect.encode_model(info))
        raise RequestError(
            f"The model {requested[:80]!r} does not exist on this route.",
            code=ErrorCode.NOT_FOUND,
            param="model",
            backend_code="model_not_found",
        )

    async def _list_models(self) -> list[ModelInfo]:
        """Return the models of this route and of all routes that share its list.

        Raises `BackendError` if no backend has any and one of them failed.
        """
        found: dict[str, ModelInfo] = {}
        failed: BackendError | None = None
        seen: list[tuple[object, object]] = []
        for route in [self._route, *(r for r in self._bridge.routes if _share_models(self._route, r))]:
            if (route.backends, route.models) in seen:
                continue
            seen.append((route.backends, route.models))
            try:
                for info in await route.list_models():
                    found.setdefault(info.id, info)
            except BackendError as error:
                failed = error
        if failed is not None and not found:
            raise failed
        return list(found.values())

    async def _count(self, exchange: ServerExchange) -> web.StreamResponse:
        route, user = self._route, exchange.user
        dialect = require(route.dialect, CountingDialect)
        wire = await exchange.read()
        context = Context(exchange.request_id, None, time.time(), route.options, route.default_model)
        context.stored_responses = await self._bridge.stored_responses(route, user, wire)
        request = await decoded(dialect.decode_count_request, wire, context)
        self._limiter.check_model(user, request.model or route.usual_model(request))
        await exchange.hold(self._limiter.slot(exchange.user))
        caller = RunCaller(user, exchange.request_id, wire.headers, wire.body, route.capabilities)
        tokens, estimated = await self._bridge.count(route, request, caller)
        response = response_of(dialect.encode_count(tokens, estimated))
        if estimated:
            response.headers["x-bridge-estimated"] = "tokens"
        return response

    async def _embed(self, exchange: ServerExchange) -> web.StreamResponse:
        route = self._route
        dialect = require(route.dialect, EmbeddingsDialect)
        wire, begin = await exchange.read(), time.time()
        context = Context(exchange.request_id, None, begin, route.options, route.default_model)
        asked = dialect.decode_embeddings_request(wire, context)
        self._limiter.check_model(exchange.user, asked.model or route.default_model)
        await exchange.hold(self._limiter.slot(exchange.user))
        caller = RunCaller(exchange.user, exchange.request_id, wire.headers, wire.body, route.capabilities)
        found = await self._bridge.embed(route, asked, caller)
        if (spent := self._bridge.host.spent) is not None:
            spent(exchange.user, UsageReported(found.tokens))
        return response_of(dialect.encode_embeddings(asked, found, time.time() - begin))

    async def _describe(self, exchange: ServerExchange) -> web.StreamResponse:
        secured = not self._state.identity.is_open
        agent = described(self._bridge, self._route, exchange.http, secured=secured)
        response = response_of(require(self._route.dialect, DescribedDialect).encode_description(agent))
        if not self._bridge.config.server.public_url:
            # The agent's address is the one by which it was called: a cache may show it to nobody else.
            response.headers["vary"] = "Host"
            if (caching := response.headers.get("cache-control")) is not None:
                response.headers["cache-control"] = caching.replace("public", "private")
        return response

    async def _health(self, exchange: ServerExchange) -> web.StreamResponse:
        return response_of(self._route.dialect.encode_health(not self._state.draining))


async def _content(files: AttachmentService, exchange: ServerExchange) -> web.StreamResponse:
    return await files.content(exchange.http)


def _share_models(one: Route, other: Route) -> bool:
    shares = [any(e.shared and e.operation is Operation.MODELS for e in r.dialect.surface) for r in (one, other)]
    return one is not other and one.path == other.path and all(shares)
