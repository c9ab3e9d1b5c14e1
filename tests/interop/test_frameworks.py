"""Applications one layer above the SDKs: the AI SDK and LangChain, unchanged, in front of a backend of OpenAI chat.

Each plays one talk: the model calls two tools at once, their results go back, it answers, the user says thanks.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forkserver
from tests.docs.helpers import environment
from tests.pairs.agents import Agent, Chat, Heard, Responses, Say, Step, Think, Use, Wire
from tests.server.harness import fake_backend, serving

pytestmark = pytest.mark.interop

DIALECTS = {"openai": "openai-responses", "anthropic": "anthropic-messages"}
PATIENCE = 120.0
"""Seconds after which a client that does not come to its end is ended, so that the test fails instead of hanging."""

PARIS = '{"city": "Paris"}'
CALLS = [["call_1", "get_weather", {"city": "Paris"}], ["call_2", "get_time", {"city": "Paris"}]]
ANSWER, GOODBYE = "It is sunny, and noon.", "You are welcome. 🙂"

# Reasoning that nobody sealed or stored cannot go back; the AI SDK leaves it out and says so.
SKIPPED = "Reasoning parts without encrypted content are not supported when store is false. Skipping reasoning parts."


class Counting(Chat):
    """Says what each request took, as servers do that were asked for it."""

    def wire(self, steps: list[Step]) -> Iterator[Wire | bytes]:
        *events, done = super().wire(steps)
        usage = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
        yield from (*events, {"id": "chatcmpl-1", "choices": [], "usage": usage}, done)


def brain(heard: Heard) -> list[Step]:
    if heard.last[0] == "result":
        return [Say(ANSWER)]
    if heard.last[1] == "Thanks.":
        return [Say(GOODBYE)]
    return [Think("Two tools."), Say("I look."), Use("call_1", "get_weather", PARIS), Use("call_2", "get_time", PARIS)]


async def conversation(
    command: list[str], wire: str, *more: str, kind: type[Agent] = Counting, **stores: Any
) -> tuple[Any, list[Heard]]:
    """What the application saw, and what the backend heard."""
    async with fake_backend() as backend:
        agent = kind(backend)
        agent.brain = brain
        config = {
            "backends": {"it": {"dialect": agent.dialect, "url": agent.url}},
            "routes": [{"dialect": DIALECTS[wire], "path": "/v1", "backend": "it"}],
            "stores": stores,
        }
        async with serving(config) as base:
            # LangChain's class for this wire, as its SDK, adds `/v1` by itself.
            base += "" if wire == "anthropic" and "langchain" in command[0] else "/v1"
            seen = await said_by([*command, wire, base, *more])
        return seen, agent.heard


async def said_by(command: list[str], home: Path | None = None) -> Any:
    """What it printed. Libraries that keep files do so in `home`. Scripts of Python without it are forked."""
    piped = asyncio.subprocess.PIPE
    variables = {"LANGSMITH_TRACING": "false", **({"HOME": str(home)} if home else {})}
    if home is None and command[1].endswith(".py"):
        settings = {"cwd": Path.cwd(), "env": environment(**variables), "timeout": PATIENCE}
        done = await asyncio.to_thread(forkserver.run, command, **settings)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=piped, stderr=piped, env=environment(**variables), cwd=home
    )
    try:
        out, complaints = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, complaints.decode()
    return json.loads(out)


def judge_backend(heard: list[Heard]) -> None:
    """The backend heard the whole talk each time, in its own words."""
    assert [h.last[:2] for h in heard] == [
        ("user", "What is it like in Paris?"), ("result", "call_2"), ("user", "Thanks."),
    ]  # fmt: skip
    assert heard[2].spoken == [
        ("system", "Be brief."), ("user", "What is it like in Paris?"), ("assistant", "I look."),
        ("assistant", ANSWER), ("user", "Thanks."),
    ]  # fmt: skip
    calls = [
        (i, name, json.loads(arguments))
        for _, i, name, arguments in (e for e in heard[2].conversation if e[0] == "call")
    ]
    assert calls == [tuple(c) for c in CALLS]
    results = dict(e[1:] for e in heard[2].conversation if e[0] == "result")
    assert results["call_1"] == "sunny in Paris"
    assert json.loads(results["call_2"]) == {"city": "Paris", "time": "12:00"}
    assert heard[0].tools == ["get_weather", "get_time"]


@pytest.mark.parametrize(("wire", "stored"), [("openai", True), ("openai", False), ("anthropic", False)])
async def test_the_ai_sdk(ai_sdk: list[str], wire: str, stored: bool, tmp_path: Path) -> None:
    """`stored`: as it is by default, it points at the items of earlier answers by their ids."""
    options = {"store": False} if wire == "openai" and not stored else {}
    seen, heard = await conversation(ai_sdk, wire, json.dumps(options), history=f"sqlite:///{tmp_path}/answers.db")
    assert seen["errors"] == []
    assert set(seen["warnings"]) == ({SKIPPED} if wire == "openai" and not stored else set())
    judge_backend(heard)
    first, second = seen["turns"]
    assert (first["text"], first["calls"], first["finishes"]) == (ANSWER, CALLS, ["tool-calls", "stop"])
    assert first["results"] == [["call_1", "sunny in Paris"], ["call_2", {"city": "Paris", "time": "12:00"}]]
    assert first["usage"] == [20, 8]
    assert first["parts"].count("text-delta") == 4, "it came in pieces"
    assert (second["text"], second["calls"], second["usage"]) == (GOODBYE, [], [10, 4])


async def test_the_ai_sdk_points_at_items_of_a_responses_backend(ai_sdk: list[str], tmp_path: Path) -> None:
    """The backend gave the items ids of its own, and knows none that it did not store."""
    seen, heard = await conversation(ai_sdk, "openai", "{}", kind=Responses, history=f"sqlite:///{tmp_path}/answers.db")
    assert seen["errors"] == []
    judge_backend(heard)
    assert [turn["text"] for turn in seen["turns"]] == [ANSWER, GOODBYE]


@pytest.mark.parametrize(("wire", "stored"), [("openai", True), ("openai", False), ("anthropic", False)])
async def test_langchain(langchain: list[str], wire: str, stored: bool, tmp_path: Path) -> None:
    """`stored`: it sends what is new since the last answer, after the id of that answer."""
    options = {"use_previous_response_id": True} if stored else {}
    seen, heard = await conversation(langchain, wire, json.dumps(options), history=f"sqlite:///{tmp_path}/answers.db")
    judge_backend(heard)
    first, second = seen["turns"]
    assert (first["text"], first["calls"]) == (ANSWER, CALLS)
    assert [call_id for call_id, _ in first["results"]] == ["call_1", "call_2"]
    assert first["usage"] == [20, 8]
    assert first["pieces"] > 8, "it came in pieces"
    assert (second["text"], second["calls"], second["usage"]) == (GOODBYE, [], [10, 4])
