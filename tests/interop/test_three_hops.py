"""A chat of the AI SDK over an A2A agent, which is another bridge over a real agent service of AgentScope 2."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.interop.client import Driver
from tests.interop.test_agentscope_service import Service, redis_server, service  # noqa: F401
from tests.interop.test_ai_sdk_ui import parts, text
from tests.server.harness import serving

ADK = "https://google.github.io/adk-docs/a2a/a2a-extension/"


@contextlib.asynccontextmanager
async def hops(service: Service, folder: Path, **agent: Any) -> AsyncIterator[str]:  # noqa: F811
    """The address of the chat, and behind it the other two hops."""
    backend = {"dialect": "agentscope-service", "url": service.url, "options": service.options}
    route = {"dialect": "a2a", "path": "/a2a", "backend": "it", "durable": True}
    inner = {
        "backends": {"it": backend},
        "routes": [{**route, "options": {"reasoning": "status"}}],
        "stores": {"history": f"sqlite:///{folder}/agent.db", "runs": f"sqlite:///{folder}/runs.db"},
    }
    async with serving(inner) as base:
        outer = {
            "backends": {"it": {"dialect": "a2a", "url": f"{base}/a2a", "options": agent}},
            "routes": [{"dialect": "ai-sdk-ui", "path": "/api/chat", "backend": "it"}],
            "stores": {"history": f"sqlite:///{folder}/chat.db"},
        }
        async with serving(outer) as chat:
            yield f"{chat}/api/chat"


@pytest.mark.parametrize("extensions", [[], [ADK]], ids=["plain", "adk"])
async def test_a_conversation(chats: Driver, service: Service, extensions: list[str], tmp_path: Path) -> None:  # noqa: F811
    async with hops(service, tmp_path, extensions=extensions) as url:
        seen: dict[str, Any] = {"messages": []}

        async def say(words: str, **more: Any) -> dict[str, Any]:
            chat = {"build": "ai-7", "url": url, "id": f"{tmp_path.name}", "messages": seen["messages"]}
            seen.update(await chats.play({**chat, "say": words, **more}))
            assert (seen["status"], seen.get("error")) == ("ready", None), seen
            return seen

        assert text(await say("hello")) == "You said: hello 你好 🙂"
        thought = await say("think")
        assert text(thought) == "Six times seven is 42."
        assert "".join(p["text"] for p in parts(thought, "reasoning")) == "Hm, hm."
        ran = await say("external", outputs={"client_clock": "12:00"})
        assert (ran["handled"], len(ran["requests"]), text(ran)) == (["client_clock"], 2, "Tools said: 12:00")
        (call,) = parts(ran, "tool-")
        assert (call["state"], call["input"], call["output"]) == ("output-available", {"zone": "UTC"}, "12:00")
        for agrees in (True, False):
            mailed = await say("ask", approve=agrees)
            (call,) = parts(mailed, "tool-")
            assert (call["type"], call["input"]) == ("tool-send_mail", {"to": "bob"})
            assert ("sent to bob" in text(mailed), "denied" in text(mailed)) == (agrees, not agrees), mailed
        assert text(await say("hello")) == "You said: hello 你好 🙂"


async def test_a_cancel(chats: Driver, service: Service, tmp_path: Path) -> None:  # noqa: F811
    scene = f"wait-{tmp_path.name}"
    async with hops(service, tmp_path) as url, aiohttp.ClientSession() as http:
        left = asyncio.create_task(http.get(f"{service.url}/left/{scene}"))
        command = {"build": "ai-7", "url": url, "say": scene, "stopAt": 2}
        seen = await chats.play(command)
        assert (seen["status"], text(seen)) == ("ready", "I am waiting")
        async with asyncio.timeout(20), await left as reply:
            assert reply.status == 200
