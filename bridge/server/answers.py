"""The operations `retrieve` and `delete`: answers that their client names by id."""

from __future__ import annotations

from aiohttp import web

from bridge.codec import WireRequest
from bridge.engine import Bridge, Route
from bridge.errors import ErrorCode, RequestError
from bridge.pipeline.answers import Answers
from bridge.server.wire import USER, response_of


async def retrieve(http: web.Request, bridge: Bridge, route: Route) -> web.StreamResponse:
    answers, answer_id = _named(http, bridge, route)
    answer = None if answers is None else await answers.find(answer_id)
    if answer is None:
        raise _unknown(answer_id)
    wire = WireRequest(http.method, http.path.removeprefix(route.path.rstrip("/")), http.headers, http.query)
    return response_of(route.dialect.encode_stored(answer, wire))


async def delete(http: web.Request, bridge: Bridge, route: Route) -> web.StreamResponse:
    answers, answer_id = _named(http, bridge, route)
    if answers is None or not await answers.delete(answer_id):
        raise _unknown(answer_id)
    return response_of(route.dialect.encode_deleted(answer_id))


def _named(http: web.Request, bridge: Bridge, route: Route) -> tuple[Answers | None, str]:
    return bridge.answers(route, http.get(USER, "")), http.match_info["id"]


def _unknown(answer_id: str) -> RequestError:
    """Also for what belongs to somebody else: nobody learns which ids there are."""
    return RequestError(
        f"Response with id {answer_id[:80]!r} not found.",
        code=ErrorCode.NOT_FOUND,
        param="id",
        backend_code="not_found",
    )
