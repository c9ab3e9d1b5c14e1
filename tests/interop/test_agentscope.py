"""A real `AgentApp` of the agentscope runtime as the backend, behind every frontend (`make interop` installs it)."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from tests.dialects.ag_kit.helpers import Client as AGKitClient
from tests.dialects.ag_ui.helpers import check as check_ag_ui
from tests.dialects.agentscope.frontends import WebFrontend, python_client
from tests.docs.helpers import ROOT, Server, server
from tests.pairs.clients import TOOL, Call, Seen, openai_client
from tests.server.harness import ask, post, serving

pytestmark = pytest.mark.interop

PYTHON = Path(sys.prefix) / "agentscope" / "bin" / "python"
PICTURE = "https://x.example/cat.png"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    assert PYTHON.exists(), f"the real agent server is not installed in {PYTHON.parents[1]}: run `make interop`"
    script = ROOT / "tests" / "interop" / "agentscope_agent.py"
    with server(tmp_path_factory.mktemp("agent"), str(PYTHON), str(script), "{port}", ready="/health") as running:
        yield running


FRONTS = {"openai-chat": "/chat/v1", "ag-kit": "/kit", "ag-ui": "/ui", "agentscope": "/scope"}


@asynccontextmanager
async def bridge(agent: Server, *fronts: str, **options: Any) -> AsyncIterator[str]:
    """The bridge with these frontends, or all, in front of the agent."""
    config = {
        "backends": {"agent": {"dialect": "agentscope", "url": agent.url}},
        "routes": [{"dialect": d, "path": FRONTS[d], "backend": "agent", **options} for d in fronts or FRONTS],
    }
    async with serving(config) as base:
        yield base


# ---------------------------------------------------------------------- clients: what each ends up with


async def chat(base: str, text: str, session: str) -> Seen:
    return await openai_client(
        base, [{"role": "user", "content": text}], tools=[TOOL], metadata={"session_id": session}
    )


async def ag_kit(base: str, text: str, session: str) -> Seen:
    body = {"messages": [{"role": "user", "content": text}], "conversationId": session}
    reply = await post(f"{base}/kit/send-message", body)
    client = AGKitClient().read(reply.body)
    assert client.done
    assert not client.late
    seen = Seen(reply.status, client.text.removesuffix(client.error or ""), error=client.error)
    seen.calls = [Call(i, c["name"], c["input"]) for i, c in client.calls.items()]
    seen.results = [(i, c["result"]) for i, c in client.calls.items() if "result" in c]
    return seen


async def ag_ui(base: str, text: str, session: str) -> Seen:
    body = {
        "threadId": session, "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{"id": "u1", "role": "user", "content": text}], "protocolVersion": "1.0",
    }  # fmt: skip
    reply = await post(f"{base}/ui", body)
    events = [json.loads(e[6:]) for e in reply.body.decode().split("\n\n") if e.startswith("data: ")]
    check_ag_ui(events)
    seen = Seen(reply.status)
    for event in events:
        match event["type"]:
            case "TEXT_MESSAGE_CONTENT":
                seen.text += event["delta"]
            case "REASONING_MESSAGE_CONTENT":
                seen.reasoning += event["delta"]
            case "TOOL_CALL_START":
                seen.calls.append(Call(event["toolCallId"], event["toolCallName"], ""))
            case "TOOL_CALL_ARGS":
                seen.calls[-1].arguments += event["delta"]
            case "TOOL_CALL_RESULT":
                seen.results.append((event["toolCallId"], event["content"]))
            case "RUN_ERROR":
                seen.error = event["message"]
    return seen


async def scope(base: str, text: str, session: str) -> Seen:
    content = [{"type": "text", "text": text}]
    body = {"input": [{"role": "user", "type": "message", "content": content}], "session_id": session}
    reply = await post(f"{base}/scope/process", body)
    models, frontend = python_client(reply.body), WebFrontend().read(reply.body)
    assert not frontend.generating
    seen = Seen(reply.status)
    for kind, value in frontend.shown():
        if kind == "thinking":
            seen.reasoning += value
        elif kind == "text":
            seen.text += value
        else:
            name, arguments, output = value
            seen.calls.append(Call("call_1", name, arguments))
            seen.results += [("call_1", output)] if output else []
    last = models[-1]
    assert last.status == frontend.state["status"]
    seen.error = last.error.message if last.error else None
    return seen


CLIENTS = {"openai-chat": chat, "ag-kit": ag_kit, "ag-ui": ag_ui, "agentscope": scope}
fronts = pytest.mark.parametrize("front", CLIENTS)


# ---------------------------------------------------------------------- scenes


@fronts
async def test_text(agent: Server, front: str) -> None:
    async with bridge(agent) as base:
        seen = await CLIENTS[front](base, "hello", f"text-{front}")
    assert (seen.text, seen.error) == ("You said: hello \u2028 你好 🙂", None)


@fronts
async def test_reasoning(agent: Server, front: str) -> None:
    async with bridge(agent) as base:
        seen = await CLIENTS[front](base, "think", f"think-{front}")
    assert seen.text == "Six times seven is 42."
    # AG-Kit's wire has no reasoning, as its card says.
    assert seen.reasoning == ("" if front == "ag-kit" else "Hm, hm.")


@fronts
async def test_a_tool_that_the_agent_runs(agent: Server, front: str) -> None:
    async with bridge(agent) as base:
        seen = await CLIENTS[front](base, "tool", f"tool-{front}")
    assert seen.text == "It is sunny."
    if front == "openai-chat":
        assert (seen.calls, seen.finish) == ([], "stop"), "its clients would run the tool again"
        return
    (call,) = seen.calls
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    ((call_id, output),) = seen.results
    assert call_id == call.id
    # AgentScope's own clients are told the blocks that the runtime wrote, the others what they say.
    assert output in ("sunny", '[{"type": "text", "text": "sunny"}]')


@fronts
async def test_a_tool_that_the_client_runs(agent: Server, front: str) -> None:
    async with bridge(agent) as base:
        seen = await CLIENTS[front](base, "ask", f"ask-{front}")
    (call,) = seen.calls
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    assert (seen.results, seen.error) == ([], None)


async def test_its_result_reaches_the_agent(agent: Server) -> None:
    async with bridge(agent) as base:
        asked = [{"role": "user", "content": "ask"}]
        first = await openai_client(base, asked, tools=[TOOL])
        assert first.finish == "tool_calls"
        (call,) = first.calls
        function = {"name": call.name, "arguments": call.arguments}
        conversation = [
            *asked,
            {"role": "assistant", "tool_calls": [{"id": call.id, "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": call.id, "content": "raining"},
        ]  # fmt: skip
        second = await openai_client(base, conversation, tools=[TOOL])
    assert (second.text, second.finish) == ("It is raining.", "stop")


async def test_a_picture_reaches_the_agent(agent: Server) -> None:
    parts = [{"type": "image_url", "image_url": {"url": PICTURE}}, {"type": "text", "text": "look"}]
    async with bridge(agent) as base:
        seen = await openai_client(base, [{"role": "user", "content": parts}])
    assert seen.text == "I see: image, text"


@fronts
async def test_an_error_in_the_middle(agent: Server, front: str) -> None:
    async with bridge(agent) as base:
        seen = await CLIENTS[front](base, "error", f"error-{front}")
    assert seen.error is not None
    assert "the model fell over" in seen.error
    assert seen.text == "half an answer"


REQUESTS: dict[str, tuple[str, Any]] = {
    "openai-chat": (
        "/chat/v1/chat/completions",
        {"model": "m", "stream": True, "messages": [{"role": "user", "content": "wait"}]},
    ),
    "ag-kit": ("/kit/send-message", {"messages": [{"role": "user", "content": "wait"}]}),
    "ag-ui": (
        "/ui",
        {
            "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {},
            "messages": [{"id": "u1", "role": "user", "content": "wait"}], "protocolVersion": "1.0",
        },
    ),
    "agentscope": ("/scope/process", {"input": [{"role": "user", "content": [{"type": "text", "text": "wait"}]}]}),
}  # fmt: skip
SESSIONS = {
    "openai-chat": lambda s: {"metadata": {"session_id": s}}, "ag-kit": lambda s: {"conversationId": s},
    "ag-ui": lambda s: {"threadId": s}, "agentscope": lambda s: {"session_id": s},
}  # fmt: skip


@fronts
async def test_a_client_that_leaves_stops_the_agent(agent: Server, front: str) -> None:
    session = f"wait-{front}"
    path, body = REQUESTS[front]
    async with bridge(agent) as base, aiohttp.ClientSession() as http:
        async with http.post(base + path, json={**body, **SESSIONS[front](session)}) as response:
            assert response.status == 200
            await _until(response, b"waiting")
            response.close()
        async with asyncio.timeout(40), http.get(f"{agent.url}/left/{session}") as left:
            assert await left.json() == {"left": True}
        # The session is free again: a run that went on would refuse a second one.
        seen = await CLIENTS[front](base, "hello", session)
    assert (seen.text, seen.error) == ("You said: hello \u2028 你好 🙂", None)


async def test_a_session_that_is_busy_is_an_error_and_not_an_empty_answer(agent: Server) -> None:
    """The real server answers 200 with a bare error, which its own client drops without a word (section 10)."""
    path, body = REQUESTS["agentscope"]
    first = {**body, "session_id": "busy"}
    async with (
        bridge(agent) as base,
        bridge(agent, "agentscope") as other,
        aiohttp.ClientSession() as http,
        http.post(base + path, json=first) as response,
    ):
        await _until(response, b"waiting")
        refused = await post(base + path, first)
        told = (await post(f"{agent.url}/process", first)).body
        assert refused.status == 409
        assert refused.json["detail"][0]["msg"] == json.loads(told[6:])["error"], "in the words of the real server"
        seen = await scope(other, "hello", "busy")
        assert seen.error is not None
        assert "already in RUNNING state" in seen.error
        with pytest.raises(openai.APIError, match="already in RUNNING state"):
            await _whole(base, "busy")
        response.close()


async def _until(response: aiohttp.ClientResponse, word: bytes) -> None:
    read = b""
    while word not in read:
        read += await response.content.readany()


async def _whole(base: str, session: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{base}/chat/v1", api_key="unused", max_retries=0) as client:
        await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hello"}], metadata={"session_id": session}
        )


# ---------------------------------------------------------------------- beside the chat


def durable(agent: Server, folder: Path, **options: Any) -> dict[str, Any]:
    return {
        "backends": {"agent": {"dialect": "agentscope", "url": agent.url, "options": options}},
        "routes": [{"dialect": "agentscope", "path": "/scope", "backend": "agent", "durable": True}],
        "stores": {"runs": f"sqlite:///{folder}/runs.db"},
    }


def asks(text: str, session: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"input": [{"role": "user", "type": "message", "content": content}], "session_id": session, **more}


async def _task(base: str, body: dict[str, Any]) -> list[Any]:
    """What a client is told of a task: when it hands it over, while it runs, at its end. Without id and times."""
    submitted = (await post(f"{base}/process/task", body)).json
    task_id = submitted.pop("task_id")
    assert task_id
    states: list[Any] = [submitted]
    async with asyncio.timeout(30):
        while states[-1].get("status") not in ("finished", "error"):
            state = (await ask("GET", f"{base}/process/task/{task_id}")).json
            if state.get("status") == "running":
                assert state.pop("started_at") > 0
            if state.get("status") != "pending" and state != states[-1]:
                states.append(state)
            await asyncio.sleep(0.01)
    return states


def _bare(value: Any) -> Any:
    """The shape of a result: what differs from run to run, and where the two are known to differ, is taken out."""
    known = {"id", "created_at", "completed_at", "msg_id", "sequence_number", "delta", "metadata", "index"}
    if isinstance(value, dict):
        return {k: None if k in known else _bare(v) for k, v in value.items()}
    return [_bare(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("scene", ["hello", "error", "think"])
async def test_a_task_as_the_real_server_answers_it(agent: Server, tmp_path: Path, scene: str) -> None:
    async with serving(durable(agent, tmp_path)) as base:
        ours = await _task(f"{base}/scope", asks(scene, f"task-{scene}"))
        real = await _task(agent.url, asks(scene, f"task-{scene}"))
    ends = [_bare(states[-1]) for states in (ours, real)]
    assert ours[0] == real[0]
    assert list(ours[-1]) == list(real[-1])
    assert list(ends[0]["result"]) == list(ends[1]["result"])
    if scene == "error":
        # Ours keeps the half answer, and says nothing of itself beside it (section 10).
        for end in ends:
            end["result"]["output"] = None
    assert ends[0] == ends[1]


async def test_a_task_out_of_time_and_one_that_is_not_there(agent: Server, tmp_path: Path) -> None:
    async with serving(durable(agent, tmp_path)) as base:
        for url in (f"{base}/scope", agent.url):
            states = await _task(url, asks("wait", "task-late", timeout=0.3))
            assert states[1:] == [
                {"status": "running", "result": None},
                {"status": "error", "result": "Task exceeded timeout of 0.3s"},
            ]
            unknown = await ask("GET", f"{url}/process/task/nope")
            assert (unknown.status, unknown.body) == (200, b'{"error":"Task nope not found"}')


async def test_the_real_server_is_told_to_stop(agent: Server, tmp_path: Path) -> None:
    """Its own stream just ends; the client of ours is told how it ended."""
    body = asks("wait", "stop-me", user_id="u")
    async with serving(durable(agent, tmp_path, stop_path="/stop")) as base, aiohttp.ClientSession() as http:
        async with http.post(f"{base}/scope/process", json=body) as response:
            await _until(response, b"waiting")
            # Not the session that runs: that one is for the bridge to stop.
            real = await post(f"{agent.url}/stop", {"input": [], "session_id": "nobody", "user_id": "u"})
            ours = await post(f"{base}/scope/stop", {"input": [], "session_id": "stop-me", "user_id": "u"})
            assert (ours.status, ours.json) == (real.status, real.json)
            rest = await response.read()
        assert json.loads(rest.rstrip().rpartition(b"data: ")[2])["status"] == "canceled"
        async with asyncio.timeout(40), http.get(f"{agent.url}/left/stop-me") as left:
            assert await left.json() == {"left": True}


async def test_an_answer_in_one_piece(agent: Server) -> None:
    async with bridge(agent) as base:
        seen = await openai_client(base, [{"role": "user", "content": "think"}], stream=False)
    assert (seen.reasoning, seen.text) == ("Hm, hm.", "Six times seven is 42.")


async def test_its_own_fields_by_passthrough(agent: Server) -> None:
    """What the bridge would write its own way (`metadata` null instead of an empty object) arrives as it was sent."""
    path, body = REQUESTS["agentscope"]
    hello = json.loads(json.dumps({**body, "session_id": "bytes"}).replace('"wait"', '"hello"'))
    async with bridge(agent, "agentscope", passthrough=True) as base:
        through, direct = [(await post(url, hello)).body for url in (base + path, f"{agent.url}/process")]
    assert through.count(b"\n\n") == direct.count(b"\n\n")
    assert through.count(b'"metadata":{}') == direct.count(b'"metadata":{}') > 0
