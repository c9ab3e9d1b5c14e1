"""Backends that are told to stop when nobody wants their answer any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.dialects.agentscope.services import FORMS, check, named, reading, said
from tests.server.harness import Exchange, FakeBackend, ask, post, serving

OPENED = b"".join(
    b'data: {"sequence_number":%d,"object":"response","status":"%b","id":"r","output":null,"session_id":"s"}\n\n'
    % (n, s)
    for n, s in enumerate((b"created", b"in_progress"))
)
SAID = (
    b'data: {"sequence_number":2,"object":"message","status":"in_progress","id":"m","type":"message",'
    b'"role":"assistant","content":null}\n\n'
    b'data: {"sequence_number":3,"object":"content","status":"in_progress","type":"text","index":0,"delta":true,'
    b'"msg_id":"m","text":"half "}\n\n'
)


def stopping(form: str, backend: FakeBackend, stop_path: str | None, **more: Any) -> dict[str, Any]:
    options = {"stop_path": stop_path} if stop_path else {}
    return {
        "backends": {"it": {"dialect": form, "url": backend.url, "api_key": "k", "options": options}},
        "routes": [{"dialect": "agentscope", "path": "/a", "backend": "it", **more}],
    }


Ending = Callable[[Exchange], Awaitable[None]]


def agent(backend: FakeBackend) -> asyncio.Event:
    """An agent whose stream just ends when it is stopped, as the real one's; the event says that it was."""
    stopped = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        if exchange.seen.path == "/stop":
            stopped.set()
            await exchange.answer(200, b'{"status":"ok"}')
            return
        await exchange.head()
        await exchange.send(OPENED + SAID)
        await stopped.wait()
        await exchange.end()

    backend.plays(script)
    return stopped


@pytest.mark.parametrize(("form", "passthrough"), [(FORMS[0], False), (FORMS[1], False), (FORMS[0], True)])
async def test_a_backend_is_told_to_stop(backend: FakeBackend, form: str, passthrough: bool) -> None:
    stopped = agent(backend)
    it = stopping(form, backend, "/stop", passthrough=passthrough)
    async with serving(it) as url, reading(f"{url}/a/process", said()) as client:
        await client.until(b"half ")
        await post(f"{url}/a/stop", named("agentscope"))
        check(await client.whole(), "agentscope", "canceled", "half ")
        await asyncio.wait_for(stopped.wait(), 40)
        stop = backend.seen[-1]
        assert stop.json == named(form), "the pair as it was sent"
        assert {n: stop.headers[n] for n in ("authorization", "content-type")} == {
            "authorization": "Bearer k",
            "content-type": "application/json",
        }


async def test_a_client_that_leaves_stops_the_backend(backend: FakeBackend) -> None:
    stopped = agent(backend)
    async with serving(stopping("agentscope", backend, "/stop")) as url:
        async with reading(f"{url}/a/process", said(session=None, user=None)) as client:
            await client.until(b"half ")
        await asyncio.wait_for(stopped.wait(), 40)
        asked, stop = backend.seen
        assert stop.json == {"input": [], "session_id": asked.json["session_id"]}


async def test_a_backend_that_ended_is_not_stopped(backend: FakeBackend) -> None:
    """Also one that refused: whatever runs in that session is somebody else's."""
    refusals: list[Ending] = [
        lambda e: e.answer(409, b'{"detail":"busy"}'),
        lambda e: e.stream(b'data: {"error": "Task u:s is already in RUNNING state."}\n\n'),
        lambda e: e.stream(OPENED, SAID),
    ]
    async with serving(stopping("agentscope", backend, "/stop")) as url:
        for refusal in refusals:
            backend.plays(refusal)
            reply = await post(f"{url}/a/process", said())
            assert b"failed" in reply.body
        assert [seen.path for seen in backend.seen] == ["/process"] * len(refusals)


async def test_a_run_that_is_put_away_is_not_disturbed(backend: FakeBackend) -> None:
    """Who takes its place waits until the backend has been told: later, it would be the new run that is stopped."""
    order, told = list[str](), asyncio.Event()

    async def script(exchange: Exchange) -> None:
        order.append(exchange.seen.path)
        if exchange.seen.path == "/stop":
            await told.wait()
            order.append("told")
            await exchange.answer(200, b"{}")
        elif len(order) == 1:
            await exchange.head()
            await exchange.send(OPENED + SAID)
            await exchange.left()
        else:
            await exchange.stream(OPENED, b'data: {"object":"response","status":"completed","id":"r","output":[]}\n\n')

    backend.plays(script)
    async with serving(stopping("agentscope", backend, "/stop", options={"supersede": True})) as url:
        async with reading(f"{url}/a/process", said()) as client:
            await client.until(b"half ")
        while len(order) < 2:
            await asyncio.sleep(0)
        later = asyncio.create_task(post(f"{url}/a/process", said("again")))
        for _ in range(10):
            assert (await ask("POST", f"{url}/a/stop?chat_id=s&user_id=u")).json == {"stopped": True}
        told.set()
        check((await later).body, "agentscope", "completed", "")
        assert order == ["/process", "/stop", "told", "/process"]


async def test_without_a_stop_path_hanging_up_is_all(backend: FakeBackend) -> None:
    gone = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(OPENED + SAID)
        await exchange.left()
        gone.set()

    backend.plays(script)
    async with serving(stopping("agentscope", backend, None)) as url:
        async with reading(f"{url}/a/process", said()) as client:
            await client.until(b"half ")
        await asyncio.wait_for(gone.wait(), 40)
        assert len(backend.seen) == 1
