"""The endpoints of the page: its files, which are public, and data for authenticated callers."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache
from importlib import resources
from typing import Any

from aiohttp import web

from bridge.contract import Dialect, Operation, Scope, registry
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route
from bridge.errors import BridgeError, ConfigError, ErrorCode, RequestError, shortened
from bridge.run.backend import Backend
from bridge.server.auth.api_keys import Keys, Reason, unauthorized
from bridge.server.auth.identity import Identity, Principal, page_key_of, visit_of
from bridge.server.connect import CLIENTS, RouteAddress
from bridge.server.connect.programs import NO_KEY
from bridge.server.page.documents import document_of
from bridge.server.page.error_pages import page_of
from bridge.server.page.health import BackendHealth
from bridge.server.page.inspector import HEADER, Inspector
from bridge.server.requests.exchange import EXCHANGE
from bridge.server.requests.http_messages import STREAM_HEADERS, error_of
from bridge.server.requests.writing import StreamedResponse
from bridge.version import __version__

PATH = "/"
BELOW = "/_page"
_KEEPALIVE = 15.0
_YOUR_KEY, _YOUR_MODEL = "YOUR_KEY", "YOUR_MODEL"
"""What stands in the lines for a program in place of a key, and of a model where the route has none of its own."""
_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_HEADERS = {
    # Nothing from elsewhere, nothing inline, and no text can become markup: whatever a model writes stays text.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-cache",
}

Handler = Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]]


class Page:
    """The page of one server. `traces` are the runs that it watches."""

    def __init__(self, bridge: Bridge, identity: Identity) -> None:
        self.traces = Inspector(bridge)
        bridge.watch(HEADER, self.traces)
        self._bridge = bridge
        self._identity = identity
        self._key = page_key_of(bridge.config)
        self._health = BackendHealth()
        self.beside: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
        """Answers requests for the page's address that do not ask for HTML."""

    def mount(self, app: web.Application) -> None:
        router = app.router
        router.add_get(PATH, self._root)
        router.add_get(f"{BELOW}/state", _own(self._state))
        router.add_get(f"{BELOW}/health", _own(self._backends))
        router.add_get(f"{BELOW}/connect", _own(self._connect))
        router.add_get(f"{BELOW}/trace/{{token}}", _own(self._trace), allow_head=False)
        router.add_get(f"{BELOW}/dialects/{{name}}.js", _own(self._script))
        router.add_get(f"{BELOW}/errors/{{code}}", _own(self._error))
        router.add_get(f"{BELOW}/documents/{{name}}", _own(self._document))
        router.add_get(f"{BELOW}/{{name}}", _own(self._file))
        app.on_shutdown.append(self._stop)
        app.on_cleanup.append(self._close)

    async def _stop(self, app: web.Application) -> None:
        self.traces.end()

    async def _close(self, app: web.Application) -> None:
        await self._health.close()

    # ------------------------------------------------------------------ files

    async def _index(self, http: web.Request) -> web.StreamResponse:
        return _response("index.html", _files()["index.html"])

    async def _root(self, http: web.Request) -> web.StreamResponse:
        if self.beside is not None and "text/html" not in http.headers.get("accept", ""):
            return await self.beside(http)
        return await _own(self._index)(http)

    async def _file(self, http: web.Request) -> web.StreamResponse:
        name = http.match_info["name"]
        body = _files().get(name)
        if body is None:
            raise _nothing(http)
        return _response(name, body)

    async def _error(self, http: web.Request) -> web.StreamResponse:
        """The explanation of an error code, which is public as the files are."""
        code = http.match_info["code"]
        if code not in list(ErrorCode):
            raise _nothing(http)
        return _response(f"{code}.txt", page_of(ErrorCode(code)).encode())

    async def _document(self, http: web.Request) -> web.StreamResponse:
        """The documentation of a dialect, which is public, too."""
        name = http.match_info["name"]
        text = document_of(name)
        if text is None:
            raise _nothing(http)
        return _response(f"{name}.txt", text.encode())

    async def _script(self, http: web.Request) -> web.StreamResponse:
        name = http.match_info["name"]
        try:
            body = script_of(registry.get(name)) if registry.known(name) else None
        except ConfigError:
            body = None
        if body is None:
            raise _nothing(http)
        return _response("page.js", body)

    # ------------------------------------------------------------------ what is served

    async def _state(self, http: web.Request) -> web.StreamResponse:
        _, routes = await self._visitor(http)
        server = self._bridge.config.server
        return _json(
            {
                "version": __version__,
                "errors": f"{BELOW}/errors/",
                "documents": f"{BELOW}/documents/",
                "keyed": not server.is_open or self._key is not None,
                "routes": [_described(route) for route in routes],
                "backends": {b.name: self._spoken(b) for route in routes for b in route.backends},
            }
        )

    def _spoken(self, backend: Backend) -> str | None:
        """Return the dialect of a backend; None for an agent that is in no configuration."""
        section = self._bridge.config.backends.get(backend.name)
        return section.dialect if section is not None else None

    async def _backends(self, http: web.Request) -> web.StreamResponse:
        _, routes = await self._visitor(http)
        backends: dict[str, Backend] = {b.name: b for route in routes for b in route.backends}
        return _json(await self._health.of(backends))

    async def _connect(self, http: web.Request) -> web.StreamResponse:
        """Return for each route its base URL and the lines that connect each program with it."""
        _, routes = await self._visitor(http)
        server = self._bridge.config.server
        origin = str(server.public_url or http.url.origin()).rstrip("/")
        key = NO_KEY if server.is_open else _YOUR_KEY
        return _json(
            [
                _connected(route, RouteAddress(origin, route.path, route.some_model or _YOUR_MODEL, key))
                for route in routes
                if not route.dialect.over_grpc
            ]
        )

    async def _visitor(self, http: web.Request) -> tuple[str, list[Route]]:
        """Return the user and the routes that the key opens. Raises `RequestError` (unauthorized, forbidden)."""
        if http.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            # Browsers declare this. That site could not read the answer; nor shall it cause work.
            raise RequestError("Only the page itself may request this.", code=ErrorCode.FORBIDDEN)
        visit = visit_of(http)
        if self._key is not None and not hmac.compare_digest(Keys.digest(visit.key), self._key.digest):
            reason = Reason.UNKNOWN_KEY if visit.key else Reason.NO_KEY
            raise unauthorized("This page needs its key: send it as 'Authorization: Bearer <key>'.", reason)
        caller = await self._identity.caller(visit)
        caller.check([route.path for route in self._bridge.routes], Scope.PAGE)
        routes = [route for route in self._bridge.routes if _opens(caller, route)]
        return caller.user, routes

    # ------------------------------------------------------------------ runs that are watched

    async def _trace(self, http: web.Request) -> web.StreamResponse:
        """Stream the trace of the run that is sent with this token in `X-Bridge-Trace`, until the reader leaves."""
        owner, _ = await self._visitor(http)
        token = http.match_info["token"]
        trace = self.traces.open(owner, token)
        try:
            slow_reader = self._bridge.config.server.slow_reader
            response = StreamedResponse(headers={**_HEADERS, **STREAM_HEADERS}, slow_reader=slow_reader)
            await response.prepare(http)
            while not trace.over:
                await response.write(await trace.read(_KEEPALIVE))
            await response.write_eof()
        finally:
            self.traces.close(token)
        return response


def _opens(caller: Principal, route: Route) -> bool:
    try:
        caller.check([route.path], Scope.PAGE)
    except RequestError:
        return False
    return True


def _own(handler: Handler) -> Handler:
    """Marks the request as the page's own, so that no other site may read its answer, and answers what is refused."""

    async def handle(http: web.Request) -> web.StreamResponse:
        http[EXCHANGE].is_own_page = True
        try:
            return await handler(http)
        except BridgeError as error:
            response = error_of(None, error.failure)
            response.headers.update(_HEADERS)
            return response

    return handle


def _described(route: Route) -> dict[str, Any]:
    """Return a route as the page shows it; `speaks`: the page can send requests to it."""
    return {
        "dialect": route.dialect.name,
        "path": route.path,
        "backends": [backend.name for backend in route.backends],
        "model": route.some_model,
        "models": list(route.models or {}),
        "durable": route.durable or route.serves(Operation.START),
        "documented": document_of(route.dialect.name) is not None,
        "speaks": not route.dialect.over_grpc and script_of(route.dialect) is not None,
    }


def _connected(route: Route, place: RouteAddress) -> dict[str, Any]:
    """Return what the page says about connecting to a route."""
    return {
        "path": route.path,
        "dialect": route.dialect.name,
        "base": place.base,
        "programs": [
            {
                "name": name,
                "title": client.title,
                "snippets": [{"where": s.where, "language": s.language, "text": s.at(place)} for s in client.snippets],
                "notes": client.notes,
                "browser": client.browser,
            }
            for name, client in CLIENTS.items()
            if route.dialect.name == client.dialects[0]  # its lines are for the first
        ],
    }


def script_of(dialect: Dialect) -> bytes | None:
    """Return the dialect's `page.js`, in the folder of its class; None if there is none."""
    package = type(dialect).__module__.rpartition(".")[0]
    return _script_in(package) if package else None


@cache
def _script_in(package: str) -> bytes | None:
    file = resources.files(package) / "page.js"
    return file.read_bytes() if file.is_file() else None


@cache
def _files() -> dict[str, bytes]:
    folder = resources.files("bridge.server.page") / "files"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _TYPES}


def _response(name: str, body: bytes) -> web.Response:
    return web.Response(body=body, headers={**_HEADERS, "content-type": _TYPES[name.rpartition(".")[2]]})


def _json(value: Any) -> web.Response:
    return web.json_response(value, headers={**_HEADERS, "cache-control": "no-store"})


def _nothing(http: web.Request) -> RequestError:
    return RequestError(f"There is nothing at {http.method} {shortened(http.path)}.", code=ErrorCode.NOT_FOUND)
