"""The exercise of docs/extending.md: an in-house protocol, in front of and behind chat completions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from bridge import ErrorCode, Failure, Inline, Media, MediaKind, Reasoning, Text, ToolCall, ToolResult
from bridge.contract import registry
from bridge.model import UsageReported
from bridge.testing import DialectConformance, Exchange, PairConformance, fake_backend
from tests.docs.helpers import EXAMPLES
from tests.server.harness import Reply, ask, post, serving

sys.path.insert(0, str(EXAMPLES / "inhouse_dialect"))

from dialect_inhouse import dialect

PNG = "iVBORw0KGgo="
SAID = (Reasoning("Hmm."), "It is ", "sunny.", ToolCall("call_1", "look", '{"at": "sky"}'), UsageReported(3, 4))
CALL = {"name": "look", "input": {"at": "sky"}}
FUNCTION = {"name": "look", "parameters": {"type": "object", "properties": {}}}
ASKED: dict[str, Any] = {
    "model": "m",
    "turns": [
        {"from": "system", "text": "Be brief."},
        {"from": "user", "text": "What is this?", "pictures": [PNG]},
        {"from": "assistant", "text": "", "thought": "Look twice.", "calls": [CALL, CALL]},
        {"from": "tool", "text": "blue", "of": "look"},
        {"from": "tool", "text": "grey", "of": "look"},
        {"from": "user", "text": "And now?"},
    ],
    "tools": [FUNCTION],
}


class TestByItself(DialectConformance):
    dialects = (dialect,)
    names_losses = True


class TestBesideOthers(PairConformance):
    dialects = (dialect,)
    others = ("openai-chat", "agentscope")
    names_losses = True


@pytest.fixture(autouse=True)
def inhouse() -> Iterator[None]:
    registry.register(dialect)
    yield
    registry.unregister("inhouse")


def between(front: str, back: str, url: str) -> dict[str, Any]:
    backend = {"dialect": back, "url": url}
    return {"backends": {"it": backend}, "routes": [{"dialect": front, "path": "/v1", "backend": "it"}]}


def lines(reply: Reply) -> list[dict[str, Any]]:
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.body.splitlines()]


@pytest.mark.parametrize("stream", [True, False])
async def test_in_front_of_chat_completions(stream: bool) -> None:
    async with fake_backend("openai-chat") as backend:
        backend.says(*SAID)
        async with serving(between("inhouse", "openai-chat", backend.url)) as base:
            reply = await post(f"{base}/v1/talk", {**ASKED, "stream": stream})
        read = lines(reply) if stream else [reply.json]
        asked = backend.requests[0]
    assert "".join(each.get("text", "") for each in read) == "It is sunny."
    assert "".join(each.get("thought", "") for each in read) == "Hmm."
    assert [call for each in read for call in (each.get("calls") or [each.get("call")]) if call] == [CALL]
    assert (len(read) > 3) == stream
    assert read[0]["model"] == "m"
    assert {"end": "stop", "tokens": {"in": 3, "out": 4}}.items() <= read[-1].items()
    assert asked.messages[1].parts == [Text("What is this?"), Media(MediaKind.IMAGE, Inline(PNG), "image/png")]
    calls = [part for part in asked.messages[2].parts if isinstance(part, ToolCall)]
    results = [part for m in asked.messages for part in m.parts if isinstance(part, ToolResult)]
    assert [call.call_id for call in calls] == [result.call_id for result in results]
    assert len({call.call_id for call in calls}) == 2
    assert [tool.name for tool in asked.tools or ()] == ["look"]


@pytest.mark.parametrize("stream", [True, False])
async def test_behind_chat_completions(stream: bool) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    asked = {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]},
            {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "c2"}]},
            {"role": "tool", "tool_call_id": "c2", "content": "grey"},
            {"role": "tool", "tool_call_id": "c1", "content": "blue"},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "max_completion_tokens": 9,
        "stream": stream,
    }
    async with fake_backend(dialect) as backend:
        backend.says(*SAID)
        async with serving(between("openai-chat", "inhouse", backend.url)) as base:
            reply = await post(f"{base}/v1/chat/completions", {**asked, "stream_options": {"include_usage": True}})
        sent = backend.seen[0]
    if stream:
        chunks = [json.loads(line[6:]) for line in reply.body.decode().split("\n\n") if line.startswith("data: {")]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        usage = chunks[-1]["usage"]
    else:
        deltas, usage = [reply.json["choices"][0]["message"]], reply.json["usage"]
    called = [c["function"] for d in deltas for c in d.get("tool_calls") or ()]
    assert "".join(d.get("content") or "" for d in deltas) == "It is sunny."
    assert "".join(d.get("reasoning_content") or "" for d in deltas) == "Hmm."
    assert "".join(c.get("name") or "" for c in called) == "look"
    assert "".join(c.get("arguments") or "" for c in called) == '{"at":"sky"}'
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 4)
    assert reply.headers["x-bridge-lost"] == "tool_history,sampling"  # results come in the order of their calls
    assert (sent.path, sent.json) == (
        "/talk",
        {
            "model": "m",
            "turns": [
                {"from": "user", "text": "What is this?", "pictures": [PNG]},
                {"from": "assistant", "text": "", "calls": [CALL, CALL]},
                {"from": "tool", "text": "blue", "of": "look"},
                {"from": "tool", "text": "grey", "of": "look"},
            ],
            "tools": [FUNCTION],
            "stream": stream,
        },
    )


@pytest.mark.parametrize("stream", [True, False])
async def test_errors_for_its_clients(stream: bool) -> None:
    async with fake_backend("openai-chat") as backend:
        backend.fails(Failure(ErrorCode.RATE_LIMITED, "slow down", headers={"retry-after": "7"}))
        async with serving(between("inhouse", "openai-chat", backend.url)) as base:
            reply = await post(f"{base}/v1/talk", {**ASKED, "stream": stream})
            assert (reply.status, reply.headers["retry-after"], reply.json) == (429, "7", {"error": "slow down"})
            reply = await post(f"{base}/v1/talk", {**ASKED, "turns": [{"from": "nobody"}]})
            wrong = "turns[0].from: expected one of assistant, system, tool, user, got 'nobody'."
            assert (reply.status, reply.json) == (400, {"error": wrong})
            backend.breaks_off("half")
            reply = await post(f"{base}/v1/talk", {**ASKED, "stream": stream})
    if stream:
        *_, last = lines(reply)
        assert last.keys() == {"error"}
    else:
        assert (reply.status, reply.json.keys()) == (502, {"error"})


@pytest.mark.parametrize("stream", [True, False])
async def test_errors_of_its_backends(stream: bool) -> None:
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    async with fake_backend() as backend:
        backend.answers(404, b'{"error":"no model m, key sk-secret0123456789"}')
        async with serving(between("openai-chat", "inhouse", backend.url)) as base:
            reply = await post(f"{base}/v1/chat/completions", asked)
            assert (reply.status, reply.json["error"]["message"]) == (404, "no model m, key ***")

            async def breaks(exchange: Exchange) -> None:
                await exchange.head(200, "application/x-ndjson")
                await exchange.send(b'{"text":"half"}\n')
                await exchange.send(b'{"error":"the model stopped"}\n')
                await exchange.end()

            backend.plays(breaks)
            reply = await post(f"{base}/v1/chat/completions", asked)
    assert b"the model stopped" in reply.body
    assert (reply.status, b"[DONE]" in reply.body) == (200 if stream else 502, False)


async def test_models_both_ways() -> None:
    async with fake_backend() as backend:
        backend.answers(200, b'{"models":["a","b"]}')
        async with serving(between("inhouse", "inhouse", backend.url)) as base:
            reply = await ask("GET", f"{base}/v1/models")
    assert reply.json == {"models": ["a", "b"]}
