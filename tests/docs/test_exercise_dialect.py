"""The exercise of docs/extending.md: Ollama's chat API, in front of and behind chat completions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from bridge import ErrorCode, Failure, Inline, Media, MediaKind, Reasoning, Text, ToolCall, ToolResult
from bridge.codec import registry
from bridge.model import UsageReported
from bridge.testing import DialectConformance, Exchange, PairConformance, fake_backend
from tests.docs.helpers import EXAMPLES
from tests.server.harness import Reply, ask, post, serving

sys.path.insert(0, str(EXAMPLES / "ollama_dialect"))

from dialect_ollama import dialect

PNG = "iVBORw0KGgo="
SAID = (Reasoning("Hmm."), "It is ", "sunny.", ToolCall("call_1", "look", '{"at": "sky"}'), UsageReported(3, 4))
CALL = {"function": {"name": "look", "arguments": {"at": "sky"}}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
ASKED: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is this?", "images": [PNG]},
        {"role": "assistant", "content": "", "thinking": "Look twice.", "tool_calls": [CALL, CALL]},
        {"role": "tool", "content": "blue", "tool_name": "look"},
        {"role": "tool", "content": "grey", "tool_name": "look"},
        {"role": "user", "content": "And now?"},
    ],
    "tools": [TOOL],
    "format": {"type": "object"},
    "think": "low",
    "options": {"temperature": 0.5, "num_predict": 9},
}


class TestByItself(DialectConformance):
    dialects = (dialect,)


class TestBesideOthers(PairConformance):
    dialects = (dialect,)
    others = ("openai-chat", "agentscope")
    names_losses = True


@pytest.fixture(autouse=True)
def ollama() -> Iterator[None]:
    registry.register(dialect)
    yield
    registry.unregister("ollama")


def between(front: str, back: str, url: str) -> dict[str, Any]:
    path = {"ollama": "/api", "openai-chat": "/v1"}[front]
    backend = {"dialect": back, "url": url}
    return {"backends": {"it": backend}, "routes": [{"dialect": front, "path": path, "backend": "it"}]}


def lines(reply: Reply) -> list[dict[str, Any]]:
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.body.splitlines()]


@pytest.mark.parametrize("stream", [True, False])
async def test_in_front_of_chat_completions(stream: bool) -> None:
    async with fake_backend("openai-chat") as backend:
        backend.says(*SAID)
        async with serving(between("ollama", "openai-chat", backend.url)) as base:
            reply = await post(f"{base}/api/chat", {**ASKED, "stream": stream})
        read = lines(reply) if stream else [reply.json]
        asked = backend.requests[0]
    messages = [each["message"] for each in read]
    assert "".join(m["content"] for m in messages) == "It is sunny."
    assert "".join(m.get("thinking", "") for m in messages) == "Hmm."
    assert [call for m in messages for call in m.get("tool_calls", ())] == [CALL]
    assert [each["done"] for each in read] == [False] * (len(read) - 1) + [True]
    assert (len(read) > 3) == stream
    end = {"model": "m", "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 4}
    assert end.items() <= read[-1].items()
    assert asked.messages[1].parts == [Text("What is this?"), Media(MediaKind.IMAGE, Inline(PNG), "image/png")]
    calls = [part for part in asked.messages[2].parts if isinstance(part, ToolCall)]
    results = [part for m in asked.messages for part in m.parts if isinstance(part, ToolResult)]
    assert [call.call_id for call in calls] == [result.call_id for result in results]
    assert len({call.call_id for call in calls}) == 2
    assert [tool.name for tool in asked.tools or ()] == ["look"]
    assert (asked.reasoning_effort, asked.sampling.temperature, asked.sampling.max_tokens) == ("low", 0.5, 9)
    assert asked.response_format is not None
    assert asked.response_format.schema == {"type": "object"}


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
        "tools": [TOOL],
        "reasoning_effort": "none",
        "max_completion_tokens": 9,
        "stream": stream,
    }
    async with fake_backend(dialect) as backend:
        backend.says(*SAID)
        async with serving(between("openai-chat", "ollama", backend.url)) as base:
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
    assert (sent.path, sent.json["stream"], sent.json["think"]) == ("/chat", stream, False)
    assert sent.json["options"] == {"num_predict": 9}
    assert sent.json["tools"] == [TOOL]
    assert sent.json["messages"] == [
        {"role": "user", "content": "What is this?", "images": [PNG]},
        {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]},
        {"role": "tool", "content": "blue", "tool_name": "look"},
        {"role": "tool", "content": "grey", "tool_name": "look"},
    ]


@pytest.mark.parametrize("stream", [True, False])
async def test_errors_for_its_clients(stream: bool) -> None:
    async with fake_backend("openai-chat") as backend:
        backend.fails(Failure(ErrorCode.RATE_LIMITED, "slow down", headers={"retry-after": "7"}))
        async with serving(between("ollama", "openai-chat", backend.url)) as base:
            reply = await post(f"{base}/api/chat", {**ASKED, "stream": stream})
            assert (reply.status, reply.headers["retry-after"], reply.json) == (429, "7", {"error": "slow down"})
            reply = await post(f"{base}/api/chat", {**ASKED, "messages": [{"role": "nobody"}]})
            wrong = "messages[0].role: expected one of assistant, system, tool, user, got 'nobody'."
            assert (reply.status, reply.json) == (400, {"error": wrong})
            backend.breaks_off("half")
            reply = await post(f"{base}/api/chat", {**ASKED, "stream": stream})
    if stream:
        *_, last = lines(reply)
        assert last.keys() == {"error"}
    else:
        assert (reply.status, reply.json.keys()) == (502, {"error"})


@pytest.mark.parametrize("stream", [True, False])
async def test_errors_of_its_backends(stream: bool) -> None:
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    async with fake_backend() as backend:
        backend.answers(404, b'{"error":"model \'m\' not found, key sk-secret0123456789"}')
        async with serving(between("openai-chat", "ollama", backend.url)) as base:
            reply = await post(f"{base}/v1/chat/completions", asked)
            assert (reply.status, reply.json["error"]["message"]) == (404, "model 'm' not found, key ***")

            async def breaks(exchange: Exchange) -> None:
                await exchange.head(200, "application/x-ndjson")
                await exchange.send(b'{"message":{"role":"assistant","content":"half"},"done":false}\n')
                await exchange.send(b'{"error":"an error was encountered while running the model"}\n')
                await exchange.end()

            backend.plays(breaks)
            reply = await post(f"{base}/v1/chat/completions", asked)
    assert b"encountered while running" in reply.body
    assert (reply.status, b"[DONE]" in reply.body) == (200 if stream else 502, False)


async def test_models_both_ways() -> None:
    async with fake_backend() as backend:
        backend.answers(200, b'{"models":[{"name":"a:latest","model":"a:latest","size":1}]}')
        async with serving(between("ollama", "ollama", backend.url)) as base:
            reply = await ask("GET", f"{base}/api/tags")
    assert [model["model"] for model in reply.json["models"]] == ["a:latest"]
