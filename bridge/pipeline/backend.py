"""The interface of a backend for the pipeline, whatever carries it: HTTP, gRPC, or a Python generator in this
process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bridge.codec import Capabilities, Context, Dialect, FrameLike, Losses, ModelInfo, WireRequest, WireResponse
from bridge.codec.naming import ModelNames
from bridge.errors import Failure
from bridge.model import Event, Request, RunFailed
from bridge.pipeline.breaker import Breaker
from bridge.pipeline.retries import Budget, Retry


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; None = no limit. `first_event` counts from the call to the first content, `idle` between reads."""

    connect: float | None = 5.0
    first_event: float | None = 60.0
    idle: float | None = 60.0
    total: float | None = 600.0


@dataclass(slots=True)
class CallInfo:
    """The facts of a run that a call needs besides the request. `forwarded` are client headers to pass on.

    `raw_body` is the client's own body if it must arrive unchanged (passthrough). `owner` is the owner of the
    conversations that may be continued. `shown_thread` is the client's name of the thread, where the backend knows it
    by another. `names_thread`: the client named the thread itself.
    """

    run_id: str
    thread_id: str | None
    created_at: float
    request_id: str | None = None
    forwarded: dict[str, str] = field(default_factory=dict)
    raw_body: bytes | None = None
    owner: str = ""
    shown_thread: str | None = None
    names_thread: bool = True


class Call(Protocol):
    """One try of one request at one backend."""

    context: Context

    frames: list[FrameLike]
    """The raw frames that the last read brought, for passthrough routes."""

    @property
    def whole(self) -> WireResponse | None:
        """The answer, if it came in one piece."""
        ...

    @property
    def wire_ended(self) -> bool:
        """The terminal event was read from the wire, and not made up for an answer that broke off."""
        ...

    @property
    def received(self) -> int:
        """Bytes of the answer that have arrived so far."""
        ...

    @property
    def sent(self) -> WireRequest | None:
        """The request as it was sent; None where nothing goes over a wire. Its headers may hold keys, and its body
        may be released once the answer has begun.
        """
        ...

    async def open(self) -> None:
        """Sends the request and waits for the head of the answer. Raises `BackendError`."""
        ...

    async def read(self) -> list[Event]:
        """The events of one read, possibly none; the batch with the terminal event is the last one."""
        ...

    def fail(self, failure: Failure) -> list[Event]:
        """Gives up from this side, when no `read` is waiting: the events that end the run for this reason."""
        ...

    async def close(self) -> None:
        """Lets go of the backend; before the terminal event this cancels its work. Never raises."""
        ...


class KnownAnswer:
    """A call that is answered from here, without a backend: one batch, a whole run."""

    def __init__(self, info: CallInfo, events: list[Event]) -> None:
        self.context = Context(info.run_id, info.thread_id, info.created_at, None)
        self.frames: list[FrameLike] = []
        self.whole: WireResponse | None = None
        self.wire_ended = False
        self.received = 0
        self.sent: WireRequest | None = None
        self._events = events

    async def open(self) -> None:
        pass

    async def read(self) -> list[Event]:
        return self._events

    def fail(self, failure: Failure) -> list[Event]:
        return [self._events[0], RunFailed(failure)]

    async def close(self) -> None:
        pass


class Fetches(Protocol):
    """Puts bytes in the place of URLs, for one backend."""

    async def start(self) -> None: ...

    async def request(self, request: Request, capabilities: Capabilities) -> Request:
        """Return the request with media in a form that a backend with these capabilities accepts. Raises
        `RequestError` for media that cannot be fetched.
        """
        ...

    async def close(self) -> None: ...


class Backend(Protocol):
    """A configured backend."""

    name: str
    capabilities: Capabilities
    names: ModelNames
    timeouts: Timeouts
    retry: Retry
    budget: Budget
    breaker: Breaker | None

    def model_for(self, requested: str | None) -> str | None:
        """The model name to send for the one that the client named."""
        ...

    def call(self, request: Request, info: CallInfo, lost: Losses) -> Call:
        """Encodes the request, without I/O. Raises `Unsupported` when the dialect cannot say it."""
        ...

    def forwards(self, headers: Mapping[str, str], front: Dialect) -> dict[str, str]:
        """Which of the client's headers go to this backend; `front` is the dialect that the client speaks."""
        ...

    async def models(self) -> list[ModelInfo]:
        """The models that this backend offers by itself. Raises `BackendError`."""
        ...

    async def count(self, request: Request, info: CallInfo) -> int | None:
        """The input tokens of this request as the backend counts them; None when it has no way to say.

        Raises `BackendError`, and `Unsupported` when the dialect cannot say the request.
        """
        ...

    async def check(self) -> None:
        """Check cheaply whether the backend can be called. Raises `BackendError`."""
        ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...
