"""What peers do wrong, and many of them at once: whoever it was hears why, and nobody else notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from bridge.sdk.aip import Agent, Gateway
from bridge.testing import free_port

from . import schema
from .peers import agent, client, quest, rest, tool
from .test_server import info, served

pytestmark = pytest.mark.interop


@asynccontextmanager
async def unharmed(address: str, receiver: str = "bridge") -> AsyncIterator[None]:
    """A session that was open before the block is answered behind it, and a new one, too."""
    async with client(address) as caller:
        call = caller.open()
        await call.write(quest("START_QUEST", "before", session="unharmed", receiver=receiver))
        assert (await call.read()).content[0].text.endswith("before")
        yield
        await call.write(quest("HOLD_QUEST", "after", session="unharmed", receiver=receiver))
        await call.write(quest("STOP_QUEST", session="unharmed", receiver=receiver))
        assert (await rest(call))[0][1].endswith("after")
        fresh = caller.open()
        await fresh.write(quest("START_QUEST", "new", session="new", receiver=receiver))
        assert (await fresh.read()).content[0].text.endswith("new")


async def failed(call: Any) -> tuple[str, str]:
    """Status and details of a call that ends badly."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rest(call)
    return caught.value.code().name, caught.value.details() or ""


# ---------------------------------------------------------------------- wrong messages


@pytest.mark.parametrize("method", ["AgentService/CallAgent", "GatewayService/RouteAgentCalling"])
async def test_bytes_that_are_no_message(tmp_path: Any, method: str) -> None:
    async with served(tmp_path) as (address, _), unharmed(address), grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(f"/grpc_service.{method}")()
        await call.write(b"\xff\xff\xff")
        code, details = await failed(call)
        assert (code, details[:53]) == ("INVALID_ARGUMENT", "expected an AgentMessage, got bytes that are not one ")


async def test_bytes_that_are_no_message_amid_a_session(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), unharmed(address), grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream("/grpc_service.AgentService/CallAgent")()
        await call.write(quest("START_QUEST", "one").SerializeToString())
        await call.read()
        await call.write(b"\xff\xff\xff")
        answer = schema.tool().AgentMessage.FromString(await call.read())
        assert answer.task_info.task_status == schema.tool().TaskInfo.BREAK
        assert answer.content[0].text.startswith("Error: body: expected an AgentMessage")
        # The session goes on.
        await call.write(quest("HOLD_QUEST", "two").SerializeToString())
        assert schema.tool().AgentMessage.FromString(await call.read()).content[0].text == "You said two"


@pytest.mark.parametrize("direct", [False, True], ids=["gateway", "direct"])
async def test_a_message_that_is_too_large(tmp_path: Any, direct: bool) -> None:
    async with served(tmp_path, max_message="64KiB") as (address, _), unharmed(address), client(address) as caller:
        first = quest("START_QUEST", "x" * 70_000)
        call = caller.open(direct=direct)
        await call.write(first)
        code, details = await failed(call)
        # Newer versions of grpc put in front which side it was.
        told = f"Received message larger than max ({first.ByteSize()} vs. 65536)"
        assert (code, details.removeprefix("SERVER: ")) == ("RESOURCE_EXHAUSTED", told)
        amid = caller.open(direct=direct)
        await amid.write(quest("START_QUEST", "small", session="amid"))
        await amid.read()
        await amid.write(quest("HOLD_QUEST", "x" * 70_000, session="amid"))
        assert (await failed(amid))[0] in ("RESOURCE_EXHAUSTED", "CANCELLED")


async def test_odd_messages_are_taken_as_they_are_meant(tmp_path: Any) -> None:
    """A second START_QUEST holds, a changed receiver or session id is none, no content is empty text (section 5)."""
    async with served(tmp_path) as (address, behind), client(address) as caller:
        call = caller.open()
        empty = quest("HOLD_QUEST", "gone")
        del empty.content[:]
        for message in (
            quest("START_QUEST", "one"), quest("START_QUEST", "two"), quest("HOLD_QUEST", "three", receiver="other"),
            quest("HOLD_QUEST", "four", session="another"), empty, quest("STOP_QUEST"), quest("HOLD_QUEST", "late"),
        ):  # fmt: skip
            await call.write(message)
        said = await rest(call)
        assert [text for _, text in said] == [
            "You said one", "You said two", "You said three", "You said four", "You said ", "Session closed",
        ]  # fmt: skip
        assert await call.code() is grpc.StatusCode.OK
        assert len(behind.requests) == 5


async def test_a_tool_node_that_is_gone(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), unharmed(address), client(address) as caller:
        async with tool() as node:
            await caller.gateway.RegisterTool(info("ToolInfo", "adder", node.address))
        request = schema.message("ToolRequest", receiver_id="adder")
        codes = []
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await caller.gateway.RouteToolCalling(request)
            codes.append(caught.value.code().name)
        # Who cannot be reached is forgotten.
        assert codes == ["UNAVAILABLE", "NOT_FOUND"]


async def test_an_agent_that_dies_amid_a_session(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), unharmed(address), client(address) as caller:
        async with agent() as node:
            await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
            call = caller.open()
            await call.write(quest("START_QUEST", "hi", receiver="chat"))
            await call.read()
        assert (await failed(call))[0] in ("UNAVAILABLE", "CANCELLED")


# ---------------------------------------------------------------------- callers who leave


async def test_an_agent_survives_a_caller_who_hangs_up_while_it_answers(tmp_path: Any) -> None:
    """A cancel would end agents made with the specification's library for everybody (section 5)."""
    async with served(tmp_path) as (address, _), agent() as node, client(address) as caller:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        node.hold = asyncio.Event()
        call = caller.open()
        await call.write(quest("START_QUEST", "long", receiver="chat"))
        while not node.heard:
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rest(call)
        node.hold.set()
        await node.ended.wait()
        assert (node.canceled, node.told) == (0, [(0, "long"), (3, "bye")])
        async with unharmed(address, "chat"):
            pass


async def test_a_caller_who_stopped_before_he_hung_up_is_not_said_goodbye_for(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, _), agent() as node, client(address) as caller:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        node.hold = asyncio.Event()
        call = caller.open()
        for message in (quest("START_QUEST", "a", receiver="chat"), quest("STOP_QUEST", receiver="chat")):
            await call.write(message)
        await call.write(quest("HOLD_QUEST", "late", receiver="chat"))
        while not node.heard:
            await asyncio.sleep(0.01)
        call.cancel()
        node.hold.set()
        await node.ended.wait()
        assert (node.canceled, node.told) == (0, [(0, "a"), (3, "bye")])


async def test_nothing_is_left_of_sessions_that_ended_in_every_way(tmp_path: Any) -> None:
    async with served(tmp_path) as (address, behind), agent() as node, client(address) as caller:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        await one_of_each(caller, "warm")
        before = len(asyncio.all_tasks())
        for number in range(5):
            await one_of_each(caller, str(number))
        async with asyncio.timeout(40):
            while len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.01)
        # Their ids are free again.
        call = caller.open()
        await call.write(quest("START_QUEST", "again", session="cancel 0"))
        assert (await call.read()).content[0].text == "You said again"
    assert behind.requests


async def one_of_each(caller: Any, name: str) -> None:
    for receiver in ("bridge", "chat"):
        stop = caller.open()
        await stop.write(quest("START_QUEST", "x", session=f"stop {receiver} {name}", receiver=receiver))
        await stop.write(quest("STOP_QUEST", session=f"stop {receiver} {name}", receiver=receiver))
        await rest(stop)
        silent = caller.open()
        await silent.write(quest("START_QUEST", "x", session=f"silent {receiver} {name}", receiver=receiver))
        await silent.read()
        silent.cancel()
    left = caller.open()
    await left.write(quest("START_QUEST", "x", session=f"cancel {name}"))
    left.cancel()
    empty = caller.open()
    await empty.done_writing()
    with pytest.raises(grpc.aio.AioRpcError):
        await rest(empty)


async def test_who_does_not_read_is_cut_off(tmp_path: Any) -> None:
    """One who reads nothing holds a place among the requests that are served at once."""
    options = {"slow_reader": 0.2, "stream": "delta"}
    async with served(tmp_path, **options) as (address, behind), client(address) as caller:
        call = caller.open()
        await call.write(quest("START_QUEST", "flood", session="flood"))
        await behind.left.wait()
        assert await failed(call) == ("DEADLINE_EXCEEDED", "The caller does not read the answers.")
        fresh = caller.open()
        await fresh.write(quest("START_QUEST", "new", session="flood"))
        assert (await fresh.read()).content[0].text == "You said "


# ---------------------------------------------------------------------- many


async def test_two_hundred_sessions_at_once(tmp_path: Any) -> None:
    """Half of them with an agent of the bridge, half relayed to another one; all open before any is answered."""
    async with served(tmp_path) as (address, behind), Agent(f"127.0.0.1:{free_port()}", "chat") as chat:
        behind.hold = asyncio.Event()
        async with client(address) as caller, Agent(f"127.0.0.1:{free_port()}", "asker") as asker:
            for each in (chat, asker):
                await each.register_to_gateway(address)
            calls = []
            for number in range(200):
                receiver = "bridge" if number % 2 else "chat"
                call = caller.open()
                await call.write(quest("START_QUEST", f"n{number}", session=f"s{number}", receiver=receiver))
                calls.append((number, receiver, call))
            asked = [await chat.receive_inquiry() for _ in range(100)]
            behind.hold.set()
            for inquiry in reversed(asked):
                assert await chat.submit_feedback(inquiry.session_id, "client", f"You said {inquiry.text}")

            async def finish(number: int, receiver: str, call: Any) -> list[Any]:
                answer = await call.read()
                await call.write(quest("STOP_QUEST", session=f"s{number}", receiver=receiver))
                return [answer.content[0].text, answer.session_id]

            told = await asyncio.gather(*(finish(*each) for each in calls))
            assert told == [[f"You said n{number}", f"s{number}"] for number in range(200)]
            for _ in range(100):
                stop = await chat.receive_inquiry()
                assert await chat.submit_feedback(stop.session_id, "client", "bye")
            ends = await asyncio.gather(*(rest(call) for _, _, call in calls))
            assert {status for [(status, _)] in ends} == {"STOP_RESPONSE"}


async def test_a_gateway_of_a_program_takes_what_a_gateway_of_the_bridge_takes() -> None:
    async with Gateway(f"127.0.0.1:{free_port()}") as gateway, client(gateway.address) as caller, agent() as node:
        await caller.gateway.RegisterAgent(info("AgentInfo", "chat", node.address))
        async with unharmed(gateway.address, "chat"), grpc.aio.insecure_channel(gateway.address) as channel:
            for first in (b"\xff", quest("HOLD_QUEST").SerializeToString()):
                call = channel.stream_stream("/grpc_service.GatewayService/RouteAgentCalling")()
                await call.write(first)
                assert (await failed(call))[0] == "INVALID_ARGUMENT"
