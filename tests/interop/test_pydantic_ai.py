"""A real Pydantic AI agent with its own AG-UI adapter, behind every front of the bridge."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.docs.helpers import Server, server
from tests.pairs.people import PEOPLE, Person, leave, routes
from tests.server.harness import ask, serving

pytestmark = pytest.mark.interop

PYTHON = Path(sys.prefix) / "pydantic-ai" / "bin" / "python"
SCRIPT = Path(__file__).parent / "pydantic_ai" / "server.py"
PICTURE = "https://x.example/cat.png"
fronts = pytest.mark.parametrize("front", list(PEOPLE))

Opened = Callable[..., Awaitable[Person]]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    assert PYTHON.exists(), "Pydantic AI is not installed: make interop"
    with server(tmp_path_factory.mktemp("agent"), str(PYTHON), str(SCRIPT), "{port}", ready="/health") as running:
        yield running


@pytest.fixture
async def opened(agent: Server, tmp_path: Path) -> AsyncIterator[Opened]:
    """Brings somebody at this frontend to the agent, through the bridge."""
    async with AsyncExitStack() as stack:

        async def make(front: str, *tools: str) -> Person:
            backend = SimpleNamespace(dialect="ag-ui", url=f"{agent.url}/agent", options={})
            config = routes(backend, history=f"sqlite:///{tmp_path}/talks.db")
            base = await stack.enter_async_context(serving(config))
            return PEOPLE[front](base, uuid.uuid4().hex, tools)

        yield make


def runs_calls(front: str) -> bool:
    """Whether clients of this dialect would run a call that they are shown a second time."""
    return front.startswith(("openai-", "anthropic-messages"))


@fronts
async def test_a_talk(opened: Opened, front: str) -> None:
    person = await opened(front)
    for text in ("hello", "again"):
        seen = await person.say(text)
        assert (seen.error, seen.text) == (None, f"You said: {text} \u2028 你好 🙂")
    seen = await person.say("before")
    assert (seen.error, seen.text) == (None, "Before that: again")


@fronts
async def test_reasoning(opened: Opened, front: str) -> None:
    seen = await (await opened(front)).say("think")
    assert (seen.error, seen.text) == (None, "Six times seven is 42.")
    # AG-Kit's first wire has no reasoning, as its card says.
    assert seen.reasoning == ("" if front == "ag-kit" else "Hm, hm.")


@fronts
async def test_a_tool_that_the_agent_runs(opened: Opened, front: str) -> None:
    person = await opened(front)
    seen = await person.say("tool")
    assert (seen.error, seen.text) == (None, "It is sunny in Paris.")
    calls = [(c.name, json.loads(c.arguments)) for c in seen.calls]
    assert calls == ([] if runs_calls(front) else [("weather_report", {"city": "Paris"})])
    assert [text for _, text in seen.results] == ([] if runs_calls(front) else ["sunny in Paris"])
    # The agent can read what its own run left in the talk.
    seen = await person.say("hello")
    assert (seen.error, seen.text) == (None, "You said: hello \u2028 你好 🙂")


@fronts
async def test_two_tools_that_the_client_runs(opened: Opened, front: str) -> None:
    person = await opened(front, "get_weather")
    seen = await person.say("ask")
    assert seen.error is None
    calls = [(c.id, c.name, json.loads(c.arguments)) for c in seen.calls]
    assert calls == [("call_1", "get_weather", {"city": "Paris"}), ("call_2", "get_weather", {"city": "Rome"})]
    seen = await person.answer({"call_1": "sunny", "call_2": "raining"})
    assert (seen.error, seen.text) == (None, "It is sunny, raining.")
    seen = await person.say("hello")
    assert (seen.error, seen.text) == (None, "You said: hello \u2028 你好 🙂")


def consent(front: str, yes: bool) -> Any:
    """What people answer where an approval is asked: a button, a word, or the payload that the agent described."""
    if front.startswith("ag-ui") or front == "ag-kit-2":
        return {"approved": yes}
    return "yes" if yes else "no"


@fronts
@pytest.mark.parametrize("yes", [True, False], ids=["yes", "no"])
async def test_an_approval(opened: Opened, front: str, yes: bool) -> None:
    person = await opened(front)
    seen = await person.say("wipe")
    assert seen.error is None
    if runs_calls(front):
        assert (seen.calls, seen.text) == ([], "Approve wipe({})?")
    seen = await person.resume(consent(front, yes))
    assert seen.error is None
    assert seen.text == "It is wiped." if yes else "wiped" not in seen.text
    assert seen.text


@fronts
async def test_an_error_in_the_middle(opened: Opened, front: str) -> None:
    person = await opened(front)
    seen = await person.say("error")
    assert "the model fell over" in (seen.error or "")
    seen = await person.say("hello")
    assert (seen.error, seen.text) == (None, "You said: hello \u2028 你好 🙂")


@fronts
async def test_an_error_of_the_agents_model(opened: Opened, front: str) -> None:
    seen = await (await opened(front)).say("full")
    assert "The model is full." in (seen.error or "")
    assert "body:" not in (seen.error or "")
    if front.startswith(("openai-chat", "anthropic")):
        assert (seen.status, seen.headers["retry-after"]) == (429, "20")


@fronts
async def test_a_client_that_leaves_stops_the_agent(opened: Opened, agent: Server, front: str) -> None:
    person = await opened(front)
    reading = asyncio.create_task(person.say("wait"))
    async with asyncio.timeout(40):
        await ask("GET", f"{agent.url}/waiting")
        await person.seen.started.wait()
        await leave(reading)
        assert (await ask("GET", f"{agent.url}/left")).status == 200


@pytest.mark.parametrize("front", [p for p in PEOPLE if p != "ag-kit"])
async def test_a_picture_reaches_the_agent(opened: Opened, front: str) -> None:
    """AG-Kit's first wire has no pictures."""
    seen = await (await opened(front)).say("look", PICTURE)
    assert (seen.error, seen.text) == (None, f"I see: {PICTURE}")
