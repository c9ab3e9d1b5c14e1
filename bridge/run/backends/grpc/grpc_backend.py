"""Calls backends over gRPC: sessions in both directions, and short questions. Messages stay bytes.

A session that is not wanted any more is stopped and drained: some agents never answer again after a cancel.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping, Sequence

import grpc
import grpc.aio

from bridge.contract import (
    Context,
    Dialect,
    Embeddings,
    EmbeddingsRequest,
    Losses,
    ModelInfo,
    ModelsDialect,
    Options,
    SessionDialect,
    ToolHostDialect,
    WireRequest,
    WireResponse,
    require,
)
from bridge.contract.naming import ModelNames
from bridge.contract.optional.sessions import ClientTools
from bridge.errors import BackendError, Failure, Unsupported
from bridge.model import Event, Request, RunFailed, ToolCall, ToolResult
from bridge.model.error_paths import place_of_message
from bridge.model.events import TERMINAL
from bridge.run.backend import BaseCall, CallInfo, ConfiguredBackend, Timeouts
from bridge.run.backends.grpc.channels import Metadata, call_unary, failure_of, metadata_of, open_channel
from bridge.run.backends.grpc.client_tools import ClientToolBroker
from bridge.run.backends.grpc.grpc_session import Session, WaitingSession, results_in
from bridge.run.breaker import CircuitBreaker
from bridge.run.retries import RetryPolicy
from bridge.run.tools.tool_sources import ToolSource
from bridge.toolkit.redact import Secrets

log = logging.getLogger("bridge.grpc")

_SENDABLE = re.compile(r"[ -~]*")
_ADVICE = {
    "UNAUTHENTICATED": "the api_key",
    "PERMISSION_DENIED": "the api_key",
    "UNAVAILABLE": "the url",
    "UNIMPLEMENTED": "the url and the dialect",
    "NOT_FOUND": "the agent in its options, or the model",
}
"""What to check, by the status of a call."""


class GrpcBackend(ConfiguredBackend):
    """A configured backend of a dialect over gRPC. `url` is `host:port`."""

    def __init__(
        self,
        name: str,
        dialect: SessionDialect,
        url: str,
        *,
        api_key: str | None = None,
        names: ModelNames | None = None,
        headers: Mapping[str, str] | None = None,
        forward_headers: tuple[str, ...] = (),
        timeouts: Timeouts | None = None,
        retry: RetryPolicy | None = None,
        breaker: CircuitBreaker | None = None,
        options: Options | None = None,
    ) -> None:
        super().__init__(name, dialect.capabilities, names, timeouts, retry, breaker)
        self.dialect = dialect
        self.options = options if options is not None else dialect.back_options()
        self.settings = dialect.channel(self.options)
        own = {name.lower(): value for name, value in (headers or {}).items()}
        self._own = {**dict(metadata_of(dialect, api_key)), **own}
        self.secrets = Secrets.sent(api_key, self._own)
        self._forward = frozenset(name.lower() for name in forward_headers)
        self._address = url
        self._api_key = api_key or ""
        self._channel: grpc.aio.Channel | None = None
        self._sessions: dict[str, Session] = {}
        self._holding: dict[str, WaitingSession] = {}

    async def start(self) -> None:
        if self._channel is None:
            self._channel = open_channel(self._address, self.settings)

    async def close(self) -> None:
        """Stops sessions that are kept or held, gives those that stop their grace, and closes the connection."""
        for held in {id(held): held for held in self._holding.values()}.values():
            self._let_go(held)
        for key in list(self._sessions):
            self.stop(self._sessions.pop(key))
        if self._chores:
            await asyncio.gather(*self._chores, return_exceptions=True)
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    @property
    def channel(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise RuntimeError(f"backend {self.name!r} is not started")
        return self._channel

    def forwards(self, headers: Mapping[str, str], front: Dialect) -> dict[str, str]:
        """Drop headers that gRPC cannot carry, such as non-ASCII ones, as they would fail the call."""
        found = {name: headers[name] for name in self._forward if name in headers}
        return {name: value for name, value in found.items() if _SENDABLE.fullmatch(value)}

    def _metadata(self, forwarded: Mapping[str, str]) -> Metadata:
        """Return the metadata of a call; the backend's configured values take precedence."""
        return tuple({**forwarded, **self._own}.items())

    def call(self, request: Request, info: CallInfo, lost: Losses) -> GrpcCall:
        model = self.model_for(request.model)
        context = Context(info.run_id, info.thread_id, info.created_at, self.options, model, request, lost)
        key = self.dialect.session_key(request, context)
        if (held := self._held_for(request, info)) is not None:
            self._forget(held)
            held.session.machine.resume(context)
            return GrpcCall(
                self, held.session, [], context, held.key, info.owner, answers=(held.call_ids, results_in(request))
            )
        kept = self._sessions.pop(f"{info.owner}\0{key}", None) if key is not None else None
        if kept is not None and kept.usable:
            session = kept
        else:
            session = Session(self, self.dialect.caller(context), self._metadata(info.forwarded))
        try:
            messages = session.machine.ask(request, context)
            tools = session.machine.tools(request, context)
        except BaseException:
            if session is kept:
                self.stop(session)
            raise
        name = f"{info.owner}\0{key}" if key is not None else None
        return GrpcCall(self, session, messages, context, name, info.owner, tools)

    def hold(self, session: Session, calls: Sequence[ToolCall], owner: str, key: str | None) -> None:
        """Keep a session whose agent waits for results of these calls, for as long as it waits."""
        assert session.broker is not None
        held = WaitingSession(session, tuple(call.call_id for call in calls), owner, key)
        self._holding.update(dict.fromkeys(held.names, held))
        session.timer = asyncio.get_running_loop().call_later(session.broker.tools.wait, self._let_go, held)

    def _held_for(self, request: Request, info: CallInfo) -> WaitingSession | None:
        """The session that waits for results which the request brings. Raises `Unsupported` for more than results."""
        found = (self._holding.get(f"{info.owner}\0{call_id}") for call_id in results_in(request))
        held = next((each for each in found if each is not None), None)
        if held is not None and request.messages[-1].role == "user":
            place = place_of_message(request.messages[-1]) or f"messages[{len(request.messages) - 1}]"
            text = "expected only the tool results that the agent waits for, but a user message follows them."
            raise Unsupported(f"{place}: {text}", param=place)
        return held

    def _forget(self, held: WaitingSession) -> None:
        for name in held.names:
            self._holding.pop(name, None)
        if held.session.timer is not None:
            held.session.timer.cancel()

    def _let_go(self, held: WaitingSession) -> None:
        """End the turn for an agent whose client brought no results, and drop its reply."""
        self._forget(held)
        self.stop(held.session)

    def keep(self, key: str, session: Session) -> None:
        """Keeps a session for the next request of its conversation, until it was idle for too long."""
        other = self._sessions.get(key)
        if other is not None:
            self.stop(other)
        self._sessions[key] = session

        def expired() -> None:
            if self._sessions.get(key) is session:
                self.stop(self._sessions.pop(key))

        session.timer = asyncio.get_running_loop().call_later(self.settings.idle, expired)

    def stop(self, session: Session) -> None:
        """Ends a session as its protocol wants it, beside the runs."""
        self.later(session.drain(self.settings.grace))

    async def models(self) -> list[ModelInfo]:
        if not isinstance(self.dialect, ModelsDialect):
            return []
        wire = self.dialect.models_request()
        try:
            body = await self.ask(wire.path, wire.body, self.timeouts.of_question, {})
        except BackendError as error:
            if error.failure.backend_code == grpc.StatusCode.UNIMPLEMENTED.name:
                return []
            raise
        return self.dialect.decode_models(WireResponse(200, {"content-type": self.dialect.content_type}, body))

    async def check(self) -> None:
        try:
            async with asyncio.timeout(self.timeouts.connect):
                await self.channel.channel_ready()
        except TimeoutError:
            raise BackendError.of(self.timeouts.unreached()) from None

    async def count(self, request: Request, info: CallInfo) -> int | None:
        return None

    async def embed(self, asked: EmbeddingsRequest, info: CallInfo) -> Embeddings | None:
        return None

    def failure_of(self, path: str, code: grpc.StatusCode, details: str | None) -> Failure:
        """Return the failure that the status of a call means."""
        return self.explained(failure_of(self.dialect, code, details), path)

    def explained(self, failure: Failure, path: str) -> Failure:
        """Return the failure without secrets. Its cause names the call, and what an operator should check."""
        advice = _ADVICE.get(failure.backend_code or "", "")
        call = f"gRPC {self._address}{path} {failure.cause}"
        return self.secrets.explain(self.secrets.hide(failure), call, advice, self.name)

    async def ask(self, path: str, body: bytes, seconds: float, forwarded: Mapping[str, str]) -> bytes:
        """Return the answer to a single message, sent with `shown` and the configured headers. Raises
        `BackendError`.
        """
        try:
            return await call_unary(self.channel, self.dialect, path, body, seconds, self._metadata(forwarded))
        except BackendError as error:
            raise BackendError.of(self.explained(error.failure, path)) from None

    def broker(self, tools: ClientTools) -> ClientToolBroker:
        """Return the server of these client tools, registered at its address."""
        return ClientToolBroker(tools, self._address, self._api_key, self.dialect, self.settings)

    @property
    def tools(self) -> ToolSource:
        """The tools that are found at its address, of a dialect that offers some."""
        return ToolSource(require(self.dialect, ToolHostDialect), self.options, self.ask)


Answers = tuple[tuple[str, ...], dict[str, ToolResult]]
"""The calls that an agent waits for, and the client's results."""


class GrpcCall(BaseCall):
    """One turn. See `bridge.run.backend.Call` for what each method promises."""

    def __init__(
        self,
        backend: GrpcBackend,
        session: Session,
        messages: list[bytes],
        context: Context,
        key: str | None,
        owner: str,
        tools: ClientTools | None = None,
        answers: Answers | None = None,
    ) -> None:
        """`tools`: what the peer can find from this turn on; `answers`: results with which the session continues."""
        self.context = context
        super().__init__()
        self._backend = backend
        self._session: Session | None = session
        self._machine = session.machine
        self._messages = messages
        self._key = key
        self._owner = owner
        self._tools = tools
        self._answers = answers
        self._over = False

    @property
    def sent(self) -> WireRequest:
        return WireRequest("gRPC", self._machine.path, body=b"\n".join(self._messages))

    async def open(self) -> None:
        session = self._session
        assert session is not None, "open() after close()"
        if session.late:
            log.warning("run %s: late messages of the previous turn are part of this one", self.context.run_id)
        try:
            async with asyncio.timeout(self._backend.timeouts.connect):
                if self._answers is not None and session.broker is not None:
                    session.broker.answer(*self._answers)
                    return
                # Before the first call: the agent looks for them then.
                await session.offer(self._tools)
                await session.send(self._messages)
        except TimeoutError:
            raise BackendError.of(self._backend.timeouts.unreached()) from None

    async def read(self) -> list[Event]:
        if self._over:
            return []
        session = self._session
        assert session is not None, "read() after close()"
        due = self._machine.due
        messages = await session.batch(None if due is None else max(0.0, due - time.monotonic()))
        self.frames = [*(messages or ())]
        self.received += sum(map(len, messages or ()))
        if messages is None:
            events = self._machine.close(session.ended)
        elif messages:
            events = self._machine.feed(messages, time.monotonic())
        else:
            events = self._machine.wake(time.monotonic())
        if session.broker is not None and (not events or type(events[-1]) not in TERMINAL):
            events = [*events, *self._called(session, session.broker)]
        if events and type(events[-1]) in TERMINAL:
            self._over = self.wire_ended = True
            if isinstance(events[-1], RunFailed) and not events[-1].error.cause:
                self._told(events[-1].error, "answered with an error")
        return events

    def _called(self, session: Session, broker: ClientToolBroker) -> list[Event]:
        """End the turn with the agent's calls of client tools, and hold the session until the client returns."""
        calls = broker.take()
        if not calls:
            return []
        # Before the client knows of them: he may be back before this call is closed.
        self._backend.hold(session, calls, self._owner, self._key)
        self._session = None
        return self._machine.called(calls)

    def _told(self, failure: Failure, outcome: str) -> Failure:
        failure.cause = outcome
        return self._backend.explained(failure, self._machine.path)

    def fail(self, failure: Failure) -> list[Event]:
        self._over = True
        self._key = None
        return self._machine.close(self._told(failure, "fell silent" if self.received else "has not answered"))

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        if self._over and self._key is not None and not self._machine.over and session.usable:
            self._backend.keep(self._key, session)
        else:
            self._backend.stop(session)
