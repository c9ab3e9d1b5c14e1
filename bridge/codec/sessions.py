"""Sessions: what a dialect does whose clients and servers talk in both directions over one call.

Protocol state without I/O. Transports feed these machines messages and the time (monotonic seconds) and send what they
give; frames are bare messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar, Protocol

from bridge.codec.capabilities import Capabilities
from bridge.codec.context import Context
from bridge.codec.dialect import Dialect, Encoder, Framing, Options
from bridge.codec.surface import Endpoint
from bridge.codec.wire import FrameLike
from bridge.errors import Failure
from bridge.model.events import Event
from bridge.model.parts import ToolCall, ToolResult
from bridge.model.request import Request


@dataclass(frozen=True, slots=True)
class Channel:
    """How a connection is made. `max_message` in bytes; `ca`, `cert` and `key` are files, all None = plaintext.

    `grace`: seconds that a session has to stop by itself. `idle`: seconds after which an unused one is stopped.
    """

    max_message: int
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    grace: float = 30.0
    idle: float = 600.0

    @property
    def secure(self) -> bool:
        return any((self.ca, self.cert, self.key))


# ---------------------------------------------------------------------- as the caller


class CallerSession(Protocol):
    """One session towards a backend: one turn after the other."""

    path: str
    """The method that is called."""

    over: bool
    """Whether the peer ended the session: nothing can be asked any more."""

    def ask(self, request: Request, context: Context) -> list[bytes]:
        """The messages that ask this; a new turn. Raises `Unsupported` for what the card refuses."""
        ...

    def feed(self, frames: Sequence[FrameLike], now: float) -> list[Event]:
        """The events of the turn that these messages make; never raises on wire data."""
        ...

    @property
    def due(self) -> float | None:
        """When `wake` wants to be called, if nothing comes before."""
        ...

    def wake(self, now: float) -> list[Event]:
        """Time has passed in silence, which may end a turn."""
        ...

    def stop(self) -> list[bytes]:
        """The messages that ask the peer to end the session; none when it was asked already."""
        ...

    def close(self, failure: Failure | None) -> list[Event]:
        """The call is over, cleanly or for `failure`: the events that end the turn."""
        ...

    def tools(self, request: Request, context: Context) -> ClientTools | None:
        """The client's tools as the peer is to find them during this turn; None = it finds none."""
        ...

    def called(self, calls: Sequence[ToolCall]) -> list[Event]:
        """The peer waits for what the client's tools say to these: the events that end the turn."""
        ...

    def resume(self, context: Context) -> None:
        """A new turn, in which the peer goes on with what it waited for: nothing is asked."""
        ...


class ClientTools(Protocol):
    """The tools of one client as nodes of a registry whose agents may call them."""

    path: str
    """The method by which they are called."""

    places: int
    """How many addresses they need."""

    host: str
    """Where the registry reaches them."""

    wait: float
    """Seconds that the client has for a result."""

    def same(self, other: ClientTools) -> bool:
        """Whether the other ones are called in the same way."""
        ...

    def registrations(self, registry: str, addresses: Sequence[str], key: str) -> list[Registration]:
        """How they stay known at the registry, which knows us by `key`."""
        ...

    def called(self, body: bytes) -> ToolCall | Respond | Refuse:
        """What a call is to the client; or the answer to one that is nothing to him."""
        ...

    def answer(self, body: bytes, result: ToolResult) -> bytes:
        """The answer to a call."""
        ...


# ---------------------------------------------------------------------- as the answering side


class CalleeSession(Protocol):
    """One session of a client with one of our agents."""

    name: str
    """The session's id."""

    owner: str
    """Whose conversation it is, by the name that the caller gives himself."""

    user: str = ""
    """Whose it is where the server knows its users; a caller may then give himself any name."""

    stopping: bool
    """Whether the client has asked for the end: what is queued is answered, then comes `farewell`."""

    cancels: bool
    """Whether asking for the end cancels the turn that runs."""

    flush: float
    """Seconds for which events are collected before they are written; 0 = none."""

    def feed(self, frame: bytes) -> bytes | None:
        """What of this message is to be run as a request; None when nothing is."""
        ...

    def encoder(self, context: Context) -> Encoder:
        """Writes the answers of the next turn."""
        ...

    @property
    def over(self) -> bool:
        """Whether the last turn's answers ended the session already."""
        ...

    def farewell(self) -> list[bytes]:
        """The messages that end the session."""
        ...


@dataclass(frozen=True, slots=True)
class OwnAgent:
    """One of our routes as an agent: its options, and the cards of the backends that answer."""

    options: Options
    cards: tuple[Capabilities, ...]


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer with this message."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with this gRPC status (its name) and details."""

    status: str
    details: str


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Answer with what becomes of the nodes, as `AgentRegistry.events` tells it, until this subscriber is gone."""

    subscriber: str


class Relay(Protocol):
    """A session between a caller and a foreign node, as far as one must know it to end it well."""

    name: str
    """The session's id, for `AgentRegistry.closed`."""

    def onwards(self, frame: bytes) -> bytes | None:
        """What of the caller's message goes on to the node; None = nothing."""
        ...

    def ends(self, frame: bytes) -> bool:
        """Whether the node's message, which goes to the caller, is its last one."""
        ...

    def goodbye(self) -> list[bytes]:
        """What asks the node to end the session when the caller has left; nothing when he asked for it."""
        ...


@dataclass(frozen=True, slots=True)
class Forward:
    """Hand the messages on to this node's method, unchanged, and its answers and status back.

    `session` is set where it is one.
    """

    node: str
    address: str
    path: str
    session: Relay | None = None


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a message. `user`: as `server.auth` names him, empty where everybody may call.

    `address`: the IP address of the connection's peer; None for a connection that has none.
    """

    user: str = ""
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to this node first: then `AgentRegistry.dialed` says what to answer.

    `host` and `port` are resolved once, and only IP addresses that `admits` accepts are connected to, then and later.
    Without a host, `address` is a gRPC target that the configuration allows by its scheme.
    """

    node: str
    address: str
    host: str
    port: int
    admits: Callable[[str], bool]


class Dialed(Enum):
    """The outcome of a `Dial`."""

    CONNECTED = auto()
    UNREACHABLE = auto()
    NOT_ADMITTED = auto()


@dataclass(frozen=True, slots=True)
class Serve:
    """One of our own agents answers."""

    agent: str
    session: CalleeSession


@dataclass(frozen=True, slots=True)
class Handle:
    """One of our own tools answers this single message."""

    node: str


Decision = Respond | Refuse | Forward | Dial | Serve | Handle | Subscribe


class Registration(Protocol):
    """How one of our agents stays known at a foreign registry."""

    gateway: str
    """The address of the registry, `host:port`."""

    address: str
    """Where we say that the agent is."""

    key: str
    """What the registry knows us by, empty = nothing: a secret that nobody else is sent."""

    def next(self, now: float) -> tuple[str, bytes] | float:
        """The method to call and its message, or the time before which there is nothing to say."""
        ...

    def answered(self, body: bytes | None, now: float) -> bool:
        """What the registry answered, None = an error; whether the agent is known there now."""
        ...

    def leave(self) -> tuple[str, bytes] | None:
        """What to call when the agent goes; None when it is not known there."""
        ...


class AgentRegistry(Protocol):
    """Who is reachable here, and by whom what is answered: the registry and the routing of one address."""

    check_every: float
    """Seconds between two calls of `expire`."""

    dial_timeout: float
    """Seconds that connecting to a node that registers may take."""

    @property
    def addresses(self) -> set[str]:
        """Where the nodes are that are known now."""
        ...

    def call(self, endpoint: Endpoint, body: bytes, now: float, by: Visitor) -> Decision:
        """Who answers a single message."""
        ...

    def open(self, endpoint: Endpoint, first: bytes | None, now: float, by: Visitor) -> Decision:
        """Who answers a session, by its first message; None when it ended without one."""
        ...

    def closed(self, session: str) -> None:
        """A session that `open` let in is over."""
        ...

    def dialed(self, node: str, outcome: Dialed, now: float) -> Decision:
        """What to answer the node that was dialed. Called exactly once for each `Dial`."""
        ...

    def lost(self, node: str) -> None:
        """The node cannot be reached any more."""
        ...

    def events(self, subscriber: str) -> list[bytes] | None:
        """The messages for a subscriber since the last call; None when it is none any more."""
        ...

    def unwatched(self, subscriber: str) -> None:
        """The call of this subscriber is over."""
        ...

    def taken(self, other: AgentRegistry) -> list[str]:
        """Which ids of the other one's own agents belong to nodes that are registered here."""
        ...

    def replace(self, other: AgentRegistry) -> None:
        """Has the other one's own agents from now on, and none of its own. Nodes, sessions and subscribers stay."""
        ...

    def expire(self, now: float) -> list[str]:
        """Forgets the nodes that were silent for too long; their ids."""
        ...


# ---------------------------------------------------------------------- the dialect


class SessionDialect(Dialect):
    """A dialect whose runs are turns of sessions over gRPC. Its framing is `MESSAGES`."""

    framing: ClassVar[Framing] = Framing.MESSAGES

    def channel(self, options: Options) -> Channel:
        """Return how connections are made and accepted, by the options of a route or a backend."""
        raise NotImplementedError

    def session_key(self, request: Request, context: Context) -> str | None:
        """Return the name under which the session of this request is kept for the next one; None to keep none."""
        return None

    def caller(self, context: Context) -> CallerSession:
        """Return a new session towards a backend."""
        raise NotImplementedError

    def agent_registry(self, address: str, agents: Mapping[str, OwnAgent]) -> AgentRegistry:
        """Return the registry at the address `host:port`, with our own agents, by their ids, in it."""
        raise NotImplementedError

    def registration(self, address: str, agent_id: str, agent: OwnAgent) -> Registration | None:
        """Return how this agent, served at `address`, registers elsewhere; None when its options do not want that."""
        return None
