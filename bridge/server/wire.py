"""aiohttp requests and responses <-> wire values, and the headers that every response carries."""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import Any

from aiohttp import web

from bridge.codec import Dialect, WireRequest, WireResponse
from bridge.errors import ErrorCode, Failure, RequestError

REQUEST_ID = web.RequestKey("request_id", str)
USER = web.RequestKey("user", str)
"""The user whom a request comes from (`bridge.server.identity`); the owner of all that is made with it."""
WHERE: web.RequestKey[dict[str, Any]] = web.RequestKey("where", dict[str, Any])
"""The `operation` that a request asks for and its `path`, for dialects whose errors depend on them."""
OWN_PAGE = web.RequestKey("own_page", bool)
"""Set for requests of the bridge's own page: no page of another origin may read their answers."""
_WELL_FORMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    # nginx buffers event streams unless told not to.
    "x-accel-buffering": "no",
}


def request_id(http: web.Request, new: str | None = None) -> str:
    """The client's own id when it is well formed, else `new` or one made here; the same for the whole request."""
    known = http.get(REQUEST_ID)
    if known is None:
        sent = http.headers.get("x-request-id", "")
        known = sent if _WELL_FORMED.fullmatch(sent) else new or uuid.uuid4().hex
        http[REQUEST_ID] = known
    return known


async def read_request(http: web.Request, mount: str, max_body: int, seconds: float) -> WireRequest:
    """The whole request.

    Raises `RequestError`: too_large beyond `max_body` bytes, 408 after `seconds`, invalid_request for a body that does
    not have the content encoding that its header names.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(None if http.content.is_eof() else seconds):
            while piece := await http.content.readany():
                body += piece
                if len(body) > max_body:
                    raise RequestError(
                        f"The request body is longer than the limit of {max_body} bytes.", code=ErrorCode.TOO_LARGE
                    )
    except TimeoutError:
        raise RequestError(f"The request body did not arrive within {seconds:g} s.", status=408) from None
    except web.RequestPayloadError:
        raise RequestError("The request body cannot be decoded by its content-encoding.") from None
    return WireRequest(
        http.method,
        http.path.removeprefix(mount.rstrip("/")),
        http.headers,
        http.query,
        http.match_info,
        bytes(body),
    )


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
