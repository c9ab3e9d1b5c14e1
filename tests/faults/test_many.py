"""Many at once: a thousand clients, two thousand streams that are left, a load of everything for a moment."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from bridge.contract import registry
from bridge.testing.pairs import frames_of
from tests.faults import shapes
from tests.faults.apart import Figures, resident
from tests.faults.measure import setup
from tests.faults.shapes import PARTS, SHAPES
from tests.faults.soak import Result, World, soak
from tests.faults.wire import ask, asking, connect, raw, read
from tests.server.harness import Exchange, bound_socket, fake_backend, serving
from tests.watched import LONGEST

pytestmark = pytest.mark.slow


async def test_a_thousand_clients_at_once() -> None:
    front = registry.get("agentscope")
    async with fake_backend("openai-chat") as backend, serving(setup("agentscope", "openai-chat", backend.url)) as base:
        backend.says("Hello ")

        async def one(number: int) -> str:
            return read(front, await ask(base, front, "/it", thread=f"t{number}")).verdict

        async with asyncio.timeout(100):
            assert set(await asyncio.gather(*(one(n) for n in range(1_000)))) == {"whole"}
        assert len(backend.seen) == 1_000


async def test_two_thousand_streams_that_are_left_leave_nothing() -> None:
    """The fixture of this folder counts tasks and descriptors; here the backends' side and the bridge's are counted."""
    front, left, most = registry.get("anthropic-messages"), 0, 250

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(b'data: {"choices":[{"index":0,"delta":{"content":"Hello "}}]}\n\n')
        await exchange.left()

    async with fake_backend() as backend, serving(setup(front.name, "openai-chat", backend.url)) as base:
        backend.plays(script)
        tasks = len(asyncio.all_tasks())

        async def one() -> None:
            reader, writer = await connect(base)
            writer.write(raw(asking(front), "/it"))
            await reader.readuntil(b"Hello")
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

        for _ in range(2_000 // most):
            await asyncio.gather(*(one() for _ in range(most)))
            left += most
        async with asyncio.timeout(60):
            for seen in backend.seen:
                await seen.gone.wait()
            while len(asyncio.all_tasks()) > tasks:
                await asyncio.sleep(0.02)
        assert (len(backend.seen), left) == (2_000, 2_000)


@pytest.mark.parametrize("front", ["openai-chat", "agentscope"])
async def test_a_reader_that_never_reads_costs_little_memory(front: str) -> None:
    """200 MB are on offer; the buffers between are what is taken."""
    offered = 0

    async def script(exchange: Exchange) -> None:
        nonlocal offered
        await exchange.head()
        event = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 50_000 + b'"}}]}\n\n'
        with suppress(ConnectionError):
            for _ in range(4_000):
                await exchange.send(event)
                offered += len(event)

    async with fake_backend() as backend:
        backend.plays(script)
        async with serving({**setup(front, "openai-chat", backend.url), "server": {"slow_reader": "1s"}}) as base:
            before = resident()
            reader, writer = await connect(base)
            writer.write(raw(asking(registry.get(front)), "/it"))
            reader._limit = 1  # type: ignore[attr-defined]  # the test's own reader stops reading, too
            async with asyncio.timeout(40):
                while not backend.seen:
                    await asyncio.sleep(0.01)
                await backend.seen[0].gone.wait()
            grown = resident() - before
            writer.close()
    assert 0 < offered < 100_000_000
    assert grown < 64 * 2**20


def test_a_load_of_everything() -> None:
    result = soak(4)
    assert result.problems == []
    assert (result.lost, result.bridge.tasks <= 0, result.bridge.files <= 0) == (0, True, True)
    # The rarest shapes may not have had their turn in so short a time.
    assert {"whole", "fault", "bad bytes", "hang-up", "slow reader"} < result.done.keys()
    assert result.memory(1.0) - result.memory(0.0) < 128 * 2**20
    assert result.bridge.held < LONGEST, result.bridge.holder
    assert len(result.bridge.lags) > 10
    assert not result.failed()


@pytest.mark.parametrize("name", SHAPES)
async def test_answers_of_unusual_loads(name: str, tmp_path: Path) -> None:
    play, _, _ = SHAPES[name]
    async with AsyncExitStack() as stack:
        world = World()
        await world.open(stack, str(tmp_path))
        seen = await asyncio.gather(*(play(world.base, number, random.Random(number)) for number in range(6)))
    assert seen == [""] * 6


async def test_a_wrong_answer_to_an_unusual_load_is_noticed() -> None:
    """A server that has a body for everything, and the same one, and closes the connection behind it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\nHTTP/1.1 200 OK" * 2)
            await writer.drain()
        writer.close()

    listening = bound_socket()
    seen = []
    async with await asyncio.start_server(answer, sock=listening):
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        for name in ("heads", "large request", "passed through", "pipelined", "slow reader of much"):
            play, _, _ = SHAPES[name]
            seen += [name] * bool(await play(base, 1, random.Random(3)))
        with pytest.raises(AssertionError):
            await SHAPES["fragments"][0](base, 1, random.Random(3))
    assert seen == ["heads", "large request", "passed through", "pipelined", "slow reader of much"]


@pytest.mark.parametrize("kept", [PARTS, PARTS - 1], ids=["right", "wrong"])
async def test_a_part_that_is_missing_is_noticed(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers in the dialect of each path, perhaps without the last part."""
    monkeypatch.setattr(shapes, "SPEAKING", ["openai-chat", "openai-responses", "anthropic-messages"])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length[15:]))
        front = registry.get(head.split(b"/")[1].decode())
        body = b"".join(frames_of(front, *(f"part {n} " for n in range(kept))))
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    listening, play = bound_socket(), SHAPES["many parts"][0]
    async with await asyncio.start_server(answer, sock=listening):
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        seen = [await play(base, number, random.Random(number)) for number in range(20)]
    assert [bool(problem) for problem in seen] == [kept < PARTS] * 20, seen


async def test_an_answer_that_nobody_reads_and_nobody_cuts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "LIMIT", 1)
    held = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        await held.wait()
        writer.transport.abort()

    listening = bound_socket()
    async with await asyncio.start_server(answer, sock=listening):
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        problem = await SHAPES["nobody reads"][0](base, 1, random.Random(3))
        held.set()
    assert problem.endswith("answer that nobody reads was not cut")


def test_a_soak_fails_where_a_callback_holds_the_loop() -> None:
    assert Result(bridge=Figures(held=LONGEST * 1.01)).failed()
    assert not Result(bridge=Figures(held=LONGEST * 0.99)).failed()
