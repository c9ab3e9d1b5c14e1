"""One run at a time in each session: the second is refused or supersedes the first; `stop` and reconnecting.

On a durable route the run store knows the running sessions of all processes. On other routes a run lives in the process
that answers its request, and holds a place in the line of its session (`bridge.stores.held_places`), through which
other processes ask it to end.

A request to stop a session is attributed to its reader, so that the run ends as canceled: nothing in the request
distinguishes tabs. A superseded run fails with the code `canceled`: its reader did not request its end, and some
frontends keep waiting after an answer that was canceled.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from bridge.contract import SessionRef, SingleRunDialect, SingleRunOptions, require
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route
from bridge.errors import ErrorCode, RequestError
from bridge.model import Event, FinishReason, Request, RunFailed, RunFinished, RunStarted
from bridge.run.durable import SUPERSEDED, TAKEN_OVER, RunKey, RunPlan, ThreadBusy
from bridge.run.run import Run
from bridge.server.operations.durable import cursor_of, read_on, serve_durable
from bridge.server.operations.run_endpoint import attend
from bridge.server.requests.access_log import AccessRecord
from bridge.server.requests.exchange import Serve, ServerExchange
from bridge.server.requests.http_messages import STREAM_HEADERS, response_of
from bridge.stores.held_places import HeldPlace, HeldPlaces, line_of
from bridge.translation import Writer

_PATIENCE = 30.0
"""Seconds that a run waits for the end of the previous one: longer than a lease, in case its process is dead."""
_LEAVING = 0.5
"""Seconds that it waits for one of another process that may be about to end, as its client has left or read it all."""
_RETRY = 0.1
_STOP, _SUPERSEDE = "stop", "supersede"


def _supersedes(route: Route) -> bool:
    return isinstance(route.options, SingleRunOptions) and route.options.supersede


def _busy(dialect: SingleRunDialect, session: SessionRef) -> RequestError:
    return RequestError(dialect.busy(session), code=ErrorCode.CONFLICT)


def _no_run(report: AccessRecord) -> web.StreamResponse:
    """The answer to a reconnect when nothing runs: a stream without events."""
    report.status = "none"
    return web.Response(headers=STREAM_HEADERS)


# ------------------------------------------------------------------ in this process


class SessionLock:
    """The lock of a session, held by the task that answers its run. `superseded` is None until its end is requested."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.superseded: bool | None = None
        self.released = asyncio.Event()
        self._task = asyncio.current_task()

    @property
    def releasing(self) -> bool:
        """True if the run is over or its client has left, so that the lock is about to be released."""
        over = self.run is not None and self.run.ended
        return over or (self._task is not None and self._task.cancelling() > 0)

    def end(self, *, superseded: bool) -> bool:
        """Request the end of the run. Return False if it has ended by itself. The first request counts."""
        if self.run is not None and self.run.ended:
            return False
        # A client that has left has ended it already, and its cleanup must not be disturbed.
        if self.superseded is None and self._task is not None and not self._task.cancelling():
            self.superseded = superseded
            self._task.cancel()
        return True

    def last_events(self) -> list[Event] | None:
        """Return the events that end the run for its reader; None if its end was not requested."""
        run, task = self.run, self._task
        if self.superseded is None or run is None:
            return None
        if task is not None:
            task.uncancel()
        return run.cut(TAKEN_OVER) if self.superseded else run.cancel()


class SessionLocks:
    """The sessions of one route that run in this process, by user and session."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], SessionLock] = {}

    async def acquire(self, name: tuple[str, str], *, supersede: bool) -> SessionLock | None:
        """Return the lock of a session; None if it is held and its holder may not be superseded, or does not end."""
        if name in self._taken and not await self._free(name, supersede=supersede):
            return None
        lock = self._taken[name] = SessionLock()
        return lock

    def release(self, name: tuple[str, str]) -> None:
        self._taken.pop(name).released.set()

    async def _free(self, name: tuple[str, str], *, supersede: bool) -> bool:
        """Wait for a holder that is about to release the lock, and end others if `supersede`.

        A client that has hung up, or read its answer to the end, may reconnect at once: AgentScope's own server has
        its session free by then (docs/dialects/agentscope.md).
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                while (other := self._taken.get(name)) is not None:
                    if not (supersede or other.releasing):
                        return False
                    if not other.releasing:
                        other.end(superseded=True)
                    await other.released.wait()
        except TimeoutError:
            return False
        return True

    def stop(self, name: tuple[str, str]) -> bool:
        """End the run of a session. Return False if there is none."""
        lock = self._taken.get(name)
        return lock is not None and lock.end(superseded=False)


async def _take(places: HeldPlaces, line: str, lock: SessionLock, *, supersede: bool) -> HeldPlace | None:
    """Return the place of a session over all processes; None if another one has it and does not give it up."""
    clock = asyncio.get_running_loop().time
    until = clock() + (_PATIENCE if supersede else _LEAVING)

    def told(word: str) -> None:
        lock.end(superseded=word != _STOP)

    while (place := await places.take(line, 1, told)) is None:
        if clock() >= until:
            return None
        if supersede:
            await places.tell(line, _SUPERSEDE)
        await asyncio.sleep(_RETRY)
    return place


def _line(route: Route, name: tuple[str, str]) -> str:
    return line_of("session", route.path, *name)


def single_run(locks: SessionLocks, places: HeldPlaces | None) -> Serve:
    """Return the operation `run` of a route whose runs live in this process. `places` knows those of others."""

    async def serve(exchange: ServerExchange) -> web.StreamResponse:
        dialect, wire = require(exchange.route.dialect, SingleRunDialect), await exchange.read()
        if dialect.decode_reconnect(wire) is not None:
            return _no_run(exchange.report)  # a run on this route ends when its client leaves
        request, caller = await exchange.decode(wire)
        session = dialect.session_of(request) or SessionRef(exchange.context.run_id, request.user_id)
        name = (caller.owner, session.key)
        lock = await locks.acquire(name, supersede=_supersedes(exchange.route))
        if lock is None:
            raise _busy(dialect, session)
        exchange.lock = lock
        place: HeldPlace | None = None
        try:
            if places is not None:
                supersede = _supersedes(exchange.route)
                place = await _take(places, _line(exchange.route, name), lock, supersede=supersede)
                if place is None:
                    raise _busy(dialect, session)
            return await attend(exchange, request, caller)
        except asyncio.CancelledError:
            if lock.superseded is None:
                raise
            return _ended_early(exchange, request, lock.superseded)
        finally:
            if place is not None:
                place.leave()
            locks.release(name)

    return serve


def _ended_early(exchange: ServerExchange, request: Request, superseded: bool) -> web.StreamResponse:
    """The answer of a run that was ended before anything of it was written."""
    dialect, context = exchange.route.dialect, exchange.context
    head = RunStarted(context.run_id, context.thread_id, request.model, context.created_at)
    end = RunFailed(TAKEN_OVER) if superseded else RunFinished(FinishReason.CANCELED)
    exchange.report.status = "canceled"
    if not request.stream:
        return response_of(dialect.assemble([head, end], context))
    return web.Response(headers=STREAM_HEADERS, body=Writer(dialect, context).write([head, end]))


# ------------------------------------------------------------------ over all processes


def _key(owner: str, route: Route, session: SessionRef) -> tuple[str, str, str]:
    return owner, route.path, session.key


async def serve_single_durable(exchange: ServerExchange) -> web.StreamResponse:
    """Answer `run` on a durable route: a session is a thread of the run store."""
    wire = await exchange.read()
    session = require(exchange.route.dialect, SingleRunDialect).decode_reconnect(wire)
    if session is None:
        return await serve_durable(exchange, wire, _begin)
    exchange.check_named_origin()
    record = await exchange.bridge.runs.running(*_key(exchange.user, exchange.route, session))
    if record is None:
        return _no_run(exchange.report)
    await exchange.hold(exchange.limiter.reader_slot(exchange.user))
    return await read_on(exchange, record.key, cursor_of(exchange.http))


async def _begin(exchange: ServerExchange, key: RunKey, plan: RunPlan, mark: str) -> RunKey:
    """Start the run when its session is free, or was superseded. Raises `RequestError` (conflict)."""
    runs, route, clock = exchange.bridge.runs, exchange.route, asyncio.get_running_loop().time
    dialect = require(route.dialect, SingleRunDialect)
    session = dialect.session_of(plan.request) or SessionRef(key.thread_id, plan.request.user_id)
    key = RunKey(*_key(key.owner, route, session), key.run_id)
    until = clock() + _PATIENCE
    while True:
        try:
            await runs.start(key, plan, mark, alone=True)
            return key
        except ThreadBusy:
            if not _supersedes(route) or clock() >= until:
                raise _busy(dialect, session) from None
        other = await runs.running(key.owner, key.scope, key.thread_id)
        if other is not None:
            await runs.cancel(other.key, SUPERSEDED)
            await runs.ended(other.key, until - clock())


# ------------------------------------------------------------------ stop


async def serve_stop(bridge: Bridge, route: Route, locks: SessionLocks, exchange: ServerExchange) -> web.StreamResponse:
    """Stop the run of a session. One that is unknown, or another user's, is not running."""
    dialect, owner = require(route.dialect, SingleRunDialect), exchange.user
    wire = await exchange.read()
    session = dialect.decode_stop(wire)
    if not route.durable:
        name = owner, session.key
        stopped = locks.stop(name)
        if not stopped and bridge.places is not None:
            stopped = await bridge.places.tell(_line(route, name), _STOP)
        return response_of(dialect.encode_stopped(wire, stopped))
    record = await bridge.runs.running(*_key(owner, route, session))
    if record is not None:
        await bridge.runs.cancel(record.key)
    return response_of(dialect.encode_stopped(wire, record is not None))
