"""The history of kept runs through the whole API, on every engine that keeps it: days, places, what a backend says
more, and how long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp
import pytest

from bridge.model import Message, Reasoning, Text, ToolCall, ToolResult
from bridge.run.conversation import turns
from bridge.run.conversation.queued_turns import MessageInfo
from bridge.server.operations.history import visible
from bridge.stores import Conversation
from tests.server.harness import FakeBackend, fake_backend, serving
from tests.stores.conftest import Engine

from .helpers import BASE, CHUNK, END, THREAD, Client, config, events_in, llm, run_input, types_in
from .test_errors import problem

SEEN = ["ui.history", "model.context"]


@pytest.fixture
async def backend() -> AsyncIterator[FakeBackend]:
    async with fake_backend() as backend:
        yield backend


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


async def keep(engine: Engine, *messages: tuple[str, str, float, list[str]]) -> None:
    """Puts messages into alice's history: role, text, time, places."""
    history = engine.history()
    conversation = await history.load("alice", BASE, THREAD) or Conversation(THREAD)
    new = [
        Message(role, [Text(text)], f"m-{text}", metadata={"bridge": {"run": "r", "at": when, "places": places}})
        for role, text, when, places in messages
    ]
    await history.commit("alice", BASE, conversation, new)


def on(engine: Engine, folder: Path, backend: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    stores = {"history": engine.url, **more.pop("stores", {})}
    return config(folder, backend, stores=stores, **more)


def told(reply: Any) -> tuple[Any, ...]:
    shown = reply.json
    return shown["day"], shown["hasMore"], [m["content"] for m in shown["messages"]]


async def test_days(engine: Engine, tmp_path: Path) -> None:
    await keep(
        engine,
        ("user", "first", at("2026-01-01T10:00"), SEEN),
        ("assistant", "late", at("2026-01-02T23:30"), SEEN),
        ("user", "hidden", at("2026-01-04T10:00"), ["model.context"]),
        ("user", "last", at("2026-01-05T10:00"), SEEN),
    )
    async with serving(on(engine, tmp_path)) as url:
        alice = Client(url)
        await alice.run("now")
        where = f"/history?threadId={THREAD}&before="
        assert told(await alice.get(f"{where}2026-02-01")) == ("2026-01-05", True, ["last"])
        assert told(await alice.get(f"{where}2026-01-05")) == ("2026-01-02", True, ["late"])
        assert told(await alice.get(f"{where}2026-01-02")) == ("2026-01-01", False, ["first"])
        none = await alice.get(f"{where}2026-01-01")
        assert (none.json["threadId"], *told(none)) == (THREAD, None, False, [])
    async with serving(on(engine, tmp_path, server={"time_zone": "Asia/Shanghai"})) as url:
        shown = await Client(url).get(f"/history?threadId={THREAD}&before=2026-01-05")
        assert told(shown) == ("2026-01-03", True, ["late"])
        assert shown.json["messages"][0]["timestamp"] == "2026-01-03T07:30:00+08:00"


@pytest.mark.parametrize(
    ("zone", "days"),
    [
        # Clocks go forward on 29 March and back on 25 October: the first day has 23 hours, the other 25.
        ("Europe/Berlin", [("2026-10-25", ["e", "f"]), ("2026-03-30", ["d"]), ("2026-03-29", ["b", "c"])]),
        ("UTC", [("2026-10-25", ["f"]), ("2026-10-24", ["e"]), ("2026-03-29", ["c", "d"]), ("2026-03-28", ["b"])]),
        ("America/Los_Angeles", [("2026-10-25", ["f"]), ("2026-10-24", ["e"]), ("2026-03-29", ["c", "d"])]),
    ],
)
async def test_days_are_those_of_the_time_zone(
    engine: Engine,
    tmp_path: Path,
    zone: str,
    days: list[tuple[str, list[str]]],
) -> None:
    """Also where clocks change: each message is on one day, and the day before is asked for by the day."""
    berlin = "Europe/Berlin"
    await keep(
        engine,
        ("user", "b", at("2026-03-29T00:30", berlin), SEEN),
        ("user", "c", at("2026-03-29T23:30", berlin), SEEN),
        ("user", "d", at("2026-03-30T00:30", berlin), SEEN),
        ("user", "e", at("2026-10-25T00:30", berlin), SEEN),
        ("user", "f", at("2026-10-25T23:30", berlin), SEEN),
    )
    async with serving(on(engine, tmp_path, server={"time_zone": zone})) as url:
        alice = Client(url)
        await alice.run("now")
        before, found = "2026-11-01", []
        for _ in days:
            shown = (await alice.get(f"/history?threadId={THREAD}&before={before}")).json
            before = shown["day"]
            found.append((before, [m["content"] for m in shown["messages"]]))
        assert found == days


def test_what_can_be_seen() -> None:
    def seen(role: str, *parts: Any, places: tuple[str, ...] = ("ui.history",)) -> bool:
        return visible(Message(role, list(parts), metadata={"bridge": {"run": "", "at": 0, "places": list(places)}}))

    call = ToolCall("c", "f", "{}")
    assert seen("user", Text("x"))
    assert seen("tool", ToolResult("c", [Text("x")]))
    assert not seen("user", Text("x"), places=("model.context",))
    assert not seen("system", Text("x"))
    assert not seen("assistant", Reasoning("x"), call)
    assert seen("assistant", Text("x"), call)
    assert not visible(Message("user", [Text("x")]))
    assert MessageInfo.of(Message("user", [])).views == ()


async def test_a_backend_may_say_more_of_its_messages(engine: Engine, tmp_path: Path, backend: FakeBackend) -> None:
    more = {"messageId": "m1", "suggested_actions": ["a", "b"], "ui_schema": {"kind": "card"}}
    events = [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "hi"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m1"},
        {"type": "CUSTOM", "name": "message.metadata", "value": more},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]
    backend.streams(b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events))
    async with serving(on(engine, tmp_path, {"dialect": "ag-ui", "url": backend.url})) as url:
        alice = Client(url)
        await alice.run("a", "run-1")
        again = events_in(await alice.run("b", "run-2"))
        first, second = (m for m in (await alice.get("/history")).json["messages"] if m["role"] == "assistant")
        assert (first["suggestedActions"], first["ui_schema"]) == (["a", "b"], {"kind": "card"})
        assert first["id"] == "m1"
        # The agent gave the same id twice; clients and history agree on another one.
        assert second["id"] == next(e["messageId"] for e in again if e["type"] == "TEXT_MESSAGE_START") == "m1-run-2"


async def test_who_sees_what_was_said(engine: Engine, tmp_path: Path) -> None:
    """System messages and reasoning are kept for the model alone; each user sees his own."""
    async with serving(on(engine, tmp_path)) as url:
        alice, bob = Client(url), Client(url, "bob")
        system = {"id": "s", "role": "system", "content": "You are kind."}
        asked = {"id": "u", "role": "user", "content": "reasoning"}
        await alice.run(messages=[system, asked])
        await alice.run("server tool", "run-2")
        shown = (await alice.get("/history")).json["messages"]
        assert [m["role"] for m in shown if m["role"] in ("system", "reasoning")] == []
        assert shown[0] == {**shown[0], "role": "user", "content": "reasoning", "seq": 2}
        (tool,) = (m for m in shown if m["role"] == "tool")
        assert tool["ui_schema"] is None
        json.loads(tool["content"])
        assert [m["seq"] for m in shown] == sorted({m["seq"] for m in shown})
        history = engine.history()
        kept = await history.load("alice", BASE, THREAD)
        assert kept is not None
        hidden = [m for m in kept.messages if "ui.history" not in MessageInfo.of(m).views]
        assert [m.role for m in hidden] == ["system"]
        assert any(isinstance(part, Reasoning) for m in kept.messages for part in m.parts)
        await bob.run("text", "run-b", threadId="bobs")
        assert (await bob.get("/history")).json["threadId"] == "bobs"
        assert (await alice.get("/history")).json["threadId"] == THREAD
        problem(await bob.get(f"/history?threadId={THREAD}"), 403, "FORBIDDEN")


async def test_what_is_older_than_its_time_is_forgotten(
    engine: Engine,
    tmp_path: Path,
    backend: FakeBackend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Events and messages each have their time; the talk outlives its events, and other talks outlive it."""
    monkeypatch.setattr(turns, "_PRUNE_FIRST", 0.05)
    monkeypatch.setattr(turns, "_PRUNE_EVERY", 0.05)
    backend.streams(CHUNK % b"yes" + END)
    async with serving(on(engine, tmp_path, llm(backend), stores={"retention": {"history": "1h"}})) as url:
        alice = Client(url)
        await alice.run("new", "run-2", threadId="new")
        await alice.run()
    async with serving(on(engine, tmp_path, stores={"retention": {"events": 0, "history": "1h"}})) as url:
        alice = Client(url)
        async with asyncio.timeout(30):
            while True:
                # A stream whose entries go while it is read is cut, not ended.
                with suppress(aiohttp.ClientPayloadError):
                    if (await alice.events()).status == 410:
                        break
                await asyncio.sleep(0.02)
        problem(await alice.events(), 410, "AGENT_EVENTS_EXPIRED")
        assert (await alice.start(run_input())).json["created"] is False, "its name is known: nothing runs twice"
        assert told(await alice.get("/history"))[2] == ["text", "yes"]
        await engine.backdate(THREAD, 3700)
        async with asyncio.timeout(30):
            while told(await alice.get(f"/history?threadId={THREAD}"))[2]:
                await asyncio.sleep(0.02)
        assert told(await alice.get("/history?threadId=new"))[2] == ["new", "yes"]
        assert types_in(await alice.run("text", "run-3"))[-1] == "RUN_FINISHED"
        assert len(told(await alice.get(f"/history?threadId={THREAD}"))[2]) == 2
