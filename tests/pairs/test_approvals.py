"""Approvals of an AgentScope client: the last of its input answers a question, earlier ones are part of the talk."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bridge.contract import registry
from bridge.model import Message, Text
from bridge.run.conversation.comparison import unknown
from bridge.translation.library import Translator
from tests.pairs.clients import Seen, agentscope_client, routes
from tests.pairs.test_conversations import chat_stream
from tests.pairs.test_memory import chat_sent
from tests.server.harness import fake_backend, serving

# One that names its talks itself is sent nothing of a talk that it knows but what is new.
BACKS = [name for name in registry.called() if not registry.get(name).capabilities.names_threads]
ASKED = {"id": "a1", "name": "transfer", "arguments": '{"to": "Bo"}', "server_label": "bank"}
ANSWER = {"approve": True, "id": "a1", "approval_request_id": "a1", "reason": None}


def data(kind: str, role: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "role": role, "content": [{"type": "data", "data": value}]}


def text(role: str, said: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "text", "text": said}]}


APPROVAL = [data("mcp_approval_request", "assistant", ASKED), data("mcp_approval_response", "user", ANSWER)]
TALK = [text("user", "Send it"), *APPROVAL, text("assistant", "Done."), text("user", "And now?")]


def sent(back: str, talk: list[dict[str, Any]]) -> bytes:
    """The body for a backend of this dialect."""
    body = json.dumps({"input": talk, "session_id": "s"}).encode()
    return Translator(back, "agentscope", model="m", run_id="run1").request(body, client="agentscope")


@pytest.mark.parametrize("back", BACKS)
def test_an_earlier_approval_is_told_to_every_backend_and_answers_nothing(back: str) -> None:
    body = sent(back, TALK)
    told = (b"Send it", b"transfer", b"Done.", b"And now?")
    if registry.get(back).capabilities.names_threads:
        told = (told[0], told[-1])  # such an agent has what it did, and is told what its user says
    places = [body.find(said) for said in told]
    assert places == sorted(places)
    assert -1 not in places, body
    if len(told) == 2:
        assert b"resume" not in body
        return
    if back in ("agentscope", "agentscope-java"):
        assert [m["type"].lower() for m in json.loads(body)["input"]] == [m["type"] for m in TALK]
        return
    assert b"Approved" in body
    assert b'"resume"' not in body or b'"resume":[]' in body


async def test_an_earlier_approval_over_a_kept_history(tmp_path: Path) -> None:
    """The whole talk that a client repeats is not doubled by the approval in it, which the store may not have."""
    async with fake_backend() as backend:
        config = {**routes("openai-chat", f"{backend.url}/v1"), "stores": {"history": f"sqlite:///{tmp_path}/talks.db"}}
        async with serving(config) as base:
            backend.streams(*chat_stream({"content": "Done."}))
            await agentscope_client(base, [{"role": "user", "content": "Send it"}])
            seen: Seen = await agentscope_client(base, [], more_input=TALK)
            assert (seen.status, seen.error) == (200, None)
            assert [said for _, said in chat_sent(backend)] == ["Send it", "Done.", "And now?"]
            backend.streams(*chat_stream({"content": "Well."}))
            await agentscope_client(base, [], more_input=[*APPROVAL, text("user", "Sure?")])
            assert [said for _, said in chat_sent(backend)][-3:] == [
                'approval: transfer({"to": "Bo"})', "Approved", "Sure?",
            ]  # fmt: skip


async def test_the_demo_hears_what_comes_after_an_approval() -> None:
    route = {"dialect": "agentscope", "path": "/scope", "backend": "demo"}
    async with serving({"backends": {"demo": {"dialect": "demo"}}, "routes": [route]}) as base:
        seen = await asyncio.wait_for(agentscope_client(base, [], more_input=TALK), 30)
    assert "And now?" in seen.text
    assert "You decided" not in seen.text


def test_a_repeated_talk_is_compared_without_what_only_its_dialect_knows() -> None:
    def said(role: str, words: str, **extras: Any) -> Message:
        return Message(role, [Text(words)], extras=extras or None)

    asked, answered = (said(r, "x", agentscope={"whole": {}}) for r in ("assistant", "user"))
    one, two, three = said("user", "one"), said("assistant", "two"), said("user", "three")
    assert unknown([one, two], [one, asked, answered, two, three]) == [three]
    assert unknown([one, two], [one, two, asked, answered, three]) == [asked, answered, three]
    assert unknown([one, asked, answered, two], [one, two, three]) == [three]
    assert unknown([], [asked, one]) == [asked, one]
