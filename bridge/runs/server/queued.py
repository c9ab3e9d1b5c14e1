"""The operations `start`, `subscribe` and `cancel`: runs that are queued by one request and read by others.

Nobody's reading has anything to do with a run's going on. What is asked for is checked before whose it is, and that
before whether there is a place for it.
"""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from bridge.codec import Context, QueuedRunsDialect, QueuedRunsOptions, RunRef, SubscribeRequest, require
from bridge.engine import Bridge, Route
from bridge.errors import ErrorCode, RequestError
from bridge.framing import sse
from bridge.runs import Cursor, Ownership, RunKey, Subscription, fingerprint
from bridge.runs.server.durable import LogHandler, cursor_of
from bridge.server.limits import RouteLimiter, Rules
from bridge.server.report import Report
from bridge.server.wire import USER, WHERE, read_request, response_of

_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-store",
    "x-accel-buffering": "no",
}
_KEEPALIVE = 15.0


def kept_options(route: Route) -> QueuedRunsOptions:
    return route.options if isinstance(route.options, QueuedRunsOptions) else QueuedRunsOptions()


async def own_thread(bridge: Bridge, route: Route, owner: str, thread: str, *, make: bool = False) -> None:
    """Raises `RequestError`: forbidden for a thread of somebody else, not_found unless it is made."""
    whose = await bridge.runs.thread(owner, route.path, thread, make=make)
    if whose is Ownership.FOREIGN:
        raise RequestError("This thread belongs to somebody else.", code=ErrorCode.FORBIDDEN)
    if whose is Ownership.NONE and not make:
        raise RequestError("There is no such thread.", code=ErrorCode.NOT_FOUND)


class QueuedHandler(LogHandler):
    """What the handlers of one route share."""

    def __init__(self, bridge: Bridge, route: Route, limiter: RouteLimiter, rules: Rules) -> None:
        super().__init__(bridge, route, limiter, rules)
        self._dialect = require(route.dialect, QueuedRunsDialect)
        self._options = kept_options(route)

    async def _answer(self, http: web.Request, context: Context, report: Report) -> web.StreamResponse:
        where = http[WHERE]
        context.error_details.update(where)
        response = await self._queued(http, context, report)
        report.http = response.status
        return response

    async def _queued(self, http: web.Request, context: Context, report: Report) -> web.StreamResponse:
        raise NotImplementedError

    def _key(self, http: web.Request, run: RunRef) -> RunKey:
        return RunKey(http[USER], self._route.path, run.thread_id, run.run_id)


class StartHandler(QueuedHandler):
    """Keeps what the client says, queues the run, and is done."""

    async def _queued(self, http: web.Request, context: Context, report: Report) -> web.StreamResponse:
        request, caller = await self._request(http, context, report)
        created_at = context.created_at
        key, plan = self._bridge.plan(self._route, request, caller, run_id=report.run_id, created_at=created_at)
        report.back, mark = self._route.group_for(request).names, fingerprint(caller.raw_body or b"")
        await own_thread(self._bridge, self._route, key.owner, key.thread_id, make=True)
        runs = self._bridge.runs
        if await runs.status(key) is None:
            await self._bridge.conversations.say(key.owner, key.scope, request, key.run_id)
        made = await runs.start(key, plan, mark)
        report.status = "queued"
        run = RunRef(key.thread_id, key.run_id)
        return response_of(self._dialect.encode_started(run, made.record.task_id, made.new and made.first))


class CancelHandler(QueuedHandler):
    """Notes that a run shall end, in whatever state it is."""

    async def _queued(self, http: web.Request, context: Context, report: Report) -> web.StreamResponse:
        wire = await read_request(http, self._route.path, self._rules.max_body, self._rules.body_time)
        run = self._dialect.decode_cancel(wire)
        await own_thread(self._bridge, self._route, http[USER], run.thread_id)
        await self._bridge.runs.cancel(self._key(http, run))
        report.status = "noted"
        return response_of(self._dialect.encode_canceled(run))


class SubscribeHandler(QueuedHandler):
    """One reader of one run: what is in its log, then what comes."""

    async def _queued(self, http: web.Request, context: Context, report: Report) -> web.StreamResponse:
        wire = await read_request(http, self._route.path, self._rules.max_body, self._rules.body_time)
        asked, cursor = self._dialect.decode_subscribe(wire), cursor_of(http)
        await own_thread(self._bridge, self._route, http[USER], asked.thread_id)
        async with self._bridge.runs.place(http[USER], self._options.connection_limit):
            return await self._read(http, asked, cursor, report)

    async def _read(
        self, http: web.Request, asked: SubscribeRequest, cursor: Cursor, report: Report
    ) -> web.StreamResponse:
        subscription = self._bridge.runs.subscribe(self._key(http, asked), self._dialect, self._options, cursor)
        try:
            if not await subscription.open():
                return web.Response(status=204)
            response = web.StreamResponse(headers=_HEADERS)
            await response.prepare(http)
            report.streams()
            pumping = self._pump_log(response, subscription, asked.idle_limit, report)
            await self._written(http, report, pumping)
            return response
        finally:
            report.lost, report.usage = subscription.lost, subscription.usage
            report.ended(subscription.reason, subscription.failure)

    async def _pump_log(
        self, response: web.StreamResponse, subscription: Subscription, polls: int, report: Report
    ) -> None:
        """To the end of the run, or until so many polls in a row brought nothing.

        Raises `ConnectionError` for a client that is gone, `TimeoutError` for one that does not read, `BridgeError`
        for a log that cannot be read on.
        """
        idle, warmed, every = 0, -_KEEPALIVE, self._options.poll_interval
        while idle < polls:
            frames = await subscription.read(every)
            idle = 0 if frames else idle + 1
            now = time.monotonic()
            out = sse.join(frames)
            if not frames and not subscription.done and (idle == 1 or now - warmed >= self._pause()):
                out = sse.join(subscription.keepalive())
            if out:
                warmed = now
                async with asyncio.timeout(self._rules.slow_reader):
                    await response.write(out)
                report.sent += len(out)
            if subscription.done:
                break
        else:
            report.status = "idle"
        await response.write_eof()

    def _pause(self) -> float:
        """Seconds of silence after which something is written."""
        return min(self._rules.keepalive or _KEEPALIVE, _KEEPALIVE)
