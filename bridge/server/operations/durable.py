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
from bridge.server.requests.handler import RequestScope
from bridge.server.requests.http_messages import assembled, response_of, stream_headers
from bridge.server.requests.writing import StreamedResponse, abort, has_left
from bridge.translation.framing import sse

if TYPE_CHECKING:
    from bridge.engine.config import Server

log = logging.getLogger("bridge.server")

_POLL = 15.0
CANCEL_SECONDS = 10.0
"""How long a request to cancel waits for the end of the run, which another, perhaps dead, process has to write."""

Begin = Callable[[RequestScope, RunKey, RunPlan, str], Awaitable[RunKey]]
"""Starts the run of a request with this fingerprint, and returns the key under which it can be read."""


async def _begin(scope: RequestScope, key: RunKey, plan: RunPlan, mark: str) -> RunKey:
    await scope.bridge.runs.start(key, plan, mark)
    return key


async def serve_durable(
    scope: RequestScope, wire: WireRequest | None = None, begin: Begin = _begin
) -> web.StreamResponse:
    """Answer a request with a durable run. `wire` is the request if it was read already."""
    request, caller = await scope.decode(wire)
    cursor = cursor_of(scope.http)
    run_id, created_at = scope.report.run_id, scope.context.created_at
    key, plan = scope.bridge.plan(scope.route, request, caller, run_id=run_id, created_at=created_at)
    scope.report.back = scope.route.group_for(request).names
    await scope.hold(scope.limiter.reader_slot(caller.owner))
    key = await begin(scope, key, plan, fingerprint(caller.raw_body or b""))
    if request.stream and not scope.route.dialect.writes_array(scope.context):
        return await read_on(scope, key, cursor)
    return await _collect(scope, scope.bridge.runs.follow(key))


async def serve_resume(scope: RequestScope) -> web.StreamResponse:
    """Stream the run of a thread that has not ended, from its beginning unless the reader has a cursor."""
    thread, route = require(scope.route.dialect, ResumableDialect).decode_resume(await scope.read()), scope.route
    running = await scope.bridge.runs.running(scope.user, route.path, thread) if route.durable else None
    if running is None:
        return web.Response(status=204)
    scope.report.about = running.key.facts
    await scope.hold(scope.limiter.reader_slot(scope.user))
    return await read_on(scope, running.key, cursor_of(scope.http))


async def read_on(scope: RequestScope, key: RunKey, cursor: Cursor) -> web.StreamResponse:
    """Stream a run from the cursor on. For a reader that has nothing yet, one that fails before the stream has begun is
    an HTTP status; the stream begins with the first content, or after `server.keepalive`.
    """
    dialect, report, fresh = scope.route.dialect, scope.report, cursor == START
    subscription = scope.bridge.runs.subscribe(key, dialect, scope.route.options, cursor)
    eager = dialect.capabilities.eager_start
    with reporting(scope, subscription):
        if not await subscription.open():
            return web.Response(status=204)
        # A reader that resumes gets the head at once: the next event may be long in coming.
        frames = await subscription.read((scope.server.keepalive or _POLL) if fresh else 0)
        while fresh and not frames and not subscription.done and not eager:
            if scope.server.keepalive and (alive := subscription.keepalive()):
                return await stream_rest(scope, subscription, sse.join(alive))
            frames = await subscription.read(_POLL)
        report.first = time.monotonic() if subscription.spoke else None
        if fresh and subscription.failure is not None and not (subscription.spoke or eager):
            return scope.refuse(subscription.failure)
        return await stream_rest(scope, subscription, sse.join(frames))


@contextmanager
def reporting(scope: RequestScope, subscription: Subscription) -> Iterator[None]:
    """Report the outcome of a subscription as that of its request, however reading it ends."""
    try:
        yield
    finally:
        scope.report.lost, scope.report.usage = subscription.lost, subscription.usage
        scope.report.ended(subscription.reason, subscription.failure)


async def stream_rest(scope: RequestScope, subscription: Subscription, out: bytes = b"") -> web.StreamResponse:
    """Stream the rest of a subscription; `out` are bytes of it that have been read already."""
    headers = stream_headers(scope.route.dialect)
    response = StreamedResponse(headers=headers, slow_reader=scope.server.slow_reader, report=scope.report)
    if subscription.lost:
        response.headers["x-bridge-lost"] = ",".join(subscription.lost)
    await response.prepare(scope.http)
    scope.report.streams()
    await written(scope, _pump(response, subscription, scope.server, out))
    return response


async def written(scope: RequestScope, writing: Awaitable[None]) -> None:
    """Wait until the log is written. A reader that does not reach its end loses its connection.

    So no reader takes what it has for the whole, and it may resume from its last id; the run may have other readers.
    """
    report = scope.report
    try:
        await writing
    except asyncio.CancelledError:
        report.status = "left"
        if not scope.handler.cutting:
            raise
        abort(scope.http)
    except BridgeError as error:
        report.ended(None, error.failure)
        raise
    except Exception as error:
        if not (isinstance(error, ConnectionError) and has_left(scope.http)):
            raise
        report.status = "left"


async def _collect(scope: RequestScope, reader: LogReader) -> web.StreamResponse:
    """Return the whole answer at once."""
    events, lost = await reader.to_end()
    assert reader.plan is not None
    context = reader.plan.context(scope.route.options)
    context.error_details = scope.context.error_details
    wire = await assembled(scope.route.dialect, events, context)
    scope.report.lost = list(dict.fromkeys([*lost, *context.lost.names]))
    scope.report.sent = len(wire.body)
    return response_of(wire, scope.report.lost)


async def _pump(response: StreamedResponse, subscription: Subscription, server: Server, out: bytes = b"") -> None:
    """Write a subscription to its end, with comments while it is silent.

    Raises `ConnectionError` for a client that is gone or does not read, `BridgeError` if the log cannot be read.
    """
    if response.writes_now:
        subscription.pass_on(response.write_now)
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
