"""Nodes of a gateway belong to who registered them, and lead nowhere but where their owner may lead."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from bridge import Bridge
from bridge.contract.optional.sessions import Dial, Dialed, Refuse, Visitor
from bridge.dialects.aip import dialect
from bridge.dialects.aip.addresses import AddressRule, plain_address
from bridge.dialects.aip.gateway import Gateway as Machine
from bridge.errors import ConfigError
from bridge.sdk.aip import Gateway
from bridge.testing import fake_backend, free_port

from . import peers, schema
from .peers import agent, client, quest, rest
from .test_gateway import call as asked
from .test_gateway import gateway as machine
from .test_keys import ALICE, BOB, address, guarded, refused
from .test_server import info, served

pytestmark = pytest.mark.interop


def update(node: str, where: str, **more: Any) -> Any:
    return schema.message("UpdateNodeInfoRequest", peer={"agent_info": info("AgentInfo", node, where, **more)})


def named(kind: str, name: str) -> Any:
    return schema.message(kind, **{"node_id" if kind == "DeregisterNodeRequest" else "sender_id": name})


async def said(caller: peers.Client, receiver: str, session: str, **metadata: Any) -> list[tuple[str, str]]:
    """A whole session with an agent behind the gateway."""
    call = caller.gateway.RouteAgentCalling(**metadata)
    await call.write(quest("START_QUEST", "hi", session, receiver))
    await call.write(quest("STOP_QUEST", "bye", session, receiver))
    return await rest(call)


async def nodes(caller: peers.Client, **metadata: Any) -> dict[str, str]:
    listed = await caller.gateway.GetNodes(schema.message("GetNodesRequest", domain="default"), **metadata)
    return {each.agent_info.agent_id: each.agent_info.address for each in listed.peers}


@asynccontextmanager
async def restarted(where: str, answer: str) -> AsyncIterator[None]:
    """An agent at an address of the test's choice, as a node that comes back."""
    node = peers.Agent(lambda m: [peers.reply(m, answer, status="STOP_RESPONSE")] if m.session_status == 3 else [])
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    schema.services().add_AgentServiceServicer_to_server(node, server)
    server.add_insecure_port(where)
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


# ---------------------------------------------------------------------- owners


async def test_a_node_is_changed_by_its_owner_alone(tmp_path: Path) -> None:
    foreign = ("PERMISSION_DENIED", "Node [chat] belongs to another user.")
    async with (
        fake_backend("openai-chat") as model,
        guarded(tmp_path, model.url) as (listen, _),
        agent() as node,
        agent() as other,
        client(listen) as caller,
    ):
        pool = caller.gateway
        assert (await pool.RegisterAgent(info("AgentInfo", "chat", node.address), metadata=BOB)).success
        for changed in (node.address, other.address):
            assert await refused(pool.UpdateNodeInfo(update("chat", changed, name="mine"), metadata=ALICE)) == foreign
            again = pool.RegisterAgent(info("AgentInfo", "chat", changed), metadata=ALICE)
            assert await refused(again) == ("ALREADY_EXISTS", "Agent [chat] already registered.")
        assert await refused(pool.DeregisterNode(named("DeregisterNodeRequest", "chat"), metadata=ALICE)) == foreign
        assert await refused(pool.Heartbeat(named("HeartbeatRequest", "chat"), metadata=ALICE)) == foreign
        assert (await nodes(caller, metadata=ALICE))["chat"] == node.address
        assert (await said(caller, "chat", "s1", metadata=ALICE))[0] == ("HOLD_RESPONSE", "Response to: hi")
        # What is nobody's is told as the reference tells it.
        missing = await refused(pool.UpdateNodeInfo(update("nobody", other.address), metadata=ALICE))
        assert missing == ("NOT_FOUND", "Agent [nobody] not registered.")
        assert not (await pool.DeregisterNode(named("DeregisterNodeRequest", "nobody"), metadata=ALICE)).success
        # The owner may do all of it.
        assert (await pool.Heartbeat(named("HeartbeatRequest", "chat"), metadata=BOB)).success
        assert (await pool.UpdateNodeInfo(update("chat", other.address), metadata=BOB)).success
        assert (await pool.DeregisterNode(named("DeregisterNodeRequest", "chat"), metadata=BOB)).success


async def test_a_subscription_is_ended_by_its_owner_alone(tmp_path: Path) -> None:
    async with (
        fake_backend("openai-chat") as model,
        guarded(tmp_path, model.url) as (listen, _),
        client(listen) as caller,
    ):
        request = schema.message("UpdateSubscriptionRequest", subscriber_id="me")
        updates = caller.gateway.SubscribeToUpdates(request, metadata=BOB)
        await updates.initial_metadata()
        leaving = schema.message("UnsubscribeRequest", subscriber_id="me")
        told = await refused(caller.gateway.Unsubscribe(leaving, metadata=ALICE))
        assert told == ("PERMISSION_DENIED", "Subscriber [me] belongs to another user.")
        assert (await caller.gateway.Unsubscribe(leaving, metadata=BOB)).success
        assert await updates.read() is grpc.aio.EOF


def test_what_others_send_in_a_nodes_name_is_no_beat() -> None:
    it, bob, alice = machine(), Visitor("bob", "127.0.0.1"), Visitor("alice", "127.0.0.1")
    asked(it, "RegisterAgent", info("AgentInfo", "client", "127.0.0.1:9"), 0.0, bob)
    it.dialed("client", Dialed.CONNECTED, 0.0)
    asked(it, "RouteToolCalling", schema.message("ToolRequest", sender_id="client", receiver_id="x"), 20.0, alice)
    assert it.expire(30.1) == ["client"]


async def test_a_node_that_crashed_takes_its_place_at_once(tmp_path: Path) -> None:
    where = f"127.0.0.1:{free_port()}"
    async with served(tmp_path) as (listen, _), client(listen) as caller:
        async with restarted(where, "the first life"):
            await caller.gateway.RegisterAgent(info("AgentInfo", "chat", where, name="old"))
            assert await said(caller, "chat", "s1") == [("STOP_RESPONSE", "the first life")]
        async with restarted(where, "the second life"):
            again = await caller.gateway.RegisterAgent(info("AgentInfo", "chat", where, name="new"))
            assert [p.agent_info.name for p in again.peers if p.agent_info.agent_id == "chat"] == ["new"]
            assert await said(caller, "chat", "s2") == [("STOP_RESPONSE", "the second life")]


async def test_a_session_goes_on_when_its_node_registers_again(tmp_path: Path) -> None:
    async with served(tmp_path) as (listen, _), client(listen) as caller, agent() as node:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        call = caller.open()
        await call.write(quest("START_QUEST", "one", receiver="chat"))
        assert (await call.read()).content[0].text == "Response to: one"
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        await call.write(quest("STOP_QUEST", "two", receiver="chat"))
        assert await rest(call) == [("STOP_RESPONSE", "Response to: two")]


# ---------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("unix:/tmp/agent.sock", "PERMISSION_DENIED"),
        ("unix-abstract:agent", "PERMISSION_DENIED"),
        ("dns:///127.0.0.1:5000", "PERMISSION_DENIED"),
        ("ipv4:127.0.0.1:5000", "PERMISSION_DENIED"),
        ("xds:///agent", "PERMISSION_DENIED"),
        ("DNS:127.0.0.1:5000", "PERMISSION_DENIED"),
        ("10.255.255.1:5000", "PERMISSION_DENIED"),
        ("169.254.169.254:80", "PERMISSION_DENIED"),
        ("0.0.0.0:5000", "PERMISSION_DENIED"),
        ("[::]:5000", "PERMISSION_DENIED"),
        ("[fe80::1]:5000", "PERMISSION_DENIED"),
        ("http://unix:/tmp/agent.sock", "PERMISSION_DENIED"),
        ("https://127.0.0.1:5000", "INVALID_ARGUMENT"),
        ("grpcs://127.0.0.1:5000", "INVALID_ARGUMENT"),
        ("grpc://unix:/tmp/agent.sock", "PERMISSION_DENIED"),
        ("http://user@127.0.0.1:5000", "INVALID_ARGUMENT"),
        ("127.0.0.1", "INVALID_ARGUMENT"),
        ("127.0.0.1:0", "INVALID_ARGUMENT"),
        ("127.0.0.1:65536", "INVALID_ARGUMENT"),
        ("127.0.0.1:80,10.0.0.1:80", "INVALID_ARGUMENT"),
    ],
)
@pytest.mark.parametrize("updated", [False, True], ids=["registered", "updated"])
async def test_a_node_leads_nowhere_but_to_its_callers_host(
    tmp_path: Path, where: str, code: str, updated: bool
) -> None:
    async with served(tmp_path) as (listen, _), client(listen) as caller, agent() as node:
        if updated:
            await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
            told = await refused(caller.gateway.UpdateNodeInfo(update("chat", where)))
            assert (await nodes(caller))["chat"] == node.address
        else:
            told = await refused(caller.gateway.RegisterAgent(info("AgentInfo", "chat", where)))
            assert "chat" not in await nodes(caller)
        assert told[0] == code, told
        assert ("allow_addresses" in told[1]) == (code == "PERMISSION_DENIED")


def resolving(monkeypatch: pytest.MonkeyPatch, **names: list[str]) -> None:
    """Names ending in `.test`, as a name server of the caller's own tells them."""
    known = socket.getaddrinfo

    def look_up(host: Any, *args: Any, **more: Any) -> Any:
        if not str(host).endswith(".test"):
            return known(host, *args, **more)
        found = names[str(host).removesuffix(".test")]
        return [row for address in found for row in known(address, *args, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


async def test_what_a_name_stands_for_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tmp_path) as (listen, _), client(listen) as caller, agent() as node:
        port = node.address.rpartition(":")[2]
        resolving(monkeypatch, inside=["10.0.0.7", "169.254.169.254"], mixed=["10.0.0.7", "127.0.0.1"])
        told = await refused(caller.gateway.RegisterAgent(info("AgentInfo", "chat", f"inside.test:{port}")))
        assert told[0] == "PERMISSION_DENIED"
        # Of several addresses those are connected to that are allowed. Later calls ask no name server any more.
        assert (await caller.gateway.RegisterAgent(info("AgentInfo", "chat", f"mixed.test:{port}"))).success
        resolving(monkeypatch, mixed=["10.0.0.7"])
        assert (await said(caller, "chat", "s1"))[0] == ("HOLD_RESPONSE", "Response to: hi")


async def test_localhost_is_found_in_either_family(tmp_path: Path) -> None:
    async with served(tmp_path) as (listen, _), client(listen) as caller, agent() as node:
        port = node.address.rpartition(":")[2]
        assert (await caller.gateway.RegisterAgent(info("AgentInfo", "chat", f"LocalHost:{port}"))).success
        assert (await said(caller, "chat", "s1"))[0] == ("HOLD_RESPONSE", "Response to: hi")


@pytest.mark.parametrize("scheme", ["http://", "grpc://"])
async def test_an_address_may_be_written_as_a_url(tmp_path: Path, scheme: str) -> None:
    """As published programs do; others read from the list what they can call."""
    async with served(tmp_path) as (listen, _), client(listen) as caller, agent() as node:
        assert (await caller.gateway.RegisterAgent(info("AgentInfo", "chat", f"{scheme}{node.address}/"))).success
        assert (await caller.gateway.UpdateNodeInfo(update("chat", f"{scheme}{node.address}"))).success
        assert (await nodes(caller))["chat"] == node.address
        assert (await said(caller, "chat", "s1"))[0] == ("HOLD_RESPONSE", "Response to: hi")
        taken = await refused(
            caller.gateway.RegisterAgent(info("AgentInfo", "other", f"{scheme.upper()}{node.address}"))
        )
        assert taken == ("ALREADY_EXISTS", f"Address [{node.address}] already registered.")


async def test_an_updated_address_is_the_one_that_is_called(tmp_path: Path) -> None:
    async with served(tmp_path) as (listen, _), client(listen) as caller, agent() as node:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        nowhere = await refused(caller.gateway.UpdateNodeInfo(update("chat", "localhost:bad")))
        assert nowhere[0] == "INVALID_ARGUMENT"
        where = f"127.0.0.1:{free_port()}"
        async with restarted(where, "the new place"):
            assert (await caller.gateway.UpdateNodeInfo(update("chat", where))).success
            assert await said(caller, "chat", "s1") == [("STOP_RESPONSE", "the new place")]
        assert not node.heard


async def test_a_socket_is_called_where_the_configuration_names_it(tmp_path: Path) -> None:
    place = f"unix:{tmp_path}/agent.sock"
    allowed = (f"unix:{tmp_path}/*",)
    async with (
        restarted(place, "a socket"),
        served(tmp_path, allow_addresses=allowed) as (listen, _),
        client(listen) as caller,
    ):
        out = info("AgentInfo", "chat", f"unix:{tmp_path}/../agent.sock")
        assert (await refused(caller.gateway.RegisterAgent(out)))[0] == "PERMISSION_DENIED"
        assert (await caller.gateway.RegisterAgent(info("AgentInfo", "chat", place))).success
        assert await said(caller, "chat", "s1") == [("STOP_RESPONSE", "a socket")]


def admitted(rule: AddressRule, where: str, resolved: str, caller: str | None = "127.0.0.1") -> bool:
    dial = rule.dial("n", where, Visitor("", caller))
    assert isinstance(dial, Dial)
    return dial.admits(resolved)


def test_a_caller_from_another_host_names_that_host() -> None:
    rule = AddressRule.of(())
    assert admitted(rule, "it:1", "10.0.0.5", "10.0.0.5")
    assert admitted(rule, "it:1", "::ffff:10.0.0.5", "10.0.0.5")
    assert admitted(rule, "it:1", "10.0.0.5", "::ffff:10.0.0.5")
    assert not admitted(rule, "it:1", "127.0.0.1", "10.0.0.5"), "our own services are not his"
    assert not admitted(rule, "it:1", "10.0.0.6", "10.0.0.5")
    assert not admitted(rule, "it:1", "127.0.0.1", None)


def test_what_the_configuration_adds() -> None:
    rule = AddressRule.of(("10.0.0.0/8", "192.0.2.7", "*.agents.internal", "Exact.internal"))
    assert admitted(rule, "any.name:1", "10.1.2.3")
    assert admitted(rule, "any.name:1", "192.0.2.7")
    assert admitted(rule, "a.agents.internal:1", "198.51.100.1")
    assert admitted(rule, "exact.internal:1", "198.51.100.1")
    assert not admitted(rule, "agents.internal.evil.example:1", "198.51.100.1")
    for inside in ("127.0.0.1", "169.254.169.254", "::1", "0.0.0.0", "fe80::1"):
        assert not admitted(rule, "a.agents.internal:1", inside, "203.0.113.9"), "an allowed name, led astray"
    assert admitted(AddressRule.of(("*",)), "203.0.113.1:1", "203.0.113.1")


def test_addresses_are_compared_in_one_spelling() -> None:
    spellings = (
        "http://Node:5000/", "HTTP://node:5000", "grpc://node:5000", "GRPC://NODE:5000/", "NODE:5000", "node:5000",
    )  # fmt: skip
    assert {plain_address(each) for each in spellings} == {"node:5000"}
    assert plain_address("unix:/Run/Agent") == "unix:/Run/Agent"


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "agent:5000", "10.*", "", "http://agent", "a b", "tcp:agent"])
def test_an_entry_that_allows_nothing_is_a_mistake(entry: str) -> None:
    with pytest.raises(ConfigError, match="allow_addresses") as caught:
        Bridge.from_config(
            {
                "backends": {"it": {"dialect": "demo"}},
                "routes": [
                    {
                        "dialect": "aip", "listen": address(), "agent_id": "bridge", "backend": "it",
                        "options": {"allow_addresses": [entry]},
                    }
                ],
            }
        )  # fmt: skip
    assert "host bits" in caught.value.message or "expected a network such as 10.0.0.0/8" in caught.value.message
    with pytest.raises(ValueError, match=r"host bits|expected a network"):
        Gateway("127.0.0.1:1", allow_addresses=[entry])


def test_a_new_configuration_brings_its_own_addresses() -> None:
    it = Machine("127.0.0.1:1", {}, allow_addresses=["10.0.0.0/8"])
    it.replace(Machine("127.0.0.1:1", {}))
    dial = asked(it, "RegisterAgent", info("AgentInfo", "a", "10.0.0.1:5"))
    assert not dial.admits("10.0.0.1")


# ---------------------------------------------------------------------- names in texts


async def test_names_of_nodes_are_cut_and_escaped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = "a\nFAKE line\x1b[31m" + "x" * 10_000
    shown = ("a\\nFAKE line\\x1b[31m" + "x" * 64) + "..."

    it = machine()
    it.check_every = 0.01
    asked(it, "RegisterAgent", info("AgentInfo", name, "127.0.0.1:9"))
    it.dialed(name, Dialed.CONNECTED, -100.0)
    for method, body in (
        ("RegisterAgent", info("AgentInfo", name, "127.0.0.1:8")),
        ("UpdateNodeInfo", update("other" + name, "127.0.0.1:8")),
    ):
        reply = asked(it, method, body)
        assert isinstance(reply, Refuse)
        assert reply.details.isprintable()
        assert len(reply.details) < 150
    from bridge.server.grpc.grpc_server import GrpcServer

    server = GrpcServer(address(), dialect, it, dialect.channel(dialect.front_options()), None)  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO, "bridge.grpc"):
        await server.start()
        async with asyncio.timeout(10):
            while len(caplog.records) < 2:
                await asyncio.sleep(0.01)
        await server.stop(0)
    assert caplog.records[1].getMessage() == "node silent"
    assert caplog.records[1].__dict__["facts"]["node"] == shown
