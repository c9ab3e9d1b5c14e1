"""The operation `run` on a durable route: the request starts a run that is kept, its answer is one reader of it.

The run goes on when this reader leaves: what is kept is there so that he, or somebody else, may come back, and a run
that died with its connection could never be resumed. What bounds it are the backend's timeouts; who wants it to end
cancels it. A client that names its runs comes back by the same request with `Last-Event-ID`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable

from aiohttp import web

from bridge.codec import Context, WireRequest
from bridge.errors import BridgeError
from bridge.framing import sse
from bridge.model import Event
from bridge.runs import START, Cursor, LogReader, RunKey, RunPlan, Subscription, fingerprint
from bridge.server.limits import Rules
from bridge.server.report import Report
from bridge.server.runs import RunHandler
from bridge.server.wire import STREAM_HEADERS, response_of

log = logging.getLogger("bridge.server")

_POLL = 15.0


class LogHandler(RunHandler):
    """What handlers share whose responses read the log of a run."""

    async def _written(self, http: web.Request, report: Report, writing: Awaitable[None]) -> None:
        """Waits until the log is written. A reader who does not come to the end of it is cut off.

        Nobody may take what he has for the whole; he may come back with his last id. The run is not his alone.
        """
        try:
            await writing
            return
        except (ConnectionError, TimeoutError):
            # The client is gone, or does not read: then not even the end of the response could be written.
            report.status = "left"
        except asyncio.CancelledError:
            report.status = "left"
            if not self._cutting:
                raise
        except BridgeError as error:
            log.warning("request %s: its stream was cut: %s", report.request_id, error.message)
            report.status = str(error.code)
        if http.transport is not None:
            http.transport.abort()

    async def _relayed(
        self, http: web.Request, subscription: Subscription, report: Report, out: bytes = b""
    ) -> web.StreamResponse:
        """A stream that is the rest of this subscription; `out` are bytes of it that have been read already."""
        response = web.StreamResponse(headers=STREAM_HEADERS)
        if subscription.lost:
            response.headers["x-bridge-lost"] = ",".join(subscription.lost)
        await response.prepare(http)
        report.streams()
        await self._written(http, report, pump(response, subscription, self._rules, report, out))
        return response


class DurableHandler(LogHandler):
    """Serves the `run` endpoints of one durable route."""

    async def _answer(
        self, http: web.Request, context: Context, report: Report, wire: WireRequest | None = None
    ) -> web.StreamResponse:
        request, caller = await self._request(http, context, report, wire)
        cursor = cursor_of(http)
        key, plan = self._bridge.plan(self._route, request, caller, run_id=report.run_id, created_at=context.created_at)
        report.back = self._route.group_for(request).names
        async with self._limiter.reader_slot(caller.owner):
            key = await self._begin(key, plan, fingerprint(caller.raw_body or b""))
            if request.stream:
                response = await self._read_on(http, key, cursor, context, report)
            else:
                response = await self._collected(self._bridge.runs.follow(key), context, report)
        report.http = response.status
        return response

    async def _begin(self, key: RunKey, plan: RunPlan, mark: str) -> RunKey:
        """Starts the run of a request; the key under which it can be read."""
        await self._bridge.runs.start(key, plan, mark)
        return key

    async def _read_on(
        self, http: web.Request, key: RunKey, cursor: Cursor, context: Context, report: Report
    ) -> web.StreamResponse:
        """The stream of a run from the cursor on."""
        subscription = self._bridge.runs.subscribe(key, self._route.dialect, self._route.options, cursor)
        return await self._subscribed(http, subscription, context, report, fresh=cursor == START)

    async def _subscribed(
        self, http: web.Request, subscription: Subscription, context: Context, report: Report, *, fresh: bool
    ) -> web.StreamResponse:
        """The frames from the cursor on. A run that failed at once is an HTTP status, for a reader who has nothing."""
        dialect = self._route.dialect
        try:
            if not await subscription.open():
                return web.Response(status=204)
            # Who comes back gets the head at once: what he waits for may be long in coming.
            frames = await subscription.read(_POLL if fresh else 0)
            while fresh and not frames and not subscription.done and not dialect.capabilities.eager_start:
                frames = await subscription.read(_POLL)
            report.first = time.monotonic() if subscription.spoke else None
            if (
                fresh
                and subscription.failure is not None
                and not (subscription.spoke or dialect.capabilities.eager_start)
            ):
                return self._refused(subscription.failure, context)
            return await self._relayed(http, subscription, report, sse.join(frames))
        finally:
            report.lost, report.usage = subscription.lost, subscription.usage
            report.ended(subscription.reason, subscription.failure)

    async def _collected(self, reader: LogReader, asked: Context, report: Report) -> web.StreamResponse:
        """The whole answer at once."""
        events: list[Event] = []
        lost: dict[str, None] = {}
        while not reader.done:
            for _, batch in await reader.read(_POLL):
                events += batch.events
                lost.update(dict.fromkeys(batch.lost))
        assert reader.plan is not None
        context = reader.plan.context(self._route.options)
        context.error_details = asked.error_details
        wire = self._route.dialect.assemble(events, context)
        report.lost = list({**lost, **dict.fromkeys(context.lost.names)})
        report.sent = len(wire.body)
        return response_of(wire, report.lost)


async def pump(
    response: web.StreamResponse, subscription: Subscription, rules: Rules, report: Report, out: bytes = b""
) -> None:
    """Writes a subscription to its end, with comments while it is silent.

    Raises `ConnectionError` for a client that is gone, `TimeoutError` for one that does not read, `BridgeError` for a
    log that cannot be read on.
    """
    while True:
        if out:
            async with asyncio.timeout(rules.slow_reader):
                await response.write(out)
            report.sent += len(out)
        if subscription.done:
            break
        frames = await subscription.read(rules.keepalive or _POLL)
        silent = not frames and not subscription.done and rules.keepalive
        out = sse.join(subscription.keepalive() if silent else frames)
    await response.write_eof()


def cursor_of(http: web.Request) -> Cursor:
    """Where the reader wants to go on. Raises `RequestError` for an ill-formed header; an empty one is none."""
    text = http.headers.get("last-event-id", "").strip()
    return Cursor.parse(text) if text else START
