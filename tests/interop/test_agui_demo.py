"""The official AG-UI client against the embedded `demo` backend, whose scenes are chosen by what the person writes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from bridge.run.backends.demo_backend import PICTURE, SCENES
from tests.interop.client import Frontend
from tests.interop.conftest import MakeFrontend
from tests.server.harness import serving

pytestmark = pytest.mark.interop

TOOL = {"name": "look_up", "description": "Looks up", "parameters": {"type": "object", "properties": {}}}
PICTURE_PART = {"type": "image", "source": {"type": "data", "value": PICTURE, "mimeType": "image/png"}}


@pytest.fixture
async def client(frontend: MakeFrontend) -> AsyncIterator[Frontend]:
    config = {
        "backends": {"demo": {"dialect": "demo"}},
        "routes": [{"dialect": "ag-ui", "path": "/ag-ui", "backend": "demo"}],
    }
    async with serving(config) as base:
        yield frontend(f"{base}/ag-ui")


@pytest.mark.parametrize("scene", [s for s in SCENES if s not in ("error", "error late", "limited", "slow")])
async def test_every_scene_is_taken_without_a_complaint(client: Frontend, scene: str) -> None:
    view = await client.say(scene)
    assert view.types[0] == "RUN_STARTED"
    assert view.types[-1] == "RUN_FINISHED"
    assert len(view.messages) > 1


async def test_a_talk_with_a_picture(client: Frontend) -> None:
    assert (await client.say("Hi")).text.startswith("You said: Hi Write help")
    view = await client.say([{"type": "text", "text": "And this?"}, PICTURE_PART])
    assert view.text.startswith("You said: And this?")
    assert [m["role"] for m in view.messages] == ["user", "assistant"] * 2


@pytest.mark.parametrize("scene", ["tool", "tools"])
async def test_client_tools(client: Frontend, scene: str) -> None:
    first = await client.say(scene, tools=[TOOL])
    cities = ["Paris", "Rome"][: 1 if scene == "tool" else 2]
    assert first.calls == [(f"call_demo_{n}", "look_up", {"city": city}) for n, city in enumerate(cities, 1)]
    second = await client.answer({i: f"sunny in {where['city']}" for i, _, where in first.calls}, tools=[TOOL])
    assert second.text == f"The tool said: {'; '.join(f'sunny in {c}' for c in cities)}."


async def test_a_tool_of_the_backend_and_reasoning(client: Frontend) -> None:
    view = await client.say("server tool")
    assert view.results == [("call_demo_1", "sunny, 21 C")]
    assert view.text == "It is sunny in Paris, 21 C."
    view = await client.say("reasoning")
    assert view.reasoning.startswith("The user wants to see me think.")
    assert view.text == "The answer is 42."


async def test_steps_state_and_custom_events(client: Frontend) -> None:
    view = await client.say("steps")
    assert view.state == {"progress": 1}
    assert [e["value"] for e in view.events if e["type"] == "CUSTOM"] == [{"found": 3}]
    assert [e["stepName"] for e in view.events if e["type"].startswith("STEP_")] == ["look", "look"]
    assert (await client.say("Hi")).state == {"progress": 1}


@pytest.mark.parametrize("scene", ["length", "filter"])
async def test_why_an_answer_ended(client: Frontend, scene: str) -> None:
    view = await client.say(scene)
    (end,) = (e for e in view.events if e["type"] == "TEXT_MESSAGE_END")
    assert end["metadata"] == {"finish_reason": {"length": "length", "filter": "content_filter"}[scene]}


@pytest.mark.parametrize(
    ("scene", "text", "code"),
    [
        ("error", "", "UPSTREAM_ERROR"),
        ("error late", "Half an ans", "UPSTREAM_ERROR"),
        ("limited", "", "RATE_LIMITED"),
    ],
)
async def test_failures(client: Frontend, scene: str, text: str, code: str) -> None:
    view = await client.say(scene, quiet=False)
    assert view.rejected is None
    assert view.text == text
    assert "as you asked" in (view.error or "")
    assert view.last["code"] == code
    assert (await client.say("Hi")).text.startswith("You said: Hi")


@pytest.mark.parametrize("decision", ["resolved", "cancelled"])
async def test_an_interrupt_and_its_answer(client: Frontend, decision: str) -> None:
    first = await client.say("interrupt")
    assert [i["id"] for i in first.interrupts] == ["int_demo_1"]
    second = await client.run(resume=[{"interruptId": "int_demo_1", "status": decision}])
    assert second.text == f"You decided: {decision}."
    assert (await client.say("Hi")).text.startswith("You said: Hi")


async def test_a_client_that_aborts_stops_the_agent(client: Frontend, caplog: pytest.LogCaptureFixture) -> None:
    ended = asyncio.Event()
    handler = logging.Handler()
    handler.emit = lambda record: ended.set()  # type: ignore[method-assign]
    log = logging.getLogger("bridge.access")
    log.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "bridge.access"):
            view = await client.say("slow", abort_at="TEXT_MESSAGE_CONTENT", quiet=False)
            async with asyncio.timeout(30):
                await ended.wait()
    finally:
        log.removeHandler(handler)
    assert view.text == "1 "
    (line,) = (record.facts for record in caplog.records if record.name == "bridge.access")
    assert line["status"] == "canceled"
