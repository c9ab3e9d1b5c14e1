"""The optional contract of dialects whose clients keep a connection open over which both sides ask: JSON-RPC.

A connection holds sessions, and a session is a thread. A prompt is a run, or several: the questions of a run that waits
are requests of this side, and the answers resume it, while the client's prompt stays open. The dialect reads calls,
writes results and notifications, and has no I/O; `bridge.server.sessions` has the connections, the runs and the
sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from bridge.contract.capabilities import Capabilities, Feature, Support
from bridge.contract.context import Context
from bridge.contract.dialect import Dialect, Options
from bridge.errors import Failure
from bridge.model.events import Event, FinishReason, Interrupted
from bridge.model.parts import Message
from bridge.model.request import Request, Resume

Params = dict[str, Any]
Note = tuple[str, Params]
"""A notification: its method and parameters."""


@dataclass(frozen=True, slots=True)
class RpcService:
    """What a route offers over its connections.

    `features` are those of requests that one of its backends takes as they are; `stores`: sessions outlive their
    connection. `version` is that of the bridge, `options` those of the route.
    """

    features: frozenset[Feature]
    stores: bool
    version: str
    options: Options

    @classmethod
    def of(cls, cards: Collection[Capabilities], *, stores: bool, version: str, options: Options) -> RpcService:
        """Return the service of a route over backends with these cards."""
        exact = {f for card in cards for f in card.requests if card.request(f) is Support.EXACT}
        return cls(frozenset(exact), stores, version, options)


@dataclass(slots=True)
class RpcSession:
    """A session. `about` is what its client said of it, as JSON. `models` are those that may be chosen, by name.

    `title` and `updated_at`, in Unix seconds, are for lists.
    """

    id: str
    about: dict[str, Any] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    model: str | None = None
    title: str = ""
    updated_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Greet:
    """The first call: `client` is what the dialect wants to know of the client from now on."""

    client: Any


@dataclass(frozen=True, slots=True)
class NewSession:
    """Begin a session. `ignored` names what of the call is not used, for the log."""

    about: dict[str, Any]
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Go on with a stored session; `replays`: the client wants to be told the whole of it first."""

    session_id: str
    about: dict[str, Any]
    replays: bool
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListSessions:
    """List the stored sessions for which the client said `about`, from the position `start`."""

    about: dict[str, Any] = field(default_factory=dict)
    start: int = 0


@dataclass(frozen=True, slots=True)
class EndSession:
    """Leave a session, whose prompt is canceled; `deletes`: it is also deleted, if there is one."""

    session_id: str
    deletes: bool


@dataclass(frozen=True, slots=True)
class ChooseModel:
    """Let a session use this model from now on. `place` is where the call names it."""

    session_id: str
    model: str
    place: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """Run a request in a session."""

    session_id: str
    request: Request


@dataclass(frozen=True, slots=True)
class CancelPrompt:
    """Cancel the prompt of a session, if there is one."""

    session_id: str


@dataclass(frozen=True, slots=True)
class CancelCall:
    """Cancel a call by its id."""

    call_id: Any


RpcCall = (
    Greet | NewSession | OpenSession | ListSessions | EndSession | ChooseModel | Prompt | CancelPrompt | CancelCall
)
"""What a client wants."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question as a request of this side. `read` makes the answer of its result.

    It returns None if the client answers that the prompt is canceled. A result that is none is a refusal.
    """

    method: str
    params: Params
    read: Callable[[Any], Resume | None]
    refused: Resume
    """The answer where the client cannot be asked: its response is an error."""


class RpcTurn(Protocol):
    """One prompt: writes the events of its runs as notifications."""

    def begin(self, context: Context) -> None:
        """The next run begins."""

    def encode(self, events: Sequence[Event]) -> list[Note]:
        """Return the notifications of events of the current run."""

    def ask(self, asked: Interrupted) -> tuple[list[Note], Question | None]:
        """Return the question of a run that ended, after the notifications that go before it.

        Without a question, the client can only be told it: by `tell`.
        """

    def tell(self, asked: Interrupted) -> list[Note]:
        """Return a question as a text, which the next prompt answers."""

    def settled(self, asked: Interrupted, answer: Resume | None) -> list[Note]:
        """Return the notifications about the answer to a question; None if the question was withdrawn."""

    def end(self, reason: FinishReason | None) -> tuple[list[Note], Params]:
        """Return the last notifications of the prompt, and its result; None if it failed."""


class RpcDialect(Dialect):
    """A dialect whose surface has `CONNECT`: a connection over which both sides ask."""

    rpc_requests: ClassVar[Collection[str]] = ()
    """The methods of requests that are answered."""
    rpc_notifications: ClassVar[Collection[str]] = ()
    """The methods of notifications that are known."""

    def decode_rpc(self, method: str, params: Any, service: RpcService) -> RpcCall:
        """Return what a call means. Raises `RequestError`."""
        raise NotImplementedError

    def encode_greeting(self, service: RpcService) -> Params:
        """Return the result of the first call."""
        raise NotImplementedError

    def encode_opened(self, session: RpcSession, call: NewSession | OpenSession) -> Params:
        """Return the result of a call that opened a session."""
        raise NotImplementedError

    def encode_chosen(self, session: RpcSession) -> Params:
        """Return the result of a call that chose a model."""
        raise NotImplementedError

    def encode_list(self, sessions: Sequence[RpcSession], following: int | None) -> Params:
        """Return the result of a call that lists sessions; `following` is the position of those that follow."""
        raise NotImplementedError

    def encode_replay(self, session_id: str, messages: Sequence[Message]) -> list[Note]:
        """Return a stored conversation as notifications."""
        raise NotImplementedError

    def turn(self, session_id: str, client: Any) -> RpcTurn:
        """Return what writes a prompt of a session for a client that has greeted as `client`; None if it has not."""
        raise NotImplementedError

    def rpc_error(self, failure: Failure) -> tuple[int, str, Any]:
        """Return a failure as number, text and data of a JSON-RPC error."""
        raise NotImplementedError

    def rpc_cancel(self, call_id: Any) -> Note:
        """Return the notification that withdraws a request of this side."""
        raise NotImplementedError

    def handshake_headers(self, connection_id: str) -> Mapping[str, str]:
        """Return headers of the response that opens a WebSocket."""
        return {}
