"""Sessions: dialects whose clients and servers send messages in both directions over one call.

These state machines have no I/O. Transports feed them messages and the time (monotonic seconds) and send what they
return; frames are bare messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import ClassVar, Literal, Protocol

from bridge.contract.capabilities import Capabilities
from bridge.contract.context import Context
from bridge.contract.dialect import Dialect, EncoderLike, Framing, Options
from bridge.contract.surface import Endpoint
from bridge.contract.wire import FrameLike, WireRequest, WireResponse
from bridge.errors import Failure
from bridge.model.events import Event
from bridge.model.parts import ToolCall, ToolResult
from bridge.model.request import Request


@dataclass(frozen=True, slots=True)
class Channel:
    """How a connection is made. `max_message` is in bytes. `ca`, `cert` and `key` are files; all None is plaintext.

    `grace` is how many seconds a session has to stop by itself; an unused session is stopped after `idle` seconds.
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
    """True if the peer has ended the session: no further turn is possible."""

    def ask(self, request: Request, context: Context) -> list[bytes]:
        """Return the messages of a new turn. Raises `Unsupported` for what the capabilities refuse."""

    def feed(self, frames: Sequence[FrameLike], now: float) -> list[Event]:
        """The events of the turn that these messages make; never raises on wire data."""

    @property
    def due(self) -> float | None:
        """When `wake` wants to be called, if nothing comes before."""

    def wake(self, now: float) -> list[Event]:
        """Time has passed in silence, which may end a turn."""

    def stop(self) -> list[bytes]:
        """Return the messages that ask the peer to end the session; none if it was asked already."""

    def close(self, failure: Failure | None) -> list[Event]:
        """The call is over, cleanly or for `failure`: the events that end the turn."""

    def tools(self, request: Request, context: Context) -> ClientTools | None:
        """The client's tools as the peer is to find them during this turn; None = it finds none."""

    def called(self, calls: Sequence[ToolCall]) -> list[Event]:
        """The peer waits for results of these calls by the client's tools: return the events that end the turn."""

    def resume(self, context: Context) -> None:
        """Start a turn in which the peer continues what it waited for, without a new request."""


class ClientTools(Protocol):
    """The tools of one client as nodes of a registry whose agents may call them."""

    path: str
    """The method by which they are called."""

    places: int
    """How many addresses they need."""

    host: str
    """The host at which the registry reaches them."""

    wait: float
    """Seconds that the client has for a result."""

    def same(self, other: ClientTools) -> bool:
        """Return whether the other tools are called in the same way."""

    def registrations(self, registry: str, addresses: Sequence[str], key: str) -> list[Registration]:
        """Return their registrations at the registry, which identifies the bridge by `key`."""

    def called(self, body: bytes) -> ToolCall | Respond | Refuse:
        """Return the client's tool call in a message, or the response to a message without one."""

    def answer(self, body: bytes, result: ToolResult) -> bytes:
        """The answer to a call."""


# ---------------------------------------------------------------------- as the answering side


class CalleeSession(Protocol):
    """One session of a client with an agent of the bridge."""

    name: str
    """The session's id."""

    owner: str
    """The owner of the conversation, as the caller names itself."""

    user: str = ""
    """The user, where the server identifies users; then the caller's own name does not count."""

    stopping: bool
    """True if the client has requested the end: queued turns are answered, then `farewell` follows."""

    cancels: bool
    """True if a request for the end also cancels the running turn."""

    flush: float
    """Seconds for which events are collected before they are written; 0 = none."""

    def feed(self, frame: bytes) -> bytes | None:
        """Return the body of the request that a message completes; None if it completes none."""

    def encoder(self, context: Context) -> EncoderLike:
        """Writes the answers of the next turn."""

    @property
    def over(self) -> bool:
        """True if the last turn has ended the session already."""

    def farewell(self) -> list[bytes]:
        """The messages that end the session."""


@dataclass(frozen=True, slots=True)
class OwnAgent:
    """A route as an agent: its options, and the capabilities of its backends."""

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
    """Stream the changes of nodes, as `AgentRegistry.events` returns them, until this subscriber is gone."""

    subscriber: str


class Relay(Protocol):
    """A session between a caller and a foreign node, as far as one must know it to end it well."""

    name: str
    """The session's id, for `AgentRegistry.closed`."""

    def onwards(self, frame: bytes) -> bytes | None:
        """Return the part of the caller's message that is forwarded to the node; None if there is none."""

    def ends(self, frame: bytes) -> bool:
        """Return whether this message of the node, which is forwarded to the caller, is its last one."""

    def goodbye(self) -> list[bytes]:
        """Return the messages that ask the node to end the session; none if its caller has done so."""


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
    """The sender of a message.

    `user`: the authenticated user, empty without authentication. `address`: the IP address of the connection's peer;
    None if it has none.
    """

    user: str = ""
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to this node first: then `AgentRegistry.dialed` returns the response.

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
    """An agent of the bridge answers."""

    agent: str
    session: CalleeSession


@dataclass(frozen=True, slots=True)
class Handle:
    """A tool of the bridge answers this single message."""

    node: str


Decision = Respond | Refuse | Forward | Dial | Serve | Handle | Subscribe


def without_scheme(address: str) -> str:
    """`host:port` without the `http://` or `grpc://` that people write in front of it; anything else as it is."""
    scheme, found, rest = address.partition("://")
    return rest.removesuffix("/") if found and scheme.lower() in ("http", "grpc") else address


@dataclass(frozen=True, slots=True)
class RegisteredNode:
    """A node as a gateway lists it. `kind`: agent or tool."""

    kind: Literal["agent", "tool"]
    node_id: str
    name: str
    domain: str
    address: str
    description: str


class NodeEvent(StrEnum):
    """A change of a registered node."""

    REGISTERED = "registered"
    UPDATED = "updated"
    DEREGISTERED = "deregistered"
    SILENT = "silent"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A change of a registered node. `owner` is the user who registered it, empty without authentication."""

    node: str
    kind: Literal["agent", "tool"]
    address: str
    owner: str
    event: NodeEvent


class Registration(Protocol):
    """The registration of an agent of the bridge at another registry."""

    gateway: str
    """The address of the registry, `host:port`."""

    address: str
    """The address at which the agent is registered."""

    key: str
    """The key that authenticates the bridge at the registry, and only there; empty for none."""

    def next(self, now: float) -> tuple[str, bytes] | float:
        """Return the method to call and its message, or the time of the next call."""

    def answered(self, body: bytes | None, now: float) -> bool:
        """Read the registry's answer, or None for an error. Return whether the agent is registered now."""

    def leave(self) -> tuple[str, bytes] | None:
        """Return the method and the message that end the registration; None if the agent is not registered."""


@dataclass(frozen=True, slots=True)
class SharedNode:
    """A node that is registered at a process of this gateway, at this one if `is_own`.

    `value` is what `AgentRegistry.shared` returned for it. It was last heard `ago` seconds ago.
    """

    node: str
    value: str
    is_own: bool
    ago: float


class AgentRegistry(Protocol):
    """The registry and the routing of one address: which nodes are reachable, and what answers each message."""

    heartbeat_timeout: float
    """Seconds without a heartbeat after which a node is removed."""

    check_every: float
    """Seconds between two calls of `expire`."""

    dial_timeout: float
    """Seconds that connecting to a node that registers may take."""

    @property
    def addresses(self) -> set[str]:
        """The addresses of the registered nodes."""

    def call(self, endpoint: Endpoint, body: bytes, now: float, by: Visitor) -> Decision:
        """Return how to answer a single message."""

    def open(self, endpoint: Endpoint, first: bytes | None, now: float, by: Visitor) -> Decision:
        """Return how to answer a session, by its first message; None if it ended without one."""

    def closed(self, session: str, by: Visitor) -> None:
        """A session that `open` let this caller begin is over."""

    def dialed(self, node: str, outcome: Dialed, now: float) -> Decision:
        """Return how to answer the node that was dialed. Called exactly once for each `Dial`."""

    def lost(self, node: str) -> None:
        """The node cannot be reached any more."""

    def changes(self) -> list[NodeChange]:
        """The changes of registered nodes since the last call."""

    def shared(self) -> dict[str, str]:
        """Return the nodes that registered here, as other processes of this gateway need to know them."""

    def news(self) -> tuple[set[str], set[str]]:
        """Return the nodes that were heard since the last call, and those that were deregistered or lost."""

    def adopt(self, nodes: Collection[SharedNode], now: float, unknown: Collection[str]) -> None:
        """These are the nodes of all processes of this gateway. They may know nothing yet of the nodes in `unknown`."""

    def address_of(self, node: str) -> str | None:
        """Return the address of a node; None for one that is not registered."""

    def failed(self, answer: bytes) -> bool:
        """Return whether this response of a tool reports a failure."""

    def events(self, call: Subscribe) -> list[bytes] | None:
        """Return the messages for the subscriber of this call since the last time; None if it is one no more, also
        where another call has its name now.
        """

    def unwatched(self, call: Subscribe) -> None:
        """The call of a subscriber is over."""

    def taken(self, other: AgentRegistry) -> list[str]:
        """Which ids of the other one's own agents belong to nodes that are registered here."""

    def replace(self, other: AgentRegistry) -> None:
        """Replace the bridge's own agents by those of another registry. Nodes, sessions and subscribers stay."""

    def expire(self, now: float) -> list[str]:
        """Remove nodes without a heartbeat, and return their ids."""


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

    def single_process_options(self, options: Options) -> list[str]:
        """Return the names of a backend's options whose sessions outlive a request in the process that began them."""
        return []

    def caller(self, context: Context) -> CallerSession:
        """Return a new session towards a backend."""
        raise NotImplementedError

    def agent_registry(self, address: str, agents: Mapping[str, OwnAgent]) -> AgentRegistry:
        """Return the registry at the address `host:port`, with the bridge's own agents by their ids."""
        raise NotImplementedError

    def registration(self, address: str, agent_id: str, agent: OwnAgent) -> Registration | None:
        """Return how this agent, served at `address`, registers elsewhere; None when its options do not want that."""
        return None

    def nodes_request(self, domain: str | None = None) -> WireRequest:
        """Return the request for the nodes that are registered at a gateway, all or those of a domain."""
        raise NotImplementedError

    def decode_nodes(self, wire: WireResponse) -> list[RegisteredNode]:
        """Return the nodes in the answer. Raises `BackendError` when it is no list of nodes."""
        raise NotImplementedError
