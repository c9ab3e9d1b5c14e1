"""Small requests that load something large are refused while the budget of `limits.bodies` is spent, whatever they
load, and in the words of their dialect."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bridge.engine.bridge import Bridge
from bridge.server import running
from tests.pairs.keeping import KEEPING, request, route, run_input
from tests.server.harness import FakeBackend, Reply, ask, fake_backend, free_port, post

LARGE = "x" * 400_000
BUDGET = 8 * 2**20
SAID = b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}'  # noqa: E501


@dataclass
class Server:
    base: str
    bridge: Bridge

    @property
    def taken(self) -> int:
        return self.bridge.memory_budget.taken


@contextlib.asynccontextmanager
async def serving(tmp_path: Path, backend: FakeBackend, *routes: dict[str, Any]) -> AsyncIterator[Server]:
    backend.answers(200, SAID)
    bridge = Bridge.from_config(
        {
            "server": {"port": free_port(), "drain": "1s", "limits": {"bodies": BUDGET}, "secret": "secret"},
            "backends": {"it": {"dialect": "openai-chat", "url": backend.url, "model": "m"}},
            "routes": [{"backend": "it", **route} for route in routes],
            "stores": {
                "history": f"sqlite:///{tmp_path}/history.db",
                "runs": f"sqlite:///{tmp_path}/runs.db",
                "attachments": f"file:///{tmp_path}/files",
            },
        }
    )
    async with running(bridge) as port:
        yield Server(f"http://127.0.0.1:{port}", bridge)


@pytest.fixture
async def backend() -> AsyncIterator[FakeBackend]:
    async with fake_backend() as made:
        yield made


def refused(reply: Reply) -> bool:
    """Return whether an answer says, in whatever shape, that the server is overloaded."""
    return b"limits.bodies" in reply.body


@pytest.mark.parametrize("dialect", [each for each in KEEPING if each != "agent-runs"])
async def test_a_turn_of_a_conversation(backend: FakeBackend, dialect: str, tmp_path: Path) -> None:
    async with serving(tmp_path, backend, route(dialect)) as server:

        async def turn(text: str, number: int) -> Reply:
            path, body, headers = request(dialect, text, number)
            return await post(f"{server.base}/r{path}", body, **headers)

        assert not refused(await turn(LARGE, 1))
        assert server.taken == 0
        calls = len(backend.seen)
        server.bridge.memory_budget.give_back(-BUDGET)  # another request takes all of it
        reply = await turn("small", 2)
        assert refused(reply), reply.body
        assert len(backend.seen) == calls
        server.bridge.memory_budget.give_back(BUDGET)
        assert not refused(await turn("small", 3))
        assert LARGE in backend.seen[-1].body.decode(), "the conversation goes on"
        assert server.taken == 0


async def test_what_counts_is_held_until_the_request_ends(backend: FakeBackend, tmp_path: Path) -> None:
    go_on, arrived = asyncio.Event(), asyncio.Event()

    async def script(exchange: Any) -> None:
        if b"slow" in exchange.seen.body:
            arrived.set()
            await go_on.wait()
        await exchange.answer(200, SAID)

    async with serving(tmp_path, backend, {"dialect": "ag-kit", "path": "/r"}) as server:
        backend.plays(script)
        path, body, _ = request("ag-kit", LARGE, 1)
        await post(f"{server.base}/r{path}", body)
        slow = asyncio.create_task(post(f"{server.base}/r{path}", request("ag-kit", "slow", 2)[1]))
        await arrived.wait()
        assert server.taken > len(LARGE)
        go_on.set()
        assert (await slow).status == 200
        assert server.taken == 0


Call = Callable[[str, str], Awaitable[Reply]]


async def _continue(base: str, name: str) -> Reply:
    return await post(f"{base}/r/responses", {"model": "m", "input": "small", "previous_response_id": name})


async def _retrieve(base: str, name: str) -> Reply:
    return await ask("GET", f"{base}/r/responses/{name}")


async def _items(base: str, name: str) -> Reply:
    return await ask("GET", f"{base}/r/responses/{name}/input_items")


async def _count(base: str, name: str) -> Reply:
    return await post(f"{base}/r/responses/input_tokens", {"model": "m", "input": "x", "previous_response_id": name})


@pytest.mark.parametrize("call", [_continue, _items, _count])
async def test_a_stored_response(backend: FakeBackend, call: Call, tmp_path: Path) -> None:
    async with serving(tmp_path, backend, {"dialect": "openai-responses", "path": "/r"}) as server:
        first = await post(f"{server.base}/r/responses", {"model": "m", "input": LARGE, "store": True})
        name = first.json["id"]
        server.bridge.memory_budget.give_back(-BUDGET)
        reply = await call(server.base, name)
        assert (reply.status, reply.headers.get("retry-after")) == (503, "1")
        assert refused(reply)
        server.bridge.memory_budget.give_back(BUDGET)
        assert (await call(server.base, name)).status == 200
        assert server.taken == 0


async def test_a_stored_response_is_read_without_its_conversation(backend: FakeBackend, tmp_path: Path) -> None:
    async with serving(tmp_path, backend, {"dialect": "openai-responses", "path": "/r"}) as server:
        first = await post(f"{server.base}/r/responses", {"model": "m", "input": LARGE, "store": True})
        server.bridge.memory_budget.give_back(-BUDGET)
        assert (await _retrieve(server.base, first.json["id"])).json == first.json


async def test_the_plan_of_a_run_that_is_read_again(backend: FakeBackend, tmp_path: Path) -> None:
    async with serving(tmp_path, backend, {"dialect": "agent-runs", "path": "/r"}) as server:
        body = {**run_input(LARGE, 1), "forwardedProps": {"runtime_mode": "chat"}}
        made = await post(f"{server.base}/r/runs", body)
        assert made.status < 300
        events = f"{server.base}/r/runs/t/events?runId={made.json['runId']}"
        assert b"RUN_FINISHED" in (await ask("GET", events)).body
        server.bridge.memory_budget.give_back(-BUDGET)
        reply = await ask("GET", events)
        assert (reply.status, reply.headers.get("retry-after")) == (503, "1")
        assert refused(reply)
        server.bridge.memory_budget.give_back(BUDGET)
        assert b"RUN_FINISHED" in (await ask("GET", events)).body
        assert server.taken == 0


async def test_no_run_is_taken_from_the_queue_while_the_budget_is_spent(backend: FakeBackend, tmp_path: Path) -> None:
    async with serving(tmp_path, backend, {"dialect": "ag-ui", "path": "/r", "durable": True}) as server:
        server.bridge.memory_budget.give_back(-BUDGET)
        waiting = asyncio.create_task(post(f"{server.base}/r", run_input("small", 1)))
        done, _ = await asyncio.wait({waiting}, timeout=1.5)
        assert not done
        assert not backend.seen
        server.bridge.memory_budget.give_back(BUDGET)
        assert (await waiting).status == 200
        assert len(backend.seen) == 1


async def test_a_run_waits_for_what_it_loads(backend: FakeBackend, tmp_path: Path) -> None:
    """It was accepted: that others hold the memory for a while is no failure of it."""
    routes = {"dialect": "agentscope", "path": "/r", "durable": True}
    async with serving(tmp_path, backend, routes) as server:
        path, body, _ = request("agentscope", LARGE, 1)
        await post(f"{server.base}/r{path}", body)
        held = BUDGET - 100_000
        server.bridge.memory_budget.give_back(-held)  # room for a run, not for its conversation
        waiting = asyncio.create_task(post(f"{server.base}/r{path}", request("agentscope", "small", 2)[1]))
        done, _ = await asyncio.wait({waiting}, timeout=1.0)
        assert (done, len(backend.seen)) == (set(), 1)
        server.bridge.memory_budget.give_back(held)
        assert not refused(await waiting)
        assert LARGE in backend.seen[-1].body.decode()
        assert server.taken == 0


async def test_pictures_by_reference(backend: FakeBackend, tmp_path: Path) -> None:
    """A stored file that a message names by its URL."""
    async with serving(tmp_path, backend, {"dialect": "agent-runs", "path": "/r"}) as server:
        files = server.bridge.attachments

        async def pieces() -> AsyncIterator[bytes]:
            yield b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(400_000)

        from bridge.model import Media, MediaKind, Message, Request, Text, Url

        kept = await files.put("", "t", pieces())
        url = await files.sign(kept, f"{server.base}/r", 60)
        message = Message("user", [Text("see"), Media(MediaKind.IMAGE, Url(url))])

        async def run() -> None:
            made = await server.bridge.run(server.bridge.route("/r"), Request([message]))
            await made.close()

        with server.bridge.counting():
            await run()
            assert server.taken > 400_000
        with server.bridge.counting():
            server.bridge.memory_budget.give_back(-BUDGET)
            with pytest.raises(Exception, match=r"limits\.bodies"):
                await run()
            server.bridge.memory_budget.give_back(BUDGET)
        assert server.taken == 0
