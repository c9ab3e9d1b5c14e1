"""Whoever leaves, whatever is behind: in all pairs the backend learns within a second that nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from bridge import Request
from bridge.contract import WireRequest, registry
from bridge.testing import free_port
from tests.dialects.aip.peers import client, quest
from tests.faults.agents import Node, Turn
from tests.faults.callers import FRONT as AIP
from tests.faults.faults import Said
from tests.faults.measure import queued, soon
from tests.faults.wire import SPEAKING, asking, connect, exchange, raw
from tests.server.harness import Exchange, FakeBackend, fake_backend, serving

PYTHON = "python"
BACKS = [*SPEAKING, AIP, PYTHON]
FRONTS = [*SPEAKING, AIP]
QUEUED = "agent-runs"
STEPPED = "a2a"
MOMENTS = ["before the head", "between events"]


class Behind:
    """A backend that never comes to its end. `asked` is set when it has the request, `gone` when it was left."""

    def __init__(self, speaks: bool) -> None:
        self.speaks = speaks
        self.asked = asyncio.Event()
        self.gone = asyncio.Event()
        self.section: dict[str, Any] = {}

    def over_http(self, name: str, backend: FakeBackend) -> None:
        self.section = {"dialect": name, "url": backend.url}
        if name == STEPPED:
            self.section["options"] = {"card": "none"}

        async def script(exchange: Exchange) -> None:
            if name == QUEUED and exchange.seen.method == "POST":
                if "/cancel?" in exchange.seen.path:
                    self.gone.set()
                await queued(exchange)
                return
            if name == STEPPED and b"CancelTask" in exchange.seen.body:
                await exchange.answer(200, b'{"jsonrpc":"2.0","id":1,"result":{}}')
                return
            if self.speaks:
                await exchange.head()
                await exchange.send(Said.of(name, exchange.seen.path.partition("runId=")[2] or None).first)
            self.asked.set()
            await exchange.left()
            if name != QUEUED:
                self.gone.set()

        backend.plays(script)

    async def as_agent(self, turn: Turn) -> None:
        if self.speaks:
            await turn.say("Hello ")
        self.asked.set()
        try:
            await turn.gone.wait()
        finally:
            # A call that is canceled was left, too; which of both it has to be: `tests/dialects/aip/test_backend.py`.
            self.gone.set()

    async def as_python(self, request: Request) -> AsyncIterator[str]:
        try:
            if self.speaks:
                yield "Hello "
            self.asked.set()
            await asyncio.Event().wait()
        finally:
            self.gone.set()


LOCAL: list[Behind] = []


async def local(request: Request) -> AsyncIterator[str]:
    """What the configuration names as the agent in this process."""
    async for word in LOCAL[-1].as_python(request):
        yield word


@asynccontextmanager
async def world(front: str, moment: str) -> AsyncIterator[tuple[str, dict[str, Behind]]]:
    """A bridge with this front over one backend of each dialect; gives where it is, and the backends."""
    behind = {back: Behind(moment != "before the head") for back in BACKS}
    async with AsyncExitStack() as stack:
        for name in SPEAKING:
            behind[name].over_http(name, await stack.enter_async_context(fake_backend()))
        address = await stack.enter_async_context(Node(behind[AIP].as_agent, asyncio.Event()).served())
        options = {"agent": "chat", "direct": True, "cancel_grace": "5s"}
        behind[AIP].section = {"dialect": AIP, "url": address, "options": options}
        behind[PYTHON].section = {"dialect": PYTHON, "target": "tests.faults.test_leaving:local"}
        LOCAL.append(behind[PYTHON])
        listen = f"127.0.0.1:{free_port()}"
        places = {
            back: {"listen": listen, "agent_id": back, "options": {"stream": "delta"}}
            if front == AIP
            else {"path": f"/{back}"}
            for back in BACKS
        }
        config = {
            "backends": {back: behind[back].section for back in BACKS},
            "routes": [{"dialect": front, "backend": back, **places[back]} for back in BACKS],
            "stores": {"history": "sqlite:///:memory:", "attachments": "file:////tmp/never-used"},
        }
        base = await stack.enter_async_context(serving(config))
        yield listen if front == AIP else base, behind


Leave = Callable[[str, str, str, Behind], Awaitable[None]]
"""Front, where, back: asks, and leaves when the backend is where it should be."""


async def hangs_up(front: str, base: str, back: str, behind: Behind) -> None:
    reader, writer = await connect(base)
    writer.write(raw(asking(registry.get(front)), f"/{back}"))
    await behind.asked.wait()
    if behind.speaks:
        await reader.readuntil(b"Hello")
    writer.close()


async def cancels(front: str, base: str, back: str, behind: Behind) -> None:
    """Queued runs go on without readers; their clients say that they do not want them any more."""
    assert (await exchange(base, raw(asking(registry.get(front)), f"/{back}"))).status == 202
    await behind.asked.wait()
    if behind.speaks:
        reader, writer = await connect(base)
        writer.write(raw(WireRequest("GET", "/runs/t1/events?runId=r1"), f"/{back}"))
        await reader.readuntil(b"Hello")
        writer.close()
    told = await exchange(base, raw(WireRequest("POST", "/runs/t1/cancel?runId=r1"), f"/{back}"))
    assert told.status == 202


async def ends_call(front: str, address: str, back: str, behind: Behind) -> None:
    async with client(address) as caller:
        call = caller.open()
        await call.write(quest("START_QUEST", "hi", session=f"s-{back}", receiver=back))
        await behind.asked.wait()
        if behind.speaks:
            assert (await call.read()).content[0].text == "Hello "
        call.cancel()


LEAVES: dict[str, Leave] = {AIP: ends_call, QUEUED: cancels}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("front", FRONTS)
async def test_a_backend_of_any_dialect_is_left(front: str, moment: str) -> None:
    async with world(front, moment) as (where, behind):
        for back, each in behind.items():
            async with asyncio.timeout(40):
                await LEAVES.get(front, hangs_up)(front, where, back, each)
            try:
                await soon(each.gone.is_set)
            except TimeoutError:
                raise AssertionError(f"{front} over {back}: the backend was not left") from None
