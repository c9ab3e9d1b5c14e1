"""Starting, reading, resuming and cancelling runs, through real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.server.harness import Exchange, FakeBackend, fake_backend, serving
from tests.stores.conftest import postgres  # noqa: F401
from tests.stores.run_engines import RunEngine, run_engine  # noqa: F401

from .helpers import (
    BASE,
    CHUNK,
    END,
    OFFICIAL,
    THREAD,
    Client,
    blocks,
    config,
    events_in,
    frames,
    llm,
    run_input,
    served,
    text_in,
    types_in,
)


@pytest.fixture
async def backend() -> AsyncIterator[FakeBackend]:
    async with fake_backend() as backend:
        yield backend


Script = Callable[[Exchange], Awaitable[None]]


def in_two_steps(go_on: asyncio.Event) -> Script:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(CHUNK % b"one ")
        await go_on.wait()
        await exchange.send(CHUNK % b"two")
        await exchange.send(END)
        await exchange.end()

    return script


async def hangs(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.send(CHUNK % b"half ")
    await exchange.left()


def in_turn(*scripts: Script) -> Script:
    """Each request has the next of these."""
    left = list(scripts)

    async def script(exchange: Exchange) -> None:
        await left.pop(0)(exchange)

    return script


async def read_until(client: Client, enough: bytes, run: str = "run-1") -> bytes:
    """Reads a run's events until they hold `enough`, and leaves."""
    got = b""
    url = f"{client.base}/runs/thread-r1/events?runId={run}"
    async with aiohttp.ClientSession() as session, session.get(url, headers=client.headers) as response:
        assert response.status == 200
        while enough not in got:
            piece = await response.content.readany()
            assert piece, got
            got += piece
    return got


async def test_a_run_is_queued_once_and_read_as_often_as_one_likes(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        alice = Client(url)
        first = await alice.start(run_input("everything"))
        assert (first.status, first.headers["content-type"].partition(";")[0]) == (202, "application/json")
        task = first.json["taskId"]
        assert task
        assert first.json == {"taskId": task, "threadId": "thread-r1", "runId": "run-1", "created": True}
        again = await alice.start(run_input("everything"))
        assert (again.status, again.json) == (202, {**first.json, "created": False})
        stream = await alice.events()
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream"
        assert stream.headers["cache-control"] == "no-cache, no-store"
        assert stream.headers["x-accel-buffering"] == "no"
        assert b"\r" not in stream.body
        assert blocks((await alice.events()).body) == blocks(stream.body)
        events = events_in(stream.body)
        assert all((event["threadId"], event["runId"]) == ("thread-r1", "run-1") for event in events)
        assert types_in(stream.body).count("RUN_FINISHED") == 1
        assert (events[0]["type"], events[-1]["type"]) == ("RUN_STARTED", "RUN_FINISHED")
        for event in events:
            part = {name: value for name, value in event.items() if name not in ("threadId", "runId")}
            if event["type"] in ("RUN_STARTED", "RUN_FINISHED"):
                part = event
            OFFICIAL.validate_python(part)


async def test_a_reader_who_was_cut_anywhere_gets_the_same_bytes(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        alice = Client(url)
        whole = blocks(await alice.run("reasoning"))
        ids = [frame.id or "" for frame in frames(b"".join(whole))]
        numbers = [tuple(map(int, name.split("-"))) for name in ids]
        assert numbers == sorted(set(numbers))
        for place, name in enumerate(ids[:-1], 1):
            rest = await alice.events(last=name)
            assert rest.status == 200
            assert blocks(rest.body) == whole[place:]
        assert blocks((await alice.events(last="0-0")).body) == whole
        over = await alice.events(last=ids[-1])
        assert (over.status, over.body) == (204, b"")
        begins = next(place for place, (entry, _) in enumerate(numbers) if entry == numbers[-1][0])
        assert blocks((await alice.events(last="18446744073709551615-0")).body) == whole[begins:], "the last entry"


async def test_a_live_reader_who_comes_back_misses_nothing(tmp_path: Path, backend: FakeBackend) -> None:
    go_on = asyncio.Event()
    backend.plays(in_two_steps(go_on))
    async with served(tmp_path, llm(backend)) as url:
        alice = Client(url)
        assert (await alice.start(run_input())).status == 202
        seen = blocks(await read_until(alice, b"one "))
        waiting = asyncio.create_task(alice.events(last=frames(b"".join(seen))[-1].id or ""))
        go_on.set()
        rest = blocks((await waiting).body)
        assert [*seen, *rest] == blocks((await alice.events()).body)
        assert text_in(b"".join(rest)) == "two"
        assert len(backend.seen) == 1


async def test_names_of_events_by_option(tmp_path: Path) -> None:
    async with served(tmp_path, sse_event_name=True) as url:
        for frame in frames(await Client(url).run("reasoning")):
            assert frame.event
            assert f'{{"type":"{frame.event}"'.encode() in frame.data


async def test_runs_of_one_thread_side_by_side_are_kept_apart(tmp_path: Path, backend: FakeBackend) -> None:
    first, second = asyncio.Event(), asyncio.Event()
    backend.plays(in_turn(in_two_steps(first), in_two_steps(second)))
    async with served(tmp_path, llm(backend)) as url:
        alice = Client(url)
        await alice.start(run_input(run="run-1"))
        await read_until(alice, b"one ", "run-1")
        made = await alice.start(run_input(run="run-2"))
        assert made.json["created"] is False
        await read_until(alice, b"one ", "run-2")
        second.set()
        over = await alice.events("run-2")
        assert {event["runId"] for event in events_in(over.body)} == {"run-2"}
        assert types_in(over.body)[-1] == "RUN_FINISHED"
        first.set()
        late = await alice.events("run-1")
        assert {event["runId"] for event in events_in(late.body)} == {"run-1"}
        assert text_in(late.body) == "one two"


async def test_runs_wait_for_each_other_by_option(tmp_path: Path, backend: FakeBackend) -> None:
    first = asyncio.Event()
    backend.plays(in_turn(in_two_steps(first), in_two_steps(first)))
    async with served(tmp_path, llm(backend), one_run_per_thread=True) as url:
        alice = Client(url)
        await alice.start(run_input("a", "run-1"))
        await read_until(alice, b"one ", "run-1")
        await alice.start(run_input("b", "run-2"))
        idle = await alice.events("run-2", query="&idle_limit=3")
        assert events_in(idle.body) == []
        first.set()
        assert text_in((await alice.events("run-2")).body) == "one two"
        said = [message["content"] for message in backend.seen[1].json["messages"]]
        assert said == ["a", "one two", "b"]


async def test_the_idle_limit_closes_without_an_end(tmp_path: Path, backend: FakeBackend) -> None:
    backend.plays(hangs)
    async with served(tmp_path, llm(backend)) as url:
        alice = Client(url)
        await alice.start(run_input())
        await read_until(alice, b"half")
        idle = await alice.events(query="&idle_limit=3")
        assert idle.status == 200
        assert idle.body.count(b": keep-alive\n\n") == 1, "at the first empty poll, then each 15 s"
        assert types_in(idle.body)[-1] == "TEXT_MESSAGE_CONTENT"
        unknown = await alice.events("run-9", query="&idle_limit=2")
        assert (unknown.status, unknown.body) == (200, b": keep-alive\n\n")


async def test_a_reader_may_come_before_the_run(tmp_path: Path) -> None:
    async with served(tmp_path) as url:
        alice = Client(url)
        await alice.run("text", "run-1")
        early = asyncio.create_task(alice.events("run-2"))
        await alice.run("text", "run-2")
        assert types_in((await early).body)[-1] == "RUN_FINISHED"


async def test_a_running_run_is_cancelled(tmp_path: Path, backend: FakeBackend) -> None:
    backend.plays(hangs)
    async with served(tmp_path, llm(backend)) as url:
        alice = Client(url)
        await alice.start(run_input())
        await read_until(alice, b"half")
        reply = await alice.cancel()
        assert (reply.status, reply.json) == (
            202,
            {"threadId": "thread-r1", "runId": "run-1", "accepted": True},
        )
        body = (await alice.events()).body
        assert types_in(body)[-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
        assert events_in(body)[-1]["code"] == "RUN_CANCELLED"
        assert (await alice.cancel()).status == 202, "repeating it is harmless"
        again = (await alice.events()).body
        assert again.replace(b": keep-alive\n\n", b"") == body.replace(b": keep-alive\n\n", b"")


async def test_clients_of_1_0_are_told_of_a_cancel_by_an_outcome(tmp_path: Path, backend: FakeBackend) -> None:
    backend.plays(hangs)
    async with served(tmp_path, llm(backend)) as url:
        alice = Client(url)
        await alice.start(run_input(protocolVersion="1.0"))
        await read_until(alice, b"half")
        await alice.cancel()
        end = events_in((await alice.events()).body)[-1]
        assert (end["type"], end["outcome"]) == ("RUN_FINISHED", {"type": "cancelled"})
        seen = await alice.get("/history")
        assert [m["content"] for m in seen.json["messages"]] == ["text", "half "]


async def test_a_cancel_may_overtake_its_run(tmp_path: Path, backend: FakeBackend) -> None:
    async with served(tmp_path, llm(backend)) as url:
        alice = Client(url)
        backend.streams(CHUNK % b"x" + END)
        await alice.run("text", "run-1")
        assert (await alice.cancel("run-2")).status == 202
        await alice.start(run_input("text", "run-2"))
        body = (await alice.events("run-2")).body
        assert types_in(body) == ["RUN_STARTED", "RUN_ERROR"]
        assert len(backend.seen) == 1


async def test_a_backend_that_fails_is_one_terminal_event(tmp_path: Path, backend: FakeBackend) -> None:
    backend.answers(429, b'{"error":{"message":"slow down"}}')
    async with served(tmp_path, llm(backend)) as url:
        events = events_in(await Client(url).run())
        assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_ERROR"]
        assert events[-1]["code"] == "UPSTREAM_HTTP_429"


async def test_a_run_goes_on_without_any_reader(tmp_path: Path, backend: FakeBackend) -> None:
    go_on = asyncio.Event()
    backend.plays(in_two_steps(go_on))
    async with served(tmp_path, llm(backend)) as url:
        alice = Client(url)
        await alice.start(run_input())
        await read_until(alice, b"one ")
        go_on.set()
        body = (await alice.events()).body
        assert text_in(body) == "one two"


async def test_two_processes_on_one_store(tmp_path: Path, backend: FakeBackend, run_engine: RunEngine) -> None:  # noqa: F811
    go_on = asyncio.Event()
    backend.plays(in_turn(in_two_steps(go_on), hangs))
    it = config(tmp_path, llm(backend))
    it["stores"]["runs"] = run_engine.url
    async with serving({**it}) as one, serving({**it}) as two:
        here, there = Client(one), Client(two)
        await here.start(run_input())
        seen = blocks(await read_until(here, b"one "))
        reading = asyncio.create_task(there.events(last=frames(b"".join(seen))[-1].id or ""))
        again = await there.start(run_input())
        assert again.json["created"] is False
        go_on.set()
        assert [*seen, *blocks((await reading).body)] == blocks((await here.events()).body)
        assert len(backend.seen) == 1
        await here.start(run_input(run="run-2"))
        await read_until(there, b"half", "run-2")
        assert (await there.cancel("run-2")).status == 202
        assert events_in((await here.events("run-2")).body)[-1]["code"] == "RUN_CANCELLED"
        shown = await there.get("/history")
        assert [m["role"] for m in shown.json["messages"]] == ["user", "assistant", "user", "assistant"]


async def test_what_was_said_is_there_after_a_restart(tmp_path: Path, backend: FakeBackend) -> None:
    backend.streams(CHUNK % b"one" + END)
    async with served(tmp_path, llm(backend)) as url:
        before = blocks(await Client(url).run("a", "run-1"))
    async with served(tmp_path, llm(backend)) as url:
        alice = Client(url)
        assert blocks((await alice.events()).body) == before
        backend.streams(CHUNK % b"two" + END)
        await alice.run("b", "run-2")
        assert [m["content"] for m in backend.seen[-1].json["messages"]] == ["a", "one", "b"]


async def test_a_server_that_stops_ends_its_runs(tmp_path: Path, backend: FakeBackend) -> None:
    backend.plays(hangs)
    async with served(tmp_path, llm(backend), server={"drain": "0s"}) as url:
        alice = Client(url)
        await alice.start(run_input())
        await read_until(alice, b"half")
    async with served(tmp_path, llm(backend)) as url:
        end = events_in((await Client(url).events()).body)[-1]
        assert (end["type"], end["code"]) == ("RUN_ERROR", "RUN_LOST")


async def test_the_mode_chooses_the_backend(tmp_path: Path) -> None:
    async with fake_backend() as chat, fake_backend() as work:
        chat.streams(CHUNK % b"chat" + END)
        work.streams(CHUNK % b"work" + END)
        backends = {"a": llm(chat), "b": llm(work)}
        async with served(tmp_path, backends=backends, modes={"chat": "a", "automation": "b"}) as url:
            alice = Client(url)
            assert text_in(await alice.run("x", "run-1")) == "chat"
            props = {"forwardedProps": {"runtime_mode": "automation"}}
            assert text_in(await alice.run("y", "run-2", **props)) == "work"


async def test_a_mode_that_is_not_written_has_the_first_backend(tmp_path: Path) -> None:
    backends = {"a": {"dialect": "demo"}}
    async with served(tmp_path, backends=backends, modes={"chat": "a"}) as url:
        body = await Client(url).run("text", forwardedProps={"runtime_mode": "automation"})
        assert types_in(body)[-1] == "RUN_FINISHED"


async def test_an_event_source_may_bring_its_key_in_the_query(tmp_path: Path) -> None:
    for allowed, status in ((False, 401), (True, 200)):
        async with served(tmp_path, access_token=allowed) as url:
            alice = Client(url)
            await alice.run("text", f"run-{status}")
            alice.headers = {}
            reply = await alice.events(f"run-{status}", query="&access_token=alice-token")
            assert reply.status == status
            assert (await alice.get("/history?access_token=alice-token")).status == 401


async def test_a_reader_who_does_not_read_is_cut_off(backend: FakeBackend, tmp_path: Path) -> None:
    """He must not find a proper end behind the half that he has, and his place is free again."""
    backend.streams(*[CHUNK % (b"x" * 2**20)] * 24, END)
    # Long enough for the reader who reads, on a machine with other things to do.
    more: dict[str, Any] = {"server": {"slow_reader": "2s"}, "connection_limit": 1}
    async with served(tmp_path, llm(backend), **more) as url:
        client = Client(url)
        whole = blocks(await client.run())
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as stuck:
            path = f"{BASE}/runs/{THREAD}/events?runId=run-1"
            stuck.sendall(
                f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer alice-token\r\n\r\n".encode()
            )
            stuck.settimeout(40)
            assert await asyncio.to_thread(stuck.recv, 1), "the answer has begun"
            async with asyncio.timeout(40):
                while (again := await client.events()).status == 429:
                    await asyncio.sleep(0.02)
            assert blocks(again.body) == whole
            got = await asyncio.to_thread(lambda: b"".join(iter(lambda: stuck.recv(2**20), b"")))
        assert len(got) < len(again.body)
        assert not got.endswith(b"0\r\n\r\n")
