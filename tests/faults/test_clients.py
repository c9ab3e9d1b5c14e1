"""Clients that are slow, rude or gone, under every dialect. What is the same for all of them is in `tests/server`."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Any

import pytest

from bridge.contract import registry
from tests.faults.faults import Said
from tests.faults.measure import back_of, queued, setup
from tests.faults.wire import SPEAKING, asking, connect, exchange, raw, read
from tests.server.harness import Exchange, FakeBackend, ask, fake_backend, serving

ATTENDED = [name for name in SPEAKING if name != "agent-runs"]
"""The runs of `agent-runs` go on without their readers (tests/runs)."""
attended = pytest.mark.parametrize("front", ATTENDED)


def reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def let_go(backend: FakeBackend, back: str) -> None:
    """Returns when the backend knows that nobody waits; raises `TimeoutError` when it takes longer than a second."""
    async with asyncio.timeout(1):
        if back == "agent-runs":
            while not any("/cancel?" in seen.path for seen in backend.seen):
                await asyncio.sleep(0.01)
        else:
            await backend.seen[-1].gone.wait()


@pytest.mark.parametrize("how", ["closes", "resets"])
@pytest.mark.parametrize("moment", ["before the head", "behind the head", "between events"])
@attended
async def test_a_client_that_vanishes_stops_its_backend(front: str, moment: str, how: str) -> None:
    back, reached = back_of(front), asyncio.Event()

    async def script(exchange: Exchange) -> None:
        if back == "agent-runs" and exchange.seen.method == "POST":
            await queued(exchange)
            return
        if moment != "before the head":
            await exchange.head()
        if moment == "between events":
            await exchange.send(Said.of(back).first)
        reached.set()
        await exchange.left()

    async with fake_backend() as backend, serving(setup(front, back, backend.url)) as base:
        backend.plays(script)
        _, writer = await connect(base)
        writer.write(raw(asking(registry.get(front)), "/it"))
        await reached.wait()
        if how == "resets":
            reset(writer)
        writer.close()
        await let_go(backend, back)


@attended
async def test_a_client_that_has_said_all_and_closes_its_half_is_gone(front: str) -> None:
    """Half a connection is what a proxy leaves of a client that hung up: its run ends, as for one that is all gone."""
    reached = asyncio.Event()
    back = back_of(front)

    async def script(exchange: Exchange) -> None:
        if back == "agent-runs" and exchange.seen.method == "POST":
            await queued(exchange)
            return
        reached.set()
        await exchange.left()

    async with fake_backend() as backend, serving(setup(front, back, backend.url)) as base:
        backend.plays(script)
        reader, writer = await connect(base)
        writer.write(raw(asking(registry.get(front)), "/it"))
        await reached.wait()
        writer.write_eof()
        await let_go(backend, back)
        assert b"200 OK" not in await reader.read(12) or registry.get(front).capabilities.eager_start
        writer.close()


@attended
async def test_a_request_that_comes_byte_by_byte_is_whole(front: str) -> None:
    async with fake_backend(back_of(front)) as backend, serving(setup(front, back_of(front), backend.url)) as base:
        backend.says("Hello ")
        reader, writer = await connect(base)
        for byte in raw(asking(registry.get(front)), "/it"):
            writer.write(bytes([byte]))
            await writer.drain()
        assert b"Hello" in await reader.read()
        writer.close()


async def test_an_answer_that_is_read_byte_by_byte_is_whole() -> None:
    async with fake_backend("openai-chat") as backend, serving(setup("agentscope", "openai-chat", backend.url)) as base:
        backend.says("☀" * 3_000)
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", int(base.rpartition(":")[2]))) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_sendall(client, raw(asking(registry.get("agentscope")), "/it"))
            got = bytearray()
            while byte := await loop.sock_recv(client, 1 if len(got) < 2_000 else 4096):
                got += byte
    assert got.count("☀".encode()) >= 3_000  # the pieces of the stream, and then all of it once more
    assert got.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    "sent", [b"", b"POST /it/chat", b"POST /it/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-slow"]
)
async def test_a_head_that_does_not_come_is_not_waited_for(sent: bytes) -> None:
    config = setup("openai-chat", "openai-chat", "http://127.0.0.1:1")
    async with serving({**config, "server": {"body_time": "200ms"}}) as base:
        reader, writer = await connect(base)
        writer.write(sent)
        async with asyncio.timeout(40):
            assert await reader.read() == b""
        writer.close()
        assert (await ask("GET", f"{base}/healthz")).status == 200


async def test_a_connection_that_was_used_may_be_silent() -> None:
    config = setup("openai-chat", "openai-chat", "http://127.0.0.1:1")
    async with serving({**config, "server": {"body_time": "100ms"}}) as base:
        reader, writer = await connect(base)
        live = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
        for _ in range(2):
            writer.write(live)
            assert b"200 OK" in await reader.readuntil(b"}")
            with suppress(TimeoutError):
                async with asyncio.timeout(0.4):
                    await reader.read()
        assert not reader.at_eof()
        writer.close()


BAD: list[Any] = [
    b"", b"{", b"null", b"[]", b"7", b'"x"', b"\xff\xfe", b'{"messages": 7}', b'{"model": [], "messages": {}}',
    b"{" * 5_000, b"[" * 200_000,
    b'{"model":"m","messages":[{"role":"user","content":1e999}]}', b'{"a":1,' * 3_000,
]  # fmt: skip


@pytest.mark.parametrize("front", SPEAKING)
async def test_bodies_that_are_none_are_refused_in_the_dialects_shape(front: str) -> None:
    dialect = registry.get(front)
    async with fake_backend() as backend, serving(setup(front, back_of(front), backend.url)) as base:
        for body in BAD:
            wire = asking(dialect)
            wire.body = body
            saw = await exchange(base, raw(wire, "/it"))
            # Errors of JSON-RPC are answers of HTTP.
            assert saw.status == 200 if front == "a2a" else 400 <= saw.status < 500, (body[:40], saw)
            assert read(dialect, saw).failure is not None
        assert backend.seen == []


@pytest.mark.parametrize("front", SPEAKING)
async def test_every_end_of_a_request_is_one(front: str) -> None:
    """A client that stops in the middle of its request, at every 16th byte: nothing reaches the backend."""
    async with fake_backend() as backend, serving(setup(front, back_of(front), backend.url)) as base:
        request = raw(asking(registry.get(front)), "/it")
        for end in range(0, len(request), 16):
            _, writer = await connect(base)
            writer.write(request[:end])
            await writer.drain()
            writer.close()
        assert (await ask("GET", f"{base}/healthz")).status == 200
        assert backend.seen == []
