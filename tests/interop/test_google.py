"""Google's own SDKs, unchanged, in front of backends of other dialects: the Python and the JavaScript one.

Each plays one talk: the model thinks and calls two tools, their results go back, it answers, the user says thanks.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bridge.errors import ErrorCode, Failure
from bridge.model import Reasoning, Request, Text, ToolCall, ToolResult, UsageReported
from tests.interop.test_frameworks import said_by
from tests.server.harness import Exchange, fake_backend, serving

pytestmark = pytest.mark.interop

CITY = {"city": "Paris"}
CALLS = [["call_1", "get_weather", CITY], ["call_2", "get_time", CITY]]
ANSWER, GOODBYE = "It is sunny, and noon.", "You are welcome. 🙂"
FAILURE = Failure(ErrorCode.RATE_LIMITED, "Slow down.")
TURNS: list[Any] = [
    [Reasoning("Two tools."), "I look.", *(ToolCall(i, name, json.dumps(args)) for i, name, args in CALLS)],
    [ANSWER[:5], ANSWER[5:], UsageReported(10, 4)],
    [GOODBYE],
    [GOODBYE],
    FAILURE,
]


async def conversation(command: list[str], back: str, thinks: float = 0) -> tuple[Any, list[Request]]:
    """What the application saw, and what the backend heard. It `thinks` for so many seconds before each answer."""
    async with fake_backend(back) as backend:
        backend.turns(*TURNS)
        speaks = backend.script
        assert speaks is not None

        async def script(exchange: Exchange) -> None:
            await asyncio.sleep(0 if b"Fail." in exchange.seen.body else thinks)
            await speaks(exchange)

        backend.plays(script)
        config = {
            "server": {"keepalive": "60ms"},
            "backends": {"it": {"dialect": back, "url": backend.url, "model": "m-1"}, "demo": {"dialect": "demo"}},
            "routes": [
                {"dialect": "gemini", "path": "/gemini", "backend": "it"},
                {"dialect": "gemini", "path": "/demo", "backend": "demo"},
            ],
        }
        async with serving(config) as base:
            return await said_by([*command, f"{base}/gemini", f"{base}/demo"]), backend.requests


BACKS = ["openai-chat", "openai-responses", "anthropic-messages", "agentscope", "gemini"]


@pytest.mark.parametrize(("back", "thinks"), [*((back, 0) for back in BACKS), ("openai-chat", 0.4)])
@pytest.mark.parametrize("sdk", ["genai", "genai_js"])
async def test_a_talk_of_googles_sdk(sdk: str, back: str, thinks: float, request: pytest.FixtureRequest) -> None:
    """With a model that thinks, several signs of life come before each answer."""
    seen, heard = await conversation(request.getfixturevalue(sdk), back, thinks)
    first, second, third = seen["turns"]
    assert (first["text"], first["thoughts"], first["finish"]) == ("I look.", "Two tools.", "STOP")
    assert first["calls"] == CALLS
    assert (second["text"], second["calls"], second["usage"]) == (ANSWER, [], [10, 4])
    assert second["chunks"] >= 3, "it came in pieces"
    assert third["text"] == seen["whole"]["text"] == GOODBYE
    assert seen["tokens"] > 0
    assert seen["models"] == ["models/demo"]
    assert seen["failures"] == [[429, "RESOURCE_EXHAUSTED", "Slow down."]] * 2
    judge_backend(heard)


def judge_backend(heard: list[Request]) -> None:
    """The backend heard the whole talk each time, in its own words."""
    third = heard[2]
    assert [t.name for t in third.tools or []] == ["get_weather", "get_time"]
    results = {p.call_id: p.parts for m in third.messages for p in m.parts if isinstance(p, ToolResult)}
    assert results == {"call_1": [Text("get_weather of Paris")], "call_2": [Text("get_time of Paris")]}
    spoken = [p.text for m in third.messages for p in m.parts if isinstance(p, Text) and p.text]
    assert [text for text in spoken if text != "Be brief."] == [
        "What is it like in Paris?",
        "I look.",
        ANSWER,
        "Thanks.",
    ]
