"""Agents of a bridge at an address that a new configuration has, too: swapped, while all that is open goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from bridge import Bridge, ConfigError, Request, ToolCall
from bridge.model import Text
from bridge.sdk.aip import Tool
from bridge.server.host import listeners as listening
from bridge.server.host.http_server import HttpServer
from bridge.testing import free_port

from . import peers, schema
from .peers import client, quest, rest
from .test_model_tools import add
from .test_server import info

pytestmark = pytest.mark.interop


def _words(request: Request) -> str:
    return "".join(part.text for part in request.messages[-1].parts if isinstance(part, Text))


async def first(request: Request) -> AsyncIterator[ToolCall | str]:
    """The backend of the configuration before, whose model may call a tool."""
    if request.messages[-1].role == "tool":
        yield "first, with a tool"
    elif _words(request) == "add":
        yield ToolCall("c", "add", '{"a": 1, "b": 2}')
    else:
        yield f"first: {_words(request)}"


async def second(request: Request) -> AsyncIterator[str]:
    """The backend of the new one."""
    yield f"second: {_words(request)}"


def bridge(listen: str, backend: Callable[..., Any], folder: Path, *agents: str, **options: Any) -> Bridge:
    routes = [
        {"dialect": "aip", "listen": listen, "agent_id": agent, "backend": "it", "options": options}
        for agent in agents or ("bridge",)
    ]
    return Bridge.from_config(
        {
            "backends": {"it": {"dialect": "python", "target": f"{__name__}:{backend.__name__}"}},
            "routes": routes,
            "stores": {"history": f"sqlite:///{folder}/h.db"},
        }
    )


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections over HTTP are not waited for, which would hide what becomes of sessions meanwhile."""
    monkeypatch.setattr(sys.modules[HttpServer.__module__], "_FRESH", 0.0)


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[tuple[str, HttpServer, list[Any]]]:
    """What is served first; gives its address, and the sockets that stay."""
    listen, sockets = f"127.0.0.1:{free_port()}", listening.bind("127.0.0.1", 0)
    before = HttpServer(bridge(listen, first, tmp_path), sockets)
    async with asyncio.timeout(60):
        await before.start()
        try:
            yield listen, before, sockets
        finally:
            await before.close()
            listening.close(sockets)


async def test_new_sessions_are_the_new_agents_and_open_ones_go_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as (listen, before, sockets), peers.agent() as node, client(listen) as caller:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        open_one, relayed = caller.open(), caller.open()
        await open_one.write(quest("START_QUEST", "a", session="open"))
        assert (await open_one.read()).content[0].text == "first: a"
        await relayed.write(quest("START_QUEST", "x", session="relayed", receiver="chat"))
        assert (await relayed.read()).content[0].text == "Response to: x"
        watching = caller.gateway.SubscribeToUpdates(schema.message("UpdateSubscriptionRequest", subscriber_id="w"))
        await watching.initial_metadata()

        after = HttpServer(bridge(listen, second, tmp_path, "bridge", "more"), sockets, before=before)
        await after.start()
        leaving = asyncio.create_task(before.retire())
        try:
            fresh = caller.open()
            await fresh.write(quest("START_QUEST", "b", session="fresh"))
            assert (await fresh.read()).content[0].text == "second: b"
            nodes = await caller.gateway.GetNodes(schema.message("GetNodesRequest", domain="default"))
            assert [peer.agent_info.agent_id for peer in nodes.peers] == ["bridge", "more", "chat"]

            # The tools at the gateway are found for those, too, that were there before.
            tool = Tool.create_function_tool(add, f"127.0.0.1:{free_port()}", "adder")
            async with tool:
                await tool.register_to_gateway(listen)
                assert (await watching.read()).node_id == "adder"
                await open_one.write(quest("HOLD_QUEST", "add", session="open"))
                assert (await open_one.read()).content[0].text == "first, with a tool"
            await relayed.write(quest("HOLD_QUEST", "y", session="relayed", receiver="chat"))
            assert (await relayed.read()).content[0].text == "Response to: y"
            same = caller.open()
            await same.write(quest("START_QUEST", "c", session="open"))
            with pytest.raises(grpc.aio.AioRpcError, match="is already registered"):
                await rest(same)

            assert not leaving.done()
            await open_one.write(quest("STOP_QUEST", session="open"))
            assert await rest(open_one) == [("STOP_RESPONSE", "Session closed")]
            await leaving
            await relayed.write(quest("STOP_QUEST", session="relayed", receiver="chat"))
            assert await rest(relayed) == [("STOP_RESPONSE", "Response to: bye")]
            await fresh.write(quest("HOLD_QUEST", "d", session="fresh"))
            assert (await fresh.read()).content[0].text == "second: d"
            watching.cancel()
        finally:
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            await after.stop(1)
            await after.close()
        assert await rest(fresh) == [("STOP_RESPONSE", "Session closed")]


async def test_who_stops_says_goodbye_to_sessions_of_all_configurations(tmp_path: Path) -> None:
    async with serving(tmp_path) as (listen, before, sockets), client(listen) as caller:
        calls, retired, now = [], [], before
        for name, backend in (("one", second), ("two", first), ("three", second)):
            call = caller.open()
            await call.write(quest("START_QUEST", "a", session=name))
            await call.read()
            calls.append(call)
            following = HttpServer(bridge(listen, backend, tmp_path), sockets, before=now)
            await following.start()
            retired.append(asyncio.create_task(now.retire()))
            now = following
        await now.stop(5)
        assert [await rest(call) for call in calls] == [[("STOP_RESPONSE", "Session closed")]] * 3
        await asyncio.gather(*retired)
        await now.close()


@pytest.mark.parametrize(
    ("agents", "options", "told"),
    [
        (
            ("bridge",),
            {"max_message": 1000},
            "tls and max_message of .* belong to its listener: a change needs a restart",
        ),
        (
            ("bridge",),
            {"mode": "agent", "gateway": "127.0.0.1:1"},
            "registers at another gateway: a change needs",
        ),
        (("bridge", "chat"), {}, "agent_id chat belongs to a node that is registered at"),
    ],
)
async def test_what_cannot_be_taken_over_changes_nothing(
    tmp_path: Path, agents: tuple[str, ...], options: dict[str, Any], told: str
) -> None:
    async with serving(tmp_path) as (listen, before, sockets), peers.agent() as node, client(listen) as caller:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        following = HttpServer(bridge(listen, second, tmp_path, *agents, **options), sockets, before=before)
        with pytest.raises(ConfigError, match=told):
            await following.start()
        await following.close()
        call = caller.open()
        await call.write(quest("START_QUEST", "a"))
        assert (await call.read()).content[0].text == "first: a"
        await call.write(quest("STOP_QUEST"))
        assert await rest(call) == [("STOP_RESPONSE", "Session closed")]
