"""Agents of other projects behind A2A, called by the bridge for people at frontends of other dialects."""

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
from tests.interop.conftest import node_client
from tests.pairs.people import PEOPLE, Person, leave, routes
from tests.server.harness import ask, serving

pytestmark = pytest.mark.interop

SCRIPTS = Path(__file__).parent / "a2a_agents"
FRONTS = ["openai-chat", "ag-ui", "ag-kit", "openai-responses continued"]
fronts = pytest.mark.parametrize("front", FRONTS)

Opened = Callable[..., Awaitable[Person]]


def agent(tmp_path_factory: pytest.TempPathFactory, venv: str, script: str, *arguments: str) -> Iterator[Server]:
    python = Path(sys.prefix) / venv / "bin" / "python"
    assert python.exists(), f"{venv} is not installed: make interop"
    folder = tmp_path_factory.mktemp(script)
    with server(folder, str(python), str(SCRIPTS / f"{script}.py"), "{port}", *arguments) as running:
        yield running


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from agent(tmp_path_factory, "a2a-agents", "sdk")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same agent, whose card says that it does not stream."""
    yield from agent(tmp_path_factory, "a2a-agents", "sdk", "whole")


@pytest.fixture(scope="module", params=["JSONRPC", "HTTP+JSON"])
def old(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Server]:
    yield from agent(tmp_path_factory, "a2a-agents-old", "old", request.param)


@pytest.fixture(scope="module")
def fasta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from agent(tmp_path_factory, "a2a-agents", "fasta")


@pytest.fixture(scope="module")
def adk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from agent(tmp_path_factory, "a2a-agents", "adk")


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = Path(__file__).parent / "a2a-js"
    node_client(folder, "an agent on A2A's JavaScript SDK")
    with server(tmp_path_factory.mktemp("js"), "node", str(folder / "agent.mjs"), "{port}") as running:
        yield running


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    """Brings somebody at this frontend to the agent, through the bridge."""
    async with AsyncExitStack() as stack:

        async def make(front: str, agent: Server, *tools: str, path: str = "", **options: Any) -> Person:
            backend = SimpleNamespace(dialect="a2a", url=agent.url + path, options=options)
            config = routes(backend, history=f"sqlite:///{tmp_path}/talks.db")
            base = await stack.enter_async_context(serving(config))
            return PEOPLE[front](base, uuid.uuid4().hex, tools)

        yield make


async def told(agent: Server) -> Any:
    return (await ask("GET", f"{agent.url}/seen")).json


async def until_cancelled(person: Person, agent: Server) -> None:
    """Somebody closes the window in the middle of an answer, and the agent is told to stop."""
    before = len((await told(agent))["canceled"])
    leaving = asyncio.create_task(person.say("slow"))
    async with asyncio.timeout(30):
        while not person.seen.text:
            await asyncio.sleep(0.01)
        await leave(leaving)
        while len((await told(agent))["canceled"]) == before:
            await asyncio.sleep(0.05)


# ------------------------------------------------------------------ a2a-sdk 1.3.0

WAYS = {"json-rpc": {}, "http+json": {"binding": "http+json"}, "0.3": {"version": "0.3"}}
ways = pytest.mark.parametrize("way", WAYS)


@ways
@fronts
async def test_a_talk_of_which_the_agent_remembers_the_beginning(
    opened: Opened, sdk: Server, front: str, way: str
) -> None:
    person = await opened(front, sdk, **WAYS[way])
    seen = await person.say("hello \u2028 你好 🙂")
    assert (seen.error, seen.text) == (None, "You said: hello \u2028 你好 🙂")
    seen = await person.say("before")
    assert (seen.error, seen.text) == (None, "Before that: hello \u2028 你好 🙂")


@ways
@fronts
async def test_a_question_and_its_answer(opened: Opened, sdk: Server, front: str, way: str) -> None:
    person = await opened(front, sdk, **WAYS[way])
    seen = await person.say("ask")
    assert seen.error is None
    assert seen.text.startswith("Let me see. ")
    assert "Which city?" in (str(person.asked[0].payload) if person.knows_interrupts else seen.text)
    seen = await person.resume("Oslo")
    assert (seen.error, seen.text) == (None, "You chose Oslo.")
    # The task is over: what comes next is another one in the same talk.
    seen = await person.say("before")
    assert (seen.error, seen.text) == (None, "Before that: Oslo")


@ways
@fronts
async def test_failures(opened: Opened, sdk: Server, front: str, way: str) -> None:
    for scene, text in (("fail", "The model is down."), ("reject", "I do not do that.")):
        seen = await (await opened(front, sdk, **WAYS[way])).say(scene)
        assert seen.error is not None
        assert text in str(seen.error)
    seen = await (await opened(front, sdk, **WAYS[way])).say("break")
    assert seen.error is not None


@ways
async def test_files_and_data(opened: Opened, sdk: Server, way: str) -> None:
    seen = await (await opened("ag-ui", sdk, **WAYS[way])).say("file")
    assert seen.error is None
    assert "https://files.example/a.pdf" in seen.text
    seen = await (await opened("openai-chat", sdk, **WAYS[way])).say("data")
    assert json.loads(seen.text) == {"city": "Oslo", "degrees": 3}


async def test_what_the_agent_says_while_it_works_is_reasoning(opened: Opened, sdk: Server) -> None:
    seen = await (await opened("ag-ui", sdk)).say("progress")
    assert (seen.error, seen.text, seen.reasoning) == (None, "It is 42.", "Looking it up.")


@ways
@fronts
async def test_a_message_without_a_task(opened: Opened, sdk: Server, front: str, way: str) -> None:
    seen = await (await opened(front, sdk, **WAYS[way])).say("message")
    assert (seen.error, seen.text) == (None, "Just a message.")


@ways
@fronts
async def test_a_client_that_leaves_ends_the_task(opened: Opened, sdk: Server, front: str, way: str) -> None:
    await until_cancelled(await opened(front, sdk, **WAYS[way]), sdk)


async def test_a_picture_reaches_the_agent(opened: Opened, sdk: Server) -> None:
    picture = "data:image/png;base64,iVBORw0KGgo="
    person = await opened("openai-chat", sdk)
    seen = await person.say("look", picture)
    assert seen.text == "You said: look"
    sent = (await told(sdk))["seen"][-1]
    assert sent["role"] == "ROLE_USER"
    assert sent["parts"][1] == {"raw": "iVBORw0KGgo=", "mediaType": "image/png"}


async def test_the_card_is_asked_for_once(opened: Opened, sdk: Server) -> None:
    before = len((await told(sdk))["cards"])
    person = await opened("ag-ui", sdk)
    for text in ("one", "two", "three"):
        assert (await person.say(text)).error is None
    assert len((await told(sdk))["cards"]) == before + 1


async def test_an_agent_without_a_card_is_called_at_its_url(opened: Opened, sdk: Server) -> None:
    before = len((await told(sdk))["cards"])
    seen = await (await opened("ag-ui", sdk, path="/rpc", card="none")).say("hello")
    assert (seen.error, seen.text) == (None, "You said: hello")
    seen = await (await opened("ag-ui", sdk, path="/rest", card="none", binding="http+json")).say("hello")
    assert (seen.error, seen.text) == (None, "You said: hello")
    assert len((await told(sdk))["cards"]) == before


# ------------------------------------------------------------------ an agent that does not stream


@ways
@fronts
async def test_an_agent_that_does_not_stream(opened: Opened, whole: Server, front: str, way: str) -> None:
    person = await opened(front, whole, **WAYS[way])
    seen = await person.say("hello")
    assert (seen.error, seen.text) == (None, "You said: hello")
    seen = await person.say("ask")
    assert seen.text.startswith("Let me see. ")
    # The task comes back with what it said before the question; that is not said again.
    seen = await person.resume("Oslo")
    assert (seen.error, seen.text) == (None, "You chose Oslo.")
    seen = await person.say("message")
    assert (seen.error, seen.text) == (None, "Just a message.")
    assert (await person.say("fail")).error is not None


# ------------------------------------------------------------------ a2a-sdk 0.3.26


@fronts
async def test_an_agent_of_the_old_protocol(opened: Opened, old: Server, front: str) -> None:
    person = await opened(front, old)
    seen = await person.say("hello")
    assert (seen.error, seen.text) == (None, "You said: hello")
    seen = await person.say("before")
    assert (seen.error, seen.text) == (None, "Before that: hello")
    assert (await person.say("ask")).error is None
    seen = await person.resume("Oslo")
    assert (seen.error, seen.text) == (None, "You chose Oslo.")
    assert "The model is down." in str((await person.say("fail")).error)
    assert (await (await opened(front, old)).say("message")).text == "Just a message."


async def test_a_picture_reaches_an_agent_of_the_old_protocol(opened: Opened, old: Server) -> None:
    seen = await (await opened("openai-chat", old)).say("look", "data:image/png;base64,iVBORw0KGgo=")
    assert (seen.error, seen.text) == (None, "You sent image/png: iVBORw0KGgo=")


async def test_a_task_of_the_old_protocol_is_cancelled(opened: Opened, old: Server) -> None:
    await until_cancelled(await opened("ag-ui", old), old)


# ------------------------------------------------------------------ @a2a-js/sdk


@fronts
async def test_an_agent_on_the_javascript_sdk(opened: Opened, js: Server, front: str) -> None:
    person = await opened(front, js)
    seen = await person.say("hello")
    assert (seen.error, seen.text) == (None, "You said: hello")
    seen = await person.say("before")
    assert (seen.error, seen.text) == (None, "Before that: hello")
    assert (await person.say("ask")).text.startswith("Let me see. ")
    # The stream begins with the task, and so with what it said before the question.
    seen = await person.resume("Oslo")
    assert (seen.error, seen.text) == (None, "You chose Oslo")
    assert (await person.say("message")).text == "Just a message."
    assert "The model is down." in str((await person.say("fail")).error)
    assert (await (await opened(front, js)).say("break")).error is not None


async def test_a_task_of_the_javascript_sdk_is_cancelled(opened: Opened, js: Server) -> None:
    await until_cancelled(await opened("ag-ui", js), js)


# ------------------------------------------------------------------ fasta2a


@fronts
async def test_an_agent_of_pydantic_ai(opened: Opened, fasta: Server, front: str) -> None:
    person = await opened(front, fasta)
    seen = await person.say("hello")
    assert (seen.error, seen.text) == (None, "You said: hello")
    seen = await person.say("before")
    assert (seen.error, seen.text) == (None, "Before that: hello")
    assert (await person.say("fail")).error is not None


# ------------------------------------------------------------------ google-adk


@fronts
async def test_an_agent_of_google_adk(opened: Opened, adk: Server, front: str) -> None:
    person = await opened(front, adk)
    seen = await person.say("hello")
    assert (seen.error, seen.text) == (None, "You said: hello")
    seen = await person.say("before")
    assert (seen.error, seen.text) == (None, "Before that: hello")
    seen = await person.say("tool")
    assert (seen.error, seen.text) == (None, "The tool said {'temp': 3}.")


@fronts
async def test_a_call_of_google_adk_that_waits_for_its_caller(opened: Opened, adk: Server, front: str) -> None:
    person = await opened(front, adk, "approve")
    seen = await person.say("approve")
    assert seen.error is None
    assert [(c.name, json.loads(c.arguments)) for c in seen.calls] == [("approve", {"amount": 5})]
    seen = await person.answer({seen.calls[0].id: '{"approved": true}'})
    assert (seen.error, seen.text) == (None, "The tool said {'approved': True}.")
