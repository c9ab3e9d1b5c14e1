"""One process of an agent, or one connection to it: the sessions of one owner."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiohttp import ClientSession, WSServerHandshakeError

from bridge.contract import Context
from bridge.contract.optional.agents import AgentConnection, AgentLimits, Ask
from bridge.errors import KEY_REFUSED, UNKNOWN_THREAD, BackendError, ErrorCode, Failure
from bridge.jsonrpc import CarrierEnded, RpcConnection, RpcError, RpcNotification, RpcRequest
from bridge.jsonrpc.process import ProcessCarrier
from bridge.model import Request
from bridge.run.backends.agents.program import Program
from bridge.run.backends.agents.session import AgentSession, OpenPrompt
from bridge.toolkit.redact import Secrets

log = logging.getLogger("bridge.agents")

_SILENCE = 0.3
"""Seconds without a message after which a session that was loaded has told all that was said in it."""
_LAST_LINES = 5


class AgentProcess:
    """A running agent. `ended` is called once, when it is gone, with whether it ended by itself."""

    def __init__(
        self,
        name: str,
        owner: str,
        program: Program,
        agent: AgentConnection,
        limits: AgentLimits,
        secrets: Secrets,
        ended: Callable[[AgentProcess, bool], None],
    ) -> None:
        self.name = name
        self.owner = owner
        self.agent = agent
        self.sessions: dict[str, AgentSession] = {}
        self.promised = 0
        """Sessions that are about to begin here."""
        self.used = time.monotonic()
        self._program = program
        self._limits = limits
        self._secrets = secrets
        self._on_end = ended
        self._rpc: RpcConnection | None = None
        self._watch: asyncio.Task[None] | None = None
        self._chore: asyncio.Task[None] | None = None
        self._closing = False
        self._folder = ""

    # ------------------------------------------------------------------ life

    async def start(self, http: ClientSession | None) -> None:
        """Start the agent and greet it. Raises `BackendError`; nothing is left running then."""
        try:
            async with asyncio.timeout(self._limits.start):
                await self._start(http)
        except TimeoutError:
            text = f"The agent was not ready within {self._limits.start:g} s (options.start_timeout)."
            failure = Failure(ErrorCode.BACKEND_TIMEOUT, text)
            failure = self._explained(failure, f"did not get ready{self._last_words()}")
            await self.close()
            raise BackendError.of(failure) from None
        except BackendError:
            await self.close()
            raise
        except BaseException:
            await asyncio.shield(self.close())
            raise

    async def _start(self, http: ClientSession | None) -> None:
        try:
            self._folder = self._program.folder(self.owner)
            carrier = await self._program.connect(self._folder, http)
        except (CarrierEnded, OSError) as error:
            said = str(error) if isinstance(error, CarrierEnded) else f"its folder cannot be made ({error.strerror})"
            failure = Failure(ErrorCode.BACKEND_UNAVAILABLE, "The agent could not be started.")
            if isinstance(error.__cause__, WSServerHandshakeError) and error.__cause__.status in (401, 403):
                failure = Failure(ErrorCode.BACKEND_AUTH, KEY_REFUSED)
            raise BackendError.of(self._explained(failure, f"could not be started: {said}")) from None
        agent = self.agent
        self._rpc = RpcConnection(
            carrier,
            requests=dict.fromkeys(agent.questions, self._question),
            notifications={**dict.fromkeys(agent.notifications, self._said), agent.withdrawal: self._withdrawn},
            answers_invalid=False,
            max_frame=self._program.max_frame,
        )
        await self._rpc.__aenter__()
        self._watch = asyncio.create_task(self._until_end(self._rpc))
        for ask in agent.hello():
            agent.greeted(ask.method, await self.ask(ask))

    async def _until_end(self, rpc: RpcConnection) -> None:
        why = await rpc.wait()
        self.sessions.clear()
        if not self._closing:
            log.warning("backend %s: an agent ended by itself: %s%s", self.name, why, self._last_words())
        self._on_end(self, not self._closing)

    async def close(self) -> None:
        """End the agent and all that it started. Repeating it is harmless."""
        self._closing = True
        for session in self.sessions.values():
            if session.prompt is not None:
                session.prompt.discard()
        if self._rpc is not None:
            await self._rpc.close()
        if self._watch is not None:
            await asyncio.shield(self._watch)
        elif self._rpc is None:
            self._on_end(self, False)

    @property
    def alive(self) -> bool:
        return self._rpc is not None and self._rpc.ended is None and not self._closing

    @property
    def has_room(self) -> bool:
        return len(self.sessions) + self.promised < self._limits.sessions

    @property
    def is_idle(self) -> bool:
        """Return whether nobody needs it now."""
        return not self.promised and all(session.is_idle for session in self.sessions.values())

    # ------------------------------------------------------------------ asking

    async def ask(self, ask: Ask, seconds: float | None = None) -> Any:
        """Return the result of a request. Raises `BackendError`."""
        try:
            return await self._connection.call(ask.method, ask.params, timeout=seconds)
        except RpcError as error:
            raise BackendError.of(self.failed(error, ask.method)) from None
        except CarrierEnded as error:
            raise BackendError.of(self.gone(error)) from None

    async def notify(self, ask: Ask) -> None:
        """Send a notification. An agent that is gone is noticed where its answers are read."""
        with suppress(CarrierEnded):
            await self._connection.notify(ask.method, ask.params)

    @property
    def _connection(self) -> RpcConnection:
        assert self._rpc is not None
        return self._rpc

    def failed(self, error: RpcError, method: str) -> Failure:
        """Return the failure of a request that was refused."""
        failure = self._secrets.hide(self.agent.failure(error.members))
        cause = f"answered {method} with the error {error.code}. {failure.cause}".strip()
        return self._explained(failure, cause)

    def gone(self, error: BaseException) -> Failure:
        """Return the failure of a run whose agent is gone."""
        failure = Failure(ErrorCode.BACKEND_UNAVAILABLE, "The agent ended, or its connection broke.")
        return self._explained(failure, f"is gone: {error}{self._last_words()}")

    def _explained(self, failure: Failure, outcome: str) -> Failure:
        return self._secrets.explain(failure, f"The agent ({self._program.shown}) {outcome}", "", self.name)

    def _last_words(self) -> str:
        """Return the last lines of the agent's standard error, without keys, for the log."""
        carrier = self._rpc.carrier if self._rpc is not None else None
        if not isinstance(carrier, ProcessCarrier):
            return ""
        lines = [line for line in carrier.stderr.splitlines() if line.strip()][-_LAST_LINES:]
        return f"; its last output: {self._secrets.text(' | '.join(lines))}" if lines else ""

    # ------------------------------------------------------------------ sessions

    async def begin(self) -> AgentSession:
        """Begin a session. Raises `BackendError`."""
        result = await self._timed(self.agent.begin(self._folder))
        session = AgentSession(self, self.agent.session_opened(result))
        if session.id in self.sessions:
            text = "The agent began a session with the id of another one."
            raise BackendError(text, code=ErrorCode.BACKEND_PROTOCOL)
        self.sessions[session.id] = session
        return session

    async def restore(self, session_id: str) -> AgentSession:
        """Continue a session of an earlier process. Raises `BridgeError`; `UNKNOWN_THREAD` in its details says that
        the agent does not have the session.
        """
        ways = self.agent.restore(session_id, self._folder)
        if not ways:
            raise BackendError.of(_unknown_thread("it cannot go on with sessions of an earlier process"))
        session = self.sessions[session_id] = AgentSession(self, session_id)
        try:
            ask, result = await self._restored(ways)
            self.agent.session_opened(result, session_id)
            if self.agent.replays(ask):
                await self._until_silent(session)
        except BaseException:
            self.sessions.pop(session_id, None)
            raise
        session.fresh = False
        return session

    async def _restored(self, ways: list[Ask]) -> tuple[Ask, Any]:
        """Return the first request that restores a session, and its result. Some agents promise what they cannot."""
        ask, *others = ways
        try:
            return ask, await self._connection.call(ask.method, ask.params, timeout=self._limits.start)
        except RpcError as error:
            if others and self.agent.unknown(error.members):
                return await self._restored(others)
            if self.agent.forgot(error.members):
                raise BackendError.of(_unknown_thread(f"{ask.method}: {error.code}")) from None
            raise BackendError.of(self.failed(error, ask.method)) from None
        except CarrierEnded as error:
            raise BackendError.of(self.gone(error)) from None
        except TimeoutError:
            raise BackendError.of(self._unanswered(ask.method)) from None

    async def _until_silent(self, session: AgentSession) -> None:
        """Some agents answer first and tell the old conversation afterwards."""
        session.heard = began = time.monotonic()
        while (left := session.heard + _SILENCE - time.monotonic()) > 0 and self.alive:
            if time.monotonic() - began > self._limits.start:
                break
            await asyncio.sleep(left)

    async def forget(self, session: AgentSession) -> bool:
        """End an idle session. Return False if the agent cannot end one."""
        ask = self.agent.end(session.id)
        if ask is None:
            return False
        self.sessions.pop(session.id, None)
        with suppress(BackendError, TimeoutError):
            await self.ask(ask, self._limits.grace)
        return True

    async def _timed(self, ask: Ask) -> Any:
        try:
            return await self.ask(ask, self._limits.start)
        except TimeoutError:
            raise BackendError.of(self._unanswered(ask.method)) from None

    def _unanswered(self, method: str) -> Failure:
        text = f"The agent did not answer within {self._limits.start:g} s (options.start_timeout)."
        return self._explained(Failure(ErrorCode.BACKEND_TIMEOUT, text), f"did not answer {method}")

    # ------------------------------------------------------------------ prompts

    async def prompt(self, session: AgentSession, request: Request, context: Context) -> tuple[OpenPrompt, Ask]:
        """Send a prompt. Raises `Unsupported` for what the agent does not take, and `BackendError`."""
        ask = self.agent.prompt(session.id, request, context, fresh=session.fresh)
        for setting in self.agent.settings(session.id, context):
            await self._timed(setting)
        work = asyncio.create_task(self._connection.call(ask.method, ask.params))
        prompt = session.prompt = OpenPrompt(self.agent.reading(context), work)
        session.fresh = False
        await asyncio.sleep(0)  # it is on its way before anything cancels it
        return prompt, ask

    async def abandon(self, session: AgentSession, prompt: OpenPrompt) -> None:
        """Cancel a prompt and wait for its end; end the process if it does not come."""
        prompt.reading.cancel()
        if not prompt.work.done() and self.alive:
            try:
                async with asyncio.timeout(self._limits.grace):
                    cancel = self.agent.cancel(session.id)
                    await self._connection.notify(cancel.method, cancel.params)
                    prompt.discard()
                    await asyncio.wait({prompt.work})
            except (TimeoutError, CarrierEnded):
                if self.alive:
                    log.warning("backend %s: a canceled prompt did not end, so its process is ended", self.name)
        prompt.discard()
        if not prompt.work.done():
            await self.close()
            prompt.work.cancel()
        await asyncio.wait({prompt.work})
        if session.prompt is prompt:
            session.prompt = None
        session.used = self.used = time.monotonic()

    # ------------------------------------------------------------------ what the agent says

    async def _said(self, notification: RpcNotification) -> None:
        message = notification.members
        session = self.sessions.get(self.agent.session_of(message) or "")
        self.agent.note(message)
        if session is None:
            return
        session.heard = time.monotonic()
        if session.prompt is not None:
            if session.prompt.parked and session.prompt.floods:
                log.warning("backend %s: an agent floods while it waits for an answer; it is canceled", self.name)
                session.prompt.discard()
                self._chore = asyncio.create_task(self.abandon(session, session.prompt))
                return
            await session.prompt.put(message)

    async def _question(self, request: RpcRequest) -> Any:
        message = request.members
        session = self.sessions.get(self.agent.session_of(message) or "")
        prompt = session.prompt if session is not None else None
        answer = await prompt.ask(message) if prompt is not None else None
        return answer or self.agent.dismiss(message)

    async def _withdrawn(self, notification: RpcNotification) -> None:
        withdrawn = self.agent.withdrawn(notification.members)
        if isinstance(withdrawn, (str, int, float)):
            self._connection.cancel(withdrawn)


def _unknown_thread(cause: str) -> Failure:
    text = "The agent does not know this conversation any more."
    return Failure(ErrorCode.NOT_FOUND, text, details={UNKNOWN_THREAD: True}, cause=f"The agent: {cause}")
