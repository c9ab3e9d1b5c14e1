"""A chat client's own tools at a gateway (`expose_client_tools`): found and called by the agent, run by the client."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import openai
import pytest

from bridge import Bridge, ConfigError, ErrorCode, Message, Request, Text, Tool, ToolCall, ToolResult, Unsupported
from bridge.contract import Context
from bridge.dialects.aip import dialect
from bridge.dialects.aip.described import schema_of, texts_of
from bridge.engine.config import parse
from bridge.engine.route import RunCaller
from bridge.model import Answer, Folder, fold, verify
from bridge.sdk.aip import Agent, AgentMessage, ContentItem, Gateway, SessionStatus

from .test_model_tools import address, chatting, served

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather somewhere.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "where"},
                "days": {"type": "integer"},
                "exact": {"type": "boolean"},
            },
            "required": ["city"],
        },
    },
}
TIME: Any = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
STOP = SessionStatus.STOP_QUEST

Does = Callable[[Agent, AgentMessage], Awaitable[str]]


async def found(agent: Agent, asked: AgentMessage) -> dict[str, str]:
    """What of the client's tools an agent finds for a session: name -> id."""
    await agent.update_peers(asked.session_id)
    return {info.name: node for node, info in agent.get_nodes().items()}


async def asks_for_weather(agent: Agent, asked: AgentMessage) -> str:
    tool = (await found(agent, asked))["weather"]
    told = await agent.call_tool(tool, arguments={"city": asked.text, "days": 2, "exact": True})
    return told.error_message if told.is_error else f"It is {told.content[0].text} in {asked.text}."


@asynccontextmanager
async def at_work(
    does: Does, *, says_first: str = "", keys: Any = None, key: str | None = None
) -> AsyncIterator[tuple[Gateway, Agent]]:
    """An agent at a gateway; each session has a task of its own, so that one that waits holds up nobody."""

    async def one(agent: Agent, asked: AgentMessage) -> None:
        if asked.session_status == STOP:
            await before[asked.session_id]
            await agent.submit_feedback(asked.session_id, asked.sender_id, "Goodbye")
            return
        if says_first:
            await agent.submit_feedback(asked.session_id, asked.sender_id, says_first)
        answer, status = await does(agent, asked), SessionStatus.HOLD_RESPONSE
        await agent.submit_feedback(asked.session_id, asked.sender_id, answer, session_status=status)

    before: dict[str, asyncio.Task[None]] = {}

    async def loop(agent: Agent) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                asked = await agent.receive_inquiry()
                task = group.create_task(one(agent, asked))
                if asked.session_status != STOP:
                    before[asked.session_id] = task

    async with (
        asyncio.timeout(60),
        Gateway(address(), keys=keys) as gateway,
        Agent(address(), "helper", key=key) as agent,
    ):
        await agent.register_to_gateway(gateway.address)
        serving = asyncio.create_task(loop(agent))
        try:
            yield gateway, agent
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError, BaseExceptionGroup):
                await serving


def config(gateway: str, **options: Any) -> dict[str, Any]:
    options = {"agent": "helper", "expose_client_tools": True, "cancel_grace": 5, **options}
    return {
        "backends": {"it": {"dialect": "aip", "url": gateway, "options": options}},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
        "stores": {"history": "off"},
    }


def tool_nodes(gateway: Gateway) -> list[str]:
    return [info.name for info in gateway.get_registered_tools().values()]


async def until_none_is_left(gateway: Gateway) -> None:
    while tool_nodes(gateway):
        await asyncio.sleep(0.01)


# ---------------------------------------------------------------------- by a chat client


@pytest.mark.parametrize("generation", ["auto", "toolbox"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_agent_calls_a_chat_clients_function(stream: bool, generation: str) -> None:
    seen: list[Any] = []

    async def does(agent: Agent, asked: AgentMessage) -> str:
        await agent.update_peers(asked.session_id)
        nodes = agent.get_nodes()
        seen.append(nodes)
        tool = next(node for node, info in nodes.items() if info.name in ("weather", node))
        arguments = {"city": asked.text, "days": 2, "exact": True}
        told = await agent.call_tool(tool, tool_name="weather", arguments=arguments)
        return f"It is {told.content[0].text} in {asked.text}."

    async with at_work(does, says_first="Let me look. ") as (gateway, _):
        configuration = config(gateway.address, generation=generation)
        async with served(configuration) as url, chatting(url) as client:
            messages: list[Any] = [{"role": "user", "content": "Oslo"}]
            text, calls, reason = await said(client, messages, stream)
            assert (text, reason) == ("Let me look. ", "tool_calls")
            [call] = calls
            assert (call["name"], json.loads(call["arguments"])) == (
                "weather", {"city": "Oslo", "days": 2, "exact": True},
            )  # fmt: skip
            messages += spoken(text, calls, ["sunny"])
            assert await said(client, messages, stream) == ("It is sunny in Oslo.", [], "stop")
            await until_none_is_left(gateway)
    [nodes] = seen
    if generation == "auto":
        infos = {info.name: info for info in nodes.values()}
        assert sorted(infos) == ["clock", "weather"]
        assert infos["weather"].description == "The weather somewhere."
        assert infos["weather"].arguments == {
            "city": "<class 'str'>: where", "days": "<class 'int'>: (optional)", "exact": "<class 'bool'>: (optional)",
        }  # fmt: skip
        assert len({info.address for info in infos.values()}) == 2
    else:
        [box] = nodes.values()
        assert [tool.name for tool in box.tools] == ["weather", "clock"]
        assert [tool.description for tool in box.tools] == ["The weather somewhere.", ""]


def spoken(text: str, calls: list[dict[str, str]], results: list[str]) -> list[Any]:
    """The assistant's message with its calls, and the client's with their results."""
    functions = [{"name": call["name"], "arguments": call["arguments"]} for call in calls]
    asked = [{"id": c["id"], "type": "function", "function": f} for c, f in zip(calls, functions, strict=True)]
    given = [{"role": "tool", "tool_call_id": c["id"], "content": r} for c, r in zip(calls, results, strict=True)]
    return [{"role": "assistant", "content": text, "tool_calls": asked}, *given]


async def said(
    client: openai.AsyncOpenAI, messages: list[Any], stream: bool = False, tools: Any = (WEATHER, TIME), **more: Any
) -> tuple[str, list[dict[str, str]], str | None]:
    asked: Any = {"model": "m", "messages": messages, "tools": list(tools), **more}
    if not stream:
        choice = (await client.chat.completions.create(**asked)).choices[0]
        found: Any = choice.message.tool_calls or []
        calls = [{"id": c.id, "name": c.function.name, "arguments": c.function.arguments} for c in found]
        return choice.message.content or "", calls, choice.finish_reason
    text, calls, reason = "", [], None
    async for chunk in await client.chat.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
            for piece in choice.delta.tool_calls or ():
                if piece.id:
                    calls.append({"id": piece.id, "name": piece.function.name or "", "arguments": ""})
                calls[-1]["arguments"] += piece.function.arguments or ""
    return text, calls, reason


async def test_an_agent_is_told_what_a_client_could_not_do() -> None:
    """A result is what the client says it is; calls in a row are turns in a row."""

    async def does(agent: Agent, asked: AgentMessage) -> str:
        return f"{await asks_for_weather(agent, asked)} {await asks_for_weather(agent, asked)}"

    async with at_work(does) as (gateway, _), served(config(gateway.address)) as url, chatting(url) as client:
        messages: list[Any] = [{"role": "user", "content": "Oslo"}]
        for result in ("unknown", "still unknown"):
            text, calls, reason = await said(client, messages)
            assert (text, [c["name"] for c in calls], reason) == ("", ["weather"], "tool_calls")
            messages += spoken(text, calls, [result])
        assert (await said(client, messages))[0] == "It is unknown in Oslo. It is still unknown in Oslo."
        await until_none_is_left(gateway)


async def test_calls_side_by_side_are_all_answered() -> None:
    async def does(agent: Agent, asked: AgentMessage) -> str:
        tools = await found(agent, asked)
        both = await asyncio.gather(
            agent.call_tool(tools["weather"], arguments={"city": "Oslo"}), agent.call_tool(tools["clock"])
        )
        return " ".join(each.content[0].text or "" for each in both)

    async with at_work(does) as (gateway, _), served(config(gateway.address)) as url, chatting(url) as client:
        messages: list[Any] = [{"role": "user", "content": "Oslo"}]
        names = []
        while (turn := await said(client, messages))[1]:
            text, calls, reason = turn
            assert reason == "tool_calls"
            names += [call["name"] for call in calls]
            messages += spoken(text, calls, [f"<{call['name']}>" for call in calls])
        assert turn == ("<weather> <clock>", [], "stop")
        assert sorted(names) == ["clock", "weather"]


async def test_a_kept_session_goes_on_behind_a_call() -> None:
    options = {"session": "keep", "turn_end": "first"}
    async with at_work(asks_for_weather) as (gateway, _):
        async with Bridge.from_config(config(gateway.address, **options)) as bridge:
            for city in ("Oslo", "Rome"):
                first = await ended(bridge, asking(city, thread_id="t"))
                [call] = first.calls
                second = await ended(bridge, asking(city, call, "fine", thread_id="t"))
                assert second.text == f"It is fine in {city}."
                assert len(tool_nodes(gateway)) == 1  # of the one session, which is kept
        assert tool_nodes(gateway) == []


# ---------------------------------------------------------------------- by the library


def asking(city: str, call: ToolCall | None = None, result: str | None = None, **more: Any) -> Request:
    messages = [Message("user", [Text(city)])]
    if call is not None:
        messages.append(Message("assistant", [call]))
    if call is not None and result is not None:
        messages.append(Message("tool", [ToolResult(call.call_id, [Text(result)])]))
    schema = WEATHER["function"]["parameters"]
    return Request(messages, tools=[Tool("weather", "The weather somewhere.", schema)], **more)


async def ended(bridge: Bridge, request: Request, owner: str = "") -> Answer:
    run = await bridge.run(bridge.route(), request, caller=RunCaller(owner))
    folder = Folder()
    while not run.ended:
        folder.feed(await run.read())
    await run.close()
    return folder.answer


async def test_a_client_that_does_not_come_back_is_not_waited_for() -> None:
    told = asyncio.Event()
    heard: list[str] = []

    async def does(agent: Agent, asked: AgentMessage) -> str:
        heard.append(await asks_for_weather(agent, asked))
        told.set()
        return heard[-1]

    async with (
        at_work(does) as (gateway, _),
        Bridge.from_config(config(gateway.address, tools_wait="200ms")) as bridge,
    ):
        first = await ended(bridge, asking("Oslo"))
        await told.wait()
        await until_none_is_left(gateway)
        # Who comes after all asks anew: the agent is told what was said.
        again = await ended(bridge, asking("Oslo", first.calls[0], "late"))
        assert [call.name for call in again.calls] == ["weather"]
        assert again.calls[0].call_id != first.calls[0].call_id
    assert heard[0] == "Error executing tool: the client sent no result"


async def test_results_go_to_their_owners_session_alone() -> None:
    async with at_work(asks_for_weather) as (gateway, _), Bridge.from_config(config(gateway.address)) as bridge:
        [call] = (await ended(bridge, asking("Oslo"), "ann")).calls
        [other] = (await ended(bridge, asking("Oslo", call, "stolen"), "bob")).calls
        assert other.call_id != call.call_id
        assert (await ended(bridge, asking("Oslo", call, "hers"), "ann")).text == "It is hers in Oslo."


async def test_words_behind_the_results_are_refused_and_the_agent_still_waits() -> None:
    async with at_work(asks_for_weather) as (gateway, _), Bridge.from_config(config(gateway.address)) as bridge:
        [call] = (await ended(bridge, asking("Oslo"))).calls
        more = asking("Oslo", call, "rain")
        more.messages.append(Message("user", [Text("Be quick!")]))
        with pytest.raises(Unsupported, match=r"messages\[3\]: expected only the tool results"):
            await bridge.run(bridge.route(), more)
        more.messages[-1].places = ("input[1]",)
        with pytest.raises(Unsupported, match=r"input\[1\]: expected only") as caught:
            await bridge.run(bridge.route(), more)
        assert caught.value.failure.param == "input[1]"
        assert (await ended(bridge, asking("Oslo", call, "rain"))).text == "It is rain in Oslo."


async def test_nobody_else_calls_a_clients_tools() -> None:
    """Whoever reaches the gateway finds them there, but what they are told would be another session's."""
    hold, seen = asyncio.Event(), asyncio.Event()

    async def does(agent: Agent, asked: AgentMessage) -> str:
        seen.set()
        await hold.wait()
        return "done"

    async with at_work(does) as (gateway, _), Agent(address(), "nosy") as nosy:
        await nosy.register_to_gateway(gateway.address)
        async with Bridge.from_config(config(gateway.address)) as bridge:
            running = asyncio.create_task(ended(bridge, asking("Oslo")))
            await seen.wait()
            await nosy.update_peers()
            node = next(node for node, info in nosy.get_nodes().items() if info.name == "weather")
            answer = await nosy.call_tool(node, arguments={"city": "x"})
            assert answer.error_message == "Error executing tool: this tool belongs to the session of another agent"
            async with grpc.aio.insecure_channel(nosy.get_nodes()[node].address) as channel:
                for path, body, status in (
                    ("ToolService/CallTool", b"\xff", "INVALID_ARGUMENT"),
                    ("ToolService/CallTool", b"\x12\x01x", "NOT_FOUND"),
                    ("GatewayService/GetNodes", b"", "UNIMPLEMENTED"),
                ):
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await channel.unary_unary(f"/grpc_service.{path}")(body)
                    assert caught.value.code().name == status
            hold.set()
            assert ((await running).text, (await running).calls) == ("done", [])


async def test_a_client_that_leaves_takes_its_tools_along() -> None:
    seen = asyncio.Event()

    async def does(agent: Agent, asked: AgentMessage) -> str:
        seen.set()
        return await asyncio.Event().wait() or ""

    async with (
        at_work(does) as (gateway, _),
        Bridge.from_config(config(gateway.address, cancel_grace=0.1)) as bridge,
    ):
        run = await bridge.run(bridge.route(), asking("Oslo"))
        reading = asyncio.create_task(run.read())
        await seen.wait()
        assert tool_nodes(gateway) == ["weather"]
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await run.close()
        await until_none_is_left(gateway)


async def test_a_bridge_that_stops_leaves_no_agent_waiting() -> None:
    heard = asyncio.Event()

    async def does(agent: Agent, asked: AgentMessage) -> str:
        told = await asks_for_weather(agent, asked)
        heard.set()
        return told

    async with at_work(does) as (gateway, _):
        async with Bridge.from_config(config(gateway.address, cancel_grace=1000)) as bridge:
            await ended(bridge, asking("Oslo"))
        await heard.wait()
        assert tool_nodes(gateway) == []


async def test_a_gateway_that_does_not_take_them_is_told_to_the_client() -> None:
    async with at_work(asks_for_weather) as (gateway, _):
        async with Bridge.from_config(config(gateway.address, tools_host="127.0.0.2")) as bridge:
            assert (await ended(bridge, asking("Oslo"))).calls  # another address of this machine
        async with Bridge.from_config(config(gateway.address, tools_host="192.0.2.1")) as bridge:
            failure = (await ended(bridge, asking("Oslo"))).failure
            assert failure is not None
            assert failure.code is ErrorCode.BACKEND_UNAVAILABLE
            assert failure.message == "The client's tools cannot be offered: 192.0.2.1 cannot be listened on."
        assert tool_nodes(gateway) == []


async def test_a_gateway_that_asks_for_a_key_is_shown_ours() -> None:
    own: Any = {"keys": {"it": "our-own-key", "agent": "its-own-key"}, "key": "its-own-key"}
    async with at_work(asks_for_weather, **own) as (gateway, _):
        configuration = config(gateway.address)
        async with Bridge.from_config(configuration) as bridge:
            request = asking("Oslo")
            request.tools = [*(request.tools or ()), Tool("clock"), Tool("map")]
            failure = (await ended(bridge, request)).failure
            assert failure is not None
            assert failure.message == (
                "The client's tools could not be registered where the agent finds them: UNAUTHENTICATED."
            )
        configuration["backends"]["it"]["api_key"] = "our-own-key"
        async with Bridge.from_config(configuration) as bridge:
            [call] = (await ended(bridge, asking("Oslo"))).calls
            assert (await ended(bridge, asking("Oslo", call, "fine"))).text == "It is fine in Oslo."
            await until_none_is_left(gateway)


async def test_without_the_option_tools_stay_with_the_client_and_are_named_as_lost() -> None:
    async def does(agent: Agent, asked: AgentMessage) -> str:
        return str(sorted(await found(agent, asked)))

    async with at_work(does) as (gateway, _):
        for option, tools, lost in ((False, asking("x").tools, ["tools"]), (True, None, [])):
            async with Bridge.from_config(config(gateway.address, expose_client_tools=option)) as bridge:
                run = await bridge.run(bridge.route(), Request([Message("user", [Text("x")])], tools=tools))
                folder = Folder()
                while not run.ended:
                    folder.feed(await run.read())
                await run.close()
                assert (folder.answer.text, run.lost.names) == ("[]", lost)


async def test_who_wants_no_tools_called_offers_none() -> None:
    async def does(agent: Agent, asked: AgentMessage) -> str:
        return str(sorted(await found(agent, asked)))

    async with at_work(does) as (gateway, _), served(config(gateway.address)) as url, chatting(url) as client:
        messages = [{"role": "user", "content": "x"}]
        assert (await said(client, messages, tool_choice="none"))[0] == "[]"
        assert (await said(client, messages))[0] == "['clock', 'weather']"


@pytest.mark.parametrize(("said_before", "answer"), [("Let me look.", ""), ("", "Goodbye")])
def test_a_goodbye_is_no_answer_to_who_was_answered_before_the_call(said_before: str, answer: str) -> None:
    """As in a turn without a call: only of an agent that said nothing else it is the answer (section 5)."""
    options = dialect.back_options(agent="helper", expose_client_tools=True)
    first, second = (Context(run, options=options, request=asking("Oslo")) for run in ("one", "two"))
    caller = dialect.caller(first)
    caller.ask(asking("Oslo"), first)
    held, stopped = (AgentMessage(session_status=status) for status in (SessionStatus.HOLD_RESPONSE, STOP + 1))
    held.add_content(ContentItem(said_before))
    stopped.add_content(ContentItem("Goodbye"))
    before = caller.feed([held.to_bytes()] if said_before else [], 0.0)
    turn = fold(verify([*before, *caller.called([ToolCall("c", "weather", "{}")])]))
    assert (turn.text, turn.reason) == (said_before, "tool_calls")
    caller.resume(second)
    assert fold(verify(caller.feed([stopped.to_bytes()], 1.0))).text == answer


# ---------------------------------------------------------------------- words and settings


def test_a_schema_becomes_texts_that_are_read_as_the_same_schema() -> None:
    kinds = {"a": "integer", "b": "number", "c": "boolean", "d": "string", "e": "array", "f": "object"}
    schema = {"type": "object", "properties": {n: {"type": t} for n, t in kinds.items()}, "required": list(kinds)}
    assert schema_of(texts_of(schema)) == schema
    odd = {"properties": {"x": {"anyOf": []}, "y": True, "z": {"type": ["integer", "null"], "description": "n"}}}
    assert texts_of(odd) == {
        "x": "<class 'str'>: (optional)", "y": "<class 'str'>: (optional)", "z": "<class 'str'>: n (optional)",
    }  # fmt: skip
    assert texts_of(None) == texts_of({"properties": []}) == {}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"direct": True}, "expected a gateway, and not direct: true, with expose_client_tools"),
        ({"tls": {"ca": "ca.pem"}}, "expected tls with cert and key with expose_client_tools"),
        ({"tools_wait": "soon"}, "backends.it.options.tools_wait"),
    ],
)
def test_mistakes_in_its_options(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(config("127.0.0.1:1", **options))
    assert told in caught.value.message
