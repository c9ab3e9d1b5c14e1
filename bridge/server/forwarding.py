"""The operation `forward`: a request goes to one backend unchanged, and so does the answer. Nothing is translated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import aiohttp
from aiohttp import web

from bridge.codec import WireRequest
from bridge.codec.ratelimits import OPENAI, passed_on
from bridge.errors import BackendError, BridgeError, ErrorCode, Failure
from bridge.pipeline.redirects import redirects
from bridge.server.bodies import BODIES
from bridge.server.browsers import check_kept, is_json
from bridge.server.handler import RequestScope
from bridge.transports.answers import AT_ONCE, broken_off
from bridge.transports.http import HttpBackend

_REQUEST = ("accept", "content-type")
_ANSWER = ("cache-control", "content-disposition", "content-length", "content-type")
"""Headers that belong to the body. All others are those of a connection, or credentials, or are made here."""


async def serve_forward(scope: RequestScope) -> web.StreamResponse:
    """Pass one request on to the route's backend for such requests."""
    http, backend = scope.http, scope.route.extras_at
    assert backend is not None, "the surface has such endpoints only where there is a backend for them"
    if not is_json(http):
        check_kept(http)  # sent without a preflight
    scope.report.back = backend.name
    path = http.path.removesuffix("/").removeprefix(scope.route.path.rstrip("/"))
    wire = WireRequest(http.method, path, _headers(scope, backend), _query(http))
    async with scope.limiter.slot(scope.user):
        try:
            async with asyncio.timeout(backend.timeouts.total):
                return await _passed(scope, backend, wire)
        except TimeoutError:
            text = f"The backend took longer than {backend.timeouts.total:g} s to answer (timeouts.total)."
            raise BackendError(text, code=ErrorCode.BACKEND_TIMEOUT) from None


def _query(http: web.Request) -> dict[str, str]:
    """Return the query without parameters that hold a client's key or choose where the backend sends its own."""
    return {name: value for name, value in http.query.items() if name != "key" and not redirects(name)}


def _headers(scope: RequestScope, backend: HttpBackend) -> dict[str, str]:
    """Return the headers of the body, those that the configuration allows, and the backend's own, which win."""
    headers: Mapping[str, str] = scope.http.headers
    names = _REQUEST if "content-encoding" in headers else (*_REQUEST, "content-length")
    said = {name: headers[name] for name in names if name in headers}
    return {**said, "x-request-id": scope.report.request_id, **backend.forwards(headers, scope.route.dialect)}


async def _passed(scope: RequestScope, backend: HttpBackend, wire: WireRequest) -> web.StreamResponse:
    body = _Body(scope)
    try:
        response = await backend.forward(wire, body.pieces())
    except (aiohttp.ClientError, OSError, ValueError) as error:
        if body.failure is not None:
            raise BridgeError.of(body.failure) from None
        raise BackendError.of(backend.unanswered(error, wire)) from None
    async with response:
        if response.status >= 300:
            raise BackendError.of(await backend.refusal_in(response, wire))
        return await _answer(scope, backend, response)


async def _answer(scope: RequestScope, backend: HttpBackend, response: aiohttp.ClientResponse) -> web.StreamResponse:
    report, limit = scope.report, scope.bridge.config.server.limits.answer
    headers = {name: response.headers[name] for name in _ANSWER if name in response.headers}
    headers |= passed_on({k.lower(): v for k, v in response.headers.items()}, OPENAI)
    out = web.StreamResponse(status=response.status, headers={**headers, "x-accel-buffering": "no"})
    await out.prepare(scope.http)
    report.http = response.status
    try:
        while True:
            async with asyncio.timeout(backend.timeouts.idle):
                data = await response.content.read(AT_ONCE)
            if not data:
                break
            report.sent += len(data)
            if limit is not None and report.sent > limit:
                text = f"The backend's answer is longer than the limit of {limit} bytes (server.limits.answer)."
                return _broken(scope, out, Failure(ErrorCode.BACKEND_PROTOCOL, text))
            await out.write(data)
    except (aiohttp.ClientError, TimeoutError) as error:
        return _broken(scope, out, broken_off(error))
    await out.write_eof()
    report.ended("stop", None)
    return out


def _broken(scope: RequestScope, out: web.StreamResponse, failure: Failure) -> web.StreamResponse:
    """The head is sent: only a broken connection can show that the answer is incomplete."""
    scope.report.ended(None, failure)
    if scope.http.transport is not None:
        scope.http.transport.abort()
    return out


class _Body:
    """Yield the client's body in chunks. aiohttp reports errors here as a broken connection: see `failure`."""

    def __init__(self, scope: RequestScope) -> None:
        self.failure: Failure | None = None
        self._scope = scope

    async def pieces(self) -> AsyncIterator[bytes]:
        http = self._scope.http
        try:
            async for piece in http.app[BODIES].pieces(http, self._scope.user):
                yield piece
        except BridgeError as error:
            self.failure = error.failure
            raise
