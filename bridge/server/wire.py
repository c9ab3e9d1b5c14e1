"""aiohttp requests and responses <-> wire values, and the headers that every response carries."""

from __future__ import annotations

import re
import sys
import uuid
from typing import Any

from aiohttp import ClientConnectionResetError, web

from bridge.codec import Dialect, WireRequest, WireResponse
from bridge.errors import Failure
from bridge.server.bodies import BODIES
from bridge.server.browsers import check_json

REQUEST_ID = web.RequestKey("request_id", str)
USER = web.RequestKey("user", str)
"""The user whom a request comes from (`bridge.server.identity`); the owner of all that is made with it."""
WHERE: web.RequestKey[dict[str, Any]] = web.RequestKey("where", dict[str, Any])
"""The `operation` that a request asks for and its `path`, for dialects whose errors depend on them."""
OWN_PAGE = web.RequestKey("own_page", bool)
"""Set for requests of the bridge's own page: no page of another origin may read their answers."""
_BODY = web.RequestKey("body", bytes)
_WELL_FORMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")

_SOUND = sys.version_info >= (3, 13, 2) or sys.version_info < (3, 12) or (3, 12, 9) <= sys.version_info < (3, 13)
"""Whether asyncio's `writelines` tells when a client is slow (CVE-2024-12254); else all would be kept in memory."""
_LARGE = 64 * 1024 if _SOUND else sys.maxsize
"""Bytes from which on they are not copied to be written at once."""
STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    # nginx buffers event streams unless told not to.
    "x-accel-buffering": "no",
}


class EventStream(web.StreamResponse):
    """A stream of events. Its head goes out with its first bytes, in one write: each one costs a call of the kernel.

    Behind these, `put` writes to the connection itself, for a third of the bytecodes of aiohttp's `write` (53 of 173,
    counted), which keeps for itself only how much was written.
    """

    _send_headers_immediately = False  # aiohttp's own switch, as for its `Response`; unknown to it, two writes again

    def __init__(self) -> None:
        super().__init__(headers=STREAM_HEADERS)

    async def begin(self, http: web.Request) -> None:
        """Makes the head, for the first `write`. Raises `ConnectionError` when the client has gone, as others do."""
        writer = await self.prepare(http)
        assert writer is not None, "prepared twice"
        self._writer = writer
        self._client = http.protocol
        self._in_chunks = "transfer-encoding" in self.headers

    @property
    def flows(self) -> bool:
        """Whether the client is there and reads what it is sent."""
        client = self._client
        return not client.writing_paused and client.transport is not None and not client.transport.is_closing()

    def put(self, data: bytes) -> None:
        """A piece, not empty, without waiting for a slow client: only while the stream `flows`."""
        transport = self._client.transport
        if transport is None:
            raise ClientConnectionResetError("the client has gone")
        if not self._in_chunks:
            transport.write(data)
        elif len(data) < _LARGE:
            transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            transport.writelines((b"%x\r\n" % len(data), data, b"\r\n"))

    async def send(self, data: bytes) -> None:
        """A piece, not empty, waiting as long as the client is slow."""
        if self._client.transport is not None and self._client.transport.is_closing():
            raise ClientConnectionResetError("the client is going")
        self.put(data)
        if self._client.writing_paused:
            await self._writer.drain()


def request_id(http: web.Request, new: str | None = None) -> str:
    """The client's own id when it is well formed, else `new` or one made here; the same for the whole request."""
    known = http.get(REQUEST_ID)
    if known is None:
        sent = http.headers.get("x-request-id", "")
        known = sent if _WELL_FORMED.fullmatch(sent) else new or uuid.uuid4().hex
        http[REQUEST_ID] = known
    return known


async def read_request(http: web.Request, mount: str, max_body: int, seconds: float) -> WireRequest:
    """The whole request. Raises what `Bodies.read` and `check_json` raise."""
    check_json(http)
    body = http.get(_BODY)
    if body is None:
        body = await http.app[BODIES].read(http, http.get(USER, ""), limit=max_body, seconds=seconds)
        http[_BODY] = body
    return WireRequest(
        http.method,
        http.path.removeprefix(mount.rstrip("/")),
        http.headers,
        http.query,
        http.match_info,
        body,
    )


def forget_body(http: web.Request) -> None:
    """Nobody reads it again: it would be kept as long as the request lives, and so while its answer streams."""
    http.pop(_BODY, None)


def response_of(wire: WireResponse, lost: list[str] | None = None) -> web.Response:
    headers = dict(wire.headers)
    if lost:
        headers["x-bridge-lost"] = ",".join(lost)
    return web.Response(status=wire.status, headers=headers, body=wire.body)


def error_of(dialect: Dialect | None, failure: Failure) -> web.Response:
    """The failure in the dialect's shape; where no dialect is near, as a plain JSON object."""
    if dialect is not None:
        return response_of(dialect.encode_error(failure))
    body = {"error": {"code": str(failure.code), "message": failure.message}}
    return web.json_response(body, status=failure.http_status, headers=failure.headers)
