"""The gateway's registry and routing, fed messages and the time; nothing here does I/O.

It does not care for the generation of the nodes: a registration stays the bytes it is, and so does a tool call. Own
agents are part of it from the start, never expire and cannot be changed from outside.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from bridge.contract import Endpoint, Feature, Support
from bridge.contract.optional.sessions import (
    AgentRegistry,
    Decision,
    Dial,
    Dialed,
    Forward,
    NodeChange,
    NodeEvent,
    OwnAgent,
    Refuse,
    Respond,
    Serve,
    SharedNode,
    Subscribe,
    Visitor,
)
from bridge.dialects.aip.addresses import AddressRule, not_allowed, plain_address
from bridge.dialects.aip.callee import Callee, Relayed
from bridge.dialects.aip.generation import Generation, of_registration
from bridge.dialects.aip.options import MAX_MESSAGE, FrontOptions
from bridge.dialects.aip.proto import fields, text_field
from bridge.dialects.aip.wire import (
    AgentInfo,
    AgentMessage,
    AgentSkill,
    Done,
    GetNodesRequest,
    Mode,
    Named,
    NodeHead,
    NodeUpdate,
    Peer,
    Peers,
    RegisterAgentResponse,
    SessionStatus,
    Subscription,
    ToolRequest,
    UpdateNodeInfoRequest,
    UpdateType,
)
from bridge.dialects.aip.write_request import CALL_AGENT
from bridge.model.jsontext import dumps, read_json
from bridge.toolkit.redact import printable

CALL_TOOL = "/grpc_service.ToolService/CallTool"
EVERY_DOMAIN = "default"
_IS_ERROR = 4
"""The number of `is_error` in a ToolResponse."""
_MOST_NEWS = 1000
"""Updates that wait for a subscriber; one that does not read them is removed."""
_MOST_NODES = 10_000
"""Nodes of one gateway."""
_MOST_OF_ONE = 64 * 1024
"""Bytes of one registration."""
_MOST_OF_ALL = MAX_MESSAGE - 256 * 1024
"""Bytes of all registrations: `GetNodes` answers with all of them in one message, beside the gateway's own agents."""
_ENVELOPE = 16
"""Bytes of such a message beside each registration, at most."""
_NO_GATEWAY = Refuse("UNIMPLEMENTED", "This is the address of an agent, not of a gateway.")
_GIVES = {Mode.IMAGE: Feature.IMAGE, Mode.AUDIO: Feature.AUDIO, Mode.EMBEDDED: Feature.FILE}
_TAKES = {Mode.IMAGE: Feature.IMAGE_INLINE, Mode.AUDIO: Feature.AUDIO_INLINE, Mode.EMBEDDED: Feature.FILE_INLINE}


@dataclass(slots=True)
class Node:
    """One registered node. `raw`: its registration; `beat`: its last heartbeat, in monotonic seconds.

    `address`: where it is called, without a scheme; `owner`: the user who registered it, who alone may change it.
    """

    node_id: str
    is_agent: bool
    address: str
    domain: str
    raw: bytes
    generation: Generation
    beat: float
    owner: str
    elsewhere: bool = False
    """It registered at another process of this gateway."""

    def dump(self) -> str:
        raw = base64.b64encode(self.raw).decode()
        return dumps([self.is_agent, self.address, self.domain, raw, self.generation, self.owner]).decode()

    @classmethod
    def load(cls, name: str, value: str, beat: float) -> Self:
        is_agent, address, domain, raw, generation, owner = read_json(value.encode())
        return cls(name, is_agent, address, domain, base64.b64decode(raw), generation, beat, owner, elsewhere=True)

    @classmethod
    def of(cls, head: NodeHead, raw: bytes, generation: Generation, owner: str, now: float, *, is_agent: bool) -> Self:
        """A node by its registration. Those who read it from a list get an address that they can call."""
        address = plain_address(head.address)
        if address != head.address:
            raw += text_field(2, address)  # the last of several values counts
        return cls(head.node_id, is_agent, address, head.domain, raw, generation, now, owner)

    @property
    def peer(self) -> Peer:
        return Peer(agent=self.raw) if self.is_agent else Peer(tool=self.raw)

    def change(self, event: NodeEvent) -> NodeChange:
        return NodeChange(self.node_id, "agent" if self.is_agent else "tool", self.address, self.owner, event)


@dataclass(slots=True)
class _Joining:
    """A node that is dialed: it takes its place when it is reached."""

    node: Node
    is_update: bool


@dataclass(slots=True)
class _Subscriber:
    """A subscriber to changes of some nodes, of all if none are named, and the changes that it has not received."""

    call: Subscribe
    owner: str
    wanted: set[str]
    waiting: list[bytes]


class Gateway(AgentRegistry):
    """See `bridge.contract.optional.sessions.AgentRegistry`. Ids and texts of answers are those of the reference
    gateway."""

    def __init__(
        self,
        address: str,
        agents: Mapping[str, OwnAgent],
        *,
        heartbeat_timeout: float = 30.0,
        check_every: float = 10.0,
        dial_timeout: float = 5.0,
        allow_addresses: Iterable[str] = (),
    ) -> None:
        """`allow_addresses`: addresses that nodes may register besides their own; the agents' options add to them.

        Raises `ValueError` for one that is no network, host or target.
        """
        self.check_every = check_every
        self.dial_timeout = dial_timeout
        self.nodes: dict[str, Node] = {}
        self.heartbeat_timeout = heartbeat_timeout
        self._heard_of: set[str] = set()
        self._gone: set[str] = set()
        self._own = {name: (options_of(agent), info_of(name, address, agent)) for name, agent in agents.items()}
        self._address = address
        # A gateway without agents of its own is one, too.
        self._is_gateway = not self._own or any(options.mode == "gateway" for options, _ in self._own.values())
        self._rule = AddressRule.of(
            [*allow_addresses, *(entry for options, _ in self._own.values() for entry in options.allow_addresses)]
        )
        self._joining: dict[str, _Joining] = {}
        self._live: set[tuple[str, str]] = set()
        self._changes: list[NodeChange] = []
        self._watching: dict[str, _Subscriber] = {}
        self._methods: dict[str, Callable[[bytes, float, Visitor], Decision]] = {
            "RegisterAgent": lambda body, now, by: self._register(body, now, by, is_agent=True),
            "RegisterTool": lambda body, now, by: self._register(body, now, by, is_agent=False),
            "DeregisterNode": self._deregister,
            "GetNodes": self._list,
            "Heartbeat": self._beat,
            "UpdateNodeInfo": self._update,
            "RouteToolCalling": self._route_tool,
            "SubscribeToUpdates": self._subscribe,
            "Unsubscribe": self._unsubscribe,
            "CallTool": lambda body, now, by: _not_here("tool", ToolRequest.from_bytes(body).receiver_id),
        }

    # ------------------------------------------------------------------ subscribers

    def _subscribe(self, body: bytes, now: float, by: Visitor) -> Decision:
        subscription = Subscription.from_bytes(body)
        if not subscription.subscriber_id:
            return Refuse("INVALID_ARGUMENT", "subscriber_id: required, expected the id of the subscriber.")
        if subscription.subscriber_id in self._watching:
            return Refuse("ALREADY_EXISTS", f"Subscriber [{printable(subscription.subscriber_id)}] already subscribed.")
        call = Subscribe(subscription.subscriber_id)
        self._watching[subscription.subscriber_id] = _Subscriber(call, by.user, set(subscription.node_ids), [])
        return call

    def _unsubscribe(self, body: bytes, now: float, by: Visitor) -> Decision:
        """Unsubscribe from some nodes, or from all; without nodes, the subscriber is removed."""
        subscription = Subscription.from_bytes(body)
        found = self._watching.get(subscription.subscriber_id)
        if found is None:
            return Respond(Done(False, f"Subscriber {printable(subscription.subscriber_id)} not subscribed").to_bytes())
        if found.owner != by.user:
            return _foreign("Subscriber", subscription.subscriber_id)
        found.wanted.difference_update(subscription.node_ids)
        if not subscription.node_ids or not found.wanted:
            del self._watching[subscription.subscriber_id]
        return Respond(Done(True, "Unsubscribed").to_bytes())

    def events(self, call: Subscribe) -> list[bytes] | None:
        found = self._watching.get(call.subscriber)
        if found is None or found.call is not call:
            return None
        messages, found.waiting = found.waiting, []
        return messages

    def unwatched(self, call: Subscribe) -> None:
        found = self._watching.get(call.subscriber)
        if found is not None and found.call is call:
            del self._watching[call.subscriber]

    def _tell(self, what: UpdateType, node: Node) -> None:
        update = NodeUpdate(what, node.node_id, None if what is UpdateType.REMOVED else node.peer).to_bytes()
        for name, subscriber in list(self._watching.items()):
            if not subscriber.wanted or node.node_id in subscriber.wanted:
                subscriber.waiting.append(update)
            if len(subscriber.waiting) > _MOST_NEWS:
                del self._watching[name]

    def _drop(self, name: str, event: NodeEvent) -> bool:
        """Remove a node. Return whether it existed."""
        node = self.nodes.pop(name, None)
        if node is not None:
            self._changes.append(node.change(event))
            self._tell(UpdateType.REMOVED, node)
        return node is not None

    # ------------------------------------------------------------------ other processes

    def shared(self) -> dict[str, str]:
        return {name: node.dump() for name, node in self.nodes.items() if not node.elsewhere}

    def news(self) -> tuple[set[str], set[str]]:
        heard, gone, self._heard_of, self._gone = self._heard_of, self._gone, set(), set()
        return heard, gone

    def address_of(self, node: str) -> str | None:
        found = self.nodes.get(node)
        return found.address if found is not None else None

    def adopt(self, nodes: Collection[SharedNode], now: float, unknown: Collection[str]) -> None:
        """A node that registered again elsewhere is the other process's from now on."""
        there = {each.node for each in nodes}
        for each in nodes:
            known, beat = self.nodes.get(each.node), now - each.ago
            if known is not None:
                known.beat = max(known.beat, beat)
            if each.is_own or each.node in unknown or each.node in self._gone or each.node in self._own:
                continue
            if known is not None and known.dump() == each.value:
                known.elsewhere = True
            elif each.node not in self._joining:
                event = NodeEvent.REGISTERED if known is None else NodeEvent.UPDATED
                self._place(Node.load(each.node, each.value, beat), event, beat)
        for name in [name for name in self.nodes if name not in there and name not in unknown]:
            self._drop(name, NodeEvent.DEREGISTERED)

    def changes(self) -> list[NodeChange]:
        changes, self._changes = self._changes, []
        return changes

    @property
    def addresses(self) -> set[str]:
        joining = (each.node for each in self._joining.values())
        return {node.address for node in (*self.nodes.values(), *joining)}

    # ------------------------------------------------------------------ single messages

    def call(self, endpoint: Endpoint, body: bytes, now: float, by: Visitor) -> Decision:
        method = endpoint.path.rpartition("/")[2]
        if not self._is_gateway:
            return _NO_GATEWAY
        try:
            return self._methods[method](body, now, by)
        except ValueError as error:
            return Refuse("INVALID_ARGUMENT", f"{method}: the request is not a message of this method ({error}).")

    def _register(self, body: bytes, now: float, by: Visitor, *, is_agent: bool) -> Decision:
        """A node that crashed and comes back replaces its registration; for any other, the id is taken."""
        head = NodeHead.from_bytes(body)
        what = "Agent" if is_agent else "Tool"
        if not head.node_id or not head.address:
            missing = "an address" if head.node_id else "an id"
            return Refuse("INVALID_ARGUMENT", f"{what}: the registration names no node, {missing} is missing.")
        generation: Generation = "tool" if is_agent else of_registration(body)
        node = Node.of(head, body, generation, by.user, now, is_agent=is_agent)
        known = self.nodes.get(node.node_id)
        comes_back = known is None or (known.owner, known.address) == (node.owner, node.address)
        if node.node_id in self._own or node.node_id in self._joining or not comes_back:
            return Refuse("ALREADY_EXISTS", f"{what} [{printable(node.node_id)}] already registered.")
        return self._dial(_Joining(node, is_update=False), by)

    def _dial(self, joining: _Joining, by: Visitor) -> Decision:
        node = joining.node
        others = (
            n.address
            for n in (*self.nodes.values(), *(j.node for j in self._joining.values()))
            if n.node_id != node.node_id
        )
        if node.address == self._address or node.address in others:
            return Refuse("ALREADY_EXISTS", f"Address [{printable(node.address)}] already registered.")
        if (no_room := self._no_room(node)) is not None:
            return no_room
        reply = self._rule.dial(node.node_id, node.address, by)
        if isinstance(reply, Dial):
            self._joining[node.node_id] = joining
        return reply

    def _no_room(self, node: Node) -> Refuse | None:
        """Return why a registration, or what replaces one, has no place here."""
        if len(node.raw) > _MOST_OF_ONE:
            name = printable(node.node_id)
            return Refuse(
                "INVALID_ARGUMENT", f"Node [{name}]: expected a registration of at most {_MOST_OF_ONE} bytes."
            )
        others = [n for n in self.nodes.values() if n.node_id != node.node_id]
        others += [j.node for j in self._joining.values()]
        if len(others) >= _MOST_NODES:
            return Refuse("RESOURCE_EXHAUSTED", f"This gateway already has {_MOST_NODES} nodes.")
        if sum(len(n.raw) + _ENVELOPE for n in (*others, node)) > _MOST_OF_ALL:
            return Refuse("RESOURCE_EXHAUSTED", f"This gateway already has nodes of {_MOST_OF_ALL} bytes.")
        return None

    def dialed(self, node: str, outcome: Dialed, now: float) -> Decision:
        joining = self._joining.pop(node)
        address = joining.node.address
        if outcome is Dialed.NOT_ADMITTED:
            return not_allowed(address)
        if outcome is Dialed.UNREACHABLE:
            return Refuse("UNAVAILABLE", f"Address [{printable(address)}] cannot be reached.")
        if joining.is_update:
            return self._updated(joining.node, now)
        self._place(joining.node, NodeEvent.REGISTERED, now)
        response = RegisterAgentResponse(True, self._peers(EVERY_DOMAIN)) if joining.node.is_agent else Done(True)
        return Respond(response.to_bytes())

    def _place(self, node: Node, event: NodeEvent, now: float) -> None:
        what = UpdateType.UPDATED if node.node_id in self.nodes else UpdateType.ADDED
        node.beat = now
        self.nodes[node.node_id] = node
        self._gone.discard(node.node_id)
        self._changes.append(node.change(event))
        self._tell(what, node)

    def _deregister(self, body: bytes, now: float, by: Visitor) -> Decision:
        name = Named.from_bytes(body).id
        node = self.nodes.get(name)
        if node is not None and node.owner != by.user:
            return _foreign("Node", name)
        was_there = self._drop(name, NodeEvent.DEREGISTERED)
        if was_there:
            self._gone.add(name)
        return Respond(Done(was_there).to_bytes())

    def _list(self, body: bytes, now: float, by: Visitor) -> Decision:
        return Respond(Peers(self._peers(GetNodesRequest.from_bytes(body).domain)).to_bytes())

    def _peers(self, domain: str) -> list[Peer]:
        """Those of a domain; an unknown and an empty one have none."""
        own = [Peer(agent=info.to_bytes()) for _, info in self._own.values() if domain in (EVERY_DOMAIN, info.domain)]
        others = [n.peer for n in self.nodes.values() if domain in (EVERY_DOMAIN, n.domain)]
        return [*own, *others] if domain else []

    def _beat(self, body: bytes, now: float, by: Visitor) -> Decision:
        name = Named.from_bytes(body).id
        node = self.nodes.get(name)
        if node is not None and node.owner != by.user:
            return _foreign("Node", name)
        self._heard(name, now, by)
        if node is not None or name in self._own:
            return Respond(Done(True, "Heartbeat received").to_bytes())
        return Respond(Done(False, f"Node {printable(name)} not registered").to_bytes())

    def _heard(self, name: str, now: float, by: Visitor) -> None:
        """Note that a node lives, as it has sent a message; messages of others in its name do not count."""
        node = self.nodes.get(name)
        if node is not None and node.owner == by.user:
            node.beat = now
            self._heard_of.add(name)

    def _update(self, body: bytes, now: float, by: Visitor) -> Decision:
        """At once, or, for a new address, when the node is reached there."""
        peer = _peer_of_update(body)
        raw = peer.agent or peer.tool
        head = NodeHead.from_bytes(raw)
        name = printable(head.node_id)
        if head.node_id in self._own:
            return Respond(Done(False, f"Node [{name}] cannot be changed from outside.").to_bytes())
        known = self.nodes.get(head.node_id)
        if known is None:
            return Refuse("NOT_FOUND", f"Agent [{name}] not registered.")
        if known.owner != by.user:
            return _foreign("Node", head.node_id)
        if not head.address:
            return Refuse("INVALID_ARGUMENT", f"Node [{name}]: an address is missing.")
        generation: Generation = "tool" if peer.agent else of_registration(raw, known.generation)
        node = Node.of(head, raw, generation, by.user, now, is_agent=bool(peer.agent))
        if head.node_id in self._joining:
            return Refuse("ABORTED", f"Node [{name}] is being registered or updated by another call.")
        if node.address != known.address:
            return self._dial(_Joining(node, is_update=True), by)
        return self._no_room(node) or self._updated(node, now)

    def _updated(self, node: Node, now: float) -> Decision:
        if node.node_id not in self.nodes:
            return Refuse("NOT_FOUND", f"Agent [{printable(node.node_id)}] not registered.")
        self._place(node, NodeEvent.UPDATED, now)
        return Respond(Done(True, f"Node [{printable(node.node_id)}] updated successfully.").to_bytes())

    def _route_tool(self, body: bytes, now: float, by: Visitor) -> Decision:
        request = ToolRequest.from_bytes(body)
        self._heard(request.sender_id, now, by)
        node = self.nodes.get(request.receiver_id)
        if node is None or node.is_agent:
            return self._not_found("tool", request.receiver_id)
        return Forward(node.node_id, node.address, CALL_TOOL)

    def _not_found(self, what: str, name: str) -> Refuse:
        """The refusal of a message whose receiver is not registered, or is not `what` the message is for."""
        if name not in self._own and name not in self.nodes:
            return _absent(f"no {what} [{printable(name)}] is registered here.")
        other = "a tool, expected an agent" if what == "agent" else "an agent, expected a tool"
        return _absent(f"[{printable(name)}] is {other}.")

    # ------------------------------------------------------------------ sessions

    def open(self, endpoint: Endpoint, first: bytes | None, now: float, by: Visitor) -> Decision:
        if first is None:
            return Refuse("ABORTED", "Empty request stream")
        try:
            message = AgentMessage.from_bytes(first)
        except ValueError as error:
            return Refuse("INVALID_ARGUMENT", f"expected an AgentMessage, got bytes that are not one ({error}).")
        if message.session_status != SessionStatus.START_QUEST:
            return Refuse("INVALID_ARGUMENT", _no_session(message))
        if not message.session_id:
            return Refuse("INVALID_ARGUMENT", "Missing session_id in START_QUEST")
        if (by.user, message.session_id) in self._live:
            return Refuse(
                "INVALID_ARGUMENT", f"Session_id [{printable(message.session_id)}] is already registered in server"
            )
        self._heard(message.sender_id, now, by)
        reply = self._route(endpoint, message)
        if not isinstance(reply, Refuse):
            self._live.add((by.user, message.session_id))
        return reply

    def _route(self, endpoint: Endpoint, message: AgentMessage) -> Decision:
        own = self._own.get(message.receiver_id)
        if own is not None:
            return Serve(message.receiver_id, Callee(message.receiver_id, own[0], message))
        node = self.nodes.get(message.receiver_id)
        if endpoint.path == CALL_AGENT:
            return _not_here("agent", message.receiver_id)
        if node is None or not node.is_agent:
            return self._not_found("agent", message.receiver_id)
        return Forward(node.node_id, node.address, CALL_AGENT, Relayed(message))

    def closed(self, session: str, by: Visitor) -> None:
        self._live.discard((by.user, session))

    # ------------------------------------------------------------------ own agents

    def taken(self, other: AgentRegistry) -> list[str]:
        return (
            sorted((self.nodes.keys() | self._joining.keys()) & other._own.keys()) if isinstance(other, Gateway) else []
        )

    def replace(self, other: AgentRegistry) -> None:
        assert isinstance(other, Gateway)
        self._own, self._is_gateway, self._rule = other._own, other._is_gateway, other._rule

    # ------------------------------------------------------------------ liveness

    def lost(self, node: str) -> None:
        if self._drop(node, NodeEvent.UNREACHABLE):
            self._gone.add(node)

    def expire(self, now: float) -> list[str]:
        silent = [n.node_id for n in self.nodes.values() if now - n.beat > self.heartbeat_timeout]
        for name in silent:
            self._drop(name, NodeEvent.SILENT)
        return silent

    # ------------------------------------------------------------------ tools

    def failed(self, answer: bytes) -> bool:
        try:
            return any(number == _IS_ERROR and value for number, value in fields(answer))
        except ValueError:
            return True


def _peer_of_update(body: bytes) -> Peer:
    """The peer of an update: at number 2 in the generation `tool`, at number 1 in the generation `toolbox`."""
    if any(number == 2 for number, _ in fields(body)):
        return UpdateNodeInfoRequest.from_bytes(body).peer or Peer()
    inner = next((value for number, value in fields(body) if number == 1 and isinstance(value, bytes)), b"")
    return Peer.from_bytes(inner)


def _foreign(what: str, name: str) -> Refuse:
    return Refuse("PERMISSION_DENIED", f"{what} [{printable(name)}] belongs to another user.")


def _absent(reason: str) -> Refuse:
    return Refuse("NOT_FOUND", f"Receiver not found: {reason}")


def _not_here(what: str, name: str) -> Refuse:
    """The refusal of a direct call."""
    return _absent(f"no {what} [{printable(name)}] answers at this address.")


def _no_session(message: AgentMessage) -> str:
    """Why a session cannot begin with this message, whose status is not START_QUEST."""
    known = {status.value: status.name for status in SessionStatus}
    status = known.get(message.session_status, f"message of status {message.session_status}")
    return (
        f"First message must be START_QUEST: there is no session [{printable(message.session_id)}] to which "
        f"a {status} could belong."
    )


def options_of(agent: OwnAgent) -> FrontOptions:
    return agent.options if isinstance(agent.options, FrontOptions) else FrontOptions()


def info_of(name: str, address: str, agent: OwnAgent) -> AgentInfo:
    """Return the entry of an agent of the bridge: it accepts and returns what all of its backends do."""
    options = options_of(agent)
    return AgentInfo(
        name,
        address,
        options.name or name,
        options.domain,
        [Mode.TEXT, *(m for m, f in _TAKES.items() if all(c.request(f) is Support.EXACT for c in agent.cards))],
        [Mode.TEXT, *(m for m, f in _GIVES.items() if all(c.answer(f) is Support.EXACT for c in agent.cards))],
        options.description,
        [AgentSkill(skill.skill_id, skill.capability) for skill in options.skills],
        options.version,
    )
