"""Programs as the specification describes them, on our classes; peers made of the protocol's own stubs beside them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from aiohttp import web

from bridge.sdk.aip import (
    Agent,
    AgentInfo,
    AgentMessage,
    AgentServiceStub,
    AgentSkill,
    ContentItem,
    Gateway,
    GatewayServiceStub,
    Mode,
    SessionStatus,
    TaskStatus,
    Tool,
    ToolBoxInfo,
    ToolInfo,
    ToolRequest,
    ToolResponse,
)
from bridge.testing import free_port
from tests.dialects.aip import peers, schema

CAPTURES = Path(__file__).parents[2] / "captures" / "aip"


def address() -> str:
    return f"127.0.0.1:{free_port()}"


@asynccontextmanager
async def answering(agent: Agent) -> AsyncIterator[Agent]:
    """An agent that repeats what it is told, all sessions in one loop, as the published example does."""

    async def loop() -> None:
        while True:
            asked = await agent.receive_inquiry()
            await agent.submit_feedback(asked.session_id, asked.sender_id, f"Response to: {asked.content[0].text}")

    async with asyncio.timeout(60), agent:
        task = asyncio.create_task(loop())
        try:
            yield agent
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


# ---------------------------------------------------------------------- agent and agent


async def test_an_agent_answers_an_agent_through_a_gateway() -> None:
    skill = AgentSkill("echo", "repeats what it is told")
    async with (
        Gateway(address(), "gw") as gateway,
        answering(Agent(address(), "echo", "Echo", "chat", "repeats", "1", [Mode.TEXT], [Mode.TEXT], [skill])) as echo,
        Agent(address(), "asker") as asker,
    ):  # fmt: skip
        assert await echo.register_to_gateway(gateway.address) is echo
        await asker.register_to_gateway(f"http://{gateway.address}")
        assert gateway.get_registered_agents() == {"echo": echo.agent_info, "asker": asker.agent_info}
        assert await asker.update_peers("chat") is asker
        assert asker.get_nodes() == {"echo": echo.agent_info}

        session = await asker.create_agent_client("echo")
        assert session.startswith("agent_session_")
        task = asker.create_task_info(["parent"])
        await asker.submit_inquiry(session, "echo", "one", task_info=task)
        first = await asker.receive_feedback(session, "echo")
        assert (first.sender_id, first.receiver_id, first.session_id) == ("echo", "asker", session)
        assert (first.text, first.session_status) == ("Response to: one", SessionStatus.HOLD_RESPONSE)
        assert first.task_info == task
        assert (task.parent_task_ids, task.task_status) == (["parent"], TaskStatus.CREATE)
        await asker.submit_inquiry(session, "echo", "two")
        assert (await asker.receive_feedback(session, "echo")).text == "Response to: two"
        await asker.submit_inquiry(session, "echo", "bye", session_status=SessionStatus.STOP_QUEST)
        last = await asker.receive_feedback(session, "echo")
        assert (last.text, last.session_status) == ("Response to: bye", SessionStatus.STOP_RESPONSE)
        with pytest.raises(EOFError, match="has ended"):
            await asker.receive_feedback(session, "echo")
        with pytest.raises(RuntimeError, match="nothing may follow"):
            await asker.submit_inquiry(session, "echo", "more")
        assert await asker.close_agent_client(session, "echo")
        assert not await asker.close_agent_client(session, "echo")
    assert gateway.get_registered_nodes() == {}


async def test_agents_talk_directly() -> None:
    async with (
        Gateway(address()) as gateway, answering(Agent(address(), "echo")) as echo, Agent(address(), "asker") as asker
    ):  # fmt: skip
        await echo.register_to_gateway(gateway.address)
        await asker.register_to_gateway(gateway.address)
        session = await asker.create_agent_client("echo", AgentServiceStub, "CallAgent")
        await gateway.stop()
        await asker.submit_inquiry(session, "echo", "hi")
        assert (await asker.receive_feedback(session, "echo")).text == "Response to: hi"
        assert await asker.close_agent_client(session, "echo")
        with pytest.raises(ValueError, match="update_peers"):
            await asker.create_agent_client("nobody", AgentServiceStub, "CallAgent")


async def test_every_kind_of_content_goes_and_comes() -> None:
    async with Gateway(address()) as gateway, Agent(address(), "a") as one, Agent(address(), "b") as two:
        for agent in (one, two):
            await agent.register_to_gateway(gateway.address)
        session = await one.create_agent_client("b")
        modes = [Mode.TEXT, Mode.IMAGE, Mode.AUDIO, Mode.EMBEDDED]
        await one.submit_inquiry(session, "b", ["words", b"i", b"a", b"e"], modes)
        asked = await two.receive_inquiry()
        assert asked.content == [
            ContentItem("words"), ContentItem(image=b"i"), ContentItem(audio=b"a"), ContentItem(embedded=b"e"),
        ]  # fmt: skip
        # Both sides may look at a message with handlers, coroutine functions among them.
        await two.submit_feedback(session, "a", b"\x89PNG", Mode.IMAGE)

        async def kind(message: AgentMessage) -> int:
            return message.session_status

        results = await one.invoke_session_handlers(session, [lambda m: m.content[0].image, kind])
        assert results == [b"\x89PNG", SessionStatus.HOLD_RESPONSE]
        await one.submit_inquiry(session, "b", "again")
        assert await two.invoke_session_handlers(session, lambda m: m.text) == ["words"]
        assert await two.invoke_session_handlers(session, lambda m: m.text) == ["again"]


@pytest.mark.parametrize(
    ("content", "mode", "told"),
    [
        (b"x", Mode.TEXT, "bytes are IMAGE, AUDIO or EMBEDDED, got TEXT"),
        ("x", Mode.IMAGE, "a str is TEXT"),
        (["x", b"y"], [Mode.TEXT], "bytes are IMAGE, AUDIO or EMBEDDED, got TEXT"),
        (["x", b"y"], [Mode.TEXT] * 3, "expected one, or 2, one for each content; got 3"),
        (["x", b"y"], [], "expected one, or 2, one for each content; got 0"),
    ],
)
def test_content_and_modes_that_do_not_fit(content: Any, mode: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Agent("127.0.0.1:1", "a").create_content_items(content, mode)


def test_an_empty_content_still_has_an_item() -> None:
    assert Agent("127.0.0.1:1", "a").create_content_items([]) == [ContentItem("")]


async def test_an_agent_goes_on_when_a_caller_hangs_up_before_he_was_answered() -> None:
    async with Agent(address(), "a") as agent, peers.client(agent.address) as caller:
        gone, stays = caller.open(direct=True), caller.open(direct=True)
        await gone.write(peers.quest("START_QUEST", "one", session="gone", receiver="a"))
        asked = await agent.receive_inquiry()
        await gone.write(peers.quest("HOLD_QUEST", "waits", session="gone", receiver="a"))
        gone.cancel()

        async def all_of_it() -> None:
            while True:
                await agent.invoke_session_handlers("gone", [lambda m: m])

        with pytest.raises(EOFError, match="'gone' has ended"):
            await all_of_it()
        assert not await agent.submit_feedback("gone", "client", "too late")
        assert asked.text == "one"
        await stays.write(peers.quest("START_QUEST", "two", session="stays", receiver="a"))
        assert (await agent.receive_inquiry()).text == "two"
        assert await agent.submit_feedback("stays", "client", "still here")
        assert (await stays.read()).content[0].text == "still here"


async def test_a_caller_who_does_not_read_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    from bridge.sdk.aip import answering as limits

    monkeypatch.setattr(limits, "SLOW_READER", 0.2)
    async with Agent(address(), "a") as agent, peers.client(agent.address) as caller:
        call = caller.open(direct=True)
        await call.write(peers.quest("START_QUEST", "hello", receiver="a"))
        asked = await agent.receive_inquiry()
        while await agent.submit_feedback(asked.session_id, "client", "x" * 100_000):
            pass
        with pytest.raises(grpc.aio.AioRpcError, match="The caller does not read the answers"):
            await peers.rest(call)


async def test_handlers_see_their_own_session_only() -> None:
    async with Agent(address(), "a") as agent, peers.client(agent.address) as caller:
        calls = {}
        for name in ("one", "two"):
            calls[name] = caller.open(direct=True)
            await calls[name].write(peers.quest("START_QUEST", "hello", session=name, receiver="a"))
            assert (await agent.receive_inquiry()).session_id == name
            assert await agent.invoke_session_handlers(name, [lambda m: m.text]) == ["hello"]
        for name in ("one", "two"):
            await calls[name].write(peers.quest("HOLD_QUEST", f"to {name}", session=name, receiver="a"))
        for name in ("two", "one"):
            assert await agent.invoke_session_handlers(name, [lambda m: m.text]) == [f"to {name}"]
            assert await agent.submit_feedback(name, "client", f"for {name}")
            assert (await calls[name].read()).content[0].text == f"for {name}"


async def test_who_stops_says_goodbye_to_those_who_wait() -> None:
    agent = await Agent(address(), "a").start()
    async with peers.client(agent.address) as caller:
        call = caller.open(direct=True)
        await call.write(peers.quest("START_QUEST", "one", receiver="a"))
        await agent.receive_inquiry()
        waiting = asyncio.create_task(peers.rest(call))
        await agent.stop()
        assert await waiting == [("STOP_RESPONSE", "Session closed")]
    await agent.stop()
    async with asyncio.timeout(40):  # gRPC lets go of its own a moment later
        while asyncio.all_tasks() != {asyncio.current_task()}:
            await asyncio.sleep(0.01)


async def test_the_sessions_that_an_agent_opened_end_with_it() -> None:
    async with peers.agent() as node, Gateway(address()) as gateway:
        async with Agent(address(), "asker") as asker, peers.client(gateway.address) as caller:
            await caller.gateway.RegisterAgent(schema.message("AgentInfo", agent_id="chat", address=node.address))
            await asker.register_to_gateway(gateway.address)
            session = await asker.create_agent_client("chat")
            await asker.submit_inquiry(session, "chat", "hi")
            assert (await asker.receive_feedback(session, "chat")).text == "Response to: hi"
            await asker.create_agent_client("chat")  # one that says nothing
        await node.ended.wait()
        assert [status for status, _ in node.told] == [0, 3]
        assert node.canceled == 0


async def test_who_stops_at_once_is_not_registered_any_more() -> None:
    async with Gateway(address()) as gateway:
        for _ in range(2):
            async with Agent(address(), "short") as agent:
                await agent.register_to_gateway(gateway.address)
            assert gateway.get_registered_nodes() == {}


async def test_a_time_limit_on_an_answer_leaves_the_session_alone() -> None:
    async with Agent(address(), "a") as one, Agent(address(), "b") as two, Gateway(address()) as gateway:
        for agent in (one, two):
            await agent.register_to_gateway(gateway.address)
        session = await one.create_agent_client("b")
        await one.submit_inquiry(session, "b", "hi")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(one.receive_feedback(session, "b"), 0.05)
        await two.receive_inquiry()
        await two.submit_feedback(session, "a", "late")
        assert (await one.receive_feedback(session, "b")).text == "late"


async def test_the_words_of_a_gateway_reach_the_program() -> None:
    async with Gateway(address()) as gateway, Agent(address(), "a") as one, Agent(address(), "a") as twin:
        with pytest.raises(RuntimeError, match="register_to_gateway"):
            await one.update_peers()
        await one.register_to_gateway(gateway.address)
        with pytest.raises(grpc.aio.AioRpcError, match=r"Agent \[a\] already registered"):
            await twin.register_to_gateway(gateway.address)
        session = await one.create_agent_client("nobody")
        await one.submit_inquiry(session, "nobody", "hi")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await one.receive_feedback(session, "nobody")
        assert (caught.value.code(), caught.value.details()) == (
            grpc.StatusCode.NOT_FOUND, "Receiver not found: no agent [nobody] is registered here.",
        )  # fmt: skip
        with pytest.raises(RuntimeError, match="start"):
            await Agent(address(), "c").register_to_gateway(gateway.address)
        with pytest.raises(RuntimeError, match="has already been started"):
            await one.start()
        with pytest.raises(ValueError, match="create_agent_client"):
            await one.submit_inquiry("unknown", "b", "hi")


# ---------------------------------------------------------------------- tools


def add(a: int, b: int = 2) -> int:
    """Adds two numbers.

    Args:
        a: the first number
        b (int): the second number
    """
    return a + b


async def slow_shout(text: str, times: list[int] | None = None) -> str:
    """Says it loud.

    :param text: what to say
    """
    await asyncio.sleep(0)
    return text.upper() * (times or [1])[0]


@asynccontextmanager
async def at_gateway(*nodes: Tool) -> AsyncIterator[tuple[Gateway, Agent]]:
    """Tools at a gateway, and an agent that knows them."""
    async with asyncio.timeout(60), Gateway(address()) as gateway, Agent(address(), "asker") as asker:
        try:
            for node in nodes:
                await node.start()
                await node.register_to_gateway(gateway.address)
            await asker.register_to_gateway(gateway.address)
            yield gateway, asker
        finally:
            for node in nodes:
                await node.stop()


async def test_an_agent_calls_a_function() -> None:
    adder = Tool.create_function_tool(add, address(), "adder", version="1.0.0")
    shouter = Tool.creat_function_tool(slow_shout, address(), "shouter", "Shout", "words")
    assert adder.tool_info == ToolInfo(
        "adder", adder.address, "add", "default", [0], [0], "Adds two numbers.",
        {"a": "<class 'int'>: the first number", "b": "<class 'int'>: the second number (default: 2)"}, "1.0.0",
    )  # fmt: skip
    assert shouter.tool_info.description == "Says it loud."
    async with at_gateway(adder, shouter) as (gateway, asker):
        assert gateway.get_registered_tools() == {"adder": adder.tool_info, "shouter": shouter.tool_info}
        answer = await asker.call_tool("adder", arguments={"a": 1, "b": 2})
        assert (answer.is_error, answer.error_message, answer.content) == (False, "No Error", [ContentItem("3")])
        assert (answer.sender_id, answer.receiver_id) == ("adder", "asker")
        assert answer.session_id.startswith("tool_")
        # A map holds texts only; the function gets what it says that it takes.
        loud = await asker.call_tool("shouter", arguments={"text": "12", "times": [2]})
        assert loud.content[0].text == "1212"
        assert (await asker.call_tool("adder")).session_id == answer.session_id
        assert await asker.close_tool_client("adder")
        assert not await asker.close_tool_client("adder")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "Error executing tool: missing a required argument: 'a'"),
        ({"a": "x"}, "Error executing tool: a: Input should be a valid integer"),
        ({"a": 1, "c": 1}, "Error executing tool: got an unexpected keyword argument 'c'"),
    ],
)
async def test_what_a_function_refuses_is_the_answers_error(arguments: dict[str, Any], told: str) -> None:
    async with at_gateway(Tool.create_function_tool(add, address(), "adder")) as (_, asker):
        answer = await asker.call_tool("adder", arguments=arguments)
        assert answer.is_error
        assert answer.error_message.startswith(told)
        assert answer.content == []


async def test_a_result_is_the_text_that_python_makes_of_it() -> None:
    async with at_gateway(Tool.create_function_tool(lambda: {"a": None}, address(), "it", "it")) as (_, asker):
        answer = await asker.call_tool("it")
    assert (answer.is_error, answer.error_message) == (False, "No Error")
    assert [item.text for item in answer.content] == ["{'a': None}"]


@asynccontextmanager
async def api() -> AsyncIterator[tuple[str, list[Any]]]:
    """An HTTP service that notes its requests; gives its base URL."""
    seen: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        seen.append((request.method, request.raw_path, request.headers.get("x-key"), body))
        if request.path == "/moved":
            return web.Response(status=int(request.query["to"]), headers={"location": "/elsewhere"})
        if request.path.startswith("/broken"):
            return web.Response(status=404, text="no such thing")
        return web.Response(text="x" * 5_000_000 if request.path == "/long" else f"{request.method} done")

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", seen
    finally:
        await runner.cleanup()


async def test_an_agent_calls_an_http_service() -> None:
    async with api() as (url, seen):
        get = Tool.create_api_tool(address(), f"{url}/users/{{user}}", "GET", {"X-Key": "k"}, 5, "get", "Get user")
        post = Tool.creat_api_tool(
            address(), f"{url}/add", "post", tool_id="post", arguments={"n": "<class 'int'>", "word": "a word"}
        )
        async with at_gateway(get, post) as (gateway, asker):
            assert list(gateway.get_registered_tools()["get"].arguments) == ["user"]  # type: ignore[union-attr]
            found = await asker.call_tool("get", arguments={"user": "a/b c", "page": 2})
            assert (found.is_error, found.content[0].text) == (False, "GET done")
            done = await asker.call_tool("post", arguments={"n": 3, "word": "12"})
            assert done.content[0].text == "POST done"
            missing = await asker.call_tool("get")
            assert (missing.is_error, missing.error_message) == (
                True, "Error executing tool: missing argument 'user', which is part of the URL",
            )  # fmt: skip
        assert seen == [
            ("GET", "/users/a%2Fb%20c?page=2", "k", None),
            ("POST", "/add", None, {"n": 3, "word": "12"}),
        ]


async def test_a_service_that_fails_is_the_answers_error() -> None:
    async with api() as (url, _):
        broken = Tool.create_api_tool(address(), f"{url}/broken", tool_id="broken")
        long = Tool.create_api_tool(address(), f"{url}/long", tool_id="long")
        away = Tool.create_api_tool(address(), f"http://{address()}/", tool_id="away")
        async with at_gateway(broken, long, away) as (_, asker):
            told = [(await asker.call_tool(name)).error_message for name in ("broken", "long", "away")]
    assert told[0] == "Error executing tool: HTTP status 404: no such thing"
    assert told[1].startswith("Error executing tool: the answer is longer than ")
    assert told[2].startswith("Error executing tool: Cannot connect")


@pytest.mark.parametrize("user", ["..", ".", "", "../admin", "a/../../admin", "..\\admin", "a/.."])
async def test_an_argument_stays_at_its_place_in_the_address(user: str) -> None:
    """Whoever calls a tool reaches what it is for, and nothing else that its key opens."""
    async with api() as (url, seen):
        tool = Tool.create_api_tool(address(), f"{url}/users/{{user}}/items", "DELETE", tool_id="t")
        async with at_gateway(tool) as (_, asker):
            answer = await asker.call_tool("t", arguments={"user": user})
        assert (answer.is_error, seen) == (True, [])
        assert answer.error_message == (
            f"Error executing tool: argument 'user': expected the name of a part of the address, got {user!r}"
        )


@pytest.mark.parametrize(
    ("user", "path"),
    [("...", "/users/..."), ("%2e%2e", "/users/%252e%252e"), ("a?b#c", "/users/a%3Fb%23c"), ("..a", "/users/..a")],
)
async def test_odd_arguments_are_encoded(user: str, path: str) -> None:
    async with api() as (url, seen):
        tool = Tool.create_api_tool(address(), f"{url}/users/{{user}}?q={{q}}", tool_id="t")
        async with at_gateway(tool) as (_, asker):
            assert not (await asker.call_tool("t", arguments={"user": user, "q": ".."})).is_error
        assert [where for _, where, _, _ in seen] == [f"{path}?q=.."]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    """What stands in the headers is for the service that was named."""
    async with api() as (url, seen):
        tool = Tool.create_api_tool(address(), f"{url}/moved", "GET", {"X-Key": "k"}, tool_id="t")
        async with at_gateway(tool) as (_, asker):
            answer = await asker.call_tool("t", arguments={"to": status})
        assert answer.error_message == (
            f"Error executing tool: HTTP status {status}: the service redirects; redirects are not followed"
        )
        assert [where for _, where, _, _ in seen] == [f"/moved?to={status}"]


def test_an_http_tool_says_what_is_wrong_with_it() -> None:
    with pytest.raises(ValueError, match="api_method: expected one of GET, POST"):
        Tool.create_api_tool("127.0.0.1:1", "http://a", "TRACE")
    with pytest.raises(ValueError, match="api_url: expected a URL"):
        Tool.create_api_tool("127.0.0.1:1", "file:///etc/passwd")
    with pytest.raises(ValueError, match="api_url: arguments are allowed in the path and the query, not in the host"):
        Tool.create_api_tool("127.0.0.1:1", "https://{region}.example/")
    with pytest.raises(ValueError, match="api_url: expected a path without"):
        Tool.create_api_tool("127.0.0.1:1", "https://api.example/a/%2e%2e/b")


async def test_a_tool_may_handle_requests_itself_and_change_what_it_says() -> None:
    tool = Tool(address(), "raw", arguments={"x": "anything"})

    async def handle(request: ToolRequest) -> ToolResponse:
        if request.arguments["x"] == "break":
            raise ValueError("it broke")
        response = ToolResponse("raw", request.sender_id, request.session_id)
        response.add_content(ContentItem(f"{request.tool_name}:{request.arguments['x']}"))
        return response

    async with at_gateway(tool) as (gateway, asker):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asker.call_tool("raw")
        assert (caught.value.code().name, caught.value.details()) == (
            "INTERNAL", "Handling request failure: the tool has no handler",
        )  # fmt: skip
        assert tool.set_process_request_handler(handle) is tool
        assert (await asker.call_tool("raw", "s1", "Name", {"x": {"a": 1}})).content[0].text == 'Name:{"a":1}'
        with pytest.raises(grpc.aio.AioRpcError, match="Handling request failure: it broke"):
            await asker.call_tool("raw", arguments={"x": "break"})
        changed = await tool.update_tool_info("New", "does more", "d", "2", [0, 1], [0], {"y": "z"})
        assert changed is tool
        assert gateway.get_registered_tools()["raw"] == ToolInfo(
            "raw", tool.address, "New", "d", [0, 1], [0], "does more", {"y": "z"}, "2"
        )


async def test_a_tool_is_asked_for_itself_only() -> None:
    async with Tool(address(), "t") as tool, grpc.aio.insecure_channel(tool.address) as channel:
        for method, status in (("ToolService/CallTool", "INTERNAL"), ("GatewayService/GetNodes", "UNIMPLEMENTED")):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(f"/grpc_service.{method}")(ToolRequest("c", "other").to_bytes())
            assert caught.value.code().name == status
        call = channel.stream_stream("/grpc_service.AgentService/CallAgent")()
        await call.write(b"")
        with pytest.raises(grpc.aio.AioRpcError, match="no sessions"):
            await call.read()


async def test_a_toolbox_is_called_in_its_own_generation() -> None:
    async with peers.tool() as node, at_gateway() as (gateway, asker), peers.client(gateway.address) as caller:
        box = schema.message("ToolBoxInfo", box=True, toolbox_id="box", address=node.address, name="Box")
        box.tools.add(name="add", arguments="{'a': 'int'}")
        await grpc.aio.insecure_channel(gateway.address).unary_unary("/grpc_service.GatewayService/RegisterTool")(
            box.SerializeToString()
        )
        assert caller is not None
        await asker.update_peers()
        info = asker.get_nodes()["box"]
        assert isinstance(info, ToolBoxInfo)
        assert gateway.get_registered_tools() == {"box": info}
        with pytest.raises(ValueError, match="has no tool 'nope'; there are: add"):
            await asker.call_tool("box", tool_name="nope")
        request = asker.create_tool_request("box", "s", "add", {"a": 1})
        raw = schema.toolbox().ToolRequest.FromString(request.to_bytes("toolbox"))
        assert (raw.tool_name, raw.arguments) == ("add", '{"a":1}')


# ---------------------------------------------------------------------- recorded traffic


def recorded(name: str, method: str) -> list[dict[str, Any]]:
    rpcs = json.loads((CAPTURES / f"{name}.json").read_text())["rpcs"]
    return [rpc for rpc in rpcs if rpc["method"].endswith(f"/{method}")]


def channel_to(where: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(where)


def sent(rpc: dict[str, Any], direction: str = "c2s") -> list[bytes]:
    return [base64.b64decode(e["raw_b64"]) for e in rpc["events"] if e["dir"] == direction and "raw_b64" in e]


@pytest.mark.parametrize(
    "name", ["session_single_turn", "session_multi_turn", "session_pipelined_stop", "content_all_kinds"]
)
async def test_our_agent_answers_recorded_callers_as_the_recorded_agent_did(name: str) -> None:
    rpc = recorded(name, "CallAgent")[0]
    first = AgentMessage.from_bytes(sent(rpc)[0])
    async with answering(Agent(address(), first.receiver_id)) as agent, channel_to(agent.address) as channel:
        call = channel.stream_stream(rpc["method"])()
        for body in sent(rpc):
            await call.write(body)
        await call.done_writing()
        came = [AgentMessage.from_bytes(body) async for body in call]
    theirs = [AgentMessage.from_bytes(body) for body in sent(rpc, "s2c")]
    said = [(m.session_status, m.text, m.sender_id, m.receiver_id, m.session_id) for m in came]
    assert said == [(m.session_status, m.text, m.sender_id, m.receiver_id, m.session_id) for m in theirs]


@pytest.mark.parametrize("name", ["tool_call_ok", "tool_call_other_name", "toolbox_call_ok"])
async def test_our_tool_answers_recorded_calls_as_the_recorded_tool_did(name: str) -> None:
    rpc = recorded(name, "CallTool")[0]
    receiver = ToolRequest.from_bytes(sent(rpc)[0]).receiver_id
    async with Tool.create_function_tool(add, address(), receiver) as tool, channel_to(tool.address) as channel:
        answer = await channel.unary_unary(rpc["method"])(sent(rpc)[0])
    assert ToolResponse.from_bytes(answer) == ToolResponse.from_bytes(sent(rpc, "s2c")[0])


@pytest.mark.parametrize("name", ["tool_call_missing_argument", "toolbox_call_bad_json"])
async def test_our_tool_fails_recorded_calls_as_the_recorded_tool_did(name: str) -> None:
    def needs_both(a: int, b: int) -> int:
        return a + b

    rpc = recorded(name, "CallTool")[0]
    async with Tool.create_function_tool(needs_both, address(), "x") as tool, channel_to(tool.address) as channel:
        body = sent(rpc)[0] + b"\x12\x01x"  # the last receiver counts
        answer = ToolResponse.from_bytes(await channel.unary_unary(rpc["method"])(body))
    theirs = ToolResponse.from_bytes(sent(rpc, "s2c")[0])
    assert (answer.is_error, answer.content) == (theirs.is_error, theirs.content)
    assert answer.error_message.startswith("Error executing tool: ")


async def test_our_gateway_takes_recorded_registrations_of_nodes_that_are_there() -> None:
    """Their recorded addresses are replaced, since a gateway dials back."""
    nodes = (
        ("register_agent", "RegisterAgent"),
        ("register_tool", "RegisterTool"),
        ("toolbox_register", "RegisterTool"),
    )
    async with Gateway(address()) as gateway, AsyncExitStack() as stack, channel_to(gateway.address) as channel:
        for name, method in nodes:
            node = await stack.enter_async_context(peers.tool())
            body = sent(recorded(name, method)[0])[0] + b"\x12" + bytes([len(node.address)]) + node.address.encode()
            assert (await getattr(GatewayServiceStub(channel), method)(body)).success
        kinds = [type(info) for info in gateway.get_registered_nodes().values()]
    assert kinds == [AgentInfo, ToolInfo, ToolBoxInfo]


# ---------------------------------------------------------------------- stubs


async def test_a_stub_names_its_methods_when_one_is_unknown() -> None:
    channel = channel_to("h:1")
    with pytest.raises(AttributeError, match=r"AgentServiceStub has no method 'Nothing'; there are: CallAgent"):
        _ = AgentServiceStub(channel).Nothing
    await channel.close()
