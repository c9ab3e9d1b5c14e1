"""A session of a client with an agent of the bridge over gRPC: inquiries in order, each a run, its answers, the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import grpc
import grpc.aio

from bridge.contract import Context, Losses, WireRequest
from bridge.contract.optional.sessions import CalleeSession
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route, RunCaller
from bridge.errors import BridgeError, ErrorCode, Failure, log_unexpected
from bridge.model import Event, RunFailed, RunStarted
from bridge.run.run import Run
from bridge.server.operations.run_endpoint import shown_model
from bridge.server.requests.access_log import AccessRecord
from bridge.server.requests.limits import RouteLimiter, ServerLimits
from bridge.server.requests.spans import spanned_turn

log = logging.getLogger("bridge.grpc")

_QUEUE = 32
"""Inquiries of one session that wait for their turn; then its client has to wait."""


class ServedSession:
    """A session with an agent of the bridge: inquiries are read ahead and answered one after the other."""

    def __init__(
        self, session: CalleeSession, route: Route, turns: TurnRunner, rpc: Any, leaving: asyncio.Event
    ) -> None:
        self._session = session
        self._route = route
        self._turns = turns
        self._rpc = rpc
        self._leaving = leaving
        self._questions: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUE)
        self._turn: asyncio.Task[None] | None = None

    async def run(self, first: bytes, idle: float) -> None:
        loop = asyncio.get_running_loop()
        listening = loop.create_task(self._listen(first, idle))
        leaving = loop.create_task(self._leaving.wait())
        try:
            while (body := await self._next(leaving)) is not None:
                self._turn = loop.create_task(self._turns.answer(self._session, self._route, body, self._rpc))
                await self._finish()
                if self._session.over:
                    return
            for frame in self._session.farewell():
                await self._rpc.write(frame)
        finally:
            tasks: list[asyncio.Task[Any]] = [listening, leaving, *([self._turn] if self._turn is not None else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _next(self, leaving: asyncio.Task[bool]) -> bytes | None:
        """Return the next inquiry; None if the session is to end."""
        if not self._questions.empty():
            return self._questions.get_nowait()
        question = asyncio.get_running_loop().create_task(self._questions.get())
        try:
            await asyncio.wait({question, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return question.result() if question.done() else None
        finally:
            question.cancel()

    async def _finish(self) -> None:
        """Waits for the turn, which the caller may have canceled by asking for the end."""
        assert self._turn is not None
        await asyncio.wait({self._turn})
        if not self._turn.cancelled():
            self._turn.result()

    async def _listen(self, first: bytes, idle: float) -> None:
        """Read ahead until the caller asks for the end, or is idle for `idle` seconds."""
        session = self._session
        message: Any = first
        # A call that broke is over: the next write fails, and no more messages arrive.
        with contextlib.suppress(grpc.aio.BaseError, asyncio.InvalidStateError):
            while message is not grpc.aio.EOF and not session.stopping:
                body = session.feed(message)
                if body is not None:
                    await self._questions.put(body)
                if not session.stopping:
                    message = await self._rpc.read()
        if session.stopping and session.cancels and self._turn is not None:
            self._turn.cancel()
        if not session.stopping:
            await asyncio.sleep(idle)
        await self._questions.put(None)


class SlowReader(Exception):
    """A client has left an answer unread for too long."""


class TurnRunner:
    """Runs one inquiry at a backend and writes its answers."""

    def __init__(self, bridge: Bridge, limits: ServerLimits) -> None:
        self._bridge = bridge
        self._limits = limits
        self._limiters: dict[str, RouteLimiter] = {}
        self._slow_reader = bridge.config.server.slow_reader

    async def answer(self, session: CalleeSession, route: Route, body: bytes, rpc: Any) -> None:
        """Answer one request. Errors are answers, too; a caller that leaves cancels the run."""
        run_id = uuid.uuid4().hex
        report = AccessRecord(run_id, route.path, route.dialect.name, run_id, host=self._bridge.host)
        context = Context(run_id, session.name, time.time(), route.options, lost=Losses())
        metadata = {key: value for key, value in rpc.invocation_metadata() if isinstance(value, str)}
        with spanned_turn(self._bridge.tracing, report, metadata):
            await self._reported(session, route, body, rpc, context, report)

    async def _reported(
        self, session: CalleeSession, route: Route, body: bytes, rpc: Any, context: Context, report: AccessRecord
    ) -> None:
        try:
            with self._bridge.counting():
                await self._run(session, route, body, rpc, context, report)
        except BridgeError as error:
            await self._failed(session, error.failure, rpc, context, report)
        except asyncio.CancelledError:
            report.status = report.status or "canceled"
            raise
        except SlowReader:
            report.status = "slow_reader"
            await rpc.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "The caller does not read the answers.")
        except Exception as error:
            log_unexpected(log, f"run {context.run_id} broke", error)
            failure = Failure(ErrorCode.INTERNAL, "The bridge failed while it handled this inquiry.")
            await self._failed(session, failure, rpc, context, report)
        finally:
            report.write()

    async def _run(
        self, session: CalleeSession, route: Route, body: bytes, rpc: Any, context: Context, report: AccessRecord
    ) -> None:
        request = route.dialect.decode_request(WireRequest(body=body), context)
        context.request, context.model = request, request.model
        # Callers choose these names themselves, so that they are separate from users of other routes.
        caller = session.user or f"{route.path}\0{session.owner}"
        await self._limits.check_rate(caller)
        self._limits.check_model(caller, request.model or route.usual_model(request))
        async with self._limiter(route).slot(caller):
            sender = RunCaller(
                session.user or session.owner,
                context.run_id,
                capabilities=route.capabilities,
                lost=context.lost,
                run_id=context.run_id,
                created_at=context.created_at,
            )
            run = await self._bridge.run(route, request, caller=sender)
            report.back = run.backend.name
            context.model = shown_model(run, context)
            encoder = session.encoder(context)
            try:
                async with contextlib.aclosing(_batches(run, session.flush)) as batches:
                    async for events in batches:
                        await self._write(encoder.encode(events), rpc, report)
            finally:
                report.of(run, caller)
                await run.close()

    def _limiter(self, route: Route) -> RouteLimiter:
        limiter = self._limiters.get(route.path)
        if limiter is None:
            limiter = self._limiters[route.path] = self._limits.at(route)
        return limiter

    async def _failed(
        self, session: CalleeSession, failure: Failure, rpc: Any, context: Context, report: AccessRecord
    ) -> None:
        report.ended(None, failure)
        encoder = session.encoder(context)
        events: list[Event] = [RunStarted(context.run_id, context.thread_id), RunFailed(failure)]
        await self._write(encoder.encode(events), rpc, report)

    async def _write(self, frames: Sequence[Any], rpc: Any, report: AccessRecord) -> None:
        """Raises `SlowReader`: who does not read holds a place that others wait for."""
        for frame in frames:
            data = frame if isinstance(frame, bytes) else frame.data
            report.sent += len(data)
            try:
                async with asyncio.timeout(self._slow_reader):
                    await rpc.write(data)
            except TimeoutError:
                raise SlowReader from None


async def _batches(run: Run, seconds: float) -> AsyncGenerator[list[Event], None]:
    """The events of a run as they come; where `seconds` are given, those that come so soon after others with these."""
    reading: asyncio.Task[list[Event]] | None = None
    loop = asyncio.get_running_loop()
    try:
        while not run.ended or reading is not None:
            if not seconds:
                yield await run.read()
                continue
            reading = reading or loop.create_task(run.read())
            await asyncio.wait({reading})
            events, reading = reading.result(), None
            due = loop.time() + seconds
            while not run.ended:
                reading = loop.create_task(run.read())
                # The read continues after its timeout: canceling it would cancel the run.
                await asyncio.wait({reading}, timeout=max(0.0, due - loop.time()))
                if not reading.done():
                    break
                events, reading = events + reading.result(), None
            yield events
    finally:
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
