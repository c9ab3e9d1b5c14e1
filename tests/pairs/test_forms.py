"""AgentScope's two forms through real sockets: a route of one form in front of a backend of the other."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.pairs.clients import TOOL, openai_client
from tests.server.harness import post, serving

forms = pytest.mark.parametrize("form", ["agentscope", "agentscope-java"])


@asynccontextmanager
async def agent(form: str, **options: Any):
    """The demo agent, served in this form."""
    route = {"dialect": form, "path": "/", "backend": "demo", "options": options}
    async with serving({"backends": {"demo": {"dialect": "demo"}}, "routes": [route]}) as base:
        yield base


@asynccontextmanager
async def in_front_of(url: str, form: str, front: str, path: str):
    route = {"dialect": front, "path": path, "backend": "it"}
    async with serving({"backends": {"it": {"dialect": form, "url": url}}, "routes": [route]}) as base:
        yield base


@forms
async def test_a_chat_client_over_either_form(form: str) -> None:
    async with agent(form) as url, in_front_of(url, form, "openai-chat", "/chat/v1") as base:
        seen = await openai_client(base, [{"role": "user", "content": "reasoning"}])
        assert (seen.text, seen.error, seen.finish) == ("The answer is 42.", None, "stop")
        assert seen.reasoning.startswith("The user wants")
        assert seen.usage is not None
        asked = [{"role": "user", "content": "tool"}]
        first = await openai_client(base, asked, tools=[TOOL])
        (call,) = first.calls
        assert (first.finish, call.name) == ("tool_calls", "get_weather")
        function = {"name": call.name, "arguments": call.arguments}
        calls = [{"id": call.id, "type": "function", "function": function}]
        result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
        second = await openai_client(base, [*asked, {"role": "assistant", "tool_calls": calls}, result], tools=[TOOL])
        assert "sunny" in second.text
        failed = await openai_client(base, [{"role": "user", "content": "error late"}])
        assert failed.error is not None


@forms
@pytest.mark.parametrize("front", ["agentscope", "agentscope-java"])
async def test_a_client_of_one_form_over_an_agent_of_the_other(form: str, front: str) -> None:
    java = front == "agentscope-java"
    content = [{"type": "text", "text": "image"}]
    message = {"type": "MESSAGE" if java else "message", "role": "user", "content": content}
    body = {"input": [message], "sessionId" if java else "session_id": "s"}
    async with agent(form) as url, in_front_of(url, form, front, "/") as base:
        reply = await post(f"{base}/process", body)
    assert reply.status == 200
    last = json.loads(reply.body.strip().split(b"\n\n")[-1].removeprefix(b"data: "))
    assert (last["status"], last["sessionId" if java else "session_id"]) == ("completed", "s")
    pictures = [
        c["imageUrl" if java else "image_url"] for m in last["output"] for c in m["content"] if c["type"] == "image"
    ]
    assert [p.partition(":")[0] for p in pictures] == ["data", "https"]
    assert ("createdAt" in last) == java


async def test_options_and_mistakes_of_the_java_form() -> None:
    async with agent("agentscope-java", reasoning="message") as url:
        content = [{"type": "text", "text": "reasoning"}]
        reply = await post(f"{url}/process", {"input": [{"type": "MESSAGE", "role": "user", "content": content}]})
        assert b'"type":"REASONING"' not in reply.body
        assert reply.body.count(b'"type":"MESSAGE"') > 4
        wrong = await post(f"{url}/process", {"input": [], "topP": "warm"})
    assert wrong.status == 422
    (item,) = wrong.json["detail"]
    assert item["msg"] == "topP: expected a number, got 'warm'.", "in the names that the client used"
    assert item["loc"] == ["body", "topP"]
