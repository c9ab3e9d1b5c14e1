"""The operation `forward`: a request goes to one backend unchanged, and so does the answer. Nothing is translated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import aiohttp
from aiohttp import web

from bridge.contract import WireRequest
from bridge.errors import BackendError, BridgeError, ErrorCode, Failure
from bridge.run.backends.http_answer import AT_ONCE, broken_off
from bridge.run.backends.http_backend import HttpBackend
from bridge.server.auth.api_keys import Reason, refused
from bridge.server.auth.cors import is_json
from bridge.server.requests.exchange import ServerExchange
from bridge.server.requests.writing import StreamedResponse
from bridge.toolkit.ratelimits import OPENAI, passed_on
from bridge.translation.policies.forbidden_fields import redirects

_REQUEST = ("accept", "content-type")
_ANSWER = ("cache-control", "content-disposition", "content-type")
"""Headers that belong to the body. All others are those of a connection, or credentials, or are made here."""
_UNPACKED = frozenset({"br", "deflate", "gzip", "zstd"})
"""Content encodings that aiohttp's client removes. The `content-length` beside them is that of the packed body."""
_AS_SENT = ("content-encoding", "content-length")


async def serve_forward(exchange: ServerExchange) -> web.StreamResponse:
    """Pass one request on to the route's backend for such requests."""
    http, backend = exchange.http, exchange.route.extras_at
    assert backend is not None, "the surface has such endpoints only where there is a backend for them"
    if not is_json(http):
        exchange.check_named_origin()  # sent without a preflight
    if exchange.limiter.is_limited_to_models(exchange.user):
        text = "This API key allows some models only, and the bridge does not read which one this request names."
        raise refused(text, Reason.MODEL, user=exchange.user)
    exchange.bodies.check_length(http)
    exchange.report.back = backend.name
    path = http.path.removesuffix("/").removeprefix(exchange.route.path.rstrip("/"))
    wire = WireRequest(http.method, path, _headers(exchange, backend), _query(http))
    await exchange.hold(exchange.limiter.slot(exchange.user))
    try:
        async with asyncio.timeout(backend.timeouts.total):
            return await _passed(exchange, backend, wire)
    except TimeoutError:
        text = f"The backend took longer than {backend.timeouts.total:g} s to answer (timeouts.total)."
        raise BackendError(text, code=ErrorCode.BACKEND_TIMEOUT) from None


def _query(http: web.Request) -> dict[str, str]:
    """Return the query without parameters that hold a client's key or choose where the backend sends its own."""
    return {name: value for name, value in http.query.items() if name != "key" and not redirects(name)}


def _headers(exchange: ServerExchange, backend: HttpBackend) -> dict[str, str]:
    """Return the headers of the body, those that the configuration allows, and the backend's own, which win."""
    headers: Mapping[str, str] = exchange.http.headers
    names = _REQUEST if "content-encoding" in headers else (*_REQUEST, "content-length")
    said = {name: headers[name] for name in names if name in headers}
    return {**said, "x-request-id": exchange.report.request_id, **backend.forwards(headers, exchange.route.dialect)}


async def _passed(exchange: ServerExchange, backend: HttpBackend, wire: WireRequest) -> web.StreamResponse:
    body = _Body(exchange)
    try:
        response = await backend.forward(wire, body.pieces())
    except (aiohttp.ClientError, OSError, ValueError) as error:
        if body.failure is not None:
            raise BridgeError.of(body.failure) from None
        raise BackendError.of(backend.unanswered(error, wire)) from None
    async with response:
        if response.status >= 300:
            raise BackendError.of(await backend.refusal_in(response, wire))
        return await _answer(exchange, backend, response)


async def _answer(
    exchange: ServerExchange, backend: HttpBackend, response: aiohttp.ClientResponse
) -> web.StreamResponse:
    """Pass the answer on. Raises `BackendError` for one that breaks off or is too long."""
    report, limit = exchange.report, exchange.bridge.config.server.limits.answer
    out = StreamedResponse(
        status=response.status,
        headers=_answer_headers(response),
        slow_reader=exchange.server.slow_reader,
        report=report,
    )
    await out.prepare(exchange.http)
    report.http = response.status
    while data := await _next_piece(backend, response):
        if limit is not None and report.sent + len(data) > limit:
            raise BackendError(
                f"The backend's answer is longer than the limit of {limit} bytes (server.limits.answer).",
                code=ErrorCode.BACKEND_PROTOCOL,
            )
        await out.write(data)
    await out.write_eof()
    report.ended("stop", None)
    return out


def _answer_headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    headers = {name: response.headers[name] for name in _ANSWER if name in response.headers}
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in _UNPACKED:
        # As it is: a client that does not know the encoding must see that.
        headers |= {name: response.headers[name] for name in _AS_SENT if name in response.headers}
    headers |= passed_on({k.lower(): v for k, v in response.headers.items()}, OPENAI)
    return {**headers, "x-accel-buffering": "no"}


async def _next_piece(backend: HttpBackend, response: aiohttp.ClientResponse) -> bytes:
    """Return what has come of the answer; empty at its end."""
    try:
        async with asyncio.timeout(backend.timeouts.idle):
            return await response.content.read(AT_ONCE)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise BackendError.of(broken_off(error)) from None


class _Body:
    """Yield the client's body in chunks. aiohttp reports errors here as a broken connection: see `failure`."""

    def __init__(self, exchange: ServerExchange) -> None:
        self.failure: Failure | None = None
        self._exchange = exchange

    async def pieces(self) -> AsyncIterator[bytes]:
        http = self._exchange.http
        try:
            async for piece in self._exchange.bodies.pieces(http, self._exchange.user):
                yield piece
        except BridgeError as error:
            self.failure = error.failure
            raise
