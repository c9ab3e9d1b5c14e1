"""Tools at a gateway as functions of a model: offered, called, answered, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import openai
import pytest

from bridge import Bridge, ErrorCode, Failure, Request, ToolCall, ToolResult
from bridge.contract import WireResponse
from bridge.dialects.aip import dialect
from bridge.dialects.aip.wire import AgentInfo, Peer, Peers, ToolInfo
from bridge.model import Media, MediaKind, Message, Text, UsageReported, fold, result_text, verify
from bridge.sdk.aip import Agent, Gateway, Tool
from bridge.server import running
from bridge.testing import fake_backend, free_port

from . import peers, schema


def address() -> str:
    return f"127.0.0.1:{free_port()}"


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    if a < 0:
        raise ValueError("a is negative")
    return a + b


ADD = ToolCall("call_1", "add", '{"a": 1, "b": 2}')


@asynccontextmanager
async def gateway_with(*tools: Tool) -> AsyncIterator[Gateway]:
    async with asyncio.timeout(60), Gateway(address()) as gateway:
        try:
            for tool in tools:
                await tool.start()
                await tool.register_to_gateway(gateway.address)
            yield gateway
        finally:
            for tool in tools:
                await tool.stop()


def adder(**more: Any) -> Tool:
    return Tool.create_function_tool(add, address(), "adder", **more)


def config(model: str, gateway: str, dialect: str = "openai-chat", **route: Any) -> dict[str, Any]:
    return {
        "backends": {"llm": {"dialect": "openai-chat", "url": model}, "tools": {"dialect": "aip", "url": gateway}},
        "routes": [{"dialect": dialect, "path": "/v1", "backend": "llm", "tools": "tools", **route}],
        "stores": {"history": "off"},
    }


def asks(text: str = "What is 1 + 2?", **more: Any) -> Request:
    return Request([Message("user", [Text(text)])], **more)


# ---------------------------------------------------------------------- by the library


async def test_a_model_calls_a_tool_and_goes_on_with_what_it_said() -> None:
    async with gateway_with(adder()) as gateway, fake_backend("openai-chat") as model:
        model.turns(["Let me see. ", ADD, UsageReported(10, 2, 12)], ["It is 3.", UsageReported(20, 3, 23)])
        async with Bridge.from_config(config(model.url, gateway.address)) as bridge:
            answer = await bridge.complete(asks())
        first, second = model.requests
    [tool] = first.tools or []
    assert (tool.name, tool.description) == ("add", "Adds two numbers.")
    assert sorted((tool.parameters or {})["properties"]) == ["a", "b"]
    assert second.tools == first.tools
    assert [m.role for m in second.messages] == ["user", "assistant", "tool"]
    [result] = second.messages[-1].parts
    assert isinstance(result, ToolResult)
    assert (result.call_id, result_text(result.parts)) == ("call_1", "3")
    assert answer.text == "Let me see. It is 3."
    assert (answer.reason, [c.name for c in answer.calls], len(answer.results)) == ("stop", ["add"], 1)
    assert answer.usage == UsageReported(30, 5, 35, answer.usage and answer.usage.cached)


async def test_rounds_in_a_row_and_calls_side_by_side() -> None:
    async with gateway_with(adder()) as gateway, fake_backend("openai-chat") as model:
        # A backend that gives every call the same id.
        pair = [ADD, ToolCall("call_2", "add", '{"a": 5, "b": "5"}')]
        model.turns(pair, [ADD], ["Done."])
        async with Bridge.from_config(config(model.url, gateway.address)) as bridge:
            answer = fold(verify([event async for event in bridge.stream(asks())]))
    assert [result_text(r.parts) for r in answer.results] == ["3", "10", "3"]
    assert len({c.call_id for c in answer.calls}) == 3
    assert [m.role for m in model.requests[2].messages] == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    assert answer.text == "Done."


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (ToolCall("c", "add", '{"a": -1, "b": 2}'), "Error executing tool: a is negative"),
        (ToolCall("c", "add", '{"a": 1}'), "Error executing tool: missing a required argument: 'b'"),
        (ToolCall("c", "add", "[1]"), "Error: The arguments cannot be read: expected a JSON object, got list."),
        (ToolCall("c", "add", "{"), "Error: The arguments cannot be read: "),
    ],
)
async def test_what_a_tool_refuses_is_told_to_the_model(call: ToolCall, told: str) -> None:
    async with gateway_with(adder()) as gateway, fake_backend("openai-chat") as model:
        model.turns([call], ["Sorry."])
        async with Bridge.from_config(config(model.url, gateway.address)) as bridge:
            answer = await bridge.complete(asks())
    assert answer.text == "Sorry."
    assert answer.results[0].is_error
    assert result_text(answer.results[0].parts).startswith(told)


async def test_a_tool_that_went_away_is_told_to_the_model() -> None:
    tool = adder()
    async with gateway_with(tool) as gateway, fake_backend("openai-chat") as model:
        model.turns([ADD], ["Sorry."], [ADD], ["Sorry again."])
        async with Bridge.from_config(config(model.url, gateway.address)) as bridge:
            run = await bridge.run(bridge.route(), asks())
            await tool.stop()
            told = []
            while not run.ended:
                told += [result_text(e.parts) for e in await run.read() if type(e).__name__ == "ToolResulted"]
            await run.close()
    assert told == ["Error: Receiver not found: no tool [adder] is registered here."]


async def test_the_rounds_are_bounded() -> None:
    async with gateway_with(adder()) as gateway, fake_backend("openai-chat") as model:
        model.turns([ADD])
        async with Bridge.from_config(config(model.url, gateway.address, max_tool_rounds=2)) as bridge:
            run = await bridge.run(bridge.route(), asks())
            while not run.ended:
                await run.read()
            await run.close()
    assert run.failure == Failure(
        ErrorCode.BACKEND_ERROR,
        "The model still called tools when the limit of rounds was reached (max_tool_rounds: 2).",
    )
    assert len(model.requests) == 3


async def test_without_a_gateway_the_model_answers_without_tools() -> None:
    async with fake_backend("openai-chat") as model:
        model.says("I cannot add.")
        async with Bridge.from_config(config(model.url, address())) as bridge:
            run = await bridge.run(bridge.route(), asks())
            while not run.ended:
                await run.read()
            await run.close()
        assert not model.requests[0].tools
    assert run.lost.names == ["tools"]


# ---------------------------------------------------------------------- to clients


@asynccontextmanager
async def served(configuration: dict[str, Any]) -> AsyncIterator[str]:
    """The base URL of a bridge."""
    server = {"port": free_port(), "drain": "1s"}
    async with asyncio.timeout(60), running(Bridge.from_config({**configuration, "server": server})) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_chat_client_sees_the_answer_and_not_the_calls(stream: bool) -> None:
    async with gateway_with(adder()) as gateway, fake_backend("openai-chat") as model:
        model.turns(["Let me see. ", ADD], ["It is 3."])
        async with served(config(model.url, gateway.address)) as url, chatting(url) as client:
            said = await _said(client, stream)
    assert said == ("Let me see. \n\nIt is 3.", [], "stop")


def chatting(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none")


async def _said(client: openai.AsyncOpenAI, stream: bool, **more: Any) -> tuple[str, list[str], str | None]:
    messages: Any = [{"role": "user", "content": "What is 1 + 2?"}]
    if not stream:
        choice = (await client.chat.completions.create(model="m", messages=messages, **more)).choices[0]
        names = [c.function.name for c in choice.message.tool_calls or () if c.type == "function"]
        return choice.message.content or "", names, choice.finish_reason
    text, calls, reason = "", [], None
    async for chunk in await client.chat.completions.create(model="m", messages=messages, stream=True, **more):
        for each in chunk.choices:
            text += each.delta.content or ""
            calls += [c.function.name for c in each.delta.tool_calls or () if c.function and c.function.name]
            reason = each.finish_reason or reason
    return text, calls, reason


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_clients_own_tools_stay_its_own(stream: bool) -> None:
    own: Any = [{"type": "function", "function": {"name": "ask_user", "parameters": {"type": "object"}}}]
    async with gateway_with(adder()) as gateway, fake_backend("openai-chat") as model:
        model.turns([ADD, ToolCall("call_2", "ask_user", "{}")])
        async with served(config(model.url, gateway.address)) as url, chatting(url) as client:
            said = await _said(client, stream, tools=own)
        assert said == ("", ["ask_user"], "tool_calls")
        assert [t.name for t in model.requests[0].tools or ()] == ["ask_user", "add"]


async def test_a_client_may_want_no_tools_or_has_one_of_the_same_name() -> None:
    own: Any = [{"type": "function", "function": {"name": "add", "description": "mine"}}]
    async with gateway_with(adder()) as gateway, fake_backend("openai-chat") as model:
        model.turns(["no"], [ADD])
        async with served(config(model.url, gateway.address)) as url, chatting(url) as client:
            assert (await _said(client, False, tools=own, tool_choice="none"))[0] == "no"
            assert await _said(client, False, tools=own) == ("", ["add"], "tool_calls")
    assert [[t.description for t in r.tools or ()] for r in model.requests] == [["mine"], ["mine"]]


async def test_who_must_call_a_tool_has_called_one_after_the_first_round() -> None:
    async with gateway_with(adder()) as gateway, fake_backend("openai-chat") as model:
        model.turns([ADD], ["3"])
        own: Any = [{"type": "function", "function": {"name": "mine"}}]
        async with served(config(model.url, gateway.address)) as url, chatting(url) as client:
            assert (await _said(client, False, tools=own, tool_choice="required"))[0] == "3"
    assert [r.tool_choice is None for r in model.requests] == [False, True]


async def test_who_leaves_while_a_tool_runs_cancels_the_call() -> None:
    started, canceled = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            canceled.set()
        return ""

    waiting = Tool.create_function_tool(wait, address(), "wait")
    async with gateway_with(waiting) as gateway, fake_backend("openai-chat") as model:
        model.turns([ToolCall("c", "wait", "{}")])
        async with served(config(model.url, gateway.address)) as url, chatting(url) as client:
            asking = asyncio.create_task(_said(client, True))
            await started.wait()
            asking.cancel()
            await canceled.wait()


# ---------------------------------------------------------------------- behind an agent


def agent_config(model: str, listen: str, **options: Any) -> dict[str, Any]:
    return {
        "backends": {"llm": {"dialect": "openai-chat", "url": model}},
        "routes": [{"dialect": "aip", "listen": listen, "agent_id": "bridge", "backend": "llm", "options": options}],
    }


@pytest.mark.parametrize(
    ("stream", "expected"),
    [("coalesce", ["Let me see. \n\nIt is 3."]), ("delta", ["Let me see. ", "\n\nIt is 3.", ""])],
)
async def test_the_model_behind_an_agent_calls_what_registers_beside_it(
    tmp_path: Path, stream: str, expected: list[str]
) -> None:
    listen, tool = address(), adder()
    async with fake_backend("openai-chat") as model, peers.client(listen) as caller:
        model.turns(["Let me see. ", ADD], ["It is 3."])
        configuration = agent_config(model.url, listen, stream=stream)
        async with served({**configuration, "stores": {"history": f"sqlite:///{tmp_path}/h.db"}}), tool:
            await tool.register_to_gateway(listen)
            call = caller.open()
            await call.write(peers.quest("START_QUEST", "What is 1 + 2?"))
            await call.write(peers.quest("STOP_QUEST"))
            said = await peers.rest(call)
    assert said == [*(("HOLD_RESPONSE", text) for text in expected), ("STOP_RESPONSE", "Session closed")]
    assert [t.name for t in model.requests[0].tools or ()] == ["add"]


async def test_tools_may_be_off(tmp_path: Path) -> None:
    listen, tool = address(), adder()
    async with fake_backend("openai-chat") as model, peers.client(listen) as caller:
        model.says("no")
        configuration = agent_config(model.url, listen, tools=False)
        async with served({**configuration, "stores": {"history": f"sqlite:///{tmp_path}/h.db"}}), tool:
            await tool.register_to_gateway(listen)
            call = caller.open()
            await call.write(peers.quest("START_QUEST", "hi"))
            await call.write(peers.quest("STOP_QUEST"))
            await peers.rest(call)
    assert not model.requests[0].tools


async def test_the_bound_of_an_agent_ends_its_turn_and_not_its_session(tmp_path: Path) -> None:
    listen, tool = address(), adder()
    async with fake_backend("openai-chat") as model, peers.client(listen) as caller:
        model.turns([ADD], [ADD], ["fine"])
        configuration = agent_config(model.url, listen, max_tool_rounds=1)
        async with served({**configuration, "stores": {"history": f"sqlite:///{tmp_path}/h.db"}}), tool:
            await tool.register_to_gateway(listen)
            call = caller.open()
            for message in (peers.quest("START_QUEST", "a"), peers.quest("HOLD_QUEST", "b"), peers.quest("STOP_QUEST")):
                await call.write(message)
            said = [text for _, text in await peers.rest(call)]
    assert said == [
        "Error: The model still called tools when the limit of rounds was reached (max_tool_rounds: 1).",
        "fine",
        "Session closed",
    ]


async def test_an_agent_of_a_foreign_gateway_finds_the_tools_there(tmp_path: Path) -> None:
    listen = address()
    async with gateway_with(adder()) as gateway, fake_backend("openai-chat") as model, peers.client(listen) as caller:
        model.turns([ADD], ["It is 3."])
        configuration = agent_config(model.url, listen, mode="agent", gateway=gateway.address)
        async with served({**configuration, "stores": {"history": f"sqlite:///{tmp_path}/h.db"}}):
            call = caller.open(direct=True)
            await call.write(peers.quest("START_QUEST", "What is 1 + 2?"))
            await call.write(peers.quest("STOP_QUEST"))
            assert (await peers.rest(call))[0] == ("HOLD_RESPONSE", "It is 3.")


async def test_a_chat_and_an_aip_client_talk_to_one_model_with_one_tool(tmp_path: Path) -> None:
    """The whole way: a function registers at the bridge's own gateway, and both kinds of clients get its results."""
    listen, tool = address(), adder()
    async with fake_backend("openai-chat") as model, Agent(address(), "asker") as asker:
        model.turns([ADD], ["It is 3."], [ADD], ["Three."])
        configuration = config(model.url, listen)
        configuration["routes"] += agent_config(model.url, listen)["routes"]
        configuration["stores"] = {"history": f"sqlite:///{tmp_path}/h.db"}
        async with served(configuration) as url, tool:
            await tool.register_to_gateway(listen)
            async with chatting(url) as client:
                assert (await _said(client, True))[0] == "It is 3."
            await asker.register_to_gateway(listen)
            session = await asker.create_agent_client("bridge")
            await asker.submit_inquiry(session, "bridge", "What is 1 + 2?")
            assert (await asker.receive_feedback(session, "bridge")).text == "Three."
            await asker.close_agent_client(session, "bridge")


# ---------------------------------------------------------------------- both generations


async def test_a_box_of_tools_is_offered_and_called_in_its_own_way() -> None:
    async with peers.tool() as node, gateway_with() as gateway, fake_backend("openai-chat") as model:
        box = schema.message("ToolBoxInfo", box=True, toolbox_id="my box", address=node.address, description="words")
        box.tools.add(name="add", description="adds", arguments="{'a': 'int', 'b': 'list[int]'}")
        box.tools.add(name="free", arguments="no literal")
        async with peers.grpc.aio.insecure_channel(gateway.address) as channel:
            await channel.unary_unary("/grpc_service.GatewayService/RegisterTool")(box.SerializeToString())
        model.turns([ToolCall("c", "my_box__add_", "{}")], ["x"])
        async with Bridge.from_config(config(model.url, gateway.address)) as bridge:
            await bridge.complete(asks())
    tools = {t.name: t for t in model.requests[0].tools or ()}
    assert list(tools) == ["my_box__add", "my_box__free"]
    assert (tools["my_box__add"].parameters or {})["properties"] == {"a": {"type": "integer"}, "b": {"type": "array"}}
    assert tools["my_box__free"].parameters == {"type": "object"}


async def test_a_box_is_called_by_the_name_of_its_tool() -> None:
    """Its request reaches it byte for byte, with the arguments as one JSON text, as boxes read them."""
    heard: list[Any] = []

    class Box(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            async def answer(body: bytes, context: Any) -> bytes:
                heard.append(schema.toolbox().ToolRequest.FromString(body))
                response = schema.message("ToolResponse", error_message="No Error", content=peers.text("3"))
                return bytes(response.SerializeToString())

            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Box(),))
    port = server.add_insecure_port(address())
    await server.start()
    async with gateway_with() as gateway, fake_backend("openai-chat") as model:
        box = schema.message("ToolBoxInfo", box=True, toolbox_id="box", address=f"127.0.0.1:{port}", name="Box")
        box.tools.add(name="add", arguments="{'a': 'int', 'b': 'list[int]'}")
        async with grpc.aio.insecure_channel(gateway.address) as channel:
            await channel.unary_unary("/grpc_service.GatewayService/RegisterTool")(box.SerializeToString())
        model.turns([ToolCall("c", "box__add", '{"a": 1, "b": [2]}')], ["It is 3."])
        async with Bridge.from_config(config(model.url, gateway.address)) as bridge:
            answer = await bridge.complete(asks())
    await server.stop(None)
    assert [result_text(result.parts) for result in answer.results] == ["3"]
    [request] = heard
    assert (request.receiver_id, request.tool_name, request.arguments) == ("box", "add", '{"a":1,"b":[2]}')


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"is_error": False, "error_message": "No Error", "content": peers.text("3", " or so")}, ("3 or so", False)),
        ({"is_error": False, "error_message": "Error!", "content": peers.text("3")}, ("3", False)),
        ({"is_error": True, "error_message": "No Error"}, ("No Error", True)),
        ({"is_error": True, "content": peers.text("3")}, ("Error executing tool.", True)),
        ({}, ("", False)),
    ],
)
def test_is_error_decides(fields: dict[str, Any], expected: tuple[str, bool]) -> None:
    parts, is_error = dialect.decode_call(
        WireResponse(200, {}, schema.message("ToolResponse", **fields).SerializeToString())
    )
    assert (result_text(parts), is_error) == expected


def test_media_of_a_tool_follow_its_texts() -> None:
    content = [*peers.text("two "), {"image": b"\x89PNG\r\n\x1a\n"}, *peers.text("parts")]
    body = schema.message("ToolResponse", is_error=False, content=content).SerializeToString()
    parts, is_error = dialect.decode_call(WireResponse(200, {}, body))
    text, picture = parts
    assert (text, is_error) == (Text("two parts"), False)
    assert isinstance(picture, Media)
    assert (picture.kind, picture.mime) == (MediaKind.IMAGE, "image/png")


def test_the_models_of_a_gateway_are_its_agents() -> None:
    infos = [Peer(agent=AgentInfo("planner", "h:1").to_bytes()), Peer(tool=ToolInfo("adder", "h:2", "add").to_bytes())]
    models = dialect.decode_models(WireResponse(200, {}, Peers(infos).to_bytes()))
    assert [model.id for model in models] == ["planner"]


def test_names_are_legal_and_apart() -> None:
    from bridge.dialects.aip.tools import offered

    names = ["add", "add", "ädd", "x" * 70, "x" * 71, "", "a b"]
    infos = [ToolInfo(f"t{n}", f"h:{n}", name, arguments={"a": "int"}) for n, name in enumerate(names)]
    body = Peers([*(Peer(tool=i.to_bytes()) for i in infos), Peer(tool=b"\x0a\x05ab"), Peer(agent=b"")]).to_bytes()
    found = [o.tool.name for o in offered(WireResponse(200, {}, body), "tool")]
    assert len(set(found)) == len(found) == len(names)
    assert all(is_legal(name) for name in found)
    assert found == [o.tool.name for o in offered(WireResponse(200, {}, body), "tool")]


def is_legal(name: str) -> bool:
    return 0 < len(name) <= 64 and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)


@pytest.mark.parametrize("options", ["front_options", "back_options"])
@pytest.mark.parametrize(("generation", "names"), [("auto", ["odd"]), ("tool", ["odd"]), ("toolbox", [])])
def test_a_registration_that_shows_no_generation_is_of_the_configured_one(
    options: str, generation: str, names: list[str]
) -> None:
    """Without any field behind the first four it may be a tool without arguments, or a box without tools."""
    from bridge.contract import WireResponse
    from bridge.dialects.aip import dialect
    from bridge.dialects.aip.wire import NodeHead

    wire = WireResponse(200, {}, Peers([Peer(tool=NodeHead("odd", "h:1", "odd", "default").to_bytes())]).to_bytes())
    chosen = getattr(dialect, options)(generation=generation)
    assert [o.tool.name for o in dialect.decode_tools(wire, chosen)] == names
