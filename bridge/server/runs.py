"""The operation `run`: a request comes in, its answer goes out, streamed or whole.

The loop in `_stream` is the hot path: one read, one list of events, one write, awaited; that await is the whole
backpressure, and cancellation is the closing of the connection on either side.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from bridge.codec import Context, Encoder, Losses
from bridge.engine import Bridge, Caller, Route
from bridge.errors import BridgeError, ErrorCode, Failure
from bridge.framing import sse
from bridge.model import Event, Heartbeat, Request
from bridge.pipeline import Run, failed_at_once
from bridge.server.wire import STREAM_HEADERS, error_of, read_request, request_id, response_of

log = logging.getLogger("bridge.access")
trouble = logging.getLogger("bridge.server")


@dataclass(slots=True)
class Report:
    """What the log line of a run says. Times are seconds since the request came."""

    request_id: str
    route: str
    front: str
    run_id: str
    began: float = field(default_factory=time.monotonic)
    back: str = ""
    status: str = ""
    http: int = 0
    sent: int = 0
    lost: list[str] = field(default_factory=list)

    def write(self, run: Run | None) -> None:
        """One line, at the end, whatever the end was."""
        if not log.isEnabledFor(logging.INFO):
            return
        now = time.monotonic()
        facts: dict[str, Any] = {
            "request_id": self.request_id,
            "run_id": self.run_id,
            "route": self.route,
            "front": self.front,
            "back": self.back,
            "http": self.http,
            "status": self.status,
            "total_ms": round((now - self.began) * 1000, 1),
            "bytes": self.sent,
        }
        if run is not None:
            if run.first is not None:
                facts["first_ms"] = round((run.first - self.began) * 1000, 1)
            if run.usage is not None:
                facts["tokens_in"], facts["tokens_out"] = run.usage.input, run.usage.output
        if self.lost:
            facts["lost"] = ",".join(self.lost)
        log.info("run", extra={"facts": facts})


class RunHandler:
    """Serves the `run` endpoints of one route.

    `watch`: look for vanished clients, where the server does not cancel handlers by itself. `active`: the tasks of the
    runs that are open.
    """

    def __init__(self, bridge: Bridge, route: Route, *, max_body: int, keepalive: float | None) -> None:
        self._bridge = bridge
        self._route = route
        self._max_body = max_body
        self._keepalive = keepalive
        self.watch = True
        self.active: set[asyncio.Task[object]] = set()
        self._cutting = False

    def cut(self) -> None:
        """Ends all open runs now; their clients are told that the server stops."""
        self._cutting = True
        for task in self.active:
            task.cancel()

    async def __call__(self, http: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self.active.add(task)
        try:
            return await self._serve(http, task)
        finally:
            self.active.discard(task)

    async def _serve(self, http: web.Request, task: asyncio.Task[object]) -> web.StreamResponse:
        route = self._route
        run_id = uuid.uuid4().hex
        report = Report(request_id(http, run_id), route.path, route.dialect.name, run_id)
        run: Run | None = None
        leaving = asyncio.get_running_loop().create_task(_gone(http)) if self.watch else None
        try:
            if leaving is not None:
                leaving.add_done_callback(lambda done: None if done.cancelled() else task.cancel())
            context, request, caller = await self._request(http, report)
            run = self._run(context, request, caller, report)
            if request.stream:
                response = await self._stream(http, run, context, report)
            else:
                response = await self._whole(run, context, report)
            report.http = response.status
            return response
        except BridgeError as error:
            response = error_of(route.dialect, error.failure)
            report.status, report.http = str(error.code), response.status
            return response
        except asyncio.CancelledError:
            report.status = "canceled"
            if not self._cutting:
                raise
            return error_of(route.dialect, _stopping())
        except Exception as error:
            trouble.exception("request %s: %s", report.request_id, type(error).__name__)
            report.status = "internal"
            response = error_of(route.dialect, _internal())
            report.http = response.status
            return response
        finally:
            if leaving is not None:
                leaving.cancel()
            if run is not None:
                report.lost = run.lost.names
                await run.close()
            report.write(run)

    async def _request(self, http: web.Request, report: Report) -> tuple[Context, Request, Caller]:
        route = self._route
        wire = await read_request(http, route.path, self._max_body)
        context = Context(report.run_id, None, time.time(), route.options, lost=Losses())
        request = route.dialect.decode_request(wire, context)
        context.request = request
        context.thread_id = request.thread_id
        context.model = request.model
        return context, request, Caller(report.request_id, wire.headers, wire.body)

    def _run(self, context: Context, request: Request, caller: Caller, report: Report) -> Run:
        run = self._bridge.run(
            self._route,
            request,
            card=self._route.dialect.card,
            caller=caller,
            lost=context.lost,
            run_id=context.run_id,
            created_at=context.created_at,
        )
        report.back = run.backend.name
        context.model = context.model or run.call.context.model
        return run

    # ------------------------------------------------------------------ streamed

    async def _stream(self, http: web.Request, run: Run, context: Context, report: Report) -> web.StreamResponse:
        dialect = self._route.dialect
        encoder = dialect.encoder(context)
        if dialect.card.eager_start and not self._route.passthrough:
            events = run.head()
        else:
            events = await run.read()
            failure = failed_at_once(events)
            if failure is not None:
                report.status = str(failure.code)
                return error_of(dialect, failure)
        out = self._frames(run, encoder, events)
        response = web.StreamResponse(headers=STREAM_HEADERS)
        if run.lost:
            response.headers["x-bridge-lost"] = ",".join(run.lost.names)
        await response.prepare(http)
        report.http = response.status
        warm = _Warm(response, encoder, self._keepalive)
        try:
            while True:
                if out:
                    report.sent += len(out)
                    await response.write(out)
                if run.done:
                    break
                warm.waiting()
                events = await run.read()
                warm.wrote()
                out = self._frames(run, encoder, events)
            await response.write_eof()
        except ConnectionError:
            # The client went away in the middle of a write; uncaught, aiohttp would log a traceback for it.
            report.status = "canceled"
            return response
        except asyncio.CancelledError:
            if not self._cutting:
                raise
            await _farewell(response, self._frames(run, encoder, run.cut(_stopping())))
        finally:
            warm.stop()
        report.status = run.reason or (str(run.failure.code) if run.failure else "")
        return response

    def _frames(self, run: Run, encoder: Encoder, events: list[Event]) -> bytes:
        frames = encoder.encode(events)
        if run.done:
            frames += encoder.close()
        if self._route.passthrough and (not run.done or run.call.wire_ended):
            # The backend's own bytes; ours only for an end that did not stand on its wire.
            frames, run.call.frames = run.call.frames, []
        return sse.join(frames)

    # ------------------------------------------------------------------ whole

    async def _whole(self, run: Run, context: Context, report: Report) -> web.StreamResponse:
        events: list[Event] = []
        while not run.done:
            events += await run.read()
        report.status = run.reason or (str(run.failure.code) if run.failure else "")
        if self._route.passthrough and run.failure is None and run.call.frames:
            return web.Response(body=bytes(run.call.frames[0]), content_type="application/json")  # type: ignore[arg-type]
        wire = self._route.dialect.assemble(events, context)
        report.sent = len(wire.body)
        return response_of(wire, run.lost.names)


def _internal() -> Failure:
    return Failure(ErrorCode.INTERNAL, "The bridge failed while it handled this request.")


def _stopping() -> Failure:
    return Failure(ErrorCode.OVERLOADED, "The server is stopping; the run was cut.")


async def _farewell(response: web.StreamResponse, out: bytes) -> None:
    try:
        async with asyncio.timeout(1):
            await response.write(out)
            await response.write_eof()
    except (ConnectionError, TimeoutError):
        pass


async def _gone(http: web.Request) -> None:
    """Returns when the client has closed its connection."""
    while (transport := http.transport) is not None and not transport.is_closing():  # noqa: ASYNC110
        await asyncio.sleep(0.25)


class _Warm:
    """Writes what keeps a silent stream warm: one timer looks whether the stream was silent, none runs per event."""

    def __init__(self, response: web.StreamResponse, encoder: Encoder, every: float | None) -> None:
        self._response = response
        self._encoder = encoder
        self._every = every
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        if every:
            self._timer = asyncio.get_running_loop().call_later(every, self._look)

    def waiting(self) -> None:
        """From now on nothing is being written."""
        self._since = time.monotonic()

    def wrote(self) -> None:
        self._since = None

    def _look(self) -> None:
        every = self._every or 0.0
        since = self._since
        left = every if since is None else since + every - time.monotonic()
        if since is not None and left <= 0:
            left = every
            self._since = time.monotonic()
            self._task = asyncio.get_running_loop().create_task(self._write())
        self._timer = asyncio.get_running_loop().call_later(left, self._look)

    async def _write(self) -> None:
        frames = self._encoder.encode([Heartbeat()])
        if not frames:
            return
        try:
            await self._response.write(sse.join(frames))
        except ConnectionError:
            # The reading loop learns of it by itself.
            return

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
