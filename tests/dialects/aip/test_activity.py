"""What a gateway tells its operators: a log line for each change of a node, session and tool call, and counters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from bridge import Bridge, ToolCall
from bridge.sdk.aip import Agent, Gateway, Tool
from bridge.server import running
from bridge.testing import fake_backend, free_port
from tests.server.test_metrics import Labels, of, read

from . import peers, schema
from .peers import agent, client, quest, rest, tool
from .test_keys import ALICE, BOB, address, guarded, refused
from .test_owners import named, update
from .test_server import info, served

pytestmark = pytest.mark.interop


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    """Message and facts of what the gateway logged, without the times that calls took."""
    found = []
    for record in caplog.records:
        facts = dict(record.__dict__.get("facts") or {})
        if record.name == "bridge.grpc" and facts:
            assert record.levelno == logging.INFO
            if "total_ms" in facts:
                assert facts.pop("total_ms") >= 0
            found.append((record.getMessage(), facts))
    return found


async def until(caplog: pytest.LogCaptureFixture, count: int) -> list[tuple[str, dict[str, Any]]]:
    """The lines, once there are so many: a call is over for its caller before it is logged."""
    async with asyncio.timeout(10):
        while len(lines(caplog)) < count:
            await asyncio.sleep(0.01)
    return lines(caplog)


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.grpc")


async def test_what_becomes_of_nodes_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with served(tmp_path) as (listen, _), client(listen) as caller, agent() as node, tool() as adder:
        pool = caller.gateway
        await pool.RegisterAgent(info("AgentInfo", "chat", node.address))
        await pool.RegisterTool(info("ToolInfo", "adder", adder.address))
        await pool.UpdateNodeInfo(update("chat", node.address, name="new"))
        await pool.RegisterAgent(info("AgentInfo", "chat", node.address))
        await pool.DeregisterNode(named("DeregisterNodeRequest", "adder"))
        await pool.Heartbeat(named("HeartbeatRequest", "chat"))
        await pool.GetNodes(schema.message("GetNodesRequest", domain="default"))
        assert await refused(pool.RegisterAgent(info("AgentInfo", "other", node.address))) == (
            "ALREADY_EXISTS", f"Address [{node.address}] already registered.",
        )  # fmt: skip
        told = await until(caplog, 6)
    chat = {"node": "chat", "kind": "agent", "address": node.address}
    assert told == [
        ("node registered", chat),
        ("node registered", {"node": "adder", "kind": "tool", "address": adder.address}),
        ("node updated", chat),
        ("node registered", chat),
        ("node deregistered", {"node": "adder", "kind": "tool", "address": adder.address}),
        (
            "register refused",
            {
                "status": "ALREADY_EXISTS", "details": f"Address [{node.address}] already registered.",
                "peer": "127.0.0.1",
            },
        ),
    ]  # fmt: skip


async def test_sessions_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with served(tmp_path) as (listen, _), client(listen) as caller, agent() as node:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        for name, receiver in (("own", "bridge"), ("relayed", "chat")):
            call = caller.open()
            await call.write(quest("START_QUEST", "hi", name, receiver))
            await call.write(quest("STOP_QUEST", "bye", name, receiver))
            await rest(call)
        left = caller.open()
        await left.write(quest("START_QUEST", "hi", "left", "chat"))
        await left.read()
        left.cancel()
        told = await until(caplog, 7)
        nobody = caller.open()
        await nobody.write(quest("START_QUEST", "hi", "s", "nobody"))
        assert (await refused(rest(nobody)))[0] == "NOT_FOUND"
        told = await until(caplog, 8)

    def line(event: str, session: str, receiver: str, **more: str) -> tuple[str, dict[str, str]]:
        return f"session {event}", {"node": receiver, "session": session, "peer": "127.0.0.1", **more}

    assert told[1:] == [
        line("started", "own", "bridge"),
        line("ended", "own", "bridge", status="OK"),
        line("started", "relayed", "chat"),
        line("ended", "relayed", "chat", status="OK"),
        line("started", "left", "chat"),
        line("ended", "left", "chat", status="CANCELLED"),
        (
            "session refused",
            {
                "status": "NOT_FOUND", "details": "Receiver not found: no agent [nobody] is registered here.",
                "peer": "127.0.0.1",
            },
        ),
    ]  # fmt: skip


async def test_tool_calls_are_logged_and_a_tools_own_error_is_none_of_ok(caplog: pytest.LogCaptureFixture) -> None:
    def divide(a: int, b: int) -> float:
        return a / b

    divider = Tool.create_function_tool(divide, address(), "divider")
    async with Gateway(address()) as gateway, divider, Agent(address(), "asker") as asker, tool() as broken:
        await divider.register_to_gateway(gateway.address)
        await asker.register_to_gateway(gateway.address)
        async with client(gateway.address) as caller:
            await caller.gateway.RegisterTool(info("ToolInfo", "broken", broken.address))
        caplog.clear()
        assert not (await asker.call_tool("divider", arguments={"a": 1, "b": 2})).is_error
        assert (await asker.call_tool("divider", arguments={"a": 1, "b": 0})).is_error
        broken.fail = grpc.StatusCode.INTERNAL
        assert (await refused(asker.call_tool("broken")))[0] == "INTERNAL"
        broken.fail = grpc.StatusCode.UNAVAILABLE
        assert (await refused(asker.call_tool("broken")))[0] == "UNAVAILABLE"
        assert (await refused(asker.call_tool("nothing")))[0] == "NOT_FOUND"
        told = [line for line in await until(caplog, 8) if line[1].get("kind") != "agent"]
    here = {"peer": "127.0.0.1"}
    at_tool = [line for line in told if line[1].get("node") == "divider" and line[1].get("status")]
    # The tool's own program logs its calls, too; both ends are in one process here.
    assert sorted(line[1]["status"] for line in at_tool) == ["OK", "OK", "tool_error", "tool_error"]
    assert [line for line in told if line not in at_tool] == [
        ("tool call", {"node": "broken", **here, "status": "INTERNAL", "details": "the tool's own words"}),
        ("node unreachable", {"node": "broken", "kind": "tool", "address": broken.address}),
        ("tool call", {"node": "broken", **here, "status": "UNAVAILABLE", "details": "the tool's own words"}),
        (
            "call refused",
            {
                "status": "NOT_FOUND", "details": "Receiver not found: no tool [nothing] is registered here.", **here,
            },
        ),
    ]  # fmt: skip


async def test_users_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        fake_backend("openai-chat") as model,
        guarded(tmp_path, model.url) as (listen, _),
        agent() as node,
        client(listen) as caller,
    ):
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address), metadata=BOB)
        call = caller.gateway.RouteAgentCalling(metadata=ALICE)
        await call.write(quest("START_QUEST", "hi", "s1", "chat"))
        await call.write(quest("STOP_QUEST", "bye", "s1", "chat"))
        await rest(call)
        told = await until(caplog, 3)
    assert told[:3] == [
        ("node registered", {"node": "chat", "kind": "agent", "address": node.address, "user": "bob"}),
        ("session started", {"node": "chat", "session": "s1", "user": "alice", "peer": "127.0.0.1"}),
        ("session ended", {"node": "chat", "session": "s1", "user": "alice", "peer": "127.0.0.1", "status": "OK"}),
    ]


async def test_foreign_names_are_cut_and_escaped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = "a\nFAKE\x1b[31m" + "x" * 10_000
    async with served(tmp_path) as (listen, _), client(listen) as caller, agent() as node:
        await caller.gateway.RegisterAgent(info("AgentInfo", name, node.address))
        call = caller.open()
        await call.write(quest("START_QUEST", "hi", name, name))
        await call.write(quest("STOP_QUEST", "bye", name, name))
        await rest(call)
        told = await until(caplog, 3)
    for _, facts in told[:3]:
        assert all(value.isprintable() and len(value) < 150 for value in facts.values())


# ---------------------------------------------------------------------- counters


@asynccontextmanager
async def counted(model: str) -> AsyncIterator[tuple[str, str]]:
    """A gateway whose metrics are served; its address and the server's URL. The address is a label of its own."""
    listen, port = address(), free_port()
    config = {
        "server": {"port": port, "drain": "1s"},
        "backends": {"llm": {"dialect": "openai-chat", "url": model}},
        "routes": [{"dialect": "aip", "listen": listen, "agent_id": "bridge", "backend": "llm"}],
    }
    async with asyncio.timeout(60), running(Bridge.from_config(config)):
        yield listen, f"http://127.0.0.1:{port}"


async def at_last(base: str, name: str, value: float, **labels: str) -> dict[str, dict[Labels, float]]:
    """The metrics, once this one has the value: a call is over for its caller before it is counted."""
    async with asyncio.timeout(10):
        while of(metrics := await read(base), name, **labels) != value:
            await asyncio.sleep(0.01)
    return metrics


async def test_nodes_sessions_and_tool_calls_are_counted() -> None:
    async with (
        fake_backend("openai-chat") as model,
        counted(model.url) as (listen, base),
        client(listen) as caller,
        agent() as node,
        tool() as adder,
    ):
        pool = caller.gateway
        await pool.RegisterAgent(info("AgentInfo", "chat", node.address))
        await pool.RegisterTool(info("ToolInfo", "adder", adder.address, arguments={"a": "<class 'int'>"}))
        await refused(pool.RegisterAgent(info("AgentInfo", "other", node.address)))
        call = caller.open()
        await call.write(quest("START_QUEST", "hi", "s1", "chat"))
        await call.write(quest("STOP_QUEST", "bye", "s1", "chat"))
        await rest(call)
        await pool.RouteToolCalling(peers.schema.message("ToolRequest", receiver_id="adder", arguments={"a": "1"}))
        await refused(pool.RouteToolCalling(schema.message("ToolRequest", receiver_id="nothing")))
        # A call by the model behind the route is one, too.
        model.turns([ToolCall("c", "adder", '{"a": 2}')], ["2"])
        own = caller.open()
        await own.write(quest("START_QUEST", "add", "s2"))
        assert (await own.read()).content[0].text == "2"
        own.cancel()
        await pool.DeregisterNode(named("DeregisterNodeRequest", "adder"))

        at = {"listen": listen}
        calls, changes = "bridge_agent_calls_total", "bridge_node_changes_total"
        metrics = await at_last(base, calls, 1, **at, operation="session", status="CANCELLED")
        assert of(metrics, calls, **at, operation="session", status="OK") == 1
        assert of(metrics, calls, **at, operation="call", status="OK") == 2
        assert of(metrics, calls, **at, operation="call", status="NOT_FOUND") == 1
        assert of(metrics, calls, **at, operation="register", status="OK") == 2
        assert of(metrics, calls, **at, operation="register", status="ALREADY_EXISTS") == 1
        assert of(metrics, changes, **at, kind="agent", change="registered") == 1
        assert of(metrics, changes, **at, kind="tool", change="registered") == 1
        assert of(metrics, changes, **at, kind="tool", change="deregistered") == 1
