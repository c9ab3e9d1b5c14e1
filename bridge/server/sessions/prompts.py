"""A prompt of a client: one run, or several with the client's answers between them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bridge.contract import Context
from bridge.contract.optional.rpc import Note, Params, Prompt, Question, RpcSession, RpcTurn
from bridge.errors import BridgeError, ErrorCode, RequestError
from bridge.jsonrpc import REQUEST_CANCELLED, RpcConnection, RpcError
from bridge.model import Answer, FinishReason, Folder, HistoryMode, Interrupted, Message, Request, Resume
from bridge.server.sessions.finishing import to_the_end
from bridge.server.sessions.host import RpcHost, RunScope
from bridge.server.sessions.session_store import Waiting

if TYPE_CHECKING:
    from bridge.engine.bridge import Bridge
    from bridge.engine.route import Route
    from bridge.run.run import Run

log = logging.getLogger("bridge.rpc")


@dataclass(slots=True)
class PromptOutcome:
    """What a prompt left: its messages, and the questions that wait for the next one."""

    messages: list[Message] = field(default_factory=list)
    waiting: Waiting = field(default_factory=Waiting)


class PromptRun:
    """Runs one prompt of a session. `outcome` is what there is to store, however it ended."""

    def __init__(
        self,
        host: RpcHost,
        connection: RpcConnection,
        session: RpcSession,
        turn: RpcTurn,
        prompt: Prompt,
        waiting: Waiting,
    ) -> None:
        """`waiting` are the questions that earlier prompts left open."""
        self.outcome = PromptOutcome(list(prompt.request.messages), waiting)
        self.is_canceled = False
        self.ended = asyncio.Event()
        self._host = host
        self._connection = connection
        self._session = session
        self._turn = turn
        self._request = prompt.request
        self._waiting = waiting
        self._task: asyncio.Task[Any] | None = None

    def cancel(self) -> None:
        """End the prompt, which is then answered as canceled. Repeating it is harmless."""
        if not self.is_canceled:
            self.is_canceled = True
            if self._task is not None:
                self._task.cancel()

    async def run(self) -> Params:
        """Return the result of the prompt. Raises `BridgeError` for a run that failed."""
        self._task = asyncio.current_task()
        try:
            bridge, route = await self._host.opened()
            return await self._runs(bridge, route)
        except asyncio.CancelledError:
            self._forgive()
            return await self._end(FinishReason.CANCELED)
        except BridgeError:
            await self._tell(self._turn.end(None)[0])
            raise
        finally:
            self._task = None

    async def _end(self, reason: FinishReason) -> Params:
        notes, result = self._turn.end(reason)
        await self._tell(notes)
        return result

    def _forgive(self) -> None:
        """Go on after a cancellation, if it was for the client's request; else raise it again."""
        if not self.is_canceled or self._task is None:
            raise asyncio.CancelledError
        self._task.uncancel()
        self._task = None  # a prompt is canceled once

    async def _runs(self, bridge: Bridge, route: Route) -> Params:
        from bridge.run.conversation.interrupts import formed

        request = self._first()
        while True:
            async with self._host.running() as scope:
                run = await self._begun(bridge, route, request, scope)
                answer = await self._read(run, request, scope)
            if self.is_canceled:
                return await self._end(FinishReason.CANCELED)
            if answer.failure is not None:
                if answer.failure.code is ErrorCode.CONFLICT:
                    # What waited is not known any more where it was asked.
                    self.outcome.waiting = Waiting()
                    if request.resume and request.messages and not any(m.parts for m in answer.messages):
                        request.resume = []
                        continue
                raise BridgeError.of(answer.failure)
            asked, reason = list(answer.interrupts), answer.reason or FinishReason.STOP
            self.outcome.waiting = Waiting(asked)
            if reason is not FinishReason.INTERRUPTED or not asked:
                return await self._end(reason)
            answers = await self._ask(asked)
            if answers is None:
                return await self._end(FinishReason.CANCELED if self.is_canceled else FinishReason.STOP)
            request = Request([], resume=formed(asked, answers))

    def _first(self) -> Request:
        """The request of the prompt. Questions that were told are answered by its text, others are withdrawn."""
        request = self._request
        if self._waiting.told:
            request.open_interrupts = list(self._waiting.asked)
        else:
            request.resume = [Resume(asked.interrupt_id, "cancelled") for asked in self._waiting.asked]
        return request

    async def _begun(self, bridge: Bridge, route: Route, request: Request, scope: RunScope) -> Run:
        from bridge.engine.route import RunCaller  # when the bridge is open: the first call is answered without it

        session, name = self._session, self._host.dialect.name
        request.thread_id, request.history = session.id, HistoryMode.DELTA
        request.model = session.model
        self._host.check_model(request.model or route.usual_model(request))
        known = request.extra(name).get("notes") or {}
        request.extras = {**(request.extras or {}), name: {"notes": {**session.about, **known}}}
        caller = RunCaller(
            self._host.owner,
            scope.request_id,
            self._host.headers,
            capabilities=route.capabilities,
            lost=scope.lost,
            run_id=scope.run_id,
        )
        try:
            return await bridge.run(route, request, caller=caller)
        except RequestError as error:
            if error.code is not ErrorCode.CONFLICT or not (request.resume and request.messages):
                raise
            # What waited is known to nobody any more.
            request.resume = []
            return await bridge.run(route, request, caller=caller)

    async def _read(self, run: Run, request: Request, scope: RunScope) -> Answer:
        """Write the events of a run as they come, and return the whole answer."""
        folder = Folder()
        context = Context(scope.run_id, self._session.id, time.time(), None, request.model, request, scope.lost)
        self._turn.begin(context)
        scope.began(run)
        try:
            try:
                while not run.ended:
                    events = await run.read()
                    folder.feed(events)
                    scope.wrote(await self._tell(self._turn.encode(events)))
            except asyncio.CancelledError:
                events = run.cancel()
                folder.feed(events)
                self._forgive()
                await self._tell(self._turn.encode(events))
        finally:
            # Also of a client that has left: it finds what it saw when it comes back.
            self.outcome.messages += [m for m in folder.answer.messages if m.parts]
            await to_the_end(run.close())  # which stores the conversation
        return folder.answer

    async def _tell(self, notes: Sequence[Note]) -> int:
        """Send notifications, and return their bytes."""
        return sum([await self._connection.notify(method, params) for method, params in notes])

    # ------------------------------------------------------------------ questions

    async def _ask(self, asked: Sequence[Interrupted]) -> list[Resume] | None:
        """Return the answers to all questions of a run; None if the next prompt has to give them, or none comes."""
        found: list[tuple[Interrupted, list[Note], Question | None]] = [(a, *self._turn.ask(a)) for a in asked]
        if any(question is None for _, _, question in found):
            for each in asked:
                await self._tell(self._turn.tell(each))
            self.outcome.waiting.told = True
            return None
        answers: list[Resume] = []
        for _, notes, _ in found:
            await self._tell(notes)
        for each, _, question in found:
            assert question is not None
            try:
                answer = await self._answer(question)
            except asyncio.CancelledError:
                self._forgive()
                answer = None
            if answer is None:
                # One that is left is left with all others: the client has canceled the prompt.
                self.is_canceled = True
                for other in asked:
                    await self._tell(self._turn.settled(other, None))
                return None
            await self._tell(self._turn.settled(each, answer))
            answers.append(answer)
        return answers

    async def _answer(self, question: Question) -> Resume | None:
        try:
            result = await self._connection.call(question.method, question.params)
        except RpcError as error:
            if error.code == REQUEST_CANCELLED:
                return None
            log.warning("the client answers %s with the error %d: nothing is allowed", question.method, error.code)
            return question.refused
        return question.read(result)
