"""Clients of Ollama's own API, unchanged, in front of a backend of OpenAI chat: the JavaScript client, and LangChain.

The Python client is judged by tests/dialects/ollama/test_official_client.py. Neither of these two sends the ids of
calls back, so that their results find the calls by name or place.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.errors import ErrorCode, Failure
from bridge.model import Media, Message, Reasoning, Request, ToolCall, ToolResult, UsageReported, result_text
from tests.interop.test_frameworks import said_by
from tests.server.harness import Exchange, fake_backend, serving

pytestmark = pytest.mark.interop

CITY = {"city": "Paris"}
ANSWER, GOODBYE = "It is sunny, \x85and noon.", "You are welcome. 🙂"
NAMES = ["get_weather", "get_time"]
CALLS = [ToolCall(f"call_{number}", name, json.dumps(CITY)) for number, name in enumerate(NAMES)]
TURNS: list[Any] = [
    [Reasoning("Two tools."), "I look.", *CALLS], [ANSWER[:5], ANSWER[5:], UsageReported(10, 4)], [GOODBYE],
]  # fmt: skip
VECTORS = [{"index": 0, "embedding": [1, 2]}, {"index": 1, "embedding": [3, 4.5]}]


async def conversation(command: list[str], *more: str) -> tuple[Any, list[Request]]:
    """What the application saw, and what the backend heard. A second route has a backend that breaks off."""
    async with fake_backend("openai-chat") as backend, fake_backend("openai-chat") as broken:
        backend.turns(*TURNS)
        speaks = backend.script
        assert speaks is not None

        async def script(exchange: Exchange) -> None:
            if exchange.seen.method == "GET":
                await exchange.answer(200, b'{"data": [{"id": "m-1"}]}')
            elif exchange.seen.path.endswith("/embeddings"):
                await exchange.answer(200, json.dumps({"data": VECTORS}).encode())
            else:
                await speaks(exchange)

        backend.plays(script)
        broken.turns(Failure(ErrorCode.RATE_LIMITED, "Slow down."))
        refuses = broken.script
        assert refuses is not None

        async def breaks(exchange: Exchange) -> None:
            if exchange.seen.json.get("stream"):
                chunk = {"index": 0, "delta": {"content": "half"}, "finish_reason": None}
                await exchange.stream(b"data: " + json.dumps({"id": "c", "choices": [chunk]}).encode() + b"\n\n")
            else:
                await refuses(exchange)

        broken.plays(breaks)
        config = {
            "backends": {
                "it": {"dialect": "openai-chat", "url": backend.url},
                "broken": {"dialect": "openai-chat", "url": broken.url},
            },
            "routes": [
                {"dialect": "ollama", "path": "/", "backend": "it"},
                {"dialect": "ollama", "path": "/broken", "backend": "broken"},
            ],
        }
        async with serving(config) as base:
            return await said_by([part.replace("BASE", base) for part in (*command, *more)]), backend.requests


def judge_backend(heard: list[Request], results: list[str]) -> None:
    """The backend heard the whole talk each time, and each result belongs to its call."""
    third = heard[2].messages
    assert [message.role for message in third if message.role != "tool"] == [
        "system", "user", "assistant", "assistant", "user",
    ]  # fmt: skip
    calls = [part for part in parts_of(third) if isinstance(part, ToolCall)]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [(name, CITY) for name in NAMES]
    told = [part for part in parts_of(third) if isinstance(part, ToolResult)]
    assert [part.call_id for part in told] == [call.call_id for call in calls]
    assert [result_text(part.parts) for part in told] == results
    assert [tool.name for tool in heard[0].tools or ()] == NAMES


def parts_of(messages: list[Message]) -> list[Any]:
    return [part for message in messages for part in message.parts]


async def test_the_javascript_client(ollama_js: list[str]) -> None:
    seen, heard = await conversation(ollama_js, "BASE", "BASE/broken")
    first, second, third = seen["turns"]
    assert (first["thoughts"], first["text"], first["end"][0]) == ("Two tools.", "I look.", "stop")
    assert first["calls"] == [[name, CITY] for name in NAMES]
    assert (second["text"], second["end"]) == (ANSWER, ["stop", 10, 4])
    assert second["pieces"] >= 3, "it came in pieces"
    assert third["text"] == seen["whole"] == GOODBYE
    assert seen["listed"] == ["m-1:latest"]
    assert seen["capabilities"] == ["completion", "vision", "tools"]
    assert seen["embeddings"] == [[1, 2], [3, 4.5]]
    refused, broken, unknown, managed = seen["failures"]
    assert refused == [429, "Slow down."]
    assert broken[0] is None, "an error line"
    assert "ended before it was complete" in broken[1]
    assert unknown == [404, "model 'nope:latest' not found"]
    assert managed[0] == 501
    judge_backend(heard, [f"{name} of Paris" for name in NAMES])
    assert heard[0].reasoning_effort == "medium"
    assert isinstance(heard[0].messages[1].parts[1], Media)
    assert heard[3].sampling.max_tokens == 50


async def test_langchain(langchain: list[str]) -> None:
    options = {"reasoning": True, "validate_model_on_init": True}
    seen, heard = await conversation(langchain, "ollama", "BASE", json.dumps(options))
    first, second = seen["turns"]
    assert (first["text"], first["thoughts"]) == (ANSWER, "Two tools.")
    assert [call[1:] for call in first["calls"]] == [[name, CITY] for name in NAMES]
    assert first["usage"] == [10, 4]
    assert first["pieces"] >= 4, "it came in pieces"
    assert second["text"] == GOODBYE
    judge_backend(heard, ["sunny in Paris", '{"city": "Paris", "time": "12:00"}'])
    assert heard[0].reasoning_effort == "medium"
