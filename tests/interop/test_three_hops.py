"""A chat of the AI SDK, and an editor, over an A2A agent: another bridge over a real agent service of AgentScope 2."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.dialects.acp.helpers import Editor, allow, prompt_of, reject
from tests.dialects.acp.test_command import started
from tests.interop.client import Driver
from tests.interop.test_agentscope_service import Service, redis_server, service  # noqa: F401
from tests.interop.test_ai_sdk_ui import parts, text
from tests.server.harness import serving

ADK = "https://google.github.io/adk-docs/a2a/a2a-extension/"


@contextlib.asynccontextmanager
async def hops(service: Service, folder: Path, front: str, **agent: Any) -> AsyncIterator[dict[str, Any]]:  # noqa: F811
    """The configuration of the first hop, whose route has this dialect; the other two hops run."""
    backend = {"dialect": "agentscope-service", "url": service.url, "options": service.options}
    route = {"dialect": "a2a", "path": "/a2a", "backend": "it", "durable": True}
    inner = {
        "backends": {"it": backend},
        "routes": [{**route, "options": {"reasoning": "status"}}],
        "stores": {"history": f"sqlite:///{folder}/agent.db", "runs": f"sqlite:///{folder}/runs.db"},
    }
    async with serving(inner) as base:
        yield {
            "backends": {"it": {"dialect": "a2a", "url": f"{base}/a2a", "options": agent}},
            "routes": [{"dialect": front, "path": "/it", "backend": "it"}],
            "stores": {"history": f"sqlite:///{folder}/front.db"},
        }


@contextlib.asynccontextmanager
async def chatting(service: Service, folder: Path, **agent: Any) -> AsyncIterator[str]:  # noqa: F811
    """The address of the chat."""
    async with hops(service, folder, "ai-sdk-ui", **agent) as config, serving(config) as base:
        yield f"{base}/it"


@contextlib.asynccontextmanager
async def editing(service: Service, folder: Path) -> AsyncIterator[Editor]:  # noqa: F811
    """An editor that has started the bridge as its agent."""
    async with hops(service, folder, "acp") as config:
        file = folder / "config.yaml"
        file.write_text(json.dumps(config))
        async with started(file, folder) as editor:
            await editor.greet()
            yield editor


@pytest.mark.parametrize("extensions", [[], [ADK]], ids=["plain", "adk"])
async def test_a_conversation(chats: Driver, service: Service, extensions: list[str], tmp_path: Path) -> None:  # noqa: F811
    async with chatting(service, tmp_path, extensions=extensions) as url:
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
    async with chatting(service, tmp_path) as url, aiohttp.ClientSession() as http:
        left = asyncio.create_task(http.get(f"{service.url}/left/{scene}"))
        command = {"build": "ai-7", "url": url, "say": scene, "stopAt": 2}
        seen = await chats.play(command)
        assert (seen["status"], text(seen)) == ("ready", "I am waiting")
        async with asyncio.timeout(20), await left as reply:
            assert reply.status == 200


async def test_an_editor(service: Service, tmp_path: Path) -> None:  # noqa: F811
    async with editing(service, tmp_path) as editor:
        session = await editor.new()
        assert (await editor.prompt(session, "hello"))["stopReason"] == "end_turn"
        assert editor.said() == "You said: hello 你好 🙂"
        await editor.prompt(session, "think")
        assert editor.said("agent_thought_chunk") == "Hm, hm."
        assert editor.said() == "Six times seven is 42."
        for answers, said, state in ((allow, "sent to bob", "completed"), (reject, "denied", "failed")):
            editor.answers = answers
            editor.asked.clear()
            assert (await editor.prompt(session, "ask"))["stopReason"] == "end_turn"
            ((method, params),) = editor.asked
            assert method == "session/request_permission"
            assert "send_mail" in json.dumps(params["toolCall"])
            assert "bob" in json.dumps(params["toolCall"])
            assert said in editor.said()
            assert editor.calls()[-1]["status"] == state
        await editor.prompt(session, "hello")
        assert editor.said() == "You said: hello 你好 🙂"


async def test_an_editor_that_cancels(service: Service, tmp_path: Path) -> None:  # noqa: F811
    scene = f"wait-{tmp_path.name}"
    async with editing(service, tmp_path) as editor, aiohttp.ClientSession() as http:
        left = asyncio.create_task(http.get(f"{service.url}/left/{scene}"))
        session = await editor.new()
        prompt = asyncio.create_task(editor.call("session/prompt", prompt_of(session, scene)))
        async with asyncio.timeout(20):
            while "I am waiting" not in editor.said():
                await asyncio.sleep(0.01)
            await editor.connection.notify("session/cancel", {"sessionId": session})
            assert await prompt == {"stopReason": "cancelled"}
            async with await left as reply:
                assert reply.status == 200
        assert (await editor.prompt(session, "hello"))["stopReason"] == "end_turn"
