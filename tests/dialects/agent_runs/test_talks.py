"""Looking back, images and speech, through real sockets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import sqlite3
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.server.harness import Exchange, FakeBackend, ask, fake_backend

from .helpers import BASE, CHUNK, END, THREAD, Client, events_in, llm, run_input, served, types_in
from .test_errors import PNG, image, problem, sound

DAY = 86400.0


@pytest.fixture
async def backend() -> AsyncIterator[FakeBackend]:
    async with fake_backend() as backend:
        yield backend


async def test_what_was_said_stands_in_the_history_with_the_ids_of_the_stream(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        alice = Client(url)
        assert (await alice.get("/history")).json == {
            "scope": "history_day", "threadId": None, "day": None, "hasMore": False, "messages": [],
        }  # fmt: skip
        stream = events_in(await alice.run("text"))
        shown = (await alice.get("/history")).json
        assert (shown["threadId"], shown["hasMore"]) == (THREAD, False)
        assert shown["day"] == datetime.now(ZoneInfo("UTC")).date().isoformat()
        user, answer = shown["messages"]
        assert (user["id"], user["role"], user["content"], user["seq"]) == ("user-run-1", "user", "text", 1)
        assert answer["id"] == next(e["messageId"] for e in stream if e["type"] == "TEXT_MESSAGE_START")
        assert answer["content"] == "".join(e["delta"] for e in stream if e["type"] == "TEXT_MESSAGE_CONTENT")
        assert (answer["role"], answer["seq"]) == ("assistant", 2)
        assert abs(datetime.fromisoformat(answer["timestamp"]).timestamp() - time.time()) < DAY
        await alice.run("text", "other-1", threadId="other")
        assert (await alice.get("/history")).json["threadId"] == "other", "the most recent one"


async def test_results_of_tools_are_json(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        alice = Client(url)
        stream = events_in(await alice.run("server tool"))
        tool = next(m for m in (await alice.get("/history")).json["messages"] if m["role"] == "tool")
        json.loads(tool["content"])
        assert tool["ui_schema"] is None
        assert tool["id"] == next(e["messageId"] for e in stream if e["type"] == "TOOL_CALL_RESULT")


async def test_only_what_is_new_is_kept_and_the_backend_gets_the_whole_talk(
    tmp_path: Path, backend: FakeBackend
) -> None:
    backend.streams(CHUNK % b"yes" + END)
    async with served(tmp_path, llm(backend)) as url:
        alice = Client(url)
        await alice.run("a", "run-1")
        await alice.run("b", "run-2")  # the increment alone
        everything = [
            {"id": "user-run-1", "role": "user", "content": "a"},
            {"id": "x", "role": "assistant", "content": "yes"},
            {"id": "user-run-2", "role": "user", "content": "b"},
            {"id": "y", "role": "assistant", "content": "yes"},
            {"id": "user-run-3", "role": "user", "content": "c"},
        ]
        await alice.run(run="run-3", messages=everything)
        said = [m["content"] for m in backend.seen[-1].json["messages"]]
        assert said == ["a", "yes", "b", "yes", "c"]
        shown = (await alice.get("/history")).json["messages"]
        assert [(m["seq"], m["content"]) for m in shown] == list(enumerate(["a", "yes", "b", "yes", "c", "yes"], 1))
        assert all("bridge" not in message for message in backend.seen[-1].json["messages"])


async def test_a_failed_answer_is_not_kept_but_what_was_asked_is(tmp_path: Path, backend: FakeBackend) -> None:
    async def breaks(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(CHUNK % b"half")
        await exchange.reset()

    backend.plays(breaks)
    async with served(tmp_path, llm(backend)) as url:
        alice = Client(url)
        assert types_in(await alice.run("a", "run-1"))[-1] == "RUN_ERROR"
        assert [m["content"] for m in (await alice.get("/history")).json["messages"]] == ["a"]
        backend.streams(CHUNK % b"yes" + END)
        await alice.run("a", "run-2")
        shown = (await alice.get("/history")).json["messages"]
        assert [m["content"] for m in shown] == ["a", "a", "yes"], "asked again under another id"


async def test_a_call_of_the_client_is_answered_by_the_next_run(tmp_path: Path, backend: FakeBackend) -> None:
    delta = {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{}"}}]}
    chunk = {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}]}
    backend.streams(b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n")
    tools = [{"name": "look", "description": "", "parameters": {"type": "object", "properties": {}}}]
    async with served(tmp_path, llm(backend)) as url:
        alice = Client(url)
        await alice.run("a", "run-1", tools=tools)
        backend.streams(CHUNK % b"seen" + END)
        result = [{"id": "r", "role": "tool", "toolCallId": "c1", "content": "42"}]
        await alice.run(run="run-2", messages=result, tools=tools)
        roles = [m["role"] for m in backend.seen[-1].json["messages"]]
        assert roles == ["user", "assistant", "tool"]


async def test_a_call_that_nobody_answered_is_told_so(tmp_path: Path, backend: FakeBackend) -> None:
    delta = {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{}"}}]}
    chunk = {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}]}
    backend.streams(b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n")
    tools = [{"name": "look", "description": "", "parameters": {"type": "object", "properties": {}}}]
    async with served(tmp_path, llm(backend)) as url:
        alice = Client(url)
        await alice.run("a", "run-1", tools=tools)
        backend.streams(CHUNK % b"well" + END)
        for run in ("run-2", "run-3"):
            await alice.run("b", run, tools=tools)
        roles = [m["role"] for m in backend.seen[-1].json["messages"]]
        assert roles == ["user", "assistant", "tool", "user", "assistant", "user"]
        shown = (await alice.get("/history")).json["messages"]
        assert [m["role"] for m in shown] == ["user", "user", "assistant", "user", "assistant"]


async def test_an_image_is_uploaded_shown_and_signed_anew(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        alice = Client(url)
        reply = await alice.send("/attachments", image())
        assert reply.status == 200
        stored = reply.json["attachment"]
        assert (stored["bucket"], stored["mimeType"]) == ("attachments", "image/png")
        assert re.fullmatch(r"alice/thread-r1/[0-9a-f-]{36}\.png", stored["path"])
        made = await alice.start(run_input(messages=[asking(stored["url"])]))
        assert made.json["created"] is True, "an upload alone makes no conversation"
        await alice.events()
        for found in (stored["url"], (await shown_files(alice))[0]["url"], await signed(alice, stored)):
            assert f"{BASE}/attachments/content/attachments/{stored['path']}?" in found
            got = await ask("GET", found)
            assert (got.status, got.body, got.headers["content-type"]) == (200, PNG, "image/png")
            assert got.headers["x-content-type-options"] == "nosniff"
            problem(await ask("GET", found[:-1] + ("0" if found[-1] != "0" else "1")), 403, "FORBIDDEN")
            problem(await ask("GET", found.partition("?")[0]), 403, "FORBIDDEN")


async def test_a_run_that_finds_the_queue_full_leaves_no_question(tmp_path: Path, backend: FakeBackend) -> None:
    go_on = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await go_on.wait()
        await exchange.stream(CHUNK % b"ok" + END)

    backend.plays(script)
    limits = {"limits": {"concurrent": 1, "queue": 0}}
    async with served(tmp_path, llm(backend), server=limits) as url:
        alice = Client(url)
        await alice.start(run_input("a"))
        for thread in (THREAD, "another"):
            refused = await alice.start(run_input("b", "run-2", threadId=thread))
            assert refused.status == 429
        shown = (await alice.get("/history")).json["messages"]
        assert [m["content"] for m in shown] == ["a"]
        go_on.set()
        await alice.events()
        again = await alice.start(run_input("b", "run-2", threadId="another"))
        assert (again.status, again.json["created"]) == (202, True)
        await alice.events("run-2", thread="another")


@pytest.mark.parametrize("one", [True, False])
async def test_who_may_not_write_the_end_of_a_run_stores_no_answer(
    tmp_path: Path, backend: FakeBackend, one: bool, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(CHUNK % b"half")
        await go_on.wait()
        await exchange.send(CHUNK % b" whole" + END)
        await exchange.end()

    backend.plays(script)
    async with served(tmp_path, llm(backend), one_run_per_thread=one) as url:
        alice = Client(url)
        await alice.start(run_input("a"))
        async with asyncio.timeout(10):
            while not backend.seen:
                await asyncio.sleep(0.02)
        with contextlib.closing(sqlite3.connect(tmp_path / "bridge.db", isolation_level=None)) as db:
            db.execute("INSERT INTO run_processes (token, expires) VALUES ('another', 1e9)")
            db.execute("UPDATE runs SET holder = 'another'")
        go_on.set()
        async with asyncio.timeout(10):
            while "cannot be written" not in caplog.text:
                await asyncio.sleep(0.02)
        shown = (await alice.get("/history")).json["messages"]
        assert [m["content"] for m in shown] == ["a"]


async def test_uploads_go_with_their_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a thread that nothing was said in, too."""
    for name in ("_PRUNE_FIRST", "_PRUNE_EVERY"):
        monkeypatch.setattr(f"bridge.run.conversation.turns.{name}", 0.05)
    files = tmp_path / "attachments"

    async def uploaded(client: Client, thread: str) -> Path:
        kept = (await client.send("/attachments", image(thread))).json["attachment"]
        path: Path = files / kept["path"]
        os.utime(path, (0, 0))
        return path

    async with served(tmp_path) as url:
        alice = Client(url)
        unsaid, ended, alive = [await uploaded(alice, thread) for thread in ("unsaid", "ended", "alive")]
        for thread in ("ended", "alive"):
            await alice.run(run=f"run-{thread}", threadId=thread)
        with contextlib.closing(sqlite3.connect(tmp_path / "bridge.db", isolation_level=None)) as db:
            db.execute("UPDATE history_conversations SET updated_at = 0 WHERE thread_id = 'ended'")
            async with asyncio.timeout(10):
                while unsaid.exists() or ended.exists():
                    # Again: files whose conversation is there as yet are looked at again much later.
                    db.execute("UPDATE history_files SET updated_at = 0")
                    await asyncio.sleep(0.02)
        assert alive.read_bytes() == PNG


def asking(url: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": "look"}, {"type": "binary", "mimeType": "image/png", "url": url}]
    return {"id": "u", "role": "user", "content": parts}


async def shown_files(client: Client) -> list[dict[str, Any]]:
    first = (await client.get("/history")).json["messages"][0]
    assert first["content"] == "look"
    files: list[dict[str, Any]] = first["attachments"]
    assert [file["mimeType"] for file in files] == ["image/png"]
    return files


async def signed(client: Client, stored: dict[str, Any]) -> str:
    reply = await client.get(f"/attachments/signed-url?bucket={stored['bucket']}&path={stored['path']}")
    assert reply.status == 200
    assert set(reply.json) == {"bucket", "path", "url"}
    url: str = reply.json["url"]
    return url


@pytest.mark.parametrize(
    ("public", "option", "inline"),
    [
        (None, None, True),
        ("http://localhost:1", None, True),
        ("https://bridge.example", None, False),
        ("https://bridge.example", True, True),
        ("http://localhost:1", False, False),
    ],
)
async def test_own_images_reach_backends(
    tmp_path: Path, backend: FakeBackend, public: str | None, option: bool | None, inline: bool
) -> None:
    backend.streams(CHUNK % b"nice" + END)
    server = {"public_url": public} if public else {}
    async with served(tmp_path, llm(backend), server=server, inline_attachments=option) as url:
        alice = Client(url)
        stored = (await alice.send("/attachments", image())).json["attachment"]
        assert stored["url"].startswith(public or url)
        await alice.run(messages=[asking(stored["url"].partition("?")[0])])
        sent = backend.seen[-1].json["messages"][0]["content"][1]["image_url"]["url"]
        if inline:
            assert sent == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
        else:
            assert sent.startswith(f"{public}{BASE}/attachments/content/attachments/{stored['path']}?expires=")


async def test_an_image_of_somebody_else_is_not_read_for_a_backend(tmp_path: Path, backend: FakeBackend) -> None:
    backend.streams(CHUNK % b"nice" + END)
    async with served(tmp_path, llm(backend)) as url:
        bob, alice = Client(url, "bob"), Client(url)
        stored = (await bob.send("/attachments", image("bobs"))).json["attachment"]
        theirs = stored["url"].partition("?")[0]
        await alice.run(messages=[asking(theirs)])
        assert backend.seen[-1].json["messages"][0]["content"][1]["image_url"]["url"] == theirs
        assert "attachments" not in (await alice.get("/history")).json["messages"][0]


async def test_a_recording_becomes_text(tmp_path: Path, backend: FakeBackend) -> None:
    backend.answers(200, b'{"text":"hello"}')
    async with served(tmp_path, speech={"url": backend.url}) as url:
        for kind in ("audio/wav", "audio/x-wav", "audio/wave"):
            reply = await Client(url).send("/transcribe", sound(kind=kind))
            assert (reply.status, reply.json) == (200, {"transcript": "hello"})


async def test_the_answer_to_an_interrupt_is_a_run_of_its_own(tmp_path: Path, backend: FakeBackend) -> None:
    waits = {"type": "interrupt", "interrupts": [{"id": "i1", "reason": "confirmation", "message": "Really?"}]}
    events = [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": waits},
    ]
    backend.streams(b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events))
    async with served(tmp_path, {"dialect": "ag-ui", "url": backend.url}) as url:
        alice = Client(url)
        asked = events_in(await alice.run("a", "run-1", protocolVersion="1.0"))
        assert asked[-1]["outcome"]["interrupts"][0]["id"] == "i1"
        answer = [{"interruptId": "i1", "status": "resolved", "payload": {"ok": True}}]
        backend.streams(
            b'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n'
            b'data: {"type":"RUN_FINISHED","threadId":"t","runId":"r"}\n\n'
        )
        done = await alice.run(run="run-2", messages=[], resume=answer, protocolVersion="1.0")
        assert types_in(done)[-1] == "RUN_FINISHED"
        sent = backend.seen[-1].json
        assert sent["resume"] == answer
        assert [m["content"] for m in sent["messages"]] == ["a"]
