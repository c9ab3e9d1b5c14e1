"""The interface of a backend for the pipeline, whatever carries it: HTTP, gRPC, or a generator in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from bridge.contract import (
    Capabilities,
    Context,
    Dialect,
    Embeddings,
    EmbeddingsRequest,
    FrameLike,
    Losses,
    ModelInfo,
    WireRequest,
    WireResponse,
)
from bridge.contract.demands import Demands
from bridge.contract.naming import ModelNames
from bridge.errors import ErrorCode, Failure
from bridge.model import Event, Request, RunFailed
from bridge.run.amendments import Amendment, Remembered
from bridge.run.breaker import CircuitBreaker
from bridge.run.retries import RetryBudget, RetryPolicy

_QUESTION = 60.0

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; None = no limit.

    `first_event` limits the silence of a backend before its first content, `idle` the silence after it: both count from
    the last bytes that arrived. Neither applies to an answer in one piece, which is silent until it is complete.
    """

    connect: float | None = 5.0
    first_event: float | None = 300.0
    idle: float | None = 300.0
    total: float | None = 1800.0

    @property
    def of_question(self) -> float:
        """Return the time for a question that no model thinks about, such as for a list of models."""
        return min(self.first_event or _QUESTION, _QUESTION)

    def unreached(self) -> Failure:
        """Return the failure of a backend that could not be reached within `connect`."""
        within = "in time" if self.connect is None else f"within {self.connect:g} s (timeouts.connect)"
        return Failure(ErrorCode.BACKEND_TIMEOUT, f"The backend could not be reached {within}.")


@dataclass(slots=True)
class CallInfo:
    """The facts of a run that a call needs besides the request. `forwarded` are client headers to pass on.

    `raw_body` is the client's own body if it must arrive unchanged (passthrough). `owner` is the owner of the
    conversations that may be continued. `shown_thread` is the client's name of the thread, where the backend knows it
    by another. `names_thread`: the client named the thread itself. `thread_of_backend`: the thread has the name that
    the backend gave it. `continues`: the backend has the thread, as far as the bridge knows. `may_ask`: the client can
    be asked, and answers with its next request. `caches`: it cannot say what is to be cached. `amendments` are the
    changes of the body that the model is known to need; the backend notes in `amended`, if that is a list, which of
    them changed it.
    """

    run_id: str
    thread_id: str | None
    created_at: float
    request_id: str | None = None
    forwarded: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    raw_body: bytes | None = None
    owner: str = ""
    shown_thread: str | None = None
    names_thread: bool = True
    thread_of_backend: bool = False
    continues: bool = False
    may_ask: bool = True
    caches: bool = False
    amendments: tuple[Amendment, ...] = ()
    amended: list[Amendment] | None = None


class Call(Protocol):
    """One try of one request at one backend."""

    @property
    def context(self) -> Context: ...

    frames: list[FrameLike]
    """The raw frames that the last read brought, for passthrough routes."""

    @property
    def whole(self) -> WireResponse | None:
        """The answer, if it came in one piece."""

    @property
    def awaits_whole(self) -> bool:
        """The answer is expected in one piece: nothing arrives before it is complete."""

    @property
    def wire_ended(self) -> bool:
        """The terminal event was read from the wire, and not made up for an answer that broke off."""

    @property
    def received(self) -> int:
        """Bytes of the answer that have arrived so far."""

    @property
    def sent(self) -> WireRequest | None:
        """The request as sent, None where no wire is; headers may hold keys. Its body may be released by then."""

    async def open(self) -> None:
        """Sends the request and waits for the head of the answer. Raises `BackendError`."""

    async def read(self) -> list[Event]:
        """The events of one read, possibly none; the batch with the terminal event is the last one."""

    def pass_deltas(self, take: Callable[[list[Event]], bool]) -> None:
        """Call `take` with deltas as they arrive while `read` waits; where it returns False, `read` returns them.

        A call that cannot do that does nothing: `read` returns everything.
        """

    def fail(self, failure: Failure) -> list[Event]:
        """Gives up from this side, when no `read` is waiting: the events that end the run for this reason."""

    async def close(self) -> None:
        """Release the backend; before the terminal event this cancels its work. Never raises."""


class BaseCall:
    """What calls have in common that bring events one read after the other, and never a whole answer."""

    whole: WireResponse | None = None
    wire_ended: bool = False
    received: int = 0

    def __init__(self) -> None:
        self.frames: list[FrameLike] = []

    @property
    def awaits_whole(self) -> bool:
        return False

    def pass_deltas(self, take: Callable[[list[Event]], bool]) -> None:
        """Everything is returned by `read`."""


class KnownAnswer(BaseCall):
    """A call that is answered from here, without a backend: one batch, a whole run."""

    sent: WireRequest | None = None

    def __init__(self, info: CallInfo, events: list[Event]) -> None:
        super().__init__()
        self.context = Context(info.run_id, info.thread_id, info.created_at, None)
        self._events = events

    async def open(self) -> None:
        pass

    async def read(self) -> list[Event]:
        return self._events

    def fail(self, failure: Failure) -> list[Event]:
        return [self._events[0], RunFailed(failure)]

    async def close(self) -> None:
        pass


class ConfiguredBackend:
    """What every `Backend` of a configuration has, whatever carries it."""

    def __init__(
        self,
        name: str,
        capabilities: Capabilities,
        names: ModelNames | None,
        timeouts: Timeouts | None,
        retry: RetryPolicy | None,
        breaker: CircuitBreaker | None,
    ) -> None:
        self.name = name
        self.capabilities = capabilities
        self.demands = capabilities.demands
        self.remembered = Remembered(name)
        self.names = names or ModelNames()
        self.timeouts = timeouts or Timeouts()
        self.retry = retry or RetryPolicy()
        self.budget = RetryBudget(self.retry.budget)
        self.breaker = breaker
        self._chores: set[asyncio.Task[None]] = set()

    def model_for(self, requested: str | None) -> str | None:
        return self.names.model_for(requested)

    @property
    def chores(self) -> int:
        """The number of things that are done beside the runs now."""
        return len(self._chores)

    def later(self, chore: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Does something beside the runs."""
        task = asyncio.get_running_loop().create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        return task


class Backend(Protocol):
    """A configured backend."""

    name: str
    capabilities: Capabilities
    demands: Demands
    """What its API demands of a request."""
    remembered: Remembered
    """What its models refused, and what is changed for that."""
    names: ModelNames
    timeouts: Timeouts
    retry: RetryPolicy
    budget: RetryBudget
    breaker: CircuitBreaker | None

    def model_for(self, requested: str | None) -> str | None:
        """The model name to send for the one that the client named."""

    def call(self, request: Request, info: CallInfo, lost: Losses) -> Call:
        """Encode the request, without I/O. Raises `Unsupported` if the dialect cannot express it."""

    def forwards(self, headers: Mapping[str, str], front: Dialect) -> Mapping[str, str]:
        """Return the client's headers that go to this backend; `front` is the client's dialect."""

    async def models(self) -> list[ModelInfo]:
        """The models that this backend offers by itself. Raises `BackendError`."""

    async def count(self, request: Request, info: CallInfo) -> int | None:
        """Return the input tokens of this request as counted by the backend; None if it cannot count.

        Raises `BackendError`, and `Unsupported` if the dialect cannot express the request.
        """

    async def embed(self, asked: EmbeddingsRequest, info: CallInfo) -> Embeddings | None:
        """Return the vectors of texts; None if the backend has no embeddings. Raises `BackendError`."""

    async def check(self) -> None:
        """Check cheaply whether the backend can be called. Raises `BackendError`."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...
