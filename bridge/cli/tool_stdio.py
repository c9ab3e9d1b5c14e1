"""The tools of routes over standard input and output: each message is a request of the HTTP application, without HTTP.

So both carriers have the same answers, history, limits and logs. What differs is here: a call is cancelled by a
notification, several routes are one server, and questions to the client are calls of the connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any

from bridge.asgi import ASGIApp
from bridge.contract import ToolServerDialect, WireRequest, require
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route
from bridge.errors import ConfigError
from bridge.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Carrier,
    CarrierEnded,
    RpcConnection,
    RpcError,
    RpcNotification,
    RpcRequest,
)
from bridge.model.jsontext import dict_of, read_json
from bridge.translation.framing import sse

log = logging.getLogger("bridge.tools")

_LINGER = 30.0
"""Seconds that calls have to end after the client has closed its input; one that exits closes the output, too."""
_Take = Callable[[dict[str, Any]], Awaitable[None]]


class _Every(Mapping[str, Any]):
    """One handler for every method: the dialect knows which there are."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def __getitem__(self, method: str) -> Any:
        return self._handler

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1

    def __contains__(self, method: object) -> bool:
        return True


class ToolStdio:
    """Serves the tools of routes to the client at the other end of a carrier.

    Raises `ConfigError` if two routes have a tool of the same name.
    """

    def __init__(self, bridge: Bridge, routes: Sequence[Route]) -> None:
        self._app = ASGIApp(bridge)
        self._routes = list(routes)
        self._dialect = require(routes[0].dialect, ToolServerDialect)
        self._by_tool: dict[str, Route] = {}
        self._by_task: dict[str, Route] = {}
        self._sessions: dict[str, str] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._opening: asyncio.Task[Any] | None = None
        self._connection: RpcConnection
        for route in routes:
            for name in require(route.dialect, ToolServerDialect).tool_names(route.options, route.site):
                other = self._by_tool.setdefault(name, route)
                if other is not route:
                    raise ConfigError(f"{other.path} and {route.path} both have a tool {name!r}; name one differently")

    async def serve(self, carrier: Carrier, stop: asyncio.Event | None = None) -> None:
        """Serve until the client closes its side, or `stop` is set."""
        async with self._app.lifespan():
            self._connection = RpcConnection(
                carrier, requests=_Every(self._request), notifications=_Every(self._notification), linger=_LINGER
            )
            async with self._connection as connection:
                ended = asyncio.ensure_future(connection.wait())
                stopped = asyncio.ensure_future(stop.wait()) if stop is not None else ended
                try:
                    await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    ended.cancel()
                    stopped.cancel()

    # ------------------------------------------------------------------ what comes

    async def _request(self, request: RpcRequest) -> Any:
        """Return the result of a request. Raises `RpcError`."""
        message, address = request.members, self._dialect.address(request.members)
        if address.opens:
            self._connection.peer.batches = address.batches
            self._opening = asyncio.create_task(self._of_routes(message, self._routes))
            return await self._opening
        if self._opening is not None and not self._opening.done():
            await asyncio.wait({self._opening})  # its client did not wait
        if address.task:
            return await self._of_task(message, address.task)
        routes = self._routes if address.every else [self._by_tool.get(address.tool, self._routes[0])]
        return await self._of_routes(message, routes)

    async def _of_routes(self, message: dict[str, Any], routes: Sequence[Route]) -> Any:
        """Return the result of a message to one route or several."""
        results = [await self._ask(route, message) for route in routes]
        result = results[0] if len(results) == 1 else self._dialect.merged(message, results)
        if isinstance(task_id := dict_of(result).get("taskId"), str):
            self._by_task[task_id] = routes[0]
        return result

    async def _of_task(self, message: dict[str, Any], task_id: str) -> Any:
        """Ask the route of a task; one of an earlier process may be of any route."""
        failed: RpcError | None = None
        known = self._by_task.get(task_id)
        for route in self._routes if known is None else [known]:
            try:
                return await self._ask(route, message)
            except RpcError as error:
                if error.code not in (INVALID_PARAMS, METHOD_NOT_FOUND):
                    raise
                if failed is None or error.code == INVALID_PARAMS:
                    failed = error
        assert failed is not None, "there is a route"
        raise failed

    async def _notification(self, notification: RpcNotification) -> None:
        cancels = self._dialect.address(notification.members).cancels
        if isinstance(cancels, str | int | float):
            self._connection.cancel(cancels, answer=False)

    # ------------------------------------------------------------------ what is asked of a route

    async def _ask(self, route: Route, message: dict[str, Any]) -> Any:
        """Return the result of a message to one route. Raises `RpcError`."""
        session, answers = self._sessions.get(route.path, ""), list[dict[str, Any]]()

        async def take(frame: dict[str, Any]) -> None:
            if "method" not in frame:
                answers.append(frame)
            elif "id" in frame:
                self._put(route, frame)
            else:
                with suppress(CarrierEnded):
                    await self._connection.notify(frame["method"], frame.get("params"))

        posting = asyncio.create_task(_post(self._app, route, self._dialect.carried(message, session), take))
        try:
            headers = await asyncio.shield(posting)
        except asyncio.CancelledError:
            if session:
                # Closing its response does not cancel a call of a session.
                notice = self._dialect.carried(self._dialect.cancellation(message["id"]), session)
                await _post(self._app, route, notice, take)
            posting.cancel()
            await asyncio.wait({posting})
            raise
        if session := headers.get(self._dialect.session_header, ""):
            self._sessions[route.path] = session
        if not answers:
            raise RpcError(INTERNAL_ERROR, "The call ended without an answer.")
        if "error" in answers[-1]:
            raise RpcError.of(answers[-1]["error"])
        return answers[-1].get("result")

    def _put(self, route: Route, question: dict[str, Any]) -> None:
        """Ask the client a question of a call, beside the call, and pass its answer on."""
        asking = asyncio.create_task(self._answer(route, question))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    async def _answer(self, route: Route, question: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": question["id"]}
        try:
            reply["result"] = await self._connection.call(question["method"], question.get("params"))
        except RpcError as error:
            reply["error"] = error.members
        except CarrierEnded:
            return  # its call is about to end
        session = self._sessions.get(route.path, "")
        await _post(self._app, route, self._dialect.carried(reply, session), _ignored)


async def _ignored(frame: dict[str, Any]) -> None:
    """Take an answer that nobody waits for."""


async def _post(app: ASGIApp, route: Route, wire: WireRequest, take: _Take) -> dict[str, str]:
    """Post a message to a route, pass on the messages of its answer, and return the headers.

    Cancelling this closes the connection.
    """
    headers = {**wire.headers, "host": "127.0.0.1", "content-length": str(len(wire.body))}
    scope = {
        "type": "http",
        "method": wire.method,
        "path": route.path,
        "headers": [(name.encode(), value.encode("utf-8", "replace")) for name, value in headers.items()],
        "query_string": b"",
        "scheme": "http",
        "client": None,
    }
    body = [{"type": "http.request", "body": wire.body, "more_body": False}]
    answered: dict[str, str] = {}
    rest = bytearray()
    splitter = sse.Splitter()

    async def receive() -> MutableMapping[str, Any]:
        if body:
            return body.pop()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def send(event: MutableMapping[str, Any]) -> None:
        if event["type"] == "http.response.start":
            answered.update((name.decode(), value.decode()) for name, value in event["headers"])
            return
        data = event.get("body", b"")
        if not answered.get("content-type", "").startswith(sse.CONTENT_TYPE):
            rest.extend(data)
            return
        for frame in splitter.feed(data):
            payload = frame if isinstance(frame, bytes) else frame.data
            if payload:
                await take(dict_of(read_json(payload)))

    await app(scope, receive, send)
    if rest:
        await take(dict_of(read_json(bytes(rest))))
    return answered
