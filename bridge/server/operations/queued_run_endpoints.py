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
from bridge.server.requests.handler import RequestScope
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


def _dialect(scope: RequestScope) -> QueuedRunsDialect:
    return require(scope.route.dialect, QueuedRunsDialect)


def _key(scope: RequestScope, run: RunRef) -> RunKey:
    key = RunKey(scope.user, scope.route.path, run.thread_id, run.run_id)
    scope.report.about = key.facts
    return key


async def serve_start(scope: RequestScope) -> web.StreamResponse:
    """Store the messages of a request and queue its run."""
    dialect, bridge, route, report = _dialect(scope), scope.bridge, scope.route, scope.report
    request, caller = await scope.decode()
    key, plan = bridge.plan(route, request, caller, run_id=report.run_id, created_at=scope.context.created_at)
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


async def serve_cancel(scope: RequestScope) -> web.StreamResponse:
    """Request the end of a run in any state."""
    dialect = _dialect(scope)
    run = dialect.decode_cancel(await scope.read())
    key = _key(scope, run)
    await check_owner(scope.bridge, scope.route, scope.user, run.thread_id)
    await scope.bridge.runs.cancel(key)
    scope.report.status = "noted"
    return response_of(dialect.encode_canceled(run))


async def serve_subscribe(scope: RequestScope) -> web.StreamResponse:
    """Stream the log of a run, then what follows."""
    dialect = _dialect(scope)
    requested, cursor = dialect.decode_subscribe(await scope.read()), cursor_of(scope.http)
    key = _key(scope, requested)
    await check_owner(scope.bridge, scope.route, scope.user, requested.thread_id)
    options, runs = queue_options(scope.route), scope.bridge.runs
    async with _stream_slot(scope, options.connection_limit):
        subscription = runs.subscribe(key, dialect, options, cursor)
        with reporting(scope, subscription):
            if not await subscription.open():
                return web.Response(status=204)
            response = StreamedResponse(headers=_HEADERS, slow_reader=scope.server.slow_reader, report=scope.report)
            await response.prepare(scope.http)
            scope.report.streams()
            await written(scope, _pump(scope, response, subscription, requested, options.poll_interval))
            return response


@asynccontextmanager
async def _stream_slot(scope: RequestScope, limit: int) -> AsyncIterator[None]:
    """Hold one of the user's `limit` streams, over all processes. Raises `BackendError` (rate_limited)."""
    places = scope.bridge.places
    place = await places.take(line_of("streams", scope.user), limit) if places is not None else None
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
    scope: RequestScope,
    response: StreamedResponse,
    subscription: Subscription,
    requested: SubscribeRequest,
    seconds: float,
) -> None:
    """Write to the end of the run, or until `requested.idle_limit` polls of `seconds` in a row brought nothing.

    Raises `ConnectionError` for a client that is gone or does not read, `BridgeError` if the log cannot be read.
    """
    pause = min(scope.server.keepalive or _KEEPALIVE, _KEEPALIVE)
    if response.writes_now:
        subscription.pass_on(response.write_now)
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
        scope.report.status = "idle"
    await response.write_eof()
