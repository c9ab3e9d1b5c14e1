"""Calls backends over gRPC: sessions in both directions, and short questions. Messages stay bytes.

A session that is not wanted any more is stopped and drained: some agents never answer again after a cancel.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bridge.codec import Card, Context, Dialect, FrameLike, Losses, ModelInfo, Options, WireRequest, WireResponse
from bridge.codec.naming import ModelNames
from bridge.codec.session import CallerSession, Channel
from bridge.errors import BackendError, ErrorCode, Failure
from bridge.model import Event, Request
from bridge.model.events import TERMINAL
from bridge.pipeline.backend import CallInfo, Timeouts
from bridge.pipeline.breaker import Breaker
from bridge.pipeline.tools import ToolSource
from bridge.pipeline.tries import Budget, Retry
from bridge.transports.duplex import Duplex

log = logging.getLogger("bridge.grpc")

_STATUS = "grpc-status"

_LARGE = re.compile(r"Received message larger than max \((\d+) vs\. (\d+)\)")
"""What grpc says on both sides of a call; only the size tells whose message it was."""


def channel_options(settings: Channel) -> list[tuple[str, int]]:
    """The arguments of a channel or server."""
    return [
        ("grpc.max_receive_message_length", settings.max_message),
        ("grpc.max_send_message_length", settings.max_message),
    ]


def open_channel(address: str, settings: Channel) -> grpc.aio.Channel:
    """A channel, made inside the running loop; it connects at first use. Raises `OSError` for unreadable files."""
    options = channel_options(settings)
    if not settings.secure:
        return grpc.aio.insecure_channel(address, options=options)
    credentials = grpc.ssl_channel_credentials(_pem(settings.ca), _pem(settings.key), _pem(settings.cert))
    return grpc.aio.secure_channel(address, credentials, options=options)


def failure_of(dialect: Dialect, code: grpc.StatusCode, details: str | None) -> Failure:
    """What a status means in our words."""
    wire = WireResponse(500, {_STATUS: code.name}, (details or "").encode("utf-8", "replace"))
    return dialect.decode_error(wire)


Metadata = tuple[tuple[str, str], ...]
"""What is sent beside the messages of a call."""


def metadata_of(dialect: Dialect, key: str | None) -> Metadata:
    """What tells a peer who we are."""
    return tuple(dialect.auth_headers(key).items()) if key else ()


async def asked(
    channel: grpc.aio.Channel, dialect: Dialect, path: str, body: bytes, seconds: float, metadata: Metadata = ()
) -> bytes:
    """The answer to a single message. Raises `BackendError`."""
    try:
        answer: bytes = await channel.unary_unary(path)(body, timeout=seconds, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        raise BackendError.of(failure_of(dialect, error.code(), error.details())) from None
    return answer


def _pem(name: str | None) -> bytes | None:
    return Path(name).read_bytes() if name else None


class GrpcBackend:
    """A configured backend that speaks a dialect over gRPC. `url` is `host:port`."""

    def __init__(
        self,
        name: str,
        dialect: Dialect,
        url: str,
        *,
        api_key: str | None = None,
        names: ModelNames | None = None,
        timeouts: Timeouts | None = None,
        retry: Retry | None = None,
        breaker: Breaker | None = None,
        options: Options | None = None,
    ) -> None:
        self.name = name
        self.dialect = dialect
        self.card: Card = dialect.card
        self.names = names or ModelNames()
        self.timeouts = timeouts or Timeouts()
        self.retry = retry or Retry()
        self.budget = Budget(self.retry.budget)
        self.breaker = breaker
        self.options = options if options is not None else dialect.back_options()
        self.settings = dialect.channel(self.options)
        self.metadata = metadata_of(dialect, api_key)
        self._address = url
        self._channel: grpc.aio.Channel | None = None
        self._kept: dict[str, Session] = {}
        self._chores: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        if self._channel is None:
            self._channel = open_channel(self._address, self.settings)

    async def close(self) -> None:
        """Stops kept sessions, gives those that are stopping their grace, and closes the connection."""
        for key in list(self._kept):
            self.stop(self._kept.pop(key))
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

    def later(self, chore: Coroutine[Any, Any, None]) -> None:
        """Does something short beside the runs."""
        task = asyncio.get_running_loop().create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    def model_for(self, asked: str | None) -> str | None:
        return self.names.model_for(asked)

    def forwards(self, headers: Mapping[str, str], front: Dialect) -> dict[str, str]:
        return {}

    def call(self, request: Request, info: CallInfo, lost: Losses) -> GrpcCall:
        model = self.model_for(request.model)
        context = Context(info.run_id, info.thread_id, info.created_at, self.options, model, request, lost)
        key = self.dialect.session_key(request, context)
        kept = self._kept.pop(f"{info.owner}\0{key}", None) if key is not None else None
        if kept is not None and kept.usable:
            session = kept
        else:
            session = Session(self, self.dialect.caller(context))
        try:
            messages = session.machine.ask(request, context)
        except BaseException:
            if session is kept:
                self.stop(session)
            raise
        return GrpcCall(self, session, messages, context, f"{info.owner}\0{key}" if key is not None else None)

    def keep(self, key: str, session: Session) -> None:
        """Keeps a session for the next request of its conversation, until it was idle for too long."""
        other = self._kept.get(key)
        if other is not None:
            self.stop(other)
        self._kept[key] = session

        def expired() -> None:
            if self._kept.get(key) is session:
                self.stop(self._kept.pop(key))

        session.timer = asyncio.get_running_loop().call_later(self.settings.idle, expired)

    def stop(self, session: Session) -> None:
        """Ends a session as its protocol wants it, beside the runs."""
        self.later(session.drain(self.settings.grace))

    async def models(self) -> list[ModelInfo]:
        wire = self.dialect.models_request()
        if wire is None:
            return []
        try:
            body = await self.ask(wire.path, wire.body, self.timeouts.first_event or 60.0)
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
            text = "The backend could not be reached in time."
            raise BackendError(text, code=ErrorCode.BACKEND_TIMEOUT) from None

    async def count(self, request: Request, info: CallInfo) -> int | None:
        return None

    def failure_of(self, code: grpc.StatusCode, details: str | None) -> Failure:
        """What a status means in our words."""
        return failure_of(self.dialect, code, details)

    async def ask(self, path: str, body: bytes, seconds: float) -> bytes:
        """The answer to a single message. Raises `BackendError`."""
        return await asked(self.channel, self.dialect, path, body, seconds, self.metadata)

    @property
    def tools(self) -> ToolSource:
        """The tools that are found at its address, of a dialect that offers some."""
        return ToolSource(self.dialect, self.options, self.ask)


class Session:
    """One call in both directions, with the machine that knows its protocol."""

    def __init__(self, backend: GrpcBackend, machine: CallerSession) -> None:
        self.machine = machine
        self.timer: asyncio.TimerHandle | None = None
        self._backend = backend
        self._call: Duplex | None = None
        self._sizes: set[int] = set()

    @property
    def usable(self) -> bool:
        """Whether another turn can be asked; takes the session out of its idle time."""
        if self.timer is not None:
            self.timer.cancel()
        return self._call is not None and self._call.alive and not self.machine.over

    @property
    def late(self) -> bool:
        """Whether something came since the last turn ended."""
        return self._call is not None and self._call.waiting

    @property
    def ended(self) -> Failure | None:
        """What the peer's own status means, when the call ended with one."""
        status = self._call.status if self._call is not None else None
        if status is None:
            return None
        large = _LARGE.search(status[1] or "")
        if large is not None and int(large[1]) not in self._sizes:
            # Not ours, so that the client can do nothing about it.
            told = f"The backend sent a message of {large[1]} bytes; the limit is {large[2]} (max_message)."
            return Failure(ErrorCode.BACKEND_PROTOCOL, told)
        return self._backend.failure_of(*status)

    async def send(self, messages: list[bytes]) -> None:
        """Sends these; the first ones open the call. A call that is over already is noticed where it is read."""
        if self._call is None:
            call = self._backend.channel.stream_stream(self.machine.path)
            self._call = Duplex(call(metadata=self._backend.metadata))
        self._sizes.update(map(len, messages))
        await self._call.send(messages)

    async def batch(self, seconds: float | None) -> list[bytes] | None:
        """See `Duplex.batch`."""
        return await self._call.batch(seconds) if self._call is not None else None

    async def drain(self, grace: float) -> None:
        """Asks the peer to end, reads and discards until it did, and cancels the call when it does not."""
        if self.timer is not None:
            self.timer.cancel()
        if self._call is None:
            return
        try:
            async with asyncio.timeout(grace):
                await self._call.send(self.machine.stop())
                await self._call.finish()
                while (messages := await self._call.batch(None)) is not None:
                    # Only to learn of the end: the turn itself is over.
                    self.machine.feed(messages, time.monotonic())
        except TimeoutError:
            log.debug("backend %s: a session did not stop by itself", self._backend.name)
        finally:
            self._call.cancel()


class GrpcCall:
    """One turn. See `bridge.pipeline.backend.Call` for what each method promises."""

    def __init__(
        self, backend: GrpcBackend, session: Session, messages: list[bytes], context: Context, key: str | None
    ) -> None:
        self.context = context
        self.frames: list[FrameLike] = []
        self.whole: WireResponse | None = None
        self.wire_ended = False
        self._backend = backend
        self._session: Session | None = session
        self._machine = session.machine
        self._messages = messages
        self._key = key
        self._over = False

    @property
    def sent(self) -> WireRequest:
        return WireRequest("gRPC", self._machine.path, body=b"\n".join(self._messages))

    async def open(self) -> None:
        session = self._session
        assert session is not None, "open() after close()"
        if session.late:
            log.warning("run %s: late messages of the turn before come with this one", self.context.run_id)
        try:
            async with asyncio.timeout(self._backend.timeouts.connect):
                await session.send(self._messages)
        except TimeoutError:
            text = "The backend could not be reached in time."
            raise BackendError(text, code=ErrorCode.BACKEND_TIMEOUT) from None

    async def read(self) -> list[Event]:
        if self._over:
            return []
        session = self._session
        assert session is not None, "read() after close()"
        due = self._machine.due
        messages = await session.batch(None if due is None else max(0.0, due - time.monotonic()))
        self.frames = [*(messages or ())]
        if messages is None:
            events = self._machine.close(session.ended)
        elif messages:
            events = self._machine.feed(messages, time.monotonic())
        else:
            events = self._machine.wake(time.monotonic())
        if events and type(events[-1]) in TERMINAL:
            self._over = self.wire_ended = True
        return events

    def fail(self, failure: Failure) -> list[Event]:
        self._over = True
        self._key = None
        return self._machine.close(failure)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        if self._over and self._key is not None and not self._machine.over and session.usable:
            self._backend.keep(self._key, session)
        else:
            self._backend.stop(session)
