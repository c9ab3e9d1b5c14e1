"""Served for real: the mount path itself is the endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from ag_ui.core import AgentCapabilities

from bridge.contract import registry
from bridge.dialects.ag_ui import dialect
from tests.server.harness import ask, fake_backend, post, serving

from .helpers import asked, check, response_of, types


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    """Until the entry point is there, and harmless after."""
    registry.register(dialect)
    yield
    registry.unregister("ag-ui")


def config(url: str | None = None, path: str = "/ag-ui") -> dict[str, Any]:
    backend = {"dialect": "ag-ui", "url": url} if url else {"dialect": "demo"}
    return {"backends": {"it": backend}, "routes": [{"dialect": "ag-ui", "path": path, "backend": "it"}]}


def events_in(body: bytes) -> list[dict[str, Any]]:
    assert b"\r" not in body
    return [orjson.loads(frame.removeprefix(b"data: ")) for frame in body.split(b"\n\n") if frame[:1] == b"d"]


async def test_a_run_at_the_mount_path() -> None:
    async with serving(config()) as base:
        reply = await post(f"{base}/ag-ui", asked({"id": "1", "role": "user", "content": "reasoning"}))
        assert (reply.status, reply.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        events = events_in(reply.body)
        check(events)
        assert events[0] == {"type": "RUN_STARTED", "threadId": "t1", "runId": "r1", "protocolVersion": "1.0"}
        assert "REASONING_MESSAGE_CONTENT" in types(events)
        assert events[-1]["outcome"] == {"type": "success"}
        wrong = await post(f"{base}/ag-ui", {"threadId": "t"})
        assert (wrong.status, wrong.json["error"]["param"]) == (422, "runId")
        assert (await post(f"{base}/ag-ui", b"{")).status == 400
        assert (await ask("PUT", f"{base}/ag-ui")).status == 405
        assert (await ask("POST", f"{base}/ag-ui/else")).status == 404


async def test_from_an_agent_to_a_client() -> None:
    async with fake_backend() as backend, serving(config(f"{backend.url}/agent")) as base:
        backend.streams(response_of("tool-turn1").body)
        reply = await post(f"{base}/ag-ui", asked({"id": "1", "role": "user", "content": "Hi"}))
        seen = backend.seen[0]
        assert (seen.method, seen.path, seen.headers["accept"]) == ("POST", "/agent", "text/event-stream")
        assert seen.json["messages"] == [{"id": "1", "role": "user", "content": "Hi"}]
        events = events_in(reply.body)
        check(events)
        assert events[-1]["outcome"]["pendingToolCallIds"] == ["call-run-tool-turn1-2"]


async def test_a_failure_of_the_backend_is_told_in_the_stream() -> None:
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.answers(503, b'{"error":{"message":"busy"}}')
        reply = await post(f"{base}/ag-ui", asked({"id": "1", "role": "user", "content": "Hi"}))
        events = events_in(reply.body)
        assert types(events) == ["RUN_STARTED", "RUN_ERROR"]
        assert (events[-1]["code"], events[-1]["message"]) == ("UPSTREAM_HTTP_503", "busy")


LANGGRAPH = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "STEP_STARTED", "stepName": "agent"},
    {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "transfer", "parentMessageId": "m1"},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '{"to": "Bo"}'},
    {"type": "TOOL_CALL_END", "toolCallId": "c1"},
    {"type": "STEP_FINISHED", "stepName": "agent"},
    {"type": "CUSTOM", "name": "on_interrupt", "value": "Really?", "rawEvent": {"id": "x"}},
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
]


async def test_a_langgraph_agent_asks_a_chat_client(tmp_path: Path) -> None:
    """The graph stops in a tool of its own: an `interrupt()` names neither the call nor itself."""
    route = {"dialect": "openai-chat", "path": "/v1", "backend": "it"}
    async with fake_backend() as backend:
        parts = config(backend.url)
        parts = {**parts, "routes": [route], "stores": {"history": f"sqlite:///{tmp_path}/talks.db"}}
        async with serving(parts) as base:
            backend.streams(*(b"data: " + orjson.dumps(e) + b"\n\n" for e in LANGGRAPH))
            body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Send it"}]}
            (choice,) = (await post(f"{base}/v1/chat/completions", body)).json["choices"]
            assert choice["finish_reason"] == "stop"
            assert choice["message"].get("tool_calls") is None
            assert choice["message"]["content"] == 'transfer({"to": "Bo"})\n\nReally?'
            body["messages"] += [choice["message"], {"role": "user", "content": "yes"}]
            backend.streams(*(b"data: " + orjson.dumps(e) + b"\n\n" for e in (LANGGRAPH[0], LANGGRAPH[-1])))
            assert (await post(f"{base}/v1/chat/completions", body)).status == 200
        first, second = backend.seen
        assert second.json["forwardedProps"]["command"] == {"resume": "yes"}
        assert second.json["threadId"] == first.json["threadId"]


@pytest.mark.parametrize("ending", ["RUN_FINISHED", "outcome", "RUN_ERROR"])
async def test_a_client_that_listens_for_the_event_of_langgraph_gets_it(ending: str) -> None:
    """CopilotKit's `useLangGraphInterrupt` reads this event and answers in `forwardedProps`."""
    end: dict[str, Any] = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
    if ending == "outcome":
        end["outcome"] = {"type": "interrupt", "interrupts": [{"id": n, "reason": "hitl"} for n in ("i1", "i2")]}
    elif ending == "RUN_ERROR":
        end = {"type": ending, "message": "It broke."}
    sent = [*LANGGRAPH[:-1], {"type": "CUSTOM", "name": "on_interrupt", "value": {"question": "Sure?"}}, end]
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.streams(*(b"data: " + orjson.dumps(e) + b"\n\n" for e in sent))
        first = asked({"id": "1", "role": "user", "content": "Send it"})
        events = events_in((await post(f"{base}/ag-ui", first)).body)
        check(events)
        told = [e["value"] for e in events if e["type"] == "CUSTOM"]
        assert told == ["Really?", {"question": "Sure?"}]
        if ending != "RUN_ERROR":
            assert len(events[-1]["outcome"]["interrupts"]) == 2
        props = {"command": {"resume": "yes"}}
        await post(f"{base}/ag-ui", {**first, "forwardedProps": props})
        assert backend.seen[1].json["forwardedProps"] == props


async def test_what_the_agent_is_able_to_do() -> None:
    """In the object that the official package has for it; what does not hold for each backend is false."""
    async with fake_backend() as backend:
        parts = config(backend.url)
        parts["backends"]["llm"] = {"dialect": "openai-chat", "url": backend.url}
        routes = [("/agent", "it"), ("/model", "llm"), ("/both", ["it", "llm"])]
        parts["routes"] = [{"dialect": "ag-ui", "path": path, "backend": names} for path, names in routes]
        async with serving(parts) as base:
            agent, model, both = [
                AgentCapabilities.model_validate_json((await ask("GET", f"{base}{path}")).body) for path, _ in routes
            ]
        assert backend.seen == []
    assert (agent.identity.name, both.identity.name) == ("it", "it, llm")
    assert (agent.state.snapshots, agent.human_in_the_loop.interrupts, agent.reasoning.supported) == (True, True, True)
    assert (model.state.snapshots, model.human_in_the_loop.interrupts, model.output.structured_output) == (
        False, False, True,
    )  # fmt: skip
    assert (model.multimodal.input.image, model.multimodal.input.video, model.tools.client_provided) == (
        True, False, True,
    )  # fmt: skip
    assert (both.state.snapshots, both.tools.supported, both.transport.streaming) == (False, True, True)


@pytest.mark.parametrize("page", [True, False])
async def test_a_route_at_the_root_leaves_the_page_where_it_is(page: bool) -> None:
    async with serving({**config(path="/"), "server": {"page": page}}) as base:
        reply = await ask("GET", base)
        assert reply.headers["content-type"].partition(";")[0] == ("text/html" if page else "application/json")
        run = await post(base, asked({"id": "1", "role": "user", "content": "Hi"}))
        assert events_in(run.body)[-1]["type"] == "RUN_FINISHED"
