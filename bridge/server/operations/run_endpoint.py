"""The operation `run`: a request comes in, its answer goes out, streamed or whole.

The loop in `_stream` is the hot path: one read, one list of events, one write, awaited; that await is the backpressure,
and closing the connection on either side cancels.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from aiohttp import web

from bridge.contract import AnsweringDialect, Context, EncoderLike, FrameLike, WireResponse, require
from bridge.engine.route import RunCaller
from bridge.errors import BridgeError, unexpected_failure
from bridge.model import Event, Request
from bridge.run.retries import failed_at_once
from bridge.run.run import Run
from bridge.server.requests.exchange import ServerExchange
from bridge.server.requests.http_messages import assembled, response_of, stream_headers
from bridge.server.requests.keepalive import Keepalive
from bridge.server.requests.writing import StreamedResponse, abort, has_left
from bridge.translation import Translation, Writer
from bridge.translation.framing import sse

log = logging.getLogger("bridge.server")


async def serve_answer_or_run(exchange: ServerExchange) -> web.StreamResponse:
    """Answer a request with a run, unless its dialect answers it itself."""
    request, caller = await exchange.decode()
    exchange.route.group_for(request)
    answer = require(exchange.route.dialect, AnsweringDialect).answer_run(request, exchange.context)
    return await attend(exchange, request, caller) if answer is None else response_of(answer)


async def attend(
    exchange: ServerExchange, request: Request | None = None, caller: RunCaller | None = None
) -> web.StreamResponse:
    """Run a request in a slot of its owner, and answer it: the run lives as long as its client waits.

    `request` and `caller`: if it was decoded already.
    """
    if request is None or caller is None:
        # The body is read before a slot is taken: a client that sends slowly holds up nobody.
        request, caller = await exchange.decode()
    await exchange.hold(exchange.limiter.slot(exchange.user))
    run = await exchange.bridge.run(exchange.route, request, caller=caller)
    exchange.run_began(run)
    try:
        # A long prompt need not be held while its answer streams.
        if not exchange.route.passthrough:
            caller.raw_body = None
        answer = _stream if request.stream else _whole
        del request, caller
        return await answer(exchange, run)
    finally:
        exchange.run_ended(run)
        await run.close()


async def _keep(exchange: ServerExchange) -> None:
    """Store the answer that the encoder left to be stored; a failing store is logged, as it is for conversations."""
    stored = exchange.context.stored_responses
    if stored is None or stored.answer is None or not stored.wanted:
        return
    answers = exchange.bridge.answers(exchange.route, exchange.user)
    if answers is None:
        return
    try:
        await answers.keep(stored.answer, stored.found.get(stored.previous or ""))
    except BridgeError as error:
        log.error("run %s: the answer was not stored: %s", exchange.context.run_id, error.message)


async def _stream(exchange: ServerExchange, run: Run) -> web.StreamResponse:
    route, context, report, reader = exchange.route, exchange.context, exchange.report, run.reader
    translation = Translation(reader, Writer(route.dialect, context, _observed(exchange)))
    write = partial(_pass_through, run, translation) if route.passthrough else translation.write
    response = _response(exchange)
    keepalive = Keepalive(exchange, run, response, translation)
    try:
        events = await _first_events(exchange, run, keepalive)
        failure = failed_at_once(events)
        if failure is not None and not keepalive.has_begun:
            return exchange.refuse(failure)
        out = write(events)
        del events  # as `out` below: what was sent is not held while the rest is waited for
        await keepalive.begin()
        if not route.passthrough and isinstance(response, StreamedResponse) and response.writes_now:
            run.pass_deltas(response.writing(translation.write))
        while not reader.ended:
            if out:
                await response.write(out)
                out = b""
            out = write(await run.read())
        if context.stored_responses is not None:
            await _keep(exchange)  # before the client sees the end
        await response.write_eof(out)
    except asyncio.CancelledError:
        last = exchange.last_events(run) if keepalive.has_begun else None
        if last is None:
            raise
        await _end(exchange.http, response, translation.write(last))
    except Exception as error:
        if not keepalive.has_begun or (isinstance(error, ConnectionError) and has_left(exchange.http)):
            raise  # there can be another response, or nobody reads this one
        # The head is out, so that there is no other response to give: the stream ends with the dialect's error.
        report.failure = unexpected_failure(log, f"request {report.request_id} broke in its stream", error)
        report.status = "internal"
        await _end(exchange.http, response, translation.write(run.cut(report.failure)))
    finally:
        keepalive.stop()
        if isinstance(response, StreamedResponse):
            response.release()
    return response


def _response(exchange: ServerExchange) -> web.StreamResponse:
    """Return what the stream is written to: the connection over which a message came, or a response of its own."""
    if exchange.stream is not None:
        return exchange.stream
    headers = stream_headers(exchange.route.dialect, exchange.context)
    return StreamedResponse(headers=headers, slow_reader=exchange.server.slow_reader, report=exchange.report)


async def _first_events(exchange: ServerExchange, run: Run, keepalive: Keepalive) -> list[Event]:
    """Return what the stream begins with, before its head is sent: the first events of the backend, or those that are
    known without it where clients expect a sign of life at once.
    """
    route, context = exchange.route, exchange.context
    context.model = shown_model(run, context)
    if route.capabilities.eager_start and not route.passthrough:
        return run.head()
    events = await run.read()
    context.answered_at = time.time()
    await keepalive.settle()
    context.model = shown_model(run, context)
    return events


def _observed(exchange: ServerExchange) -> EncoderLike | None:
    """Return an encoder that shows the events to `exchange.observe`; None for the dialect's own."""
    if exchange.observe is None:
        return None
    return _Observed(exchange.route.dialect.encoder(exchange.context), exchange.observe)


class _Observed(EncoderLike):
    """An encoder that passes the events to `observe` before it encodes them."""

    def __init__(self, encoder: EncoderLike, observe: Callable[[Sequence[Event]], None]) -> None:
        self._encoder = encoder
        self._observe = observe

    def encode(self, events: Sequence[Event]) -> list[FrameLike]:
        self._observe(events)
        return self._encoder.encode(events)


def _pass_through(run: Run, translation: Translation, events: list[Event]) -> bytes:
    """Return the backend's own bytes; ours for a failure that did not stand on its wire, and in a JSON array.

    What is invalid in a frame would make the whole array invalid.
    """
    out = translation.write(events)
    is_framed = not translation.writer.after and run.call.whole is None
    if is_framed and (run.failure is None or run.call.wire_ended):
        return sse.join(run.call.frames)
    return out


async def _end(http: web.Request, response: web.StreamResponse, out: bytes) -> None:
    """End an open stream, or close the connection if even that fails, so that its client does not wait."""
    try:
        async with asyncio.timeout(1):
            await response.write_eof(out)
    except Exception as error:
        log.debug("the end of a stream could not be written", exc_info=error)
        abort(http)


async def _whole(exchange: ServerExchange, run: Run) -> web.StreamResponse:
    context, route, events = exchange.context, exchange.route, list[Event]()
    try:
        while not run.reader.ended:
            events += await run.read()
    except asyncio.CancelledError:
        last = exchange.last_events(run)
        if last is None:
            raise
        events += last
    context.model = shown_model(run, context)
    if exchange.observe is not None:
        exchange.observe(events)
    wire = run.call.whole if route.passthrough and run.failure is None else None
    if wire is not None:
        wire = WireResponse(wire.status, {"content-type": wire.headers.get("content-type", "")}, wire.body)
    else:
        wire = await assembled(route.dialect, events, context)
        if context.stored_responses is not None:
            await _keep(exchange)
    exchange.report.sent = len(wire.body)
    return response_of(wire, context.lost.names)


def shown_model(run: Run, context: Context) -> str | None:
    """Return the model to name where the backend that answers names none."""
    return (context.request.model if context.request is not None else None) or run.call.context.model
