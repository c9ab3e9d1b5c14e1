"""What Gradio's `load_chat` sends (6.31.0): a photo and its text as two messages, and as one in later requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pairs.agents import Agent, Chat, Claude, Say, Scope
from tests.server.harness import fake_backend, post, serving

FIRST, SECOND = ("data:image/jpeg;base64,/9j/4AAQSkZJRgABAQ==", "data:image/jpeg;base64,/9j/4AAQSkZJRgABAg==")


def photo(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def kept(role: str, content: Any) -> dict[str, Any]:
    """A message of Gradio's history."""
    return {"role": role, "content": content, "metadata": None, "options": None}


def texts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def said(text: str, url: str | None = None) -> list[dict[str, Any]]:
    """What the person has just said."""
    photos = [{"role": "user", "content": [photo(url)]}] if url else []
    return [*photos, {"role": "user", "content": texts(text)}]


def talk() -> list[list[dict[str, Any]]]:
    """The messages of four requests: with a photo, without, with another one, with a text file."""
    one = [kept("user", [photo(FIRST), *texts("look")]), kept("assistant", texts("answer 1"))]
    two = [*one, kept("user", texts("and now?")), kept("assistant", texts("answer 2"))]
    three = [*two, kept("user", [photo(SECOND), *texts("another")]), kept("assistant", texts("answer 3"))]
    return [said("look", FIRST), [*one, *said("and now?")], [*two, *said("another", SECOND)],
            [*three, *said("last\n## note.txt\na note\n")]]  # fmt: skip


@pytest.mark.parametrize("kind", [Chat, Claude, Scope])
async def test_photos_arrive_and_the_conversation_stays_one(kind: type[Agent], tmp_path: Path) -> None:
    async with fake_backend() as backend:
        agent = kind(backend)
        agent.brain = lambda heard: [Say(f"answer {len(agent.heard)}")]
        config = {
            "backends": {"it": {"dialect": agent.dialect, "url": agent.url, "options": agent.options}},
            "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
            "stores": {"history": f"sqlite:///{tmp_path}/talks.db"},
        }
        async with serving(config) as base:
            for messages in talk():
                body = json.dumps({"messages": messages, "model": "m", "stream": True}).encode()
                reply = await post(f"{base}/v1/chat/completions", body)
                assert (reply.status, b'"error"' in reply.body) == (200, False)
    photos = [heard.images for heard in agent.heard]
    if agent.remembers:
        assert photos == [[FIRST], [], [SECOND], []]
        assert len({seen.json["session_id"] for seen in backend.seen}) == 1
    else:
        assert photos == [[FIRST], [FIRST], [FIRST, SECOND], [FIRST, SECOND]]
    last = agent.heard[-1].spoken
    assert [entry[1] for entry in last] == [
        "look", "answer 1", "and now?", "answer 2", "another", "answer 3", "last\n## note.txt\na note\n",
    ]  # fmt: skip
