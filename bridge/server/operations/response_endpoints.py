"""The operations on stored responses, by id, and `run` where a response may be made in the background.

A run in the background is one of the run store (`bridge.run.durable.answer_stream`): it does not depend on its readers,
and any process that shares the stores can answer for it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from aiohttp import web

from bridge.contract import StoredAnswer, StoredAnswersDialect, StoredResponses, WireRequest, require
from bridge.engine.route import RunCaller
from bridge.errors import BridgeError, ErrorCode, RequestError, shortened
from bridge.model import Request
from bridge.run.conversation.response_store import ResponseStore
from bridge.run.durable import RunKey, RunPlan, run_of
from bridge.server.operations.durable import CANCEL_SECONDS, reporting, stream_rest
from bridge.server.operations.run_endpoint import attend
from bridge.server.requests.exchange import ServerExchange
from bridge.server.requests.http_messages import response_of


def _dialect(exchange: ServerExchange) -> StoredAnswersDialect:
    return require(exchange.route.dialect, StoredAnswersDialect)


def _key(exchange: ServerExchange, answer: StoredAnswer) -> RunKey:
    return run_of(exchange.user, exchange.route.path, answer)


class _Requested(NamedTuple):
    """The stored response that a request names. `answers` are those of its owner."""

    wire: WireRequest
    answers: ResponseStore
    stored: StoredAnswer


async def _requested(exchange: ServerExchange, *, messages: bool = False) -> _Requested:
    """Raise `RequestError` (not_found) for a response that is not stored, or belongs to another owner."""
    wire, answer_id = await exchange.read(), exchange.http.match_info["id"]
    answers = exchange.bridge.answers(exchange.route, exchange.user)
    stored = None if answers is None else await answers.load(answer_id, messages=messages)
    if answers is None or stored is None:
        raise _unknown(answer_id)
    return _Requested(wire, answers, stored)


async def _stream(exchange: ServerExchange, key: RunKey, received: int) -> web.StreamResponse:
    """Stream a run in the background to a reader that has the first `received` frames."""
    stream = exchange.bridge.runs.stream(key, exchange.route.dialect, exchange.route.options, received)
    with reporting(exchange, stream):
        await stream.open()
        await exchange.hold(exchange.limiter.reader_slot(exchange.user))
        return await stream_rest(exchange, stream)


async def serve_retrieve(exchange: ServerExchange) -> web.StreamResponse:
    """Return a response as it is now, or the rest of its stream."""
    wire, answers, stored = await _requested(exchange)
    received = _dialect(exchange).decode_reread(stored, wire)
    if received is None:
        return response_of(_dialect(exchange).encode_stored(await answers.now(stored)))
    return await _stream(exchange, _key(exchange, stored), received)


async def serve_items(exchange: ServerExchange) -> web.StreamResponse:
    """Return the input items of a response."""
    wire, _, stored = await _requested(exchange, messages=True)
    return response_of(_dialect(exchange).encode_items(stored, wire))


async def serve_delete(exchange: ServerExchange) -> web.StreamResponse:
    """Delete a response. A run that still makes it is canceled; its log is deleted when it has ended."""
    _, answers, stored = await _requested(exchange)
    if not await answers.delete(stored.id):
        raise _unknown(stored.id)
    if stored.run_id is not None and not await exchange.bridge.runs.delete(_key(exchange, stored)):
        await exchange.bridge.runs.cancel(_key(exchange, stored))
    return response_of(_dialect(exchange).encode_deleted(stored.id))


async def serve_cancel_response(exchange: ServerExchange) -> web.StreamResponse:
    """Cancel a run in the background and return what its response has become. One that has ended does not change."""
    _, answers, stored = await _requested(exchange)
    if stored.run_id is None:
        raise RequestError(
            f"The response {shortened(stored.id)!r} cannot be cancelled: expected one that was created with "
            "background true.",
            param="id",
        )
    if not stored.ended:
        await exchange.bridge.runs.cancel(_key(exchange, stored))
        await exchange.bridge.runs.ended(_key(exchange, stored), CANCEL_SECONDS)
    return response_of(_dialect(exchange).encode_stored(await answers.now(stored)))


async def serve_run_or_background(exchange: ServerExchange) -> web.StreamResponse:
    """Answer a request with a run, in the background if the client requests it."""
    request, caller = await exchange.decode()
    stored = exchange.context.stored_responses
    answers = (
        exchange.bridge.answers(exchange.route, caller.owner) if stored is not None and stored.background else None
    )
    if stored is None or answers is None:
        return await attend(exchange, request, caller)
    exchange.report.back = exchange.route.group_for(request).names
    answer = await _queue(exchange, _plan(exchange, request, caller, stored), answers)
    if request.stream:
        return await _stream(exchange, _key(exchange, answer), 0)
    exchange.report.status = "queued"
    return response_of(_dialect(exchange).encode_stored(answer), exchange.context.lost.names)


def _plan(exchange: ServerExchange, request: Request, caller: RunCaller, stored: StoredResponses) -> RunPlan:
    """The backend streams in any case, so that readers see the answer grow."""
    request = replace(request, stream=True)
    _, plan = exchange.bridge.plan(exchange.route, request, caller)
    plan.background, plan.previous = True, stored.previous
    return plan


async def _queue(exchange: ServerExchange, plan: RunPlan, answers: ResponseStore) -> StoredAnswer:
    """Store the request, then queue its run."""
    answer = _dialect(exchange).answer_so_far([], plan.context(exchange.route.options))
    stored = exchange.context.stored_responses
    await answers.keep(answer, stored.found.get(stored.previous or "") if stored is not None else None)
    try:
        await exchange.bridge.runs.start(_key(exchange, answer), plan, plan.run_id)
    except BridgeError:
        with suppress(BridgeError):  # if this fails too, reading the response reports that its run is missing
            await answers.delete(answer.id)
        raise
    return answer


def _unknown(answer_id: str) -> RequestError:
    """Return the same error for a response of another owner, so that it does not reveal which ids exist."""
    return RequestError(
        f"Response with id {shortened(answer_id)!r} not found.",
        code=ErrorCode.NOT_FOUND,
        param="id",
        backend_code="not_found",
    )
