"""The operation `run`: a request comes in, its answer goes out, streamed or whole.

The loop in `_stream` is the hot path: one read, one list of events, one write, awaited; that await is the whole
backpressure, and cancellation is the closing of the connection on either side.
"""

from __future__ import annotations

import asyncio
import logging
import time
from secrets import token_hex

from aiohttp import web

from bridge.codec import Context, Losses, StoredAnswersDialect, WireRequest, WireResponse, require
from bridge.engine import Bridge, Caller, Route
from bridge.errors import BridgeError, ErrorCode, Failure, log_unexpected
from bridge.framing import sse
from bridge.model import Event, Request
from bridge.pipeline import Run, failed_at_once
from bridge.server.limits import RouteLimiter, Rules
from bridge.server.page.traces import HEADER, Trace, Traces
from bridge.server.report import Report
from bridge.server.spans import spanned
from bridge.server.watchdog import StreamWatchdog
from bridge.server.wire import STREAM_HEADERS, USER, decoded, error_of, read_request, request_id, response_of
from bridge.translation import Translation, Writer

log = logging.getLogger("bridge.server")


class RunHandler:
    """Serves the `run` endpoints of one route.

    `watch`: look for vanished clients, where the server does not cancel handlers by itself. `traces`: the runs that a
    page watches, where there is one. `active`: the tasks of the requests that are open, waiting ones included.
    """

    def __init__(self, bridge: Bridge, route: Route, limiter: RouteLimiter, rules: Rules) -> None:
        self._bridge = bridge
        self._route = route
        self._limiter = limiter
        self._rules = rules
        self.watch = True
        self.traces: Traces | None = None
        self.active: set[asyncio.Task[object]] = set()
        self._cutting = False

    def cut(self) -> None:
        """Ends all open runs now; their clients are told that the server stops."""
        self._cutting = True
        for task in self.active:
            task.cancel()

    async def __call__(self, http: web.Request) -> web.StreamResponse:
        """The answer to a request. Whatever goes wrong before the stream began is one in the dialect's shape."""
        route, run_id = self._route, token_hex(16)
        report = Report(request_id(http, run_id), route.path, route.dialect.name, run_id, metrics=self._bridge.metrics)
        context = Context(run_id, None, time.time(), route.options, lost=Losses())
        task = asyncio.current_task()
        assert task is not None
        self.active.add(task)
        leaving = asyncio.get_running_loop().create_task(_gone(http)) if self.watch else None
        if leaving is not None:
            leaving.add_done_callback(lambda done: None if done.cancelled() else task.cancel())
        try:
            with spanned(self._bridge.tracing, http, report):
                return await self._reported(http, context, report)
        finally:
            self.active.discard(task)
            if leaving is not None:
                leaving.cancel()

    async def _reported(self, http: web.Request, context: Context, report: Report) -> web.StreamResponse:
        trace = self._trace(http, report.run_id)
        try:
            response = await self._answer(http, context, report)
        except BridgeError as error:
            response = self._refused(error.failure, context)
            report.status, report.http = str(error.code), response.status
        except asyncio.CancelledError:
            # A client that has all of its answer may leave while the run is put away: that is none that was canceled.
            report.status = report.status or "canceled"
            if not self._cutting:
                raise
            response = self._refused(_stopping(), context)
            report.http = response.status
        except ConnectionError:
            # The client went away while it was still sending, or before it was answered.
            report.status = "canceled"
            response = web.Response(status=499)
        except Exception as error:
            log_unexpected(log, f"request {report.request_id} broke", error)
            report.status = "internal"
            response = self._refused(_internal(), context)
            report.http = response.status
        finally:
            report.write()
            if trace is not None:
                trace.lost(context.lost.details or dict.fromkeys(report.lost, ""))
                trace.say("end", status=report.status, http=report.http, run_id=report.run_id, backend=report.back)
        return response

    def _trace(self, http: web.Request, run_id: str) -> Trace | None:
        """Where this run is told, when its client's page asks for it and reads it already."""
        token = http.headers.get(HEADER) if self.traces is not None else None
        return self.traces.watch(token, http.get(USER, ""), run_id) if self.traces and token else None

    def _refused(self, failure: Failure, context: Context) -> web.Response:
        """The failure as a response of its own; how it looks may depend on the request."""
        failure.details = {**failure.details, **context.error_details}
        return error_of(self._route.dialect, failure)

    async def _answer(self, http: web.Request, context: Context, report: Report) -> web.StreamResponse:
        # The body is read before a place is taken: who sends slowly holds up nobody.
        request, caller = await self._request(http, context, report)
        return await self._attended(http, context, report, request, caller)

    async def _attended(
        self, http: web.Request, context: Context, report: Report, request: Request, caller: Caller
    ) -> web.StreamResponse:
        """A run that lives as long as its client waits."""
        async with self._limiter.slot(caller.owner):
            run = await self._run(context, request, caller, report)
            try:
                # A long prompt need not be held while its answer streams.
                if not self._route.passthrough:
                    caller.raw_body = None
                if request.stream:
                    response = await self._stream(http, run, context, report, caller.owner)
                else:
                    response = await self._whole(run, context, report, caller.owner)
            finally:
                report.of(run)
                await run.close()
        report.http = response.status
        return response

    async def _request(
        self, http: web.Request, context: Context, report: Report, wire: WireRequest | None = None
    ) -> tuple[Request, Caller]:
        """What is asked, and who asks it. `wire`: the request, where it was read already."""
        route = self._route
        if wire is None:
            wire = await read_request(http, route.path, self._rules.max_body, self._rules.body_time)
        user = http.get(USER, "")
        if (answers := self._bridge.answers(route, user)) is not None:
            context.stored_responses = await answers.stored_responses(
                require(route.dialect, StoredAnswersDialect).stored_ids(wire)
            )
        request = await decoded(route.dialect.decode_request, wire, context)
        context.request = request
        context.thread_id = request.thread_id
        context.model = request.model
        return request, Caller(user, report.request_id, wire.headers, wire.body)

    async def _run(self, context: Context, request: Request, caller: Caller, report: Report) -> Run:
        run = await self._bridge.run(
            self._route,
            request,
            capabilities=self._route.dialect.capabilities,
            caller=caller,
            lost=context.lost,
            run_id=context.run_id,
            created_at=context.created_at,
        )
        report.back = run.backend.name
        context.model = shown_model(run, context)
        return run

    async def _keep(self, context: Context, owner: str) -> None:
        """Keeps the answer that the encoder left to be kept; a store that fails now is logged, as for conversations."""
        answer = context.stored_responses.answer if context.stored_responses is not None else None
        if answer is None or (answers := self._bridge.answers(self._route, owner)) is None:
            return
        try:
            await answers.keep(answer)
        except BridgeError as error:
            log.error("run %s: the answer was not kept: %s", context.run_id, error.message)

    # ------------------------------------------------------------------ streamed

    async def _stream(
        self, http: web.Request, run: Run, context: Context, report: Report, owner: str
    ) -> web.StreamResponse:
        dialect = self._route.dialect
        translation = Translation(run.reader, Writer(dialect, context))
        if dialect.capabilities.eager_start and not self._route.passthrough:
            events = run.head()
        else:
            events = await run.read()
            failure = failed_at_once(events)
            if failure is not None:
                return self._refused(failure, context)
            # It may be another backend that answers.
            context.model = shown_model(run, context)
        out = self._bytes(run, translation, events)
        del events  # as `out` below: what was sent is not held while the rest is waited for
        response = web.StreamResponse(headers=STREAM_HEADERS)
        if run.lost:
            response.headers["x-bridge-lost"] = ",".join(run.lost.names)
        watch = StreamWatchdog(http, run, response, translation, self._rules)
        try:
            await response.prepare(http)
            report.streams()
            reader, raw = run.reader, self._route.passthrough
            while not reader.ended:
                watch.blocked = time.monotonic()
                if out:
                    report.sent += len(out)
                    await response.write(out)
                watch.blocked = None
                if raw:
                    out = self._bytes(run, translation, await run.read())
                else:
                    out = translation.write(await run.read())
            # Before the client sees the end.
            await self._keep(context, owner)
            report.sent += len(out)
            watch.blocked = time.monotonic()
            await response.write_eof(out)
        except ConnectionError:
            # The client went away in the middle of a write; uncaught, aiohttp would log a traceback for it.
            report.status = "canceled"
        except asyncio.CancelledError:
            words = self._last_words(run, report)
            if words is None:
                raise
            await self._farewell(http, response, translation.write(words))
        except Exception as error:
            # The head is out, so that there is no other response to give: the stream ends with the dialect's error.
            log_unexpected(log, f"request {report.request_id} broke in its stream", error)
            report.status = "internal"
            await self._farewell(http, response, translation.write(run.cut(_internal())))
        finally:
            watch.stop()
            report.pace = run.pace
        return response

    def _bytes(self, run: Run, translation: Translation, events: list[Event]) -> bytes:
        out = translation.write(events)
        if self._route.passthrough and run.call.whole is None and (run.failure is None or run.call.wire_ended):
            # The backend's own bytes; ours only for a failure that did not stand on its wire.
            return sse.join(run.call.frames)
        return out

    def _last_words(self, run: Run, report: Report) -> list[Event] | None:
        """What a client is told whose request was cancelled from this side; None when it was he who left."""
        return run.cut(_stopping()) if self._cutting else None

    async def _farewell(self, http: web.Request, response: web.StreamResponse, out: bytes) -> None:
        """Ends an open stream; where even that fails, the connection is cut, so that nobody waits."""
        try:
            async with asyncio.timeout(1):
                await response.write_eof(out)
        except Exception as error:
            log.debug("farewell", exc_info=error)
            if http.transport is not None:
                http.transport.abort()

    # ------------------------------------------------------------------ whole

    async def _whole(self, run: Run, context: Context, report: Report, owner: str) -> web.StreamResponse:
        events: list[Event] = []
        try:
            while not run.ended:
                events += await run.read()
        except asyncio.CancelledError:
            words = self._last_words(run, report)
            if words is None:
                raise
            events += words
        context.model = shown_model(run, context)
        wire = run.call.whole if self._route.passthrough and run.failure is None else None
        if wire is not None:
            wire = WireResponse(wire.status, {"content-type": wire.headers.get("content-type", "")}, wire.body)
        else:
            wire = self._route.dialect.assemble(events, context)
            await self._keep(context, owner)
        report.sent = len(wire.body)
        return response_of(wire, run.lost.names)


def shown_model(run: Run, context: Context) -> str | None:
    """The model to name where the backend that answers names none."""
    return (context.request.model if context.request is not None else None) or run.call.context.model


def _internal() -> Failure:
    return Failure(ErrorCode.INTERNAL, "The bridge failed while it handled this request.")


def _stopping() -> Failure:
    return Failure(ErrorCode.OVERLOADED, "The server is stopping; the run was cut.")


async def _gone(http: web.Request) -> None:
    """Returns when the client has closed its connection."""
    while (transport := http.transport) is not None and not transport.is_closing():  # noqa: ASYNC110
        await asyncio.sleep(0.25)
