"""Nodes that register at one process of a gateway are reachable through all of them, over one PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from bridge.dialects.aip import dialect
from bridge.errors import BridgeError
from bridge.server.grpc.node_registry import Nodes
from bridge.server.grpc.sharing import Sharing
from bridge.stores import open_places
from bridge.testing import free_port
from tests.operations.processes import Process, started
from tests.stores.conftest import Postgres, postgres, postgres_schema  # noqa: F401

from . import schema
from .peers import Client, agent, client, quest, rest, text, tool
from .test_gateway import call, gateway, listed, register
from .test_server import info

pytestmark = pytest.mark.interop


class Member:
    """One process of the gateway, and a caller of it."""

    def __init__(self, process: Process, address: str, caller: Client) -> None:
        self.process = process
        self.address = address
        self.caller = caller

    async def nodes(self) -> list[str]:
        found = await self.caller.gateway.GetNodes(schema.message("GetNodesRequest", domain="default"))
        return sorted(p.agent_info.agent_id or p.tool_info.tool_id for p in found.peers)

    async def until_nodes(self, *names: str) -> None:
        async with asyncio.timeout(30):
            while await self.nodes() != sorted(["bridge", *names]):
                assert self.process.process.poll() is None, self.process.log
                await asyncio.sleep(0.05)

    async def beats(self, name: str) -> bool:
        answer = await self.caller.gateway.Heartbeat(schema.message("HeartbeatRequest", sender_id=name))
        done: bool = answer.success
        return done


@asynccontextmanager
async def members(folder: Path, url: str, count: int = 2) -> AsyncIterator[list[Member]]:
    async with AsyncExitStack() as stack:
        found = []
        for number in range(count):
            home = folder / str(number)
            home.mkdir()
            address = f"127.0.0.1:{free_port()}"
            config = {
                "stores": {"history": "off", "runs": url},
                "backends": {"it": {"dialect": "demo"}},
                "routes": [
                    {"dialect": "aip", "listen": address, "agent_id": "bridge", "backend": "it"},
                ],
            }  # fmt: skip
            process = stack.enter_context(started(home, config, forked=True))
            await asyncio.to_thread(process.until_served)
            found.append(Member(process, address, await stack.enter_async_context(client(address))))
        yield found


async def asked(member: Member, receiver: str, session: str) -> list[tuple[str, str]]:
    call = member.caller.open()
    await call.write(quest("START_QUEST", "hi", session=session, receiver=receiver))
    await call.write(quest("STOP_QUEST", session=session, receiver=receiver))
    return await rest(call)


async def test_two_processes_know_the_nodes_of_both(postgres_schema: Postgres, tmp_path: Path) -> None:  # noqa: F811
    async with members(tmp_path, postgres_schema.url) as (one, other), agent() as chat, tool() as adder:
        await one.caller.gateway.RegisterAgent(info("AgentInfo", "chat", chat.address))
        await other.caller.gateway.RegisterTool(info("ToolInfo", "adder", adder.address))
        for member in (one, other):
            await member.until_nodes("adder", "chat")
        # Each forwards to a node that it has never dialed.
        said = [("HOLD_RESPONSE", "Response to: hi"), ("STOP_RESPONSE", "Response to: bye")]
        assert await asked(other, "chat", "s1") == said
        request = schema.message("ToolRequest", sender_id="me", receiver_id="adder", arguments={"a": "1", "b": "2"})
        assert list((await one.caller.gateway.RouteToolCalling(request)).content) == text("3")
        # An id is taken everywhere, and whoever is called lets a node change what it registered.
        async with agent() as twin:
            with pytest.raises(grpc.aio.AioRpcError) as taken:
                await other.caller.gateway.RegisterAgent(info("AgentInfo", "chat", twin.address))
            assert taken.value.code() is grpc.StatusCode.ALREADY_EXISTS
        gone = schema.message("DeregisterNodeRequest", node_id="chat")
        assert (await other.caller.gateway.DeregisterNode(gone)).success
        await one.until_nodes("adder")
        # A process that dies takes no node along.
        other.process.process.kill()
        assert await one.beats("adder")
        assert list((await one.caller.gateway.RouteToolCalling(request)).content) == text("3")


TIMEOUT = 2.0


class Half:
    """One process of a gateway without its listener."""

    def __init__(self, url: str) -> None:
        self.gateway = gateway()
        self.gateway.heartbeat_timeout = TIMEOUT
        self.nodes = Nodes(dialect.channel(dialect.front_options()))
        places = open_places(url, "nodes of a gateway")
        assert places is not None
        self.sharing = Sharing(places, self.gateway, self.nodes)

    def register(self, name: str, address: str) -> None:
        body = schema.message("AgentInfo", agent_id=name, address=address).SerializeToString()
        register(self.gateway, body, now=time.monotonic())

    def heartbeat(self, name: str) -> None:
        call(self.gateway, "Heartbeat", schema.message("HeartbeatRequest", sender_id=name), time.monotonic())

    async def beat(self) -> list[str]:
        """One round: exchange, then forget the silent ones. Return the nodes."""
        await self.sharing.exchange()
        self.gateway.expire(time.monotonic())
        return sorted(set(listed(self.gateway)) - {"bridge"})


@pytest.fixture
async def halves(postgres_schema: Postgres) -> AsyncIterator[list[Half]]:  # noqa: F811
    found = [Half(postgres_schema.url) for _ in range(2)]
    yield found
    for half in found:
        await half.nodes.close()
        await half.sharing.close()


async def test_heartbeats_may_come_to_any_process(halves: list[Half]) -> None:
    one, other = halves
    one.register("heard", "h:1")
    one.register("silent", "s:1")
    until = time.monotonic() + 1.5 * TIMEOUT
    while time.monotonic() < until:
        other.heartbeat("heard")
        for half in halves:
            await half.beat()
        await asyncio.sleep(0.05)
    assert [await half.beat() for half in halves] == [["heard"], ["heard"]]


async def test_a_process_that_dies_takes_no_node_along(halves: list[Half]) -> None:
    one, other = halves
    one.register("a", "h:1")
    assert [await half.beat() for half in halves] == [["a"], ["a"]]
    until = time.monotonic() + 1.5 * TIMEOUT
    while time.monotonic() < until:
        other.heartbeat("a")
        assert await other.beat() == ["a"]
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.2 * TIMEOUT)
    assert await other.beat() == []


async def test_whoever_notices_that_a_node_left_tells_the_others(halves: list[Half]) -> None:
    one, other = halves
    for name in ("left", "lost", "stays"):
        one.register(name, f"{name}:1")
    assert [await half.beat() for half in halves] == [["left", "lost", "stays"]] * 2
    call(other.gateway, "DeregisterNode", schema.message("DeregisterNodeRequest", node_id="left"), time.monotonic())
    other.gateway.lost("lost")
    assert [await half.beat() for half in (other, one)] == [["stays"]] * 2
    one.register("lost", "lost:1")
    assert [await half.beat() for half in halves] == [["lost", "stays"]] * 2


async def test_a_node_that_registers_again_elsewhere_moves(halves: list[Half]) -> None:
    one, other = halves
    one.register("a", "h:1")
    assert [await half.beat() for half in halves] == [["a"], ["a"]]
    other.register("a", "h:1")
    assert [await half.beat() for half in (other, one)] == [["a"], ["a"]]
    assert ([*one.gateway.shared()], [*other.gateway.shared()]) == ([], ["a"])


async def test_what_is_registered_during_an_exchange_stays(halves: list[Half], monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = halves
    exchange = one.sharing._places.exchange

    async def slow(*args: Any) -> Any:
        found = await exchange(*args)
        if "late" not in one.gateway.nodes:
            one.register("late", "l:1")
        return found

    monkeypatch.setattr(one.sharing._places, "exchange", slow)
    for _ in range(3):
        assert await one.beat() == ["late"]


async def test_a_database_that_is_away_changes_nothing(halves: list[Half], postgres_schema: Postgres) -> None:  # noqa: F811
    one, other = halves
    one.register("a", "h:1")
    for half in halves:
        await half.beat()
    await postgres_schema.down()
    with pytest.raises(BridgeError):
        await other.beat()
    assert listed(other.gateway) == ["bridge", "a"]
    call(other.gateway, "DeregisterNode", schema.message("DeregisterNodeRequest", node_id="a"), time.monotonic())
    with pytest.raises(BridgeError):
        await other.beat()
    await postgres_schema.up()
    assert [await half.beat() for half in (other, one)] == [[], []]
