"""Agents as a backend: a run is a prompt of a session, or the rest of one after the answer to a question."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from bridge.contract import Context, Dialect, Embeddings, EmbeddingsRequest, Losses, ModelInfo, Options, WireRequest
from bridge.contract.naming import ModelNames
from bridge.contract.optional.agents import AgentConnection, AgentDialect
from bridge.errors import BackendError, BridgeError, ErrorCode, Failure, RequestError, Unsupported, unexpected_failure
from bridge.jsonrpc import CarrierEnded, RpcError
from bridge.model import Event, Request, RunFailed, Text
from bridge.model.error_paths import place_of_message
from bridge.model.jsontext import dumps
from bridge.run.backend import BaseCall, CallInfo, ConfiguredBackend, Timeouts
from bridge.run.backends.agents.pool import AgentPool
from bridge.run.backends.agents.program import Program
from bridge.run.backends.agents.session import AgentSession, OpenPrompt, Received, outcome
from bridge.run.breaker import CircuitBreaker
from bridge.run.retries import RetryPolicy
from bridge.toolkit.redact import Secrets

log = logging.getLogger("bridge.agents")

_BY_CLIENT = "client\0"
"""Before names of threads that clients chose: none of them is the name of a session."""


class AgentBackend(ConfiguredBackend):
    """A configured agent."""

    def __init__(
        self,
        name: str,
        dialect: AgentDialect,
        program: Program,
        *,
        api_key: str | None = None,
        names: ModelNames | None = None,
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        breaker: CircuitBreaker | None = None,
        options: Options | None = None,
    ) -> None:
        super().__init__(name, dialect.capabilities, names, timeouts, retry, breaker)
        self.dialect = dialect
        self.options = options if options is not None else dialect.back_options()
        self.limits = dialect.limits(self.options)
        self.permissions = dialect.permissions(self.options)
        secrets = Secrets.sent(api_key, program.headers, "", *program.env.values())
        self.pool = AgentPool(name, program, self.limits, secrets, self._connection)

    @classmethod
    def at(cls, name: str, dialect: AgentDialect, url: str, *, api_key: str | None = None, **settings: Any) -> Self:
        """Return the backend for the agent at the URL of a WebSocket, in the working directory."""
        headers = dialect.auth_headers(api_key) if api_key else {}
        program = Program(str(Path.cwd()), url=url, headers=headers)
        return cls(name, dialect, program, api_key=api_key, **settings)

    def _connection(self) -> AgentConnection:
        return self.dialect.connection(self.options, asks=self.permissions == "ask")

    async def start(self) -> None:
        """Agents are started when they are needed."""

    async def close(self) -> None:
        """End all processes, after the canceled prompts had their time."""
        if self._chores:
            await asyncio.gather(*self._chores, return_exceptions=True)
        await self.pool.close()

    def forwards(self, headers: Mapping[str, str], front: Dialect) -> dict[str, str]:
        """A process serves many requests, so that it gets no headers of one."""
        return {}

    async def models(self) -> list[ModelInfo]:
        """An agent names its models in a session only."""
        return []

    async def check(self) -> None:
        self.pool.program.check()

    async def count(self, request: Request, info: CallInfo) -> int | None:
        return None

    async def embed(self, asked: EmbeddingsRequest, info: CallInfo) -> Embeddings | None:
        return None

    def call(self, request: Request, info: CallInfo, lost: Losses) -> AgentCall:
        model = self.model_for(request.model)
        context = Context(info.run_id, info.thread_id, info.created_at, self.options, model, request, lost)
        return AgentCall(self, request, info, context)

    # ------------------------------------------------------------------ open prompts

    def park(self, session: AgentSession, prompt: OpenPrompt) -> None:
        """Keep a prompt open whose agent waits for a person; cancel it when nobody answers."""
        loop = asyncio.get_running_loop()
        prompt.timer = loop.call_later(self.limits.park, self._give_up, session, prompt)
        self.pool.release(session)

    def _give_up(self, session: AgentSession, prompt: OpenPrompt) -> None:
        log.info("backend %s: a question of the agent was not answered within %g s", self.name, self.limits.park)
        prompt.timer = None
        self.later(self._abandon(session, prompt))

    async def _abandon(self, session: AgentSession, prompt: OpenPrompt) -> None:
        async with session.lock:
            if session.prompt is prompt and not prompt.parked:
                await session.process.abandon(session, prompt)

    async def leave(self, session: AgentSession, prompt: OpenPrompt) -> None:
        """Cancel the prompt of a run that is over from this side, and release the session."""
        try:
            await session.process.abandon(session, prompt)
        finally:
            self.pool.release(session)


class AgentCall(BaseCall):
    """One run. See `bridge.run.backend.Call` for what each method promises."""

    def __init__(self, backend: AgentBackend, request: Request, info: CallInfo, context: Context) -> None:
        self.context = context
        super().__init__()
        self.sent: WireRequest | None = None
        self._backend = backend
        self._request = request
        self._info = info
        self._session: AgentSession | None = None
        self._prompt: OpenPrompt | None = None
        self._policy = backend.permissions
        if self._policy == "ask" and not info.may_ask:
            self._policy = "reject"
        self._asked_again: list[Event] = []
        self._over = False

    @property
    def awaits_whole(self) -> bool:
        """A tool that runs for minutes says nothing."""
        return self._prompt is not None and self._prompt.reading.runs_tool

    # ------------------------------------------------------------------ the beginning

    async def open(self) -> None:
        pool = self._backend.pool
        session_id, name = self._names()
        if self._request.resume and not self._leaves_questions:
            await self._resume(session_id)
            return
        while True:
            session = self._session = await self._opened(name)
            if session.prompt is None:
                break
            # The person says something else instead of an answer.
            await session.process.abandon(session, session.prompt)
            if session.usable:
                break
            self._session = None
            pool.release(session)
        if name is None and self.context.thread_id is None:
            self.context.thread_id = session.id
        self._prompt, ask = await session.process.prompt(session, self._request, self.context)
        self.sent = WireRequest("POST", ask.method, body=dumps(ask.params))

    def _names(self) -> tuple[str | None, str | None]:
        """Return the id of the session to continue, and the name under which the client continues it, if it is not
        the agent's. What clients call their threads is never taken for the id of a session.
        """
        thread = self._request.thread_id
        if self._info.thread_of_backend or not thread:
            return thread or None, None
        name = _BY_CLIENT + thread
        return self._backend.pool.named(self._info.owner, name), name

    @property
    def _leaves_questions(self) -> bool:
        """Return whether the person says something else, and leaves the questions of the agent."""
        return bool(self._request.messages) and all(each.decision != "resolved" for each in self._request.resume)

    async def _opened(self, name: str | None) -> AgentSession:
        """Return the session of the conversation, locked. Raises `BridgeError`."""
        pool, owner = self._backend.pool, self._info.owner
        if name is None:
            return await pool.open(owner, self._names()[0])
        async with pool.naming(owner, name):
            known = pool.named(owner, name)
            try:
                session = await pool.find_or_open(owner, known)
            except BackendError:
                raise
            except BridgeError as error:
                if known is None or error.code is not ErrorCode.NOT_FOUND:
                    raise
                # Nothing here knows what was said; the client sent what it has.
                session = await pool.find_or_open(owner, None)
            pool.name_session(owner, name, session.id)
        return await pool.locked(session) or await self._opened(name)

    async def _resume(self, session_id: str | None) -> None:
        """Answer the questions of the agent, which goes on with the same prompt. Raises `RequestError`."""
        answers = self._request.resume
        place = answers[0].place
        session = self._backend.pool.find(self._info.owner, session_id) if session_id is not None else None
        if session is None:
            raise _no_question(place)
        await session.lock.acquire()
        prompt = session.prompt
        found = prompt.answer(answers) if prompt is not None and prompt.parked else []
        if not session.usable or prompt is None or not found:
            self._backend.pool.release(session)
            raise _no_question(place)
        for message in self._request.messages:
            if message.role == "user" and any(not isinstance(part, Text) or part.text for part in message.parts):
                self._backend.pool.release(session)
                where = place_of_message(message) or "messages"
                text = "expected only the answer to the agent's question, but a message comes with it."
                raise Unsupported(f"{where}: {text}", param=where)
        assert prompt.timer is not None
        prompt.timer.cancel()
        prompt.timer = None
        self._session, self._prompt = session, prompt
        if self.context.thread_id is None:
            self.context.thread_id = session.id
        prompt.reading.resume(self.context)
        answered = [question for question, _ in found]
        left = [each for each in prompt.asked.values() if each not in answered and _waits(each)]
        prompt.asked.clear()
        for question, answer in found:
            assert question.answer is not None
            question.answer.set_result(answer.result)
        if any(answer.cancels for _, answer in found):
            await self._cancel(session)
        for question in left:
            self._asked_again += self._ask(prompt, question)
        self.sent = WireRequest("POST", "answer", body=dumps([answer.result for _, answer in found]))

    async def _cancel(self, session: AgentSession) -> None:
        """Ask the agent to end the prompt, whose answer is read as of any other."""
        cancel = session.process.agent.cancel(session.id)
        await session.process.notify(cancel)

    # ------------------------------------------------------------------ reading

    async def read(self) -> list[Event]:
        if self._over:
            return []
        session, prompt = self._session, self._prompt
        assert session is not None, "read() before open()"
        assert prompt is not None, "read() before open()"
        events, self._asked_again = self._asked_again, []
        if not events:
            await prompt.wait()
        self.frames = []
        taken = prompt.take()
        for received in taken:
            self.received += received.size
            self.frames.append(dumps(received.message))
            events += await self._one(session, prompt, received)
            if prompt.reading.ended:
                break
        if prompt.reading.ended:
            self._over = self.wire_ended = True
        elif prompt.waits:
            events += prompt.reading.park()
            self._over = self.wire_ended = True
            self._session = None
            self._backend.park(session, prompt)
        elif prompt.work.done() and not taken:
            events += self._ended(session, prompt)
        return events

    async def _one(self, session: AgentSession, prompt: OpenPrompt, received: Received) -> list[Event]:
        if received.answer is None:
            return prompt.reading.message(received.message)
        if self._policy == "ask":
            return self._ask(prompt, received)
        events, answer = prompt.reading.decide(received.message, self._policy)
        received.answer.set_result(answer.result)
        if answer.cancels:
            await self._cancel(session)
        return events

    def _ask(self, prompt: OpenPrompt, question: Received) -> list[Event]:
        events = prompt.reading.ask(question.message)
        prompt.asked[[*prompt.reading.questions][-1]] = question
        return events

    def _ended(self, session: AgentSession, prompt: OpenPrompt) -> list[Event]:
        """The agent has answered the prompt, or is gone."""
        self._over = True
        session.prompt = None
        result, error = outcome(prompt.work)
        process = session.process
        if error is None:
            self.wire_ended = True
            events = prompt.reading.answered(result)
        elif isinstance(error, RpcError):
            self.wire_ended = True
            events = prompt.reading.refused(error.members)
            if isinstance(events[-1], RunFailed) and events[-1].error.code is not ErrorCode.CANCELED:
                events[-1] = RunFailed(process.failed(error, "the prompt"))
        elif isinstance(error, (CarrierEnded, asyncio.CancelledError)):
            events = prompt.reading.broken(process.gone(error))
        else:
            failure = unexpected_failure(log, "a prompt failed", _exception(error), "sent this prompt")
            events = prompt.reading.broken(failure)
        self._session = None
        self._backend.pool.release(session)
        return events

    def fail(self, failure: Failure) -> list[Event]:
        self._over = True
        failure.cause = failure.cause or f"Agent {self._backend.name!r} fell silent"
        if self._prompt is not None:
            return self._prompt.reading.broken(failure)
        builder = self.context.builder()
        builder.fail(failure)
        return builder.take()

    # ------------------------------------------------------------------ the end

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        if session.prompt is None:
            self._backend.pool.release(session)
        else:
            self._backend.later(self._backend.leave(session, session.prompt))


def _waits(question: Received) -> bool:
    return question.answer is not None and not question.answer.done()


def _no_question(place: str) -> RequestError:
    text = f"{place}: the agent does not wait for an answer any more; ask it to go on, and it asks again."
    return RequestError(text, code=ErrorCode.CONFLICT, param=place)


def _exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
