"""Clients that send only the last message of a chat, over backends that know nothing of it and over one that does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from bridge import Bridge
from bridge.errors import ConfigError, RequestError
from bridge.model import HistoryMode, Resume, ToolResult
from tests.pairs.agents import AGENTS, Agent, Ask, Fall, Heard, Ran, Say, Step, Use
from tests.server.harness import fake_backend, post, serving

from .helpers import asked

PLACE = {"toolCallId": "call_1", "state": "output-available", "input": {}, "output": "Paris"}


def user(text: str, name: str = "u1") -> dict[str, Any]:
    return {"id": name, "role": "user", "parts": [{"type": "text", "text": text}]}


def answer(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"id": "a1", "role": "assistant", "parts": [{"type": "step-start"}, *parts]}


def brain(heard: Heard) -> list[Step]:
    if heard.last[0] == "result":
        return [Say("You are there.")]
    match heard.last[-1]:
        case "where":
            return [Say("I look."), Use("call_1", "get_place", "{}")]
        case "time":
            return [Ran("call_1", "get_time", "{}", "12:34"), Say("Noon.")]
        case "break":
            return [Fall()]
    return [Say(f"answer {sum(e[0] == 'user' for e in heard.conversation)}")]


class chat:
    """A chat whose bodies hold the last message, over an agent; what it gets is parsed."""

    def __init__(self, url: str, agent: Agent) -> None:
        self.url = url
        self.agent = agent

    async def send(self, message: dict[str, Any], name: str = "chat-1") -> list[dict[str, Any]]:
        reply = await post(f"{self.url}/api/chat", {"id": name, "message": message, "trigger": "submit-message"})
        assert reply.status == 200, reply.body
        lines = [line[6:] for line in reply.body.split(b"\n") if line.startswith(b"data: {")]
        return [orjson.loads(line) for line in lines]

    async def say(self, text: str, name: str) -> str:
        return "".join(c["delta"] for c in await self.send(user(text, name)) if c["type"] == "text-delta")

    @property
    def known(self) -> list[tuple[Any, ...]]:
        """What the agent knew at the last request."""
        return self.agent.heard[-1].conversation


@pytest.fixture(params=["openai-chat", "ag-ui", "agentscope"])
async def talk(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    async with fake_backend() as backend:
        agent = AGENTS[request.param](backend)
        agent.brain = brain
        config = {
            "backends": {"it": {"dialect": request.param, "url": agent.url, "options": agent.options}},
            "routes": [
                {"dialect": "ai-sdk-ui", "path": "/api/chat", "backend": "it", "options": {"last_message": True}}
            ],
            "stores": {"history": f"sqlite:///{tmp_path}/chats.db"},
        }
        async with serving(config) as base:
            yield chat(base, agent)


async def test_the_backend_knows_the_whole_chat(talk: chat) -> None:
    assert await talk.say("hello", "u1") == "answer 1"
    assert await talk.say("and now?", "u2") == "answer 2"
    assert talk.known == [("user", "hello"), ("assistant", "answer 1"), ("user", "and now?")]
    await talk.send(user("hello"), "chat-2")
    assert talk.known == [("user", "hello")], "another chat"


async def test_results_of_the_clients_tools(talk: chat) -> None:
    chunks = await talk.send(user("where"))
    (call,) = [c for c in chunks if c["type"] == "tool-input-available"]
    said = {"type": "text", "text": "I look.", "state": "done"}
    chunks = await talk.send(answer(said, {"type": "tool-get_place", **PLACE, "toolCallId": call["toolCallId"]}))
    assert chunks[0]["messageId"] == "a1", "the answer goes on in the message"
    assert talk.known == [
        ("user", "where"), ("assistant", "I look."), ("call", "call_1", "get_place", "{}"),
        ("result", "call_1", "Paris"),
    ]  # fmt: skip
    again = answer(said, {"type": "tool-get_place", **PLACE}, {"type": "step-start"}, {"type": "text", "text": "You"})
    reply = await post(f"{talk.url}/api/chat", {"id": "chat-1", "message": again})
    assert (reply.status, "got an answer alone" in reply.json["error"]) == (400, True)
    assert await talk.say("thanks", "u2") == "answer 2"
    assert [e for e in talk.known if e[0] == "result"] == [("result", "call_1", "Paris")]


async def test_an_error_and_the_same_question_again(talk: chat) -> None:
    assert await talk.say("hello", "u1") == "answer 1"
    reply = await post(f"{talk.url}/api/chat", {"id": "chat-1", "message": user("break", "u2")})
    assert "the model fell over" in reply.body.decode()
    assert await talk.say("hello again", "u3") == "answer 3"
    assert [e[1] for e in talk.known if e[0] == "user"] == ["hello", "break", "hello again"]


@pytest.mark.parametrize("talk", ["openai-chat", "ag-ui"], indirect=True)
async def test_a_question_that_is_asked_again(talk: chat) -> None:
    """The button for another answer, and an edited question: both carry the id of the first."""
    for name in ("u1", "u2", "u3"):
        await talk.say(f"question {name}", name)
    assert await talk.say("question u3", "u3") == "answer 3"
    assert talk.known[-1] == ("user", "question u3")
    assert [e[1] for e in talk.known if e[0] == "assistant"] == ["answer 1", "answer 2"]
    assert await talk.say("another", "u2") == "answer 2"
    assert talk.known == [("user", "question u1"), ("assistant", "answer 1"), ("user", "another")]
    assert await talk.say("more", "u4") == "answer 3"


@pytest.mark.parametrize("talk", ["ag-ui"], indirect=True)
async def test_answers_to_approvals(talk: chat) -> None:
    def careful(heard: Heard) -> list[Step]:
        if heard.resume is not None:
            return [Say("It is gone.")]
        return [Use("call_1", "delete", "{}"), Ask("int_1", {"message": "Sure?"}, "tool_call", "call_1")]

    talk.agent.brain = careful
    chunks = await talk.send(user("delete it"))
    (question,) = [c for c in chunks if c["type"] == "tool-approval-request"]
    approval = {"id": question["approvalId"], "approved": True}
    part = {"type": "tool-delete", "toolCallId": "call_1", "state": "approval-responded", "input": {}}
    chunks = await talk.send(answer({**part, "approval": approval}))
    assert talk.agent.heard[-1].resumed == "int_1"
    assert talk.known[:2] == [("user", "delete it"), ("call", "call_1", "delete", "{}")]


def test_what_an_answer_brings() -> None:
    """Only what the client made of its last step: all else is kept already."""
    ran = {**PLACE, "type": "tool-get_time", "toolCallId": "call_0", "providerExecuted": True}
    earlier = {**PLACE, "type": "tool-get_city", "toolCallId": "call_9"}
    message = answer(earlier, {"type": "step-start"}, ran, {**PLACE, "type": "tool-get_place"})
    request = asked({"id": "c", "message": message}, last_message=True)
    assert request.history is HistoryMode.LAST
    (only,) = [p for m in request.messages for p in m.parts]
    assert isinstance(only, ToolResult)
    assert only.call_id == "call_1"
    denied = {
        **PLACE,
        "type": "tool-get_place",
        "state": "approval-responded",
        "approval": {"id": "q", "approved": False},
    }
    request = asked({"id": "c", "message": answer(denied)}, last_message=True)
    assert (request.messages, request.resume) == ([], [Resume("q", "resolved", {"approved": False})])
    whole = asked({"id": "c", "messages": [user("hi")], "message": user("hi")}, last_message=True)
    assert (len(whole.messages), whole.history) == (1, HistoryMode.FULL)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"message": user("hi")}, "id: required, expected a string."),
        ({"id": "", "message": user("hi")}, "id: expected the id under which the chat is stored, got an empty string."),
        ({"id": "c", "message": [user("hi")]}, "message: expected an object, got a list."),
        ({"id": "c", "message": {"role": "user"}}, "message.parts: required, expected a list."),
        ({"id": "c", "message": None}, "message: expected an object, got null."),
        ({"id": "c"}, "messages: required, expected a list."),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError) as caught:
        asked(body, last_message=True)
    assert caught.value.message == text


def test_without_the_option_the_error_names_it() -> None:
    with pytest.raises(RequestError, match="option last_message allows that"):
        asked({"id": "c", "message": user("hi")})


def test_the_chats_must_be_kept_somewhere() -> None:
    def config(**backend: Any) -> dict[str, Any]:
        route = {"dialect": "ai-sdk-ui", "path": "/api", "backend": "it", "options": {"last_message": True}}
        return {"backends": {"it": backend}, "routes": [route], "stores": {"history": "off"}}

    for backend in ({"dialect": "demo"}, {"dialect": "openai-chat", "url": "http://127.0.0.1:1/v1"}):
        with pytest.raises(ConfigError, match=r"stores.history: off, but the clients of routes\[0\]"):
            Bridge.from_config(config(**backend))
    Bridge.from_config(config(dialect="agentscope", url="http://127.0.0.1:1"))  # such backends keep them
