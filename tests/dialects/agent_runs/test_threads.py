"""Threads with many runs: whose they are, in which order they are told, what is hidden, and what is logged of them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bridge import Bridge
from bridge.cli.logs import JsonFormatter, TextFormatter
from bridge.server.operations.openapi import describe
from tests.server.harness import Exchange, FakeBackend, fake_backend, serving

from .helpers import BASE, CHUNK, END, THREAD, Client, config, events_in, llm, run_input, served, types_in
from .test_errors import problem


@pytest.fixture
async def backend() -> AsyncIterator[FakeBackend]:
    async with fake_backend() as backend:
        yield backend


def agui(backend: FakeBackend) -> dict[str, Any]:
    return {"dialect": "ag-ui", "url": backend.url}


def stream(*events: dict[str, Any], **end: Any) -> bytes:
    ids = {"threadId": "t", "runId": "r"}
    whole = [{"type": "RUN_STARTED", **ids}, *events, {"type": "RUN_FINISHED", **ids, **end}]
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in whole)


def text(message: str, words: str) -> list[dict[str, Any]]:
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": words},
        {"type": "TEXT_MESSAGE_END", "messageId": message},
    ]


WAITS = {"type": "interrupt", "interrupts": [{"id": "i1", "reason": "confirmation", "message": "Really?"}]}


async def test_a_backend_is_not_told_what_was_asked_later(tmp_path: Path, backend: FakeBackend) -> None:
    """With one place at the backend all three wait in the queue when the second one begins."""
    go_on = asyncio.Event()

    async def slowly(exchange: Exchange) -> None:
        await exchange.head()
        await go_on.wait()
        await exchange.send(CHUNK % b"done" + END)
        await exchange.end()

    backend.plays(slowly)
    sections = config(tmp_path, llm(backend))
    sections["routes"][0]["limits"] = {"concurrent": 1, "queue": 10}
    async with serving(sections) as url:
        alice = Client(url)
        for n, words in enumerate(["first", "second", "third"], 1):
            assert (await alice.start(run_input(words, f"run-{n}"))).status == 202
        go_on.set()
        for n in (1, 2, 3):
            assert types_in((await alice.events(f"run-{n}")).body)[-1] == "RUN_FINISHED"
    sent = [[m["content"] for m in seen.json["messages"]] for seen in backend.seen]
    assert sent == [
        ["first"],
        ["first", "done", "second"],
        ["first", "done", "second", "done", "third"],
    ]


async def test_a_thread_keeps_its_owner_when_the_run_store_is_lost(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        assert (await Client(url).start(run_input())).json["created"] is True
        await Client(url).events()
    new = {"runs": f"sqlite:///{tmp_path}/new.db"}
    async with served(tmp_path, stores=new) as url:
        alice, bob = Client(url), Client(url, "bob")
        shown = await alice.get(f"/history?threadId={THREAD}")
        assert shown.status == 200
        assert shown.json["messages"][0]["content"] == "text"
        problem(await bob.start(run_input("mine now", "run-b")), 403, "FORBIDDEN")
        problem(await bob.get(f"/history?threadId={THREAD}"), 403, "FORBIDDEN")
        problem(await bob.events(), 403, "FORBIDDEN")
        assert (await alice.start(run_input("again", "run-2"))).json["created"] is False
        assert (await bob.start(run_input("hi", "run-b", threadId="other"))).json["created"] is True


async def test_history_reaches_the_first_message_and_says_what_is_gone(tmp_path: Path, backend: FakeBackend) -> None:
    backend.streams(CHUNK % b"yes" + END)
    many = [{"id": f"m{n}", "role": "user" if n % 2 == 0 else "assistant", "content": f"{n}"} for n in range(1501)]
    async with served(tmp_path, llm(backend)) as url:
        await Client(url).run(messages=many)
        shown = (await Client(url).get("/history")).json
        assert [m["content"] for m in shown["messages"]] == [*map(str, range(1501)), "yes"]
        assert "removedMessages" not in shown
    async with served(tmp_path, llm(backend), stores={"max_messages": 4}) as url:
        for n in range(3):
            await Client(url).run(f"q{n}", f"run-{n}", threadId="short")
        shown = (await Client(url).get("/history?threadId=short")).json
        assert [m["content"] for m in shown["messages"]] == ["q1", "yes", "q2", "yes"]
        assert (shown["hasMore"], shown["removedMessages"]) == (False, 2)
        assert [m["seq"] for m in shown["messages"]] == [3, 4, 5, 6]


CARDS = [{"kind": "card"}, {"kind": "text"}]


@pytest.mark.parametrize(
    ("output", "schema"),
    [
        ({"rows": 3, "ui_hints": {"kind": "table"}}, {"kind": "table"}),
        ({"ui_hints": CARDS}, {"type": "list", "items": CARDS}),
        ({"ui_hints": "table"}, None),
        ({"rows": 3}, None),
    ],
)
async def test_hints_of_a_tool_result_are_its_ui_schema(
    tmp_path: Path, backend: FakeBackend, output: Any, schema: Any
) -> None:
    result = {"type": "TOOL_CALL_RESULT", "messageId": "t1", "toolCallId": "c1", "content": json.dumps(output)}
    call = [
        {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "f", "parentMessageId": "m1"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "{}"},
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
    ]
    backend.streams(stream(*call, result))
    async with served(tmp_path, agui(backend)) as url:
        await Client(url).run()
        (tool,) = [m for m in (await Client(url).get("/history")).json["messages"] if m["role"] == "tool"]
        assert tool["ui_schema"] == schema
        assert json.loads(tool["content"]) == output


async def test_messages_may_be_hidden_from_people_or_from_the_model(tmp_path: Path, backend: FakeBackend) -> None:
    note = {"type": "CUSTOM", "name": "message.metadata", "value": {"messageId": "m1", "visibility": ["model.context"]}}
    backend.streams(stream(*text("m1", "a thought"), note, *text("m2", "an answer")))
    async with served(tmp_path, agui(backend)) as url:
        alice = Client(url)
        hidden = {"id": "u0", "role": "user", "content": "memory", "metadata": {"visibility": ["model.context"]}}
        aside = {"id": "u1", "role": "user", "content": "aside", "metadata": {"visibility": ["ui.history"]}}
        asked = {"id": "u2", "role": "user", "content": "question"}
        await alice.run(messages=[hidden, aside, asked])
        shown = (await alice.get("/history")).json["messages"]
        assert [m["content"] for m in shown] == ["aside", "question", "an answer"]
        assert [m["content"] for m in backend.seen[-1].json["messages"]] == ["memory", "question"]
        backend.streams(stream(*text("m3", "more")))
        await alice.run("next", "run-2")
        sent = [m["content"] for m in backend.seen[-1].json["messages"]]
        assert sent == ["memory", "question", "a thought", "an answer", "next"]
        assert b"visibility" not in backend.seen[-1].body


async def test_a_run_whose_message_is_hidden_from_the_model_gets_no_later_runs(
    tmp_path: Path, backend: FakeBackend
) -> None:
    go_on = asyncio.Event()

    async def slowly(exchange: Exchange) -> None:
        await exchange.head()
        await go_on.wait()
        await exchange.send(CHUNK % b"done" + END)
        await exchange.end()

    backend.plays(slowly)
    sections = config(tmp_path, llm(backend))
    sections["routes"][0]["limits"] = {"concurrent": 1, "queue": 10}
    async with serving(sections) as url:
        alice = Client(url)
        await alice.start(run_input("first", "run-1"))
        aside = {"id": "aside", "role": "user", "content": "aside", "metadata": {"visibility": ["ui.history"]}}
        await alice.start(run_input(run="run-2", messages=[aside]))
        await alice.start(run_input("third", "run-3"))
        go_on.set()
        for n in (1, 2, 3):
            assert types_in((await alice.events(f"run-{n}")).body)[-1] == "RUN_FINISHED"
    assert [m["content"] for m in backend.seen[1].json["messages"]] == ["first", "done"]


async def test_a_client_cannot_show_what_is_hidden_by_its_role(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        system = {"id": "s", "role": "system", "content": "secret", "metadata": {"visibility": ["ui.history"]}}
        await Client(url).run(messages=[system, {"id": "u", "role": "user", "content": "text"}])
        shown = (await Client(url).get("/history")).json["messages"]
        assert "secret" not in [m["content"] for m in shown]


@pytest.mark.parametrize("mode", ["repeat", "answer", "cancel"])
async def test_a_message_while_an_interrupt_waits(tmp_path: Path, backend: FakeBackend, mode: str) -> None:
    backend.streams(stream(outcome=WAITS))
    async with served(tmp_path, agui(backend), interrupt_message=mode) as url:
        alice = Client(url)
        await alice.run("a", "run-1", protocolVersion="1.0")
        backend.streams(stream(*text("m1", "went on")))
        done = events_in(await alice.run("yes", "run-2", protocolVersion="1.0"))
        said = "".join(e.get("delta", "") for e in done)
        sent = backend.seen[-1].json
        if mode == "repeat":
            assert len(backend.seen) == 1
            assert done[-1]["outcome"]["interrupts"][0]["id"] == "i1"
            return
        assert said == "went on"
        if mode == "answer":
            assert sent["resume"] == [{"interruptId": "i1", "status": "resolved", "payload": "yes"}]
        else:
            assert [(r["interruptId"], r["status"]) for r in sent["resume"]] == [("i1", "cancelled")]
            assert [m["content"] for m in sent["messages"]][-1] == "yes"
        backend.streams(stream(*text("m2", "later")))
        await alice.run("more", "run-3", protocolVersion="1.0")
        assert not backend.seen[-1].json.get("resume"), "it waits no more"


async def test_lines_of_a_run_name_run_thread_and_user(
    tmp_path: Path, backend: FakeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody reads the run: its failure is logged all the same, with what the backend said."""
    lines: list[tuple[str, dict[str, Any]]] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append((TextFormatter().format(record), json.loads(JsonFormatter().format(record))))

    logger, handler = logging.getLogger("bridge"), Lines()
    logger.addHandler(handler)
    caplog.set_level(logging.INFO, "bridge")
    try:
        backend.answers(500, b'{"error": {"message": "no power"}}')
        async with served(tmp_path, llm(backend)) as url:
            assert (await Client(url).start(run_input())).status == 202
            async with asyncio.timeout(20):
                while not any("run failed: " in line for line, _ in lines):
                    await asyncio.sleep(0.02)
            await Client(url).cancel()
    finally:
        logger.removeHandler(handler)
    ours = [(line, entry) for line, entry in lines if "run-1" in line]
    start = "run failed: backend_error: no power. POST "
    (failed,) = [entry for _, entry in ours if entry["message"].startswith(start)]
    assert f"POST {backend.url}/chat/completions answered 500: " in failed["message"]
    assert {entry["message"] for _, entry in ours} >= {"run", failed["message"]}
    for line, entry in ours:
        assert (entry["run"], entry["thread"], entry["user"]) == ("run-1", THREAD, "alice"), line
    assert (failed["status"], failed["level"], failed["back"]) == ("backend_error", "warning", "it")
    started = next(entry for _, entry in ours if entry["message"] == "run")
    assert failed["run_id"] == started["run_id"]


def test_openapi_describes_parameters_bodies_and_statuses(tmp_path: Path) -> None:
    paths = describe(Bridge.from_config(config(tmp_path)), "1")["paths"]

    def parameters(path: str, method: str) -> dict[str, tuple[str, bool]]:
        return {p["name"]: (p["in"], p["required"]) for p in paths[BASE + path][method].get("parameters", [])}

    assert parameters("/runs/{thread_id}/events", "get") == {
        "thread_id": ("path", True), "Last-Event-ID": ("header", False),
        "runId": ("query", True), "idle_limit": ("query", False),
    }  # fmt: skip
    assert parameters("/history", "get") == {"threadId": ("query", False), "before": ("query", False)}
    assert parameters("/attachments/signed-url", "get") == {"bucket": ("query", True), "path": ("query", True)}
    cancel = paths[BASE + "/runs/{thread_id}/cancel"]["post"]
    assert "requestBody" not in cancel
    assert parameters("/runs/{thread_id}/cancel", "post")["runId"] == ("query", True)
    assert {"202", "401", "403", "422"} <= cancel["responses"].keys()
    events = paths[BASE + "/runs/{thread_id}/events"]["get"]["responses"]
    assert {"200", "204", "401", "403", "404", "410", "422", "429", "503"} <= events.keys()
    assert {"202", "401", "403", "409", "413", "422", "429", "503"} <= paths[BASE + "/runs"]["post"]["responses"].keys()
    form = paths[BASE + "/attachments"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["required"] == ["threadId", "file"]
    form = paths[BASE + "/transcribe"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["required"] == ["audio"]
