"""An AI SDK UI client, the bridge, A2A, a second bridge, an AgentScope agent: what a client says reaches the agent,
and what the agent says reaches the client, over three connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from bridge.errors import ErrorCode, Failure
from bridge.model import Interrupted, Origin, Reasoning, Text, ToolCall, ToolResulted, UsageReported
from bridge.testing.script import ScriptedBackend
from tests.pairs.people import leave
from tests.server.harness import Exchange, FakeBackend, fake_backend, post, serving

Wire = dict[str, Any]
TOOLS = {"clock": {"description": "The time", "parameters": {"type": "object", "properties": {}}}}
WIPE = {"id": "p1", "name": "wipe", "arguments": '{"disk": "c"}', "server_label": "ops"}


@dataclass
class Chat:
    """A chat as the AI SDK keeps it: the whole of it goes with each request."""

    url: str
    messages: list[Wire] = field(default_factory=list)

    def _body(self, more: Wire) -> Wire:
        return {"id": "chat-1", "trigger": "submit-message", "messages": self.messages, **more}

    async def say(self, text: str, **more: Any) -> list[Wire]:
        self.messages.append(_user(text, len(self.messages)))
        return await self.send(more)

    async def settle(self, state: Wire, **more: Any) -> list[Wire]:
        """Changes the last call of the chat as its result or its approval does."""
        calls = [part for part in self.messages[-1]["parts"] if "toolCallId" in part]
        calls[-1].update(state)
        return await self.send(more)

    async def resume(self, payload: Any, name: str) -> list[Wire]:
        return await self.send({"resume": [{"id": name, "status": "resolved", "payload": payload}]})

    async def send(self, more: Wire) -> list[Wire]:
        reply = await post(self.url, self._body(more))
        assert reply.status == 200, reply.body
        chunks = [orjson.loads(line[6:]) for line in reply.body.split(b"\n") if line.startswith(b"data: {")]
        self._keep(chunks)
        return chunks

    def _keep(self, chunks: list[Wire]) -> None:
        """Adds what an answer says, to the message that it continues or to a new one."""
        name = chunks[0]["messageId"]
        if self.messages[-1]["id"] != name:
            self.messages.append({"id": name, "role": "assistant", "parts": []})
        parts = self.messages[-1]["parts"]
        for chunk in chunks:
            match chunk["type"]:
                case "start-step":
                    parts.append({"type": "step-start"})
                case "tool-input-available":
                    kind = f"tool-{chunk['toolName']}"
                    call = {"toolCallId": chunk["toolCallId"], "state": "input-available", "input": chunk["input"]}
                    parts.append({"type": kind, **call})
                case "tool-approval-request":
                    parts[-1].update(state="approval-requested", approval={"id": chunk["approvalId"]})
        if said := spoken(chunks):
            parts.append({"type": "text", "text": said})

    async def leave_in_the_middle(self, text: str) -> None:
        """Sends a message, and closes the connection at the first words of the answer."""
        said = asyncio.Event()

        async def read() -> None:
            body = self._body({"messages": [*self.messages, _user(text, len(self.messages))]})
            async with aiohttp.ClientSession() as http, http.post(self.url, json=body) as reply:
                async for line in reply.content:
                    if b"text-delta" in line:
                        said.set()

        reading = asyncio.create_task(read())
        await asyncio.wait_for(said.wait(), 30)
        await leave(reading)


def _user(text: str, number: int) -> Wire:
    return {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": text}]}


def spoken(chunks: list[Wire], kind: str = "text") -> str:
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == f"{kind}-delta")


def of(chunks: list[Wire], kind: str) -> list[Wire]:
    return [chunk for chunk in chunks if chunk["type"] == kind]


def end(chunks: list[Wire]) -> str:
    assert chunks[-1]["type"] == "finish"
    reason: str = chunks[-1]["finishReason"]
    return reason


@pytest.fixture
async def agent() -> AsyncIterator[FakeBackend]:
    async with fake_backend("agentscope") as backend:
        yield backend


@pytest.fixture(params=[False, True], ids=["live", "durable"])
async def chat(request: pytest.FixtureRequest, agent: FakeBackend, tmp_path: Path) -> AsyncIterator[Chat]:
    """A chat with the first bridge, which calls the second one."""
    options = {"reasoning": "status", "tools": "status"}
    second = {
        "backends": {"agent": {"dialect": "agentscope", "url": agent.url}},
        "routes": [
            {"dialect": "a2a", "path": "/a2a", "backend": "agent", "durable": request.param, "options": options}
        ],
        "stores": {"history": f"sqlite:///{tmp_path}/second.db", "runs": f"sqlite:///{tmp_path}/runs.db"},
    }
    async with serving(second) as base:
        first = {
            "backends": {"agent": {"dialect": "a2a", "url": f"{base}/a2a", "options": {"progress": "reasoning"}}},
            "routes": [{"dialect": "ai-sdk-ui", "path": "/chat", "backend": "agent"}],
            "stores": {"history": f"sqlite:///{tmp_path}/first.db"},
        }
        async with serving(first) as url:
            yield Chat(f"{url}/chat")


def told(agent: FakeBackend) -> list[tuple[str, Any]]:
    """Type and content of what the agent was sent last."""
    return [
        (each["type"], part.get("text", part.get("data")))
        for each in agent.seen[-1].json["input"]
        for part in each["content"]
    ]


def sessions(agent: FakeBackend) -> set[str]:
    return {seen.json["session_id"] for seen in agent.seen}


# ---------------------------------------------------------------------- answers, memory


async def test_text_and_reasoning_and_a_second_turn(chat: Chat, agent: FakeBackend) -> None:
    agent.turns([Reasoning("Hm, hm."), Text("Hello \u2028 你好 🙂"), UsageReported(11, 7)], [Text("I know.")])
    chunks = await chat.say("hi")
    assert (spoken(chunks, "reasoning"), spoken(chunks), end(chunks)) == ("Hm, hm.", "Hello \u2028 你好 🙂", "stop")
    metadata = [c["messageMetadata"] for c in chunks if "messageMetadata" in c]
    assert [(m["usage"]["inputTokens"], m["usage"]["outputTokens"]) for m in metadata][-1:] == [(11, 7)]
    assert spoken(await chat.say("and again")) == "I know."
    assert told(agent) == [("message", "and again")], "the agent has the rest"
    assert len(sessions(agent)) == 1


async def test_two_chats_are_two_conversations(chat: Chat, agent: FakeBackend) -> None:
    agent.says(Text("Hello"))
    await chat.say("one")
    async with aiohttp.ClientSession() as http:
        body = {"id": "chat-2", "trigger": "submit-message", "messages": [_user("two", 0)]}
        async with http.post(chat.url, json=body) as reply:
            assert reply.status == 200
            await reply.read()
    assert len(sessions(agent)) == 2


# ---------------------------------------------------------------------- approvals


@pytest.mark.parametrize("agrees", [True, False], ids=["yes", "no"])
async def test_an_approval_of_a_call(chat: Chat, agent: FakeBackend, agrees: bool) -> None:
    call = ToolCall("k1", "wipe", '{"disk":"c"}', Origin.MCP, "ops")
    agent.turns([call, Interrupted("p1", "approval", None, "k1")], [Text("Well.")], [Text("Bye.")])
    chunks = await chat.say("wipe it")
    (asked,) = of(chunks, "tool-approval-request")
    assert asked["toolCallId"] == "k1"
    assert of(chunks, "tool-input-available")[0]["input"] == {"disk": "c"}
    answer = {"id": asked["approvalId"], "approved": agrees, "reason": "I say so"}
    chunks = await chat.settle({"state": "approval-responded", "approval": answer})
    assert (spoken(chunks), end(chunks)) == ("Well.", "stop")
    sent = {"approve": agrees, "id": "p1", "approval_request_id": "p1", "reason": "I say so"}
    assert told(agent) == [("mcp_approval_response", sent)]
    assert spoken(await chat.say("thanks")) == "Bye."
    assert told(agent) == [("message", "thanks")]
    assert len(sessions(agent)) == 1


@pytest.mark.parametrize("agrees", [True, False], ids=["yes", "no"])
async def test_an_approval_without_a_call(chat: Chat, agent: FakeBackend, agrees: bool) -> None:
    """The agent names a tool, but has told no call: the client gets a question beside its answer."""
    agent.turns([Text("May I?"), Interrupted("p1", "approval", WIPE)], [Text("Well.")])
    chunks = await chat.say("wipe it")
    (asked,) = of(chunks, "data-interrupt")
    assert (asked["data"]["reason"], asked["data"]["payload"]) == ("approval", WIPE)
    assert spoken(chunks) == "May I?"
    chunks = await chat.resume({"approved": agrees}, asked["data"]["id"])
    assert (spoken(chunks), end(chunks)) == ("Well.", "stop")
    sent = {"approve": agrees, "id": "p1", "approval_request_id": "p1", "reason": None}
    assert told(agent) == [("mcp_approval_response", sent)]
    assert len(sessions(agent)) == 1


async def test_two_approvals_are_answered_at_once(chat: Chat, agent: FakeBackend) -> None:
    other = {**WIPE, "id": "p2", "name": "reboot"}
    agent.turns([Interrupted("p1", "approval", WIPE), Interrupted("p2", "approval", other)], [Text("Well.")])
    asked = [chunk["data"]["id"] for chunk in of(await chat.say("wipe it"), "data-interrupt")]
    assert len(asked) == 2
    answers = zip(asked, (True, False), strict=True)
    resume = [{"id": name, "status": "resolved", "payload": {"approved": agrees}} for name, agrees in answers]
    chunks = await chat.send({"resume": resume})
    assert (spoken(chunks), end(chunks)) == ("Well.", "stop")
    sent = [
        {"approve": yes, "id": p, "approval_request_id": p, "reason": None} for p, yes in (("p1", True), ("p2", False))
    ]
    assert told(agent) == [("mcp_approval_response", each) for each in sent]


# ---------------------------------------------------------------------- tools


async def test_a_call_that_the_client_runs(chat: Chat, agent: FakeBackend) -> None:
    """A2A has no word for a client's tools: the agent is not told of them, but gets the result of its call as one."""
    agent.turns([ToolCall("k1", "clock", '{"zone":"UTC"}')], [Text("It is noon.")], [Text("Bye.")])
    chunks = await chat.say("What time is it?", tools=TOOLS)
    assert b"clock" not in agent.seen[-1].body
    assert of(chunks, "tool-input-available")[0]["input"] == {"zone": "UTC"}
    assert end(chunks) == "tool-calls"
    chunks = await chat.settle({"state": "output-available", "output": "12:00"}, tools=TOOLS)
    assert (spoken(chunks), end(chunks)) == ("It is noon.", "stop")
    assert told(agent) == [("plugin_call_output", {"call_id": "k1", "name": "clock", "output": "12:00"})]
    await chat.say("thanks")
    assert told(agent) == [("message", "thanks")]
    assert len(sessions(agent)) == 1


async def test_a_tool_that_the_agent_runs(chat: Chat, agent: FakeBackend) -> None:
    agent.says(ToolCall("k1", "weather", "{}", Origin.PLUGIN), ToolResulted("k1", [Text("sunny")]), Text("Sun."))
    chunks = await chat.say("How is it?")
    assert [c["output"] for c in of(chunks, "tool-output-available")] == ["sunny"]
    assert (spoken(chunks), end(chunks)) == ("Sun.", "stop")


# ---------------------------------------------------------------------- the end


async def test_an_agent_that_refuses(chat: Chat, agent: FakeBackend) -> None:
    agent.turns(Failure(ErrorCode.INVALID_REQUEST, "I do not do that."), [Text("Hello")])
    reply = await post(chat.url, {"id": "chat-1", "trigger": "submit-message", "messages": [_user("hi", 0)]})
    assert b"I do not do that." in reply.body
    assert reply.status >= 400 or b'"type":"error"' in reply.body
    assert b'"finishReason":"stop"' not in reply.body
    assert spoken(await chat.say("hi")) == "Hello"


async def test_an_agent_that_breaks_off(chat: Chat, agent: FakeBackend) -> None:
    agent.breaks_off(Text("Hello"))
    chunks = await chat.say("hi")
    assert spoken(chunks) == "Hello"
    assert len(of(chunks, "error")) == 1
    assert end(chunks) == "error"


async def test_a_client_that_leaves_ends_the_run_of_the_agent(chat: Chat, agent: FakeBackend) -> None:
    began, left = ScriptedBackend("agentscope", Text("I am waiting")), asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        await exchange.head()
        for piece in began.reply(exchange.seen.body, ended=False).pieces:
            await exchange.send(piece)
        await exchange.left()
        left.set()

    agent.plays(wait)
    await chat.leave_in_the_middle("wait")
    await asyncio.wait_for(left.wait(), 30)
