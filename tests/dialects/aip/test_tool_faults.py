"""Tools that a model calls and that do not do as they should: each is a result that says so, and nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from bridge import Bridge, ToolCall, ToolResult
from bridge.model import ToolResulted, fold, result_text, verify
from bridge.sdk.aip import Tool
from bridge.testing import fake_backend, free_port

from . import schema
from .test_model_tools import ADD, adder, address, asks, chatting, config, gateway_with, served


async def results_of(bridge: Bridge) -> list[list[ToolResulted]]:
    """The results of a run, as its reads brought them."""
    run = await bridge.run(bridge.route(), asks())
    found = []
    while not run.ended:
        found.append([event for event in await run.read() if isinstance(event, ToolResulted)])
    await run.close()
    assert run.failure is None
    return [batch for batch in found if batch]


def texts(results: list[list[ToolResulted]]) -> list[str]:
    return [result_text(result.parts) for batch in results for result in batch]


class Stuck:
    """A tool that waits for ever; it notes how its calls ended."""

    def __init__(self) -> None:
        self.began = asyncio.Semaphore(0)
        self.canceled = asyncio.Semaphore(0)
        self.calls = 0

    async def wait(self) -> str:
        self.calls += 1
        self.began.release()
        try:
            await asyncio.Event().wait()
        finally:
            self.canceled.release()
        return ""

    def tool(self) -> Tool:
        return Tool.create_function_tool(self.wait, address(), "wait")


WAIT = ToolCall("c", "wait", "{}")


async def test_a_tool_that_never_answers_has_its_time() -> None:
    stuck = Stuck()
    async with gateway_with(stuck.tool()) as gateway, fake_backend("openai-chat") as model:
        model.turns([WAIT], ["Sorry."])
        configuration = config(model.url, gateway.address)
        configuration["backends"]["llm"]["timeouts"] = {"idle": "500ms"}
        async with Bridge.from_config(configuration) as bridge:
            told = texts(await results_of(bridge))
        await stuck.canceled.acquire()
    assert told == ["Error: The tool did not answer within 0.4 s."]
    assert len(model.requests) == 2


async def test_one_tool_that_never_answers_does_not_cost_the_others_their_results() -> None:
    stuck = Stuck()
    async with gateway_with(stuck.tool(), adder()) as gateway, fake_backend("openai-chat") as model:
        model.turns([WAIT, ADD], ["3"])
        configuration = config(model.url, gateway.address)
        configuration["backends"]["llm"]["timeouts"] = {"idle": "2s"}
        async with Bridge.from_config(configuration) as bridge:
            told = texts(await results_of(bridge))
    assert told == ["Error: The tool did not answer within 1.6 s.", "3"]


async def test_calls_of_one_id_have_their_own_results() -> None:
    """There are servers that give every call of an answer the same id."""
    calls = [ToolCall("call_1", "add", f'{{"a": {n}, "b": 1}}') for n in range(3)]
    async with gateway_with(adder()) as gateway, fake_backend("openai-chat") as model:
        model.turns(calls, calls[:2], ["Done."])
        async with Bridge.from_config(config(model.url, gateway.address)) as bridge:
            answer = fold(verify([event async for event in bridge.stream(asks())]))
    assert [result_text(r.parts) for r in answer.results] == ["1", "2", "3", "1", "2"]
    assert len({c.call_id for c in answer.calls}) == 5
    for request, expected in zip(model.requests[1:], (["1", "2", "3"], ["1", "2", "3", "1", "2"]), strict=True):
        parts = [part for message in request.messages for part in message.parts]
        asked = [part.call_id for part in parts if isinstance(part, ToolCall)]
        given = [(part.call_id, result_text(part.parts)) for part in parts if isinstance(part, ToolResult)]
        assert given == list(zip(asked, expected, strict=True))


async def test_of_many_calls_some_run_at_a_time() -> None:
    """Results come as they are there, so that the run is never taken for silent."""
    calls = [ToolCall(f"call_{n}", "add", f'{{"a": {n}, "b": 0}}') for n in range(40)]
    async with gateway_with(adder()) as gateway, fake_backend("openai-chat") as model:
        model.turns(calls, ["Done."])
        async with Bridge.from_config(config(model.url, gateway.address)) as bridge:
            results = await results_of(bridge)
    assert [len(batch) for batch in results] == [16, 16, 8]
    assert texts(results) == [str(n) for n in range(40)]


async def test_who_leaves_amid_a_round_ends_its_calls_and_those_that_wait_are_never_made() -> None:
    stuck = Stuck()
    async with gateway_with(stuck.tool()) as gateway, fake_backend("openai-chat") as model:
        model.turns([ToolCall(f"call_{n}", "wait", "{}") for n in range(40)])
        async with served(config(model.url, gateway.address)) as url, chatting(url) as client:
            messages: Any = [{"role": "user", "content": "Wait."}]
            asking = asyncio.create_task(client.chat.completions.create(model="m", messages=messages))
            for _ in range(16):
                await stuck.began.acquire()
            asking.cancel()
            for _ in range(16):
                await stuck.canceled.acquire()
    assert stuck.calls == 16
    assert len(model.requests) == 1


async def test_a_result_that_is_too_large() -> None:
    large = Tool.create_function_tool(lambda: "x" * 5_000_000, address(), "large", "large", max_message=8_000_000)
    async with gateway_with(large, adder()) as gateway, fake_backend("openai-chat") as model:
        model.turns([ToolCall("c", "large", "{}"), ADD], ["Sorry."])
        async with Bridge.from_config(config(model.url, gateway.address)) as bridge:
            told = texts(await results_of(bridge))
            assert sorted(gateway.get_registered_nodes()) == ["adder", "large"]
    assert told[0].startswith("Error: What the tool was sent or answered is too large (")
    assert "larger than max" in told[0]
    assert told[1] == "3"


async def test_arguments_that_are_too_large() -> None:
    call = ToolCall("c", "add", f'{{"a": "{"1" * 100_000}", "b": 1}}')
    async with gateway_with(adder()) as gateway, fake_backend("openai-chat") as model:
        model.turns([call], ["Sorry."])
        configuration = config(model.url, gateway.address)
        configuration["backends"]["tools"]["options"] = {"max_message": "64KiB"}
        async with Bridge.from_config(configuration) as bridge:
            told = texts(await results_of(bridge))
    assert told[0].startswith("Error: What the tool was sent or answered is too large (")


@asynccontextmanager
async def dying() -> AsyncIterator[str]:
    """A tool node that is killed by its first call; its address."""
    server = grpc.aio.server()

    class Node:
        async def CallTool(self, request: Any, context: Any) -> Any:
            asyncio.get_running_loop().create_task(server.stop(0)).add_done_callback(lambda _: None)
            await asyncio.Event().wait()

    schema.services().add_ToolServiceServicer_to_server(Node(), server)
    port = server.add_insecure_port(f"127.0.0.1:{free_port()}")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_a_node_that_dies_amid_a_call() -> None:
    async with dying() as node, gateway_with(adder()) as gateway, fake_backend("openai-chat") as model:
        async with grpc.aio.insecure_channel(gateway.address) as channel:
            info = schema.message("ToolInfo", tool_id="mortal", address=node, name="die", description="dies")
            await channel.unary_unary("/grpc_service.GatewayService/RegisterTool")(info.SerializeToString())
        model.turns([ToolCall("c", "die", "{}"), ADD], ["Sorry."], [ADD], ["3"])
        async with Bridge.from_config(config(model.url, gateway.address)) as bridge:
            told = texts(await results_of(bridge))
            assert texts(await results_of(bridge)) == ["3"]
        assert sorted(gateway.get_registered_nodes()) == ["adder"]
    assert told[0].startswith("Error: The tool cannot be reached, or broke off (")
    assert node not in told[0]
    assert told[1] == "3"
    assert [t.name for t in model.requests[2].tools or ()] == ["add"]


async def test_a_failure_of_ours_ends_the_calls_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever breaks in here, no call is left behind."""
    from bridge.run.tools.tool_sources import ToolSource

    stuck, call = Stuck(), ToolSource.call

    async def breaks(self: ToolSource, tool: Any, asked: ToolCall, *more: Any) -> Any:
        if asked.name == "add":
            await stuck.began.acquire()
            raise KeyError("ours")
        return await call(self, tool, asked, *more)

    monkeypatch.setattr(ToolSource, "call", breaks)
    async with gateway_with(stuck.tool(), adder()) as gateway, fake_backend("openai-chat") as model:
        model.turns([WAIT, ADD])
        async with Bridge.from_config(config(model.url, gateway.address)) as bridge:
            run = await bridge.run(bridge.route(), asks())
            while not run.ended:
                await run.read()
            await run.close()
            assert run.failure is not None
            assert run.failure.message == "The bridge failed while it handled this run."
            await stuck.canceled.acquire()
