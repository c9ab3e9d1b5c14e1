"""The operation `run` on a durable route: the request starts a stored run, and its response is one reader of it.

The run continues when this reader leaves, so that it, or another one, may resume. Backend timeouts bound the run, and
canceling it ends it. A client that names its runs resumes by the same request with `Last-Event-ID`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from bridge.contract import ResumableDialect, WireRequest, require
from bridge.errors import BridgeError
from bridge.run.durable import START, Cursor, LogReader, RunKey, RunPlan, Subscription, fingerprint
from bridge.server.requests.exchange import ServerExchange
from bridge.server.requests.http_messages import assembled, name_losses, response_of, stream_headers
from bridge.server.requests.writing import StreamedResponse, abort, has_left
from bridge.translation.framing import sse

if TYPE_CHECKING:
    from bridge.engine.config import ServerSection

log = logging.getLogger("bridge.server")

_POLL = 15.0
CANCEL_SECONDS = 10.0
"""How long a request to cancel waits for the end of the run, which another, perhaps dead, process has to write."""

Begin = Callable[[ServerExchange, RunKey, RunPlan, str], Awaitable[RunKey]]
"""Starts the run of a request with this fingerprint, and returns the key under which it can be read."""


async def _begin(exchange: ServerExchange, key: RunKey, plan: RunPlan, mark: str) -> RunKey:
    await exchange.bridge.runs.start(key, plan, mark)
    return key


async def serve_durable(
    exchange: ServerExchange, wire: WireRequest | None = None, begin: Begin = _begin
) -> web.StreamResponse:
    """Answer a request with a durable run. `wire` is the request if it was read already."""
    request, caller = await exchange.decode(wire)
    cursor = cursor_of(exchange.http)
    key, plan = exchange.bridge.plan(exchange.route, request, caller)
    exchange.report.back = exchange.route.group_for(request).names
    await exchange.hold(exchange.limiter.reader_slot(caller.owner))
    key = await begin(exchange, key, plan, fingerprint(caller.raw_body or b""))
    if request.stream and not exchange.route.dialect.writes_array(exchange.context):
        return await read_on(exchange, key, cursor)
    return await _collect(exchange, exchange.bridge.runs.follow(key))


async def serve_resume(exchange: ServerExchange) -> web.StreamResponse:
    """Stream the run of a thread that has not ended, from its beginning unless the reader has a cursor."""
    thread, route = (
        require(exchange.route.dialect, ResumableDialect).decode_resume(await exchange.read()),
        exchange.route,
    )
    running = await exchange.bridge.runs.running(exchange.user, route.path, thread) if route.durable else None
    if running is None:
        return web.Response(status=204)
    exchange.report.about = running.key.facts
    await exchange.hold(exchange.limiter.reader_slot(exchange.user))
    return await read_on(exchange, running.key, cursor_of(exchange.http))


async def read_on(exchange: ServerExchange, key: RunKey, cursor: Cursor) -> web.StreamResponse:
    """Stream a run from the cursor on. For a reader that has nothing yet, one that fails before the stream has begun is
    an HTTP status; the stream begins with the first content, or after `server.keepalive`.
    """
    dialect, report, fresh = exchange.route.dialect, exchange.report, cursor == START
    subscription = exchange.bridge.runs.subscribe(key, dialect, exchange.route.options, cursor)
    eager = dialect.capabilities.eager_start
    with reporting(exchange, subscription):
        if not await subscription.open():
            return web.Response(status=204)
        # A reader that resumes gets the head at once: the next event may be long in coming.
        frames = await subscription.read((exchange.server.keepalive or _POLL) if fresh else 0)
        while fresh and not frames and not subscription.done and not eager:
            if exchange.server.keepalive and (alive := subscription.keepalive()):
                return await stream_rest(exchange, subscription, sse.join(alive))
            frames = await subscription.read(_POLL)
        report.first = time.monotonic() if subscription.spoke else None
        if fresh and subscription.failure is not None and not (subscription.spoke or eager):
            return exchange.refuse(subscription.failure)
        return await stream_rest(exchange, subscription, sse.join(frames))


@contextmanager
def reporting(exchange: ServerExchange, subscription: Subscription) -> Iterator[None]:
    """Report the outcome of a subscription as that of its request, however reading it ends."""
    try:
        yield
    finally:
        exchange.report.lost, exchange.report.usage = subscription.lost, subscription.usage
        exchange.report.ended(subscription.reason, subscription.failure)


async def stream_rest(exchange: ServerExchange, subscription: Subscription, out: bytes = b"") -> web.StreamResponse:
    """Stream the rest of a subscription; `out` are bytes of it that have been read already."""
    headers = stream_headers(exchange.route.dialect)
    response = StreamedResponse(headers=headers, slow_reader=exchange.server.slow_reader, report=exchange.report)
    name_losses(response, subscription.lost)
    await response.prepare(exchange.http)
    exchange.report.streams()
    await written(exchange, _pump(response, subscription, exchange.server, out))
    return response


async def written(exchange: ServerExchange, writing: Awaitable[None]) -> None:
    """Wait until the log is written. A reader that does not reach its end loses its connection.

    So no reader takes what it has for the whole, and it may resume from its last id; the run may have other readers.
    """
    report = exchange.report
    try:
        await writing
    except asyncio.CancelledError:
        report.status = "left"
        if not exchange.handler.cutting:
            raise
        abort(exchange.http)
    except BridgeError as error:
        report.ended(None, error.failure)
        raise
    except Exception as error:
        if not (isinstance(error, ConnectionError) and has_left(exchange.http)):
            raise
        report.status = "left"


async def _collect(exchange: ServerExchange, reader: LogReader) -> web.StreamResponse:
    """Return the whole answer at once."""
    events, lost = await reader.to_end()
    assert reader.plan is not None
    context = reader.plan.context(exchange.route.options)
    context.error_details = exchange.context.error_details
    wire = await assembled(exchange.route.dialect, events, context)
    exchange.report.lost = list(dict.fromkeys([*lost, *context.lost.names]))
    exchange.report.sent = len(wire.body)
    return response_of(wire, exchange.report.lost)


async def _pump(
    response: StreamedResponse, subscription: Subscription, server: ServerSection, out: bytes = b""
) -> None:
    """Write a subscription to its end, with comments while it is silent.

    Raises `ConnectionError` for a client that is gone or does not read, `BridgeError` if the log cannot be read.
    """
    if response.writes_now:
        subscription.pass_on(response.writing)
    while True:
        if out:
            await response.write(out)
        if subscription.done:
            break
        frames = await subscription.read(server.keepalive or _POLL)
        silent = not frames and not subscription.done and server.keepalive
        out = sse.join(subscription.keepalive() if silent else frames)
    await response.write_eof()


def cursor_of(http: web.Request) -> Cursor:
    """Return the position from which the reader resumes. Raises `RequestError` for an ill-formed header."""
    text = http.headers.get("last-event-id", "").strip()
    return Cursor.parse(text) if text else START
