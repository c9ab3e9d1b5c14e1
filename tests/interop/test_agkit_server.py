"""The real `cloudbase-agent-server` 0.1.1, with LangGraph's memory, behind every front."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.contract import registry
from tests.interop.backends import QUESTION
from tests.interop.client import Driver, Frontend
from tests.interop.official import OfficialPerson
from tests.pairs.people import PEOPLE, Person, leave, routes
from tests.server.harness import ask, serving

pytestmark = pytest.mark.interop

TOOL = "set-color"
OFFICIAL = {"official ag-ui 0.0.59": "0", "official ag-ui 1.0.0": "1"}
# AG-UI as our own tests read it is tried elsewhere; here the official client does it.
FRONTS = [*(name for name, person in PEOPLE.items() if person.dialect != "ag-ui"), *OFFICIAL]
# The first words of the scripted model's ordinary answer, and the last ones; between them stands what it was sent.
HEARD = "I heard ", " 你好 😀"

Opened = Callable[..., Awaitable[Any]]


@pytest.fixture
async def opened(request: pytest.FixtureRequest, agkit: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """Brings somebody at this frontend to the real server, through the bridge; `path` is one of the server's."""
    async with AsyncExitStack() as stack:

        async def make(front: str, path: str = "") -> Person:
            agent = SimpleNamespace(dialect="ag-kit", url=f"{agkit}{path}", options={})
            config = routes(agent, history=f"sqlite:///{tmp_path}/talks.db")
            base = await stack.enter_async_context(serving(config))
            if front not in OFFICIAL:
                return PEOPLE[front](base, uuid.uuid4().hex, (TOOL,))
            driver: Driver = request.getfixturevalue("driver")
            return OfficialPerson(Frontend(driver, OFFICIAL[front], f"{base}{OfficialPerson.route}"), (TOOL,))

        yield make


def heard(text: str) -> list[str]:
    """The messages that the model was sent, as `role: text`."""
    first, last = HEARD
    assert text.startswith(first)
    assert text.endswith(last)
    messages: list[str] = json.loads(text.removeprefix(first).removesuffix(last))
    return messages


def by_people(text: str) -> list[str]:
    return [m.removeprefix("human: ") for m in heard(text) if m.startswith("human: ")]


@pytest.mark.parametrize("front", FRONTS)
async def test_a_talk(opened: Opened, front: str) -> None:
    """The server keeps it: each turn adds what is new, once."""
    person = await opened(front)
    for number, text in enumerate(["I am Ann", "Who am I?", "Sure?"]):
        seen = await person.say(text)
        assert seen.error is None
        assert by_people(seen.text) == ["I am Ann", "Who am I?", "Sure?"][: number + 1]
        assert len(heard(seen.text)) == 2 * number + 1


@pytest.mark.parametrize("front", FRONTS)
async def test_a_client_tool_round_trip(opened: Opened, front: str) -> None:
    person = await opened(front)
    first = await person.say("paint")
    assert first.text == "Sure. "
    assert [(c.id, c.name, json.loads(c.arguments)) for c in first.calls] == [("call_c1", TOOL, {"color": "blue"})]
    assert first.results == []
    second = await person.answer({"call_c1": "painted it blue"})
    assert (second.text, second.calls, second.error) == ("Tool said: painted it blue", [], None)
    third = await person.say("Thanks")
    assert heard(third.text) == [
        "human: paint",
        "ai: Sure. ",
        "tool: painted it blue",
        "ai: Tool said: painted it blue",
        "human: Thanks",
    ]


@pytest.mark.parametrize("front", FRONTS)
async def test_a_tool_that_the_server_runs(opened: Opened, front: str) -> None:
    person = await opened(front)
    seen = await person.say("weather")
    separator = "" if person.dialect == "ag-kit" else registry.get(person.dialect).capabilities.separator
    assert (seen.text, seen.error) == (f"Checking. {separator}Tool said: Sunny in Paris, 25°C", None)
    if registry.get(person.dialect).capabilities.client_runs_calls:
        # It would run what it is shown.
        assert (seen.calls, seen.finish) == ([], "stop")
    else:
        assert [(c.id, c.name, json.loads(c.arguments)) for c in seen.calls] == [
            ("call_s1", "get_weather", {"city": "Paris"})
        ]
        assert seen.results == [("call_s1", "Sunny in Paris, 25°C")]
    # The server has the call and its result already.
    assert heard((await person.say("Thanks")).text) == [
        "human: weather",
        "ai: Checking. ",
        "tool: Sunny in Paris, 25°C",
        "ai: Tool said: Sunny in Paris, 25°C",
        "human: Thanks",
    ]


@pytest.mark.parametrize("front", FRONTS)
async def test_a_failure_in_the_run(opened: Opened, front: str) -> None:
    """The server cuts the body; the client is told so, in order, and can go on."""
    person = await opened(front)
    seen = await person.say("crash")
    assert seen.error
    assert seen.text == "partial "
    assert by_people((await person.say("And now?")).text) == ["crash", "And now?"]


@pytest.mark.parametrize("front", FRONTS)
async def test_an_agent_that_cannot_be_made(opened: Opened, front: str) -> None:
    """The server tells it with status 200."""
    seen = await (await opened(front, "/broken")).say("Hi")
    assert seen.error is not None
    assert "cannot build agent" in seen.error
    assert seen.text == ""


@pytest.mark.parametrize("front", FRONTS)
async def test_a_client_that_leaves_stops_the_run(opened: Opened, agkit: str, front: str) -> None:
    person = await opened(front)
    if isinstance(person, OfficialPerson):
        await person.leave("wait")
    else:
        saying = asyncio.create_task(person.say("wait"))
        await asyncio.sleep(0)  # it has begun
        await person.seen.started.wait()
        await leave(saying)
    async with asyncio.timeout(40):
        assert (await ask("GET", f"{agkit}/left")).status == 200


@pytest.mark.parametrize("front", [f for f in FRONTS if f != "agentscope"])
@pytest.mark.parametrize("payload", ["yes", {"approve": True}], ids=["text", "object"])
async def test_an_interrupt_and_its_answer(opened: Opened, front: str, payload: Any) -> None:
    """The server takes text only, so other JSON comes as JSON text."""
    person = await opened(front)
    first = await person.say("approve")
    assert first.error is None
    if person.knows_interrupts:
        (asked,) = person.asked
        assert asked.id or front == "ag-kit-2"  # whose wire has none
        shown = json.loads(asked.payload) if isinstance(asked.payload, str) else asked.payload
        assert shown == QUESTION
    seen = await person.resume(payload)
    assert seen.error is None
    received = payload if isinstance(payload, str) else json.dumps(payload, separators=(",", ":"))
    assert by_people(seen.text) == ["approve", f"resumed {json.dumps(received)}"]
    assert by_people((await person.say("And now?")).text) == ["approve", f"resumed {json.dumps(received)}", "And now?"]


async def test_an_approval_and_its_answer(opened: Opened) -> None:
    """An interrupt is an approval request at AgentScope's frontend, whose buttons know yes and no only."""
    person = await opened("agentscope")
    await person.say("approve")
    assert json.loads(person.asked[0].payload) == QUESTION
    asked = person.asked[0].id
    seen = await person.resume("yes")
    (_, resumed) = by_people(seen.text)
    received = json.loads(json.loads(resumed.removeprefix("resumed ")))
    assert (received["approve"], received["id"]) == (True, asked)
