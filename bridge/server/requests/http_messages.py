"""aiohttp requests and responses <-> wire values, and the headers that every response carries."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from aiohttp import web
from multidict import istr

from bridge.contract import Context, Dialect, Framing, WireRequest, WireResponse
from bridge.errors import Failure
from bridge.model import ArgsDelta, Event, ReasoningDelta, TextDelta
from bridge.model.events import of_types
from bridge.translation import framing
from bridge.translation.framing import arrays, sse

T = TypeVar("T")

REQUEST_ID = istr("x-request-id")
_WELL_FORMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")
_LARGE = 256 * 1024
"""Bytes of a request from which on it is decoded in a thread, and characters of such a whole answer."""
_MANY = 10_000
"""Events from which on a whole answer is put together in a thread."""
_DELTAS = frozenset({TextDelta, ReasoningDelta, ArgsDelta})
_text = attrgetter("text")

STREAM_HEADERS = {
    "content-type": f"{sse.CONTENT_TYPE}; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    # nginx buffers event streams by default.
    "x-accel-buffering": "no",
}


def stream_headers(dialect: Dialect, context: Context | None = None) -> dict[str, str]:
    """Return the headers of a stream of a dialect; with the context of a request, of the form that its client gets."""
    headers = {**STREAM_HEADERS, **dialect.stream_headers}
    if context is not None and dialect.writes_array(context):
        headers["content-type"] = arrays.CONTENT_TYPE
    elif dialect.framing is not Framing.SSE:
        headers["content-type"] = framing.of(dialect.framing).CONTENT_TYPE
    return headers


def is_request_id(sent: str) -> bool:
    """Return whether a client's request id is taken over."""
    return _WELL_FORMED.fullmatch(sent) is not None


async def decoded(decode: Callable[[WireRequest, Context], T], wire: WireRequest, context: Context) -> T:
    """Decodes a request. A large one is decoded in a thread: many small parts would hold the event loop for seconds.

    Codecs have no I/O and share nothing, so that any thread may run them.
    """
    if len(wire.body) < _LARGE:
        return decode(wire, context)
    return await asyncio.to_thread(decode, wire, context)


async def assembled(dialect: Dialect, events: list[Event], context: Context) -> WireResponse:
    """Return a whole answer. One of many events or much text is put together in a thread, like large requests."""
    if len(events) < _MANY and sum(map(len, map(_text, of_types(events, _DELTAS)))) < _LARGE:
        return dialect.assemble(events, context)
    return await asyncio.to_thread(dialect.assemble, events, context)


def response_of(wire: WireResponse, lost: Sequence[str] = ()) -> web.Response:
    """Return a response for these values. `lost`: the features that were lost, as in `name_losses`."""
    response = web.Response(status=wire.status, headers=wire.headers, body=wire.body)
    name_losses(response, lost)
    return response


def name_losses(response: web.StreamResponse, lost: Sequence[str]) -> None:
    """Name the features of `Losses.names` in the header of a response; without any, there is none."""
    if lost:
        response.headers["x-bridge-lost"] = ",".join(lost)


class ErrorResponse(web.Response):
    """Reports `failure` to its client."""

    def __init__(self, failure: Failure, **content: Any) -> None:
        super().__init__(**content)
        self.failure = failure


def error_of(dialect: Dialect | None, failure: Failure) -> ErrorResponse:
    """The failure in the dialect's shape; where no dialect is near, as a plain JSON object."""
    if dialect is not None:
        wire = dialect.encode_error(failure)
        return ErrorResponse(failure, status=wire.status, headers=wire.headers, body=wire.body)
    text = json.dumps({"error": {"code": str(failure.code), "message": failure.message}})
    status, headers = failure.http_status, failure.headers
    return ErrorResponse(failure, status=status, headers=headers, text=text, content_type="application/json")
