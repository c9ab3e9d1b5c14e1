"""The operations `start`, `cancel` and `subscribe`: a request queues a run, others read it or end it.

Reading a run does not influence it. A request is checked first, then the owner of its thread, then the limits.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from bridge.contract import CONNECTIONS, QueuedRunsDialect, QueuedRunsOptions, RunRef, SubscribeRequest, require
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route
from bridge.errors import BackendError, BridgeError, ErrorCode, RequestError
from bridge.run.conversation.queued_turns import forget_request, is_first, store_request
from bridge.run.durable import Ownership, RunKey, Subscription, fingerprint
from bridge.server.operations.durable import cursor_of, reporting, written
from bridge.server.requests.exchange import ServerExchange
from bridge.server.requests.http_messages import response_of
from bridge.server.requests.writing import StreamedResponse
from bridge.stores.held_places import line_of
from bridge.translation.framing import sse

_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache, no-store", "x-accel-buffering": "no"}
_KEEPALIVE = 15.0


def queue_options(route: Route) -> QueuedRunsOptions:
    """Return the options of a route, or the defaults if its dialect has none of these."""
    return route.options if isinstance(route.options, QueuedRunsOptions) else QueuedRunsOptions()


async def check_owner(bridge: Bridge, route: Route, owner: str, thread: str, *, make: bool = False) -> None:
    """Raise `RequestError`: forbidden for a thread of another owner, not_found for none unless `make`."""
    holder = await bridge.history.owner(route.path, thread)
    if holder is not None:
        # Conversations outlive the run store, which may be lost or emptied.
        ownership = Ownership.OWN if holder == owner else Ownership.FOREIGN
    else:
        ownership = await bridge.runs.thread(owner, route.path, thread, make=make)
    if ownership is Ownership.FOREIGN:
        raise RequestError("This thread belongs to another user.", code=ErrorCode.FORBIDDEN)
    if ownership is Ownership.NONE and not make:
        raise RequestError("There is no such thread.", code=ErrorCode.NOT_FOUND)


def _dialect(exchange: ServerExchange) -> QueuedRunsDialect:
    return require(exchange.route.dialect, QueuedRunsDialect)


def _key(exchange: ServerExchange, run: RunRef) -> RunKey:
    key = RunKey(exchange.user, exchange.route.path, run.thread_id, run.run_id)
    exchange.report.about = key.facts
    return key


async def serve_start(exchange: ServerExchange) -> web.StreamResponse:
    """Store the messages of a request and queue its run."""
    dialect, bridge, route, report = _dialect(exchange), exchange.bridge, exchange.route, exchange.report
    request, caller = await exchange.decode()
    key, plan = bridge.plan(route, request, caller)
    report.about = key.facts
    report.back = route.group_for(request).names
    await check_owner(bridge, route, key.owner, key.thread_id, make=True)
    first = True
    is_new = await bridge.runs.status(key) is None
    if is_new:
        stored = await store_request(bridge.history, key.owner, key.scope, request, key.run_id)
        first = is_first(stored, key.run_id)
    try:
        made = await bridge.runs.start(key, plan, fingerprint(caller.raw_body or b""))
    except BackendError:
        if is_new:  # no run will answer these messages
            with suppress(BridgeError):
                await forget_request(bridge.history, key.owner, key.scope, key.thread_id, key.run_id)
        raise
    report.status = "queued"
    run = RunRef(key.thread_id, key.run_id)
    return response_of(dialect.encode_started(run, made.record.task_id, first and made.new and made.first))


async def serve_cancel(exchange: ServerExchange) -> web.StreamResponse:
    """Request the end of a run in any state."""
    dialect = _dialect(exchange)
    run = dialect.decode_cancel(await exchange.read())
    key = _key(exchange, run)
    await check_owner(exchange.bridge, exchange.route, exchange.user, run.thread_id)
    await exchange.bridge.runs.cancel(key)
    exchange.report.status = "noted"
    return response_of(dialect.encode_canceled(run))


async def serve_subscribe(exchange: ServerExchange) -> web.StreamResponse:
    """Stream the log of a run, then what follows."""
    dialect = _dialect(exchange)
    requested, cursor = dialect.decode_subscribe(await exchange.read()), cursor_of(exchange.http)
    key = _key(exchange, requested)
    await check_owner(exchange.bridge, exchange.route, exchange.user, requested.thread_id)
    options, runs = queue_options(exchange.route), exchange.bridge.runs
    async with _stream_slot(exchange, options.connection_limit):
        subscription = runs.subscribe(key, dialect, options, cursor)
        with reporting(exchange, subscription):
            if not await subscription.open():
                return web.Response(status=204)
            response = StreamedResponse(
                headers=_HEADERS, slow_reader=exchange.server.slow_reader, report=exchange.report
            )
            await response.prepare(exchange.http)
            exchange.report.streams()
            await written(exchange, _pump(exchange, response, subscription, requested, options.poll_interval))
            return response


@asynccontextmanager
async def _stream_slot(exchange: ServerExchange, limit: int) -> AsyncIterator[None]:
    """Hold one of the user's `limit` streams, over all processes. Raises `BackendError` (rate_limited)."""
    places = exchange.bridge.places
    place = await places.take(line_of("streams", exchange.user), limit) if places is not None else None
    if places is not None and place is None:
        raise BackendError(
            f"This user already has {limit} open streams.",
            code=ErrorCode.RATE_LIMITED,
            headers={"retry-after": "1"},
            details={"reason": CONNECTIONS},
        )
    try:
        yield
    finally:
        if place is not None:
            place.leave()


async def _pump(
    exchange: ServerExchange,
    response: StreamedResponse,
    subscription: Subscription,
    requested: SubscribeRequest,
    seconds: float,
) -> None:
    """Write to the end of the run, or until `requested.idle_limit` polls of `seconds` in a row brought nothing.

    Raises `ConnectionError` for a client that is gone or does not read, `BridgeError` if the log cannot be read.
    """
    pause = min(exchange.server.keepalive or _KEEPALIVE, _KEEPALIVE)
    if response.writes_now:
        subscription.pass_on(response.writing)
    idle, written_at = 0, -_KEEPALIVE
    while idle < requested.idle_limit:
        cursor = subscription.cursor
        frames = await subscription.read(seconds)
        if subscription.cursor != cursor:
            idle = 0
        if not frames:
            idle += 1
        now = time.monotonic()
        out = sse.join(frames)
        if not frames and not subscription.done and (idle == 1 or now - written_at >= pause):
            out = sse.join(subscription.keepalive())
        if out:
            written_at = now
            await response.write(out)
        if subscription.done:
            break
    else:
        exchange.report.status = "idle"
    await response.write_eof()
