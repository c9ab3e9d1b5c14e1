"""Sessions between a caller and a foreign agent, through a gateway: who ends them, and what does not get through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from bridge.testing import free_port

from . import schema
from .peers import Agent, agent, client, quest, reply, rest
from .test_hardness import failed, unharmed
from .test_server import info, served

pytestmark = pytest.mark.interop


async def test_a_caller_who_has_said_everything_still_hears_everything(tmp_path: Any) -> None:
    """A half-close ends nothing: the node is told of it, and the session is open until the node ends it."""
    told, go_on = asyncio.Event(), asyncio.Event()

    class Patient(Agent):
        async def CallAgent(self, messages: Any, context: Any) -> AsyncIterator[Any]:
            asked = [each async for each in messages]
            told.set()
            await go_on.wait()
            yield reply(asked[0], "late")
            yield reply(asked[0], "bye", status="STOP_RESPONSE")

    async with served(tmp_path) as (address, _), agent(Patient()) as node, client(address) as caller:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        call = caller.open()
        await call.write(quest("START_QUEST", "hi", receiver="chat"))
        await call.done_writing()
        await told.wait()
        go_on.set()
        assert await rest(call) == [("HOLD_RESPONSE", "late"), ("STOP_RESPONSE", "bye")]
        assert await call.code() is grpc.StatusCode.OK


async def test_a_half_closed_session_is_open_until_its_callers_deadline(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), agent() as node, client(address) as caller:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        node.script = lambda asked: [] if asked.session_status == 0 else [reply(asked, "bye", status="STOP_RESPONSE")]
        node.hold = asyncio.Event()
        call = caller.gateway.RouteAgentCalling(timeout=0.5)
        await call.write(quest("START_QUEST", "hi", receiver="chat"))
        await call.done_writing()
        assert (await failed(call))[0] == "DEADLINE_EXCEEDED"
        # The agent that nobody waits for any more is asked to end, and goes on for others.
        node.hold.set()
        await node.ended.wait()
        assert (node.told, node.canceled) == ([(0, "hi"), (3, "bye")], 0)


async def test_a_stop_response_ends_the_session_although_the_agent_leaves_the_call_open(tmp_path: Any) -> None:
    left = asyncio.Event()

    class Open(Agent):
        async def CallAgent(self, messages: Any, context: Any) -> AsyncIterator[Any]:
            try:
                async for asked in messages:
                    self.heard.append(asked)
                    yield reply(asked, "all", status="STOP_RESPONSE")
            finally:
                left.set()

    async with served(tmp_path) as (address, _), agent(Open()) as node, client(address) as caller:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        call = caller.open()
        await call.write(quest("START_QUEST", "hi", receiver="chat"))
        assert await rest(call) == [("STOP_RESPONSE", "all")]
        assert await call.code() is grpc.StatusCode.OK
        await left.wait()
        assert node.told == [(0, "hi")], "nothing follows its goodbye"
        again = caller.open()
        await again.write(quest("START_QUEST", "again", receiver="chat"))
        assert await rest(again) == [("STOP_RESPONSE", "all")]


async def test_a_second_session_of_one_id_does_not_steal_the_answers_of_the_first(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), agent() as node, client(address) as caller:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        node.hold = asyncio.Event()
        first, second = caller.open(), caller.open()
        await first.write(quest("START_QUEST", "mine", receiver="chat"))
        while not node.heard:
            await asyncio.sleep(0.01)
        await second.write(quest("START_QUEST", "theirs", receiver="chat"))
        told = "Session_id [s1] is already registered in server"
        assert await failed(second) == ("INVALID_ARGUMENT", told)
        node.hold.set()
        await first.write(quest("STOP_QUEST", receiver="chat"))
        assert [text for _, text in await rest(first)] == ["Response to: mine", "Response to: bye"]


async def test_odd_messages_do_not_reach_an_agent_as_they_are(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), agent() as node, client(address) as caller:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        empty = quest("HOLD_QUEST", receiver="chat")
        del empty.content[:]
        call = caller.open()
        for message in (
            quest("START_QUEST", "one", receiver="chat"),
            quest("HOLD_QUEST", "two", receiver="chat", session="s9"),
            empty,
            quest("STOP_QUEST", receiver="chat"),
            quest("HOLD_QUEST", "late", receiver="chat"),
        ):
            await call.write(message)
        assert [text.removeprefix("Response to: ") for _, text in await rest(call)] == ["one", "two", "", "bye"]
        assert {m.session_id for m in node.heard} == {"s1"}


async def test_an_agent_whose_connection_breaks_is_forgotten(tmp_path: Any) -> None:
    async with (
        served(tmp_path) as (address, _),
        agent() as node,
        client(address) as caller,
        unharmed(address),
        wire_to(node.address) as (front, cut),
    ):
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", front))
        call = caller.open()
        await call.write(quest("START_QUEST", "hi", receiver="chat"))
        await call.read()
        cut()
        assert (await failed(call))[0] == "UNAVAILABLE"
        nodes = await caller.gateway.GetNodes(schema.message("GetNodesRequest", domain="default"))
        assert [p.agent_info.agent_id for p in nodes.peers] == ["bridge"]


@pytest.mark.parametrize("sender", ["", "nobody that is registered", "bridge"])
async def test_any_sender_is_taken(tmp_path: Any, sender: str) -> None:
    async with served(tmp_path) as (address, _), agent() as node, client(address) as caller:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        first = quest("START_QUEST", "hi", receiver="chat")
        first.sender_id = sender
        call = caller.open()
        await call.write(first)
        assert (await call.read()).receiver_id == sender


@asynccontextmanager
async def wire_to(address: str) -> AsyncIterator[tuple[str, Any]]:
    """An address whose connections lead to another one, and what cuts all of them."""
    writers: list[asyncio.StreamWriter] = []
    tasks: list[asyncio.Task[None]] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = address.rpartition(":")
        inner, outer = await asyncio.open_connection(host, int(port))
        writers.extend((writer, outer))
        tasks.extend((asyncio.create_task(copy(reader, outer)), asyncio.create_task(copy(inner, writer))))

    server = await asyncio.start_server(connected, "127.0.0.1", port := free_port())

    def cut() -> None:
        server.close()
        for writer in writers:
            writer.transport.abort()

    try:
        yield f"127.0.0.1:{port}", cut
    finally:
        cut()
        await asyncio.gather(*tasks, return_exceptions=True)
