"""The gateway as a machine: recorded registrations and requests go in, time is ours."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import Endpoint
from bridge.contract.optional.sessions import (
    Dial,
    Dialed,
    Forward,
    OwnAgent,
    Refuse,
    Respond,
    Serve,
    Subscribe,
    Visitor,
)
from bridge.dialects.aip import dialect
from bridge.dialects.aip.gateway import Gateway
from bridge.dialects.aip.proto import text_field
from bridge.run.backends.local_backend import CAPABILITIES

from . import schema
from .peers import quest

LOCAL = Visitor("", "127.0.0.1")
CAPTURES = Path(__file__).parents[2] / "captures" / "aip"


def recorded(name: str, kind: str) -> bytes:
    """The first recorded message of this type in a capture."""
    capture = json.loads((CAPTURES / f"{name}.json").read_text())
    events = [e for rpc in capture["rpcs"] for e in rpc["events"] if e["type"] == kind]
    return base64.b64decode(events[0]["raw_b64"])


def endpoint(method: str) -> Endpoint:
    return next(e for e in dialect.surface if e.path.endswith("/" + method))


def gateway() -> Gateway:
    options = dialect.front_options(name="Ours", domain="home", skills=[{"skill_id": "chat", "capability": "talks"}])
    return Gateway("127.0.0.1:1", {"bridge": OwnAgent(options, (CAPABILITIES,))}, heartbeat_timeout=30)


def call(it: Gateway, method: str, body: Any, now: float = 0.0, by: Visitor = LOCAL) -> Any:
    return it.call(endpoint(method), body if isinstance(body, bytes) else body.SerializeToString(), now, by)


def register(it: Gateway, body: bytes, method: str = "RegisterAgent", now: float = 0.0) -> str:
    dial = call(it, method, body, now)
    assert isinstance(dial, Dial)
    assert isinstance(it.dialed(dial.node, Dialed.CONNECTED, now), Respond)
    return dial.node


def listed(it: Gateway, domain: str = "default") -> list[str]:
    reply = call(it, "GetNodes", schema.message("GetNodesRequest", domain=domain))
    peers = schema.tool().GetNodesResponse.FromString(reply.body).peers
    return [p.agent_info.agent_id or p.tool_info.tool_id for p in peers]


def test_an_own_agent_says_what_it_can() -> None:
    reply = call(gateway(), "GetNodes", schema.message("GetNodesRequest", domain="home"))
    info = schema.tool().GetNodesResponse.FromString(reply.body).peers[0].agent_info
    assert (info.agent_id, info.name, info.address, info.domain) == ("bridge", "Ours", "127.0.0.1:1", "home")
    assert (list(info.input_mode), list(info.output_mode)) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert [(s.skill_id, s.capability) for s in info.skills] == [("chat", "talks")]


def test_domains() -> None:
    it = gateway()
    for name, domain in (("a", "one"), ("b", "two"), ("c", "default")):
        register(it, schema.message("AgentInfo", agent_id=name, address=f"{name}:1", domain=domain).SerializeToString())
    assert listed(it, "default") == ["bridge", "a", "b", "c"], "all, so that nobody can ask for its own alone"
    assert (listed(it, "one"), listed(it, "home")) == (["a"], ["bridge"])
    assert (listed(it, "nowhere"), listed(it, "")) == ([], [])


def test_nodes_that_are_silent_for_too_long_are_forgotten() -> None:
    it = gateway()
    agent = register(it, recorded("register_agent", "AgentInfo"))
    tool = register(it, recorded("register_tool", "ToolInfo"), "RegisterTool", now=5.0)
    assert listed(it) == ["bridge", agent, tool]
    beat = schema.message("HeartbeatRequest", sender_id=agent)
    assert schema.tool().HeartbeatResponse.FromString(call(it, "Heartbeat", beat, 20.0).body).success
    assert it.expire(35.0) == []
    assert it.expire(35.1) == [tool]
    assert it.expire(50.0) == []
    assert it.expire(50.1) == [agent]
    assert listed(it) == ["bridge"]


def test_a_session_and_a_tool_call_are_beats_of_their_sender() -> None:
    it = gateway()
    sender = register(it, schema.message("AgentInfo", agent_id="client", address="a:1").SerializeToString())
    opened = it.open(endpoint("CallAgent"), quest("START_QUEST").SerializeToString(), 20.0, LOCAL)
    assert isinstance(opened, Serve)
    assert it.expire(45.0) == []
    asked = schema.message("ToolRequest", sender_id=sender, receiver_id="nobody")
    assert call(it, "RouteToolCalling", asked, 45.0) == Refuse(
        "NOT_FOUND", "Receiver not found: no tool [nobody] is registered here."
    )
    assert it.expire(75.0) == []
    assert it.expire(75.1) == [sender]


@pytest.mark.parametrize(
    ("capture", "kind", "method", "request_kind"),
    [
        ("register_tool", "ToolInfo", "RegisterTool", "tool_call_ok"),
        ("toolbox_register", "ToolBoxInfo", "RegisterTool", "toolbox_call_ok"),
    ],
)
def test_tools_of_both_generations_are_kept_and_called_as_bytes(
    capture: str, kind: str, method: str, request_kind: str
) -> None:
    it = gateway()
    raw = recorded(capture, kind)
    node = register(it, raw, method)
    assert it.nodes[node].raw == raw
    assert it.nodes[node].generation == ("toolbox" if kind == "ToolBoxInfo" else "tool")
    asked = recorded(request_kind, "ToolRequest")
    # Of two receivers in one message the last one counts, as in protobuf: this one goes to the node.
    forward = call(it, "RouteToolCalling", asked + text_field(2, node))
    assert isinstance(forward, Forward)
    assert (forward.node, forward.path) == (node, "/grpc_service.ToolService/CallTool")


@pytest.mark.parametrize("box", [False, True], ids=["tool", "toolbox"])
def test_an_update_replaces_the_record(box: bool) -> None:
    it = gateway()
    register(it, schema.message("AgentInfo", agent_id="a", address="h:1", domain="one").SerializeToString())

    def update(**fields: Any) -> Any:
        info = schema.message("AgentInfo", **fields)
        if box:
            return call(
                it, "UpdateNodeInfo", schema.message("UpdateNodeInfoRequest", box=True, node_info={"agent_info": info})
            )
        return call(
            it, "UpdateNodeInfo", schema.message("UpdateNodeInfoRequest", sender_id="a", peer={"agent_info": info})
        )

    dial = update(agent_id="a", address="h:2", domain="two")
    assert (dial.node, dial.address, listed(it, "one")) == ("a", "h:2", ["a"]), "the record stays until it is reached"
    done = schema.tool().UpdateNodeInfoResponse.FromString(it.dialed("a", Dialed.CONNECTED, 0.0).body)
    assert (done.success, done.message) == (True, "Node [a] updated successfully.")
    assert (listed(it, "one"), listed(it, "two")) == ([], ["a"])
    assert update(agent_id="b", address="h:3") == Refuse("NOT_FOUND", "Agent [b] not registered.")
    own = schema.tool().UpdateNodeInfoResponse.FromString(update(agent_id="bridge", address="evil:1").body)
    assert not own.success


def test_a_node_that_was_never_reached_leaves_no_trace() -> None:
    it = gateway()
    body = recorded("register_agent", "AgentInfo")
    dial = call(it, "RegisterAgent", body)
    assert listed(it) == ["bridge"]
    first = quest("START_QUEST", receiver=dial.node).SerializeToString()
    nobody = f"Receiver not found: no agent [{dial.node}] is registered here."
    assert it.open(endpoint("RouteAgentCalling"), first, 0.0, LOCAL) == Refuse("NOT_FOUND", nobody)
    refused = it.dialed(dial.node, Dialed.UNREACHABLE, 5.0)
    assert isinstance(refused, Refuse)
    assert refused.status == "UNAVAILABLE"
    assert isinstance(call(it, "RegisterAgent", body), Dial)


@pytest.mark.parametrize("method", ["RegisterAgent", "RegisterTool", "UpdateNodeInfo", "RouteToolCalling", "GetNodes"])
def test_bytes_that_are_no_message_are_refused_with_a_reason(method: str) -> None:
    reply = call(gateway(), method, b"\x0a\x05ab")
    assert isinstance(reply, Refuse)
    assert reply.status == "INVALID_ARGUMENT"
    assert reply.details.startswith(f"{method}: the request is not a message of this method")


@pytest.mark.parametrize(
    ("method", "receiver", "told"),
    [
        ("RouteAgentCalling", "nobody", "no agent [nobody] is registered here."),
        ("RouteAgentCalling", "adder", "[adder] is a tool, expected an agent."),
        ("RouteAgentCalling", "", "no agent [] is registered here."),
        ("CallAgent", "chat", "no agent [chat] answers at this address."),
        ("RouteToolCalling", "nobody", "no tool [nobody] is registered here."),
        ("RouteToolCalling", "chat", "[chat] is an agent, expected a tool."),
        ("RouteToolCalling", "bridge", "[bridge] is an agent, expected a tool."),
        ("CallTool", "adder", "no tool [adder] answers at this address."),
    ],
)
def test_who_is_not_found_is_named(method: str, receiver: str, told: str) -> None:
    it = gateway()
    register(it, schema.message("AgentInfo", agent_id="chat", address="a:1").SerializeToString())
    register(it, schema.message("ToolInfo", tool_id="adder", address="t:1").SerializeToString(), "RegisterTool")
    if method in ("CallTool", "RouteToolCalling"):
        reply = call(it, method, schema.message("ToolRequest", receiver_id=receiver))
    else:
        reply = it.open(endpoint(method), quest("START_QUEST", receiver=receiver).SerializeToString(), 0.0, LOCAL)
    assert reply == Refuse("NOT_FOUND", f"Receiver not found: {told}")


def test_a_message_to_a_session_that_is_not_there_names_it() -> None:
    reply = gateway().open(endpoint("CallAgent"), quest("HOLD_QUEST", session="s9").SerializeToString(), 0.0, LOCAL)
    told = "First message must be START_QUEST: there is no session [s9] to which a HOLD_QUEST could belong."
    assert reply == Refuse("INVALID_ARGUMENT", told)


def test_a_registration_needs_an_id_and_an_address() -> None:
    for fields, told in (({"address": "a:1"}, "an id is missing"), ({"agent_id": "a"}, "an address is missing")):
        reply = call(gateway(), "RegisterAgent", schema.message("AgentInfo", **fields))
        assert isinstance(reply, Refuse)
        assert told in reply.details


def test_a_subscriber_hears_of_the_nodes_it_named() -> None:
    it = gateway()
    asked = schema.message("UpdateSubscriptionRequest", subscriber_id="me", node_ids=["a", "c"])
    me = call(it, "SubscribeToUpdates", asked)
    assert me == Subscribe("me")
    for name in ("a", "b"):
        register(it, schema.message("AgentInfo", agent_id=name, address=f"{name}:1").SerializeToString())
    told = [schema.tool().NodeUpdate.FromString(update) for update in it.events(me) or []]
    assert [(u.update_type, u.node_id, u.peer.agent_info.address) for u in told] == [(0, "a", "a:1")]
    it.expire(100.0)
    assert [schema.tool().NodeUpdate.FromString(u).update_type for u in it.events(me) or []] == [2]
    call(it, "Unsubscribe", schema.message("UnsubscribeRequest", subscriber_id="me", node_ids=["a"]))
    assert it.events(me) == []
    call(it, "Unsubscribe", schema.message("UnsubscribeRequest", subscriber_id="me", node_ids=["c"]))
    assert it.events(me) is None


def test_a_relayed_session_ends_once_and_nothing_follows() -> None:
    """What comes behind a STOP_QUEST ends agents made with the specification's library (section 5)."""
    from bridge.dialects.aip.callee import Relayed
    from bridge.dialects.aip.wire import AgentMessage

    first = AgentMessage.from_bytes(quest("START_QUEST", receiver="chat").SerializeToString())
    asked = [
        quest(status, receiver="chat").SerializeToString() for status in ("START_QUEST", "STOP_QUEST", "HOLD_QUEST")
    ]
    stopped = Relayed(first)
    assert [stopped.onwards(body) for body in asked] == [asked[0], asked[1], None]
    assert stopped.goodbye() == []
    left = Relayed(first)
    assert [left.onwards(body) for body in (asked[0], b"\xff")] == [asked[0], b"\xff"]
    [goodbye] = [schema.tool().AgentMessage.FromString(body) for body in left.goodbye()]
    assert (goodbye.sender_id, goodbye.receiver_id, goodbye.session_id) == ("client", "chat", "s1")
    assert (goodbye.session_status, [item.text for item in goodbye.content]) == (3, ["bye"])
    assert left.goodbye() == []
    ended = Relayed(first)
    answers = [
        schema.message("AgentMessage", session_status=status).SerializeToString()
        for status in ("HOLD_RESPONSE", "STOP_RESPONSE")
    ]
    assert [ended.ends(body) for body in (b"\xff", *answers)] == [False, False, True]
    assert ended.goodbye() == [], "who said goodbye is not asked to"


def test_what_would_end_an_agent_for_everybody_is_mended_on_the_way() -> None:
    from bridge.dialects.aip.callee import Relayed
    from bridge.dialects.aip.wire import AgentMessage

    it = Relayed(AgentMessage.from_bytes(quest("START_QUEST", receiver="chat").SerializeToString()))
    odd = quest("HOLD_QUEST", receiver="chat", session="another")
    del odd.content[:]
    odd.content.append(schema.message("ContentItem", image=b"i"))
    repaired = schema.tool().AgentMessage.FromString(it.onwards(odd.SerializeToString()) or b"")
    assert (repaired.session_id, repaired.content) == ("s1", odd.content)
    del odd.content[:]
    repaired = schema.tool().AgentMessage.FromString(it.onwards(odd.SerializeToString()) or b"")
    assert [(item.WhichOneof("data"), item.text) for item in repaired.content] == [("text", "")]
    assert (repaired.session_id, repaired.message_id, repaired.task_info) == ("s1", odd.message_id, odd.task_info)


def test_a_session_id_is_taken_for_its_user_only() -> None:
    it, first = gateway(), quest("START_QUEST", session="s1").SerializeToString()
    ann, bob = Visitor("ann", "127.0.0.1"), Visitor("bob", "127.0.0.1")
    assert isinstance(it.open(endpoint("CallAgent"), first, 0.0, ann), Serve)
    assert isinstance(it.open(endpoint("CallAgent"), first, 0.0, ann), Refuse)
    assert isinstance(it.open(endpoint("CallAgent"), first, 0.0, bob), Serve)
    it.closed("s1", bob)
    assert isinstance(it.open(endpoint("CallAgent"), first, 0.0, ann), Refuse)
    it.closed("s1", ann)
    assert isinstance(it.open(endpoint("CallAgent"), first, 0.0, ann), Serve)


def test_a_gateway_has_room_for_so_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.dialects.aip.gateway._MOST_NODES", 2)
    it = gateway()
    infos = [schema.message("AgentInfo", agent_id=f"n{n}", address=f"n{n}:1").SerializeToString() for n in range(3)]
    for body in infos[:2]:
        register(it, body)
    assert call(it, "RegisterAgent", infos[2]) == Refuse("RESOURCE_EXHAUSTED", "This gateway already has 2 nodes.")
    register(it, infos[0])
    call(it, "DeregisterNode", schema.message("DeregisterNodeRequest", node_id="n1"))
    register(it, infos[2])


def described(name: str, size: int) -> bytes:
    """A registration with a name of so many bytes."""
    wire: bytes = schema.message("AgentInfo", agent_id=name, address=f"{name}:1", name="x" * size).SerializeToString()
    return wire


def test_no_registration_makes_the_list_longer_than_a_message() -> None:
    """A caller that cannot read the answer of `GetNodes` finds no node at all."""
    it = gateway()
    too_long = call(it, "RegisterAgent", described("n", 70_000))
    assert isinstance(too_long, Refuse)
    assert (too_long.status, "65536 bytes" in too_long.details) == ("INVALID_ARGUMENT", True)
    size, names = 60_000, [f"n{n}" for n in range(100)]
    replies = [call(it, "RegisterAgent", described(name, size)) for name in names]
    for reply in replies:
        if isinstance(reply, Dial):
            it.dialed(reply.node, Dialed.CONNECTED, 0.0)
        else:
            assert reply.status == "RESOURCE_EXHAUSTED"
    assert 0 < sum(isinstance(reply, Dial) for reply in replies) < len(replies)
    assert len(call(it, "GetNodes", schema.message("GetNodesRequest", domain="default")).body) < 4 * 2**20
    for n in range(10):  # at their addresses, so that nobody is called
        info = schema.tool().AgentInfo.FromString(described(f"n{n}", 70_000))
        longer = schema.message("UpdateNodeInfoRequest", peer=schema.message("Peer", agent_info=info))
        assert call(it, "UpdateNodeInfo", longer).status == "INVALID_ARGUMENT"


def test_a_subscriber_is_its_call_not_its_name() -> None:
    """One that does not read loses its place; whoever takes its name gets all of its news, and keeps the place."""
    it = gateway()
    asked = schema.message("UpdateSubscriptionRequest", subscriber_id="me")
    slow = call(it, "SubscribeToUpdates", asked, by=Visitor("ann", "127.0.0.1"))
    for _ in range(1001):
        register(it, described("n", 1))
    quick = call(it, "SubscribeToUpdates", asked, by=Visitor("bob", "127.0.0.1"))
    register(it, described("n", 2))
    assert it.events(slow) is None
    it.unwatched(slow)
    assert len(it.events(quick) or []) == 1
    it.unwatched(quick)
    assert it.events(quick) is None
