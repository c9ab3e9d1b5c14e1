"""Whose trace a model's tool calls are of: tools that others made note what they are shown."""

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
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from bridge import ToolCall
from bridge.sdk.aip import Gateway, Tool
from bridge.server.grpc.relay import trace_of
from bridge.testing import FakeBackend, fake_backend, free_port
from tests.server.harness import post, serving
from tests.server.test_traces import CONTEXT, PARENT, TRACE, Receiver, receiver, said

from . import peers, schema
from .test_model_tools import ADD, agent_config, config, gateway_with


@asynccontextmanager
async def adding(gateway: str) -> AsyncIterator[peers.Tool]:
    """A tool at a gateway."""
    async with peers.tool() as node:
        await register(node, gateway)
        yield node


async def register(node: peers.Tool, gateway: str) -> None:
    pb = schema.tool()
    info = pb.ToolInfo(tool_id="adder", address=node.address, name="add", arguments={"a": "int", "b": "int"})
    async with peers.client(gateway) as caller:
        await caller.gateway.RegisterTool(info)


@asynccontextmanager
async def standing() -> AsyncIterator[tuple[Gateway, peers.Tool, FakeBackend]]:
    """A gateway, a tool there, and a model."""
    async with gateway_with() as gateway, adding(gateway.address) as tool, fake_backend("openai-chat") as model:
        yield gateway, tool, model


def traced(configuration: dict[str, Any], taken: Receiver) -> dict[str, Any]:
    return {**configuration, "server": {"traces": {"endpoint": taken.url, "service": "it"}}}


async def asked(url: str, **headers: str) -> str | None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", default_headers=headers) as client:
        question: Any = [{"role": "user", "content": "What is 1 + 2?"}]
        answer = await client.chat.completions.create(model="m", messages=question)
    return answer.choices[0].message.content


def names(shown: dict[str, Any], call: Span) -> bool:
    """Whether a tool was shown this call's span, of the trace that the client brought."""
    told = shown.get("traceparent"), shown.get("tracestate")
    return told == (f"00-{TRACE}-{call.span_id.hex()}-01", CONTEXT["tracestate"])


async def test_a_tool_is_told_whose_trace_its_call_is_of() -> None:
    async with receiver() as taken, standing() as (gateway, tool, model):
        model.turns([ADD], [ToolCall("call_2", "add", '{"a": 2, "b": 2}')], ["Done."])
        async with serving(traced(config(model.url, gateway.address), taken)) as url:
            assert await asked(url, **CONTEXT) == "Done."
    request = taken.one("POST ")
    first, second = taken.named("execute_tool add")
    assert [names(shown, call) for shown, call in zip(tool.shown, (first, second), strict=True)] == [True, True]
    assert request.parent_span_id.hex() == PARENT
    for call in (first, second):
        assert (call.trace_id.hex(), call.parent_span_id) == (TRACE, request.span_id)
        assert call.kind == Span.SPAN_KIND_CLIENT
    about = said(first)
    assert about.pop("bridge.run_id").startswith(said(request)["bridge.run_id"])
    assert about == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "call_1",
    }


async def test_who_calls_a_tool_shows_it_no_header_that_is_for_the_model() -> None:
    async with receiver() as taken, standing() as (gateway, tool, model):
        model.turns([ADD], ["It is 3."])
        configuration = traced(config(model.url, gateway.address), taken)
        configuration["backends"]["llm"] |= {"forward_headers": ["x-tenant"], "api_key": "a-secret"}
        async with serving(configuration) as url:
            await asked(url, **CONTEXT, **{"x-tenant": "one"})
        assert model.seen[0].headers["x-tenant"] == "one"
    assert sorted(tool.shown[0]) == ["traceparent", "tracestate", "user-agent"]


async def test_what_a_tool_refuses_is_seen_in_its_span() -> None:
    async with receiver() as taken, standing() as (gateway, tool, model):
        tool.fail = grpc.StatusCode.INTERNAL
        model.turns([ADD], ["Sorry."])
        async with serving(traced(config(model.url, gateway.address), taken)) as url:
            assert await asked(url) == "Sorry."
    call = taken.one("execute_tool add")
    assert said(call)["error.type"] == "tool_error"
    assert call.status.code == Status.STATUS_CODE_ERROR
    assert tool.shown[0]["traceparent"].startswith(f"00-{call.trace_id.hex()}-{call.span_id.hex()}-")


async def test_a_call_whose_client_left_is_a_span_that_says_so() -> None:
    called = asyncio.Event()

    async def wait() -> str:
        called.set()
        await asyncio.Event().wait()
        return ""

    waiting = Tool.create_function_tool(wait, f"127.0.0.1:{free_port()}", "wait")
    async with receiver() as taken, gateway_with(waiting) as gateway, fake_backend("openai-chat") as model:
        model.turns([ToolCall("c", "wait", "{}")])
        async with serving(traced(config(model.url, gateway.address), taken)) as url:
            asking = asyncio.create_task(asked(url))
            await called.wait()
            asking.cancel()
            await asyncio.wait({asking})
    assert said(taken.one("execute_tool wait"))["error.type"] == "canceled"


async def test_calls_of_a_kept_run_are_of_the_trace_of_who_started_it(tmp_path: Path) -> None:
    """Whoever drives it has only what is kept with it."""
    async with receiver() as taken, standing() as (gateway, tool, model):
        model.turns([ADD], ["It is 3."])
        setup = traced(config(model.url, gateway.address, dialect="ag-ui", durable=True), taken)
        setup["stores"] = {"runs": f"sqlite:///{tmp_path}/runs.db"}
        body = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {},
                "messages": [{"id": "1", "role": "user", "content": "What is 1 + 2?"}]}  # fmt: skip
        async with serving(setup) as url:
            assert b"It is 3." in (await post(f"{url}/v1", body, **CONTEXT)).body
    assert names(tool.shown[0], taken.one("execute_tool add"))


@pytest.mark.parametrize("foreign", [False, True], ids=["gateway", "member"])
async def test_a_tool_behind_an_agent_is_told_too(tmp_path: Path, foreign: bool) -> None:
    """The tools beside the agent in its own gateway, and those at the gateway where it registers."""
    listen = f"127.0.0.1:{free_port()}"
    async with receiver() as taken, Gateway(f"127.0.0.1:{free_port()}") as gateway, peers.tool() as tool:
        options = {"mode": "agent", "gateway": gateway.address} if foreign else {}
        async with fake_backend("openai-chat") as model, peers.client(listen) as caller:
            model.turns([ADD], ["It is 3."])
            configuration = agent_config(model.url, listen, **options)
            configuration["stores"] = {"history": f"sqlite:///{tmp_path}/h.db"}
            async with serving(traced(configuration, taken)):
                await register(tool, gateway.address if foreign else listen)
                call = caller.agents.CallAgent(metadata=tuple(CONTEXT.items()))
                await call.write(peers.quest("START_QUEST", "What is 1 + 2?"))
                await call.write(peers.quest("STOP_QUEST"))
                assert (await peers.rest(call))[0] == ("HOLD_RESPONSE", "It is 3.")
    assert names(tool.shown[0], taken.one("execute_tool add"))


@pytest.mark.parametrize("brought", [{}, CONTEXT], ids=["none", "a-client's"])
async def test_without_traces_nothing_is_shown(brought: dict[str, str]) -> None:
    async with standing() as (gateway, tool, model):
        model.turns([ADD], ["It is 3."])
        async with serving(config(model.url, gateway.address)) as url:
            assert await asked(url, **brought) == "It is 3."
    assert list(tool.shown[0]) == ["user-agent"]


async def test_a_gateway_hands_on_whose_trace_it_is_and_nothing_else() -> None:
    """Calls of tools and sessions with agents, of callers that are none of ours."""
    mine = (*CONTEXT.items(), ("authorization", "Bearer theirs"), ("x-other", "no"))
    async with gateway_with() as gateway, adding(gateway.address) as tool, peers.agent() as agent:
        pb = schema.tool()
        async with peers.client(gateway.address) as caller:
            await caller.gateway.RegisterAgent(pb.AgentInfo(agent_id="echo", address=agent.address))
            request = pb.ToolRequest(sender_id="me", receiver_id="adder", tool_name="add", arguments={"a": "1"})
            await caller.gateway.RouteToolCalling(request, metadata=mine)
            session = caller.gateway.RouteAgentCalling(metadata=mine)
            await session.write(peers.quest("START_QUEST", receiver="echo"))
            await session.write(peers.quest("STOP_QUEST", receiver="echo"))
            await peers.rest(session)
    for shown in (tool.shown[0], agent.shown[0]):
        assert {name: value for name, value in shown.items() if name != "user-agent"} == CONTEXT


@pytest.mark.parametrize("odd", ["J\u00f6rg", "a\nb", b"\xff"])
def test_a_context_that_cannot_be_handed_on_is_left_out(odd: str | bytes) -> None:
    class Rpc:
        def invocation_metadata(self) -> list[tuple[str, str | bytes]]:
            return [("traceparent", odd), ("tracestate", "vendor=1")]

    assert trace_of(Rpc()) == (("tracestate", "vendor=1"),)
