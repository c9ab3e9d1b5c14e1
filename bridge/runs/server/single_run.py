"""One run at a time in each session: the second is refused or takes the place of the first; `stop` and coming back.

On a durable route the run store knows who runs, in whichever process. On any other one a run lives in the process that
answers its request, and with it what is known of it: other workers know nothing of its session.

Whoever asks to stop a session is taken for its reader, so that the run ends as canceled: it is he who pressed the
button, and nothing in the request tells another tab of his. A run that has to make room for another one fails with the
code `canceled`: its reader asked for nothing, and there are frontends that wait on after an answer that was canceled.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from bridge.codec import (
    Context,
    SessionRef,
    SingleRunDialect,
    SingleRunOptions,
    WireRequest,
    require,
)
from bridge.engine import Bridge, Caller, Route
from bridge.errors import ErrorCode, RequestError
from bridge.model import Event, FinishReason, Request, RunFailed, RunFinished, RunStarted
from bridge.pipeline import Run
from bridge.runs import SUPERSEDED, TAKEN_OVER, RunKey, RunPlan, RunRecord, ThreadBusy
from bridge.runs.server.durable import DurableHandler, cursor_of
from bridge.server.browsers import check_kept
from bridge.server.report import Report
from bridge.server.runs import RunHandler
from bridge.server.wire import STREAM_HEADERS, USER, read_request, response_of
from bridge.translation import Writer

_PATIENCE = 30.0
"""Seconds for which a run waits that the one before it makes room: longer than a lease, should its process be dead."""


def _supersedes(route: Route) -> bool:
    return isinstance(route.options, SingleRunOptions) and route.options.supersede


def _busy(dialect: SingleRunDialect, session: SessionRef) -> RequestError:
    return RequestError(dialect.busy(session), code=ErrorCode.CONFLICT)


# ------------------------------------------------------------------ in this process


class SessionLock:
    """The place of one run, made in the task that answers. `superseded` is None while nobody has asked for its end."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.superseded: bool | None = None
        self.left = asyncio.Event()
        self._task = asyncio.current_task()

    @property
    def leaving(self) -> bool:
        """Whether the run is over, or its client has gone: what is left is to put it away."""
        over = self.run is not None and self.run.ended
        return over or (self._task is not None and self._task.cancelling() > 0)

    def end(self, *, superseded: bool) -> bool:
        """Asks for the end of the run; False when it has come to it by itself. The first one who asks counts."""
        if self.run is not None and self.run.ended:
            return False
        # A client who has left has ended it already, and what is being put away must not be disturbed.
        if self.superseded is None and self._task is not None and not self._task.cancelling():
            self.superseded = superseded
            self._task.cancel()
        return True

    def last_words(self) -> list[Event] | None:
        """How the run ends, for who reads it; None when nobody asked for that."""
        run, task = self.run, self._task
        if self.superseded is None or run is None:
            return None
        if task is not None:
            task.uncancel()
        return run.cut(TAKEN_OVER) if self.superseded else run.cancel()


class SessionLocks:
    """Who runs on one route in this process, by user and session."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], SessionLock] = {}

    async def take(self, name: tuple[str, str], *, supersede: bool) -> SessionLock | None:
        """A seat, to be left again; None when it is taken and nobody may be sent away, or will not go."""
        if name in self._taken and not await self._free(name, supersede=supersede):
            return None
        lock = self._taken[name] = SessionLock()
        return lock

    def leave(self, name: tuple[str, str]) -> None:
        """Frees a seat that was taken."""
        self._taken.pop(name).left.set()

    async def _free(self, name: tuple[str, str], *, supersede: bool) -> bool:
        """Waits for whoever is about to leave, and sends others away where he may; False when somebody stays.

        A client that has hung up, or read its answer to the end, may come back at once: the real server has its session
        free by then (section 12).
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                while (other := self._taken.get(name)) is not None:
                    if not (supersede or other.leaving):
                        return False
                    if not other.leaving:
                        other.end(superseded=True)
                    await other.left.wait()
        except TimeoutError:
            return False
        return True

    def stop(self, name: tuple[str, str]) -> bool:
        """Ends the run of a session; False when there is none."""
        lock = self._taken.get(name)
        return lock is not None and lock.end(superseded=False)


class SingleRunHandler(RunHandler):
    """Serves the `run` endpoints of a route whose runs live in this process."""

    def __init__(self, locks: SessionLocks, bridge: Bridge, route: Route, *more: Any) -> None:
        super().__init__(bridge, route, *more)
        self._dialect = require(route.dialect, SingleRunDialect)
        self._locks = locks
        self._mine: dict[str, SessionLock] = {}

    async def _answer(self, http: web.Request, context: Context, report: Report) -> web.StreamResponse:
        wire = await read_request(http, self._route.path, self._rules.max_body, self._rules.body_time)
        if self._dialect.decode_reconnect(wire) is not None:
            return _nothing(report)  # what this process does for a client ends when he leaves
        request, caller = await self._request(http, context, report, wire)
        return await self._attended(http, context, report, request, caller)

    async def _attended(
        self, http: web.Request, context: Context, report: Report, request: Request, caller: Caller
    ) -> web.StreamResponse:
        session = self._dialect.session_of(request) or SessionRef(context.run_id, request.user_id)
        name = (caller.owner, session.key)
        lock = await self._locks.take(name, supersede=_supersedes(self._route))
        if lock is None:
            raise _busy(self._dialect, session)
        self._mine[report.run_id] = lock
        try:
            return await super()._attended(http, context, report, request, caller)
        except asyncio.CancelledError:
            if lock.superseded is None:
                raise
            return self._unbegun(context, request, report, lock.superseded)
        finally:
            del self._mine[report.run_id]
            self._locks.leave(name)

    async def _run(self, context: Context, request: Request, caller: Caller, report: Report) -> Run:
        run = self._mine[report.run_id].run = await super()._run(context, request, caller, report)
        return run

    def _last_words(self, run: Run, report: Report) -> list[Event] | None:
        return self._mine[report.run_id].last_words() or super()._last_words(run, report)

    def _unbegun(self, context: Context, request: Request, report: Report, superseded: bool) -> web.StreamResponse:
        """The answer of a run that was stopped before anything of it was written."""
        head = RunStarted(context.run_id, context.thread_id, request.model, context.created_at)
        end = RunFailed(TAKEN_OVER) if superseded else RunFinished(FinishReason.CANCELED)
        report.status, report.http = "canceled", 200
        if not request.stream:
            return response_of(self._dialect.assemble([head, end], context))
        return web.Response(headers=STREAM_HEADERS, body=Writer(self._dialect, context).write([head, end]))


def _nothing(report: Report) -> web.StreamResponse:
    """The answer to somebody who wants to come back to a run that is not there: a stream without events."""
    report.status, report.http = "none", 200
    return web.Response(headers=STREAM_HEADERS)


# ------------------------------------------------------------------ over all processes


def _key(owner: str, route: Route, session: SessionRef) -> tuple[str, str, str]:
    return owner, route.path, session.key


class SingleRunDurableHandler(DurableHandler):
    """Serves the `run` endpoints of a durable route: a session is a thread of the run store."""

    def __init__(self, bridge: Bridge, route: Route, *more: Any) -> None:
        super().__init__(bridge, route, *more)
        self._dialect = require(route.dialect, SingleRunDialect)

    async def _answer(
        self, http: web.Request, context: Context, report: Report, wire: WireRequest | None = None
    ) -> web.StreamResponse:
        wire = await read_request(http, self._route.path, self._rules.max_body, self._rules.body_time)
        session = self._dialect.decode_reconnect(wire)
        if session is None:
            return await super()._answer(http, context, report, wire)
        check_kept(http)
        record = await self._bridge.runs.running(*_key(http[USER], self._route, session))
        if record is None:
            return _nothing(report)
        async with self._limiter.reader_slot(http[USER]):
            return await self._read_on(http, record.key, cursor_of(http), context, report)

    async def _begin(self, key: RunKey, plan: RunPlan, mark: str) -> RunKey:
        """Starts the run when its session is free, or made free; else raises `RequestError` (conflict)."""
        runs, clock = self._bridge.runs, asyncio.get_running_loop().time
        named = self._dialect.session_of(plan.request)
        session = named or SessionRef(key.thread_id, plan.request.user_id)
        key = RunKey(*_key(key.owner, self._route, session), key.run_id)
        until = clock() + _PATIENCE
        while True:
            try:
                await runs.start(key, plan, mark, alone=True)
                return key
            except ThreadBusy:
                if not _supersedes(self._route) or clock() >= until:
                    raise _busy(self._dialect, session) from None
            other = await runs.running(key.owner, key.scope, key.thread_id)
            if other is not None:
                await runs.cancel(other.key, SUPERSEDED)
                await runs.ended(other.key, until - clock())


# ------------------------------------------------------------------ stop


class StopHandler:
    """Serves the `stop` endpoints of one route. What is not there, or somebody else's, is not running."""

    def __init__(self, bridge: Bridge, route: Route, locks: SessionLocks) -> None:
        self._bridge = bridge
        self._route = route
        self._dialect = require(route.dialect, SingleRunDialect)
        self._locks = locks

    async def __call__(self, http: web.Request) -> web.StreamResponse:
        server = self._bridge.config.server
        wire = await read_request(http, self._route.path, server.max_body, server.body_time)
        session, owner = self._dialect.decode_stop(wire), http[USER]
        if self._route.durable:
            stopped = await self._cancel(await self._bridge.runs.running(*_key(owner, self._route, session)))
        else:
            stopped = self._locks.stop((owner, session.key))
        return response_of(self._dialect.encode_stopped(wire, stopped))

    async def _cancel(self, record: RunRecord | None) -> bool:
        if record is not None:
            await self._bridge.runs.cancel(record.key)
        return record is not None
