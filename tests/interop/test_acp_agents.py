"""An agent made with the official Python library of the Agent Client Protocol, behind clients of other protocols.

Each client plays one talk over HTTP: the agent thinks, reads, asks before it deletes, is canceled, and goes on in a new
process.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from tests.server.harness import serving

pytestmark = pytest.mark.interop

AGENT = Path(__file__).parent / "acp" / "agent.py"


@pytest.fixture
def config(acp_python: list[str], tmp_path: Path) -> dict[str, Any]:
    agent = {
        "dialect": "acp", "command": acp_python[0], "args": [str(AGENT), str(tmp_path)], "cwd": str(tmp_path),
    }  # fmt: skip
    fronts = ("openai-chat", "ag-ui")
    return {
        "backends": {"agent": agent},
        "routes": [{"dialect": front, "path": f"/{front}", "backend": "agent"} for front in fronts],
        "stores": {"history": f"sqlite:///{tmp_path}/history.db"},
    }


async def chat(base: str, talk: list[dict[str, str]], text: str) -> str:
    """The answer to a message, which is added to the talk as an OpenAI client does it."""
    talk.append({"role": "user", "content": text})
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{base}/openai-chat/chat/completions", json={"model": "m", "messages": talk}) as response,
    ):
        body = await response.json()
    message = body["choices"][0]["message"]
    talk.append({"role": "assistant", "content": message["content"]})
    return str(message["content"])


class AgUi:
    """A client of AG-UI, which sends the whole conversation each time."""

    def __init__(self, base: str) -> None:
        self.url = f"{base}/ag-ui"
        self.messages: list[dict[str, Any]] = []

    def body(self, **more: Any) -> dict[str, Any]:
        count = len(self.messages)
        empty: dict[str, Any] = {"state": None, "tools": [], "context": [], "forwardedProps": {}}
        return {"threadId": "t", "runId": f"run-{count}", "messages": self.messages, **empty, **more}

    def say(self, role: str, text: str) -> None:
        self.messages.append({"id": f"m-{len(self.messages)}", "role": role, "content": text})

    async def run(self, **more: Any) -> list[dict[str, Any]]:
        """The events of a run."""
        events = []
        async with aiohttp.ClientSession() as http, http.post(self.url, json=self.body(**more)) as response:
            async for line in response.content:
                if line.startswith(b"data:"):
                    events.append(json.loads(line[5:]))
        self.say("assistant", said(events))
        return events


def said(events: list[dict[str, Any]]) -> str:
    return "".join(each["delta"] for each in events if each["type"] == "TEXT_MESSAGE_CONTENT")


def agents(folder: Path) -> int:
    """Count the running agents that were started with this folder."""
    running = 0
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            running += str(folder) in each.cmdline()
    return running


async def test_a_talk_of_a_chat_client(config: dict[str, Any], tmp_path: Path) -> None:
    talk: list[dict[str, str]] = []
    async with serving(config) as base:
        assert await chat(base, talk, "think") == "42"
        assert await chat(base, talk, "read") == "Read."
        asked = await chat(base, talk, "delete")
        assert "rm a.txt" in asked
        assert "Go on" in asked
        assert await chat(base, talk, "yes") == "Chosen: go"
        assert "rm a.txt" in await chat(base, talk, "delete")
        assert await chat(base, talk, "no") == "Chosen: stop"
    async with serving(config) as base:
        assert await chat(base, talk, "remember") == "5: think / read / delete / delete / remember"
    assert agents(tmp_path) == 0


async def test_a_talk_of_an_ag_ui_client(config: dict[str, Any], tmp_path: Path) -> None:
    async with serving(config) as base:
        client = AgUi(base)
        client.say("user", "read")
        kinds = [each["type"] for each in await client.run()]
        assert kinds.index("TOOL_CALL_START") < kinds.index("TOOL_CALL_RESULT")
        client.say("user", "delete")
        asked = await client.run()
        (interrupt,) = asked[-1]["outcome"]["interrupts"]
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"optionId": "always"}}
        assert said(await client.run(resume=[answer])) == "Chosen: always"
        client.say("user", "remember")
        assert said(await client.run()) == "3: read / delete / remember"
        assert agents(tmp_path) == 1
    assert agents(tmp_path) == 0


async def test_a_client_that_leaves(config: dict[str, Any], tmp_path: Path) -> None:
    async with serving(config) as base:
        client = AgUi(base)
        client.say("user", "wait")
        async with aiohttp.ClientSession() as http, http.post(client.url, json=client.body()) as response:
            async for line in response.content:
                if b"Waiting." in line:
                    break
        client.say("user", "think")
        assert said(await client.run()) == "42"
        assert agents(tmp_path) == 1
    assert agents(tmp_path) == 0
