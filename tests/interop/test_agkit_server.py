"""The real `cloudbase-agent-server` 0.1.1, with LangGraph's memory, behind every front."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interop.backends import QUESTION, fronts
from tests.interop.client import Driver, Frontend
from tests.interop.talks import NAME, ChatTalk, KitTalk, ScopeTalk, Talk, UITalk
from tests.server.harness import ask, serving

pytestmark = pytest.mark.interop

FRONTS = ["openai-chat", "agentscope", "ag-kit", "ag-ui 0.0.59", "ag-ui 1.0.0"]
WITH_INTERRUPTS = FRONTS[2:]
# The first words of the scripted model's ordinary answer, and the last ones; between them stands what it was sent.
HEARD = "I heard ", " 你好 😀"

Opened = Callable[..., Awaitable[Any]]


@pytest.fixture
async def opened(
    request: pytest.FixtureRequest, agkit: str, tmp_path: Path
) -> AsyncIterator[Callable[..., Awaitable[Talk]]]:
    """Opens a conversation of this front with the real server through the bridge; `path` is one of the server's."""
    async with AsyncExitStack() as stack:

        async def make(front: str, path: str = "") -> Talk:
            config = fronts({"it": {"dialect": "ag-kit", "url": f"{agkit}{path}"}})
            store = {"stores": {"history": f"sqlite:///{tmp_path}/talks.db"}}
            base = await stack.enter_async_context(serving({**config, **store}))
            if front.startswith("ag-ui"):
                driver: Driver = request.getfixturevalue("driver")
                return UITalk(Frontend(driver, front.removeprefix("ag-ui ")[0], f"{base}/ag-ui"))
            simple: dict[str, Callable[[str], Talk]] = {
                "openai-chat": ChatTalk,
                "agentscope": ScopeTalk,
                "ag-kit": KitTalk,
            }
            return simple[front](base)

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
    talk = await opened(front)
    for number, text in enumerate(["I am Ann", "Who am I?", "Sure?"]):
        seen = await talk.say(text)
        assert seen.error is None
        assert by_people(seen.text) == ["I am Ann", "Who am I?", "Sure?"][: number + 1]
        assert len(heard(seen.text)) == 2 * number + 1


@pytest.mark.parametrize("front", FRONTS)
async def test_a_client_tool_round_trip(opened: Opened, front: str) -> None:
    talk = await opened(front)
    first = await talk.say("paint")
    assert first.text == "Sure. "
    assert [(c.id, c.name, json.loads(c.arguments)) for c in first.calls] == [("call_c1", NAME, {"color": "blue"})]
    assert first.results == []
    second = await talk.answer("call_c1", "painted it blue")
    assert (second.text, second.calls, second.error) == ("Tool said: painted it blue", [], None)
    third = await talk.say("Thanks")
    assert heard(third.text) == [
        "human: paint",
        "ai: Sure. ",
        "tool: painted it blue",
        "ai: Tool said: painted it blue",
        "human: Thanks",
    ]


@pytest.mark.parametrize("front", FRONTS)
async def test_a_tool_that_the_server_runs(opened: Opened, front: str) -> None:
    talk = await opened(front)
    seen = await talk.say("weather")
    assert (seen.text, seen.error) == ("Checking. Tool said: Sunny in Paris, 25°C", None)
    if front == "openai-chat":
        # It would run what it is shown.
        assert (seen.calls, seen.finish) == ([], "stop")
    else:
        assert [(c.id, c.name, json.loads(c.arguments)) for c in seen.calls] == [
            ("call_s1", "get_weather", {"city": "Paris"})
        ]
        assert seen.results == [("call_s1", "Sunny in Paris, 25°C")]
    # The server has the call and its result already.
    assert heard((await talk.say("Thanks")).text) == [
        "human: weather",
        "ai: Checking. ",
        "tool: Sunny in Paris, 25°C",
        "ai: Tool said: Sunny in Paris, 25°C",
        "human: Thanks",
    ]


@pytest.mark.parametrize("front", FRONTS)
async def test_a_failure_in_the_run(opened: Opened, front: str) -> None:
    """The server cuts the body; the client is told so, in order, and can go on."""
    talk = await opened(front)
    seen = await talk.say("crash")
    assert seen.error
    assert seen.text == "partial "
    assert by_people((await talk.say("And now?")).text) == ["crash", "And now?"]


@pytest.mark.parametrize("front", FRONTS)
async def test_an_agent_that_cannot_be_made(opened: Opened, front: str) -> None:
    """The server tells it with status 200."""
    seen = await (await opened(front, "/broken")).say("Hi")
    assert seen.error is not None
    assert "cannot build agent" in seen.error
    assert seen.text == ""


@pytest.mark.parametrize("front", FRONTS)
async def test_a_client_that_leaves_stops_the_run(opened: Opened, agkit: str, front: str) -> None:
    talk = await opened(front)
    words = await talk.leave("wait")
    assert words == ("" if front == "agentscope" else "partial ")
    async with asyncio.timeout(10):
        assert (await ask("GET", f"{agkit}/left")).status == 200


@pytest.mark.parametrize("front", WITH_INTERRUPTS)
async def test_an_interrupt(opened: Opened, front: str) -> None:
    talk = await opened(front)
    seen = await talk.say("approve")
    assert (seen.text, seen.error) == ("", None)
    (asked,) = talk.interrupts
    assert asked["id"]
    assert asked["reason"] == "agent requested interrupt"
    payload = asked["payload"] if front == "ag-kit" else asked["metadata"]["dialect-bridge"]["payload"]
    assert payload == QUESTION


@pytest.mark.parametrize("front", WITH_INTERRUPTS)
@pytest.mark.parametrize("payload", ["yes", {"approved": True}], ids=["text", "object"])
async def test_an_interrupt_and_its_answer(opened: Opened, front: str, payload: Any) -> None:
    """The server takes text only, so other JSON comes as JSON text."""
    talk = await opened(front)
    await talk.say("approve")
    seen = await talk.resume(talk.interrupts[0]["id"], payload)
    assert seen.error is None
    received = payload if isinstance(payload, str) else json.dumps(payload, separators=(",", ":"))
    assert by_people(seen.text) == ["approve", f"resumed {json.dumps(received)}"]
    assert by_people((await talk.say("And now?")).text) == ["approve", f"resumed {json.dumps(received)}", "And now?"]
