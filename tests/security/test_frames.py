"""WebSocket messages while they arrive: within the budget of bodies, within their time, and masked."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bridge.server.operations.websocket_frames import ReceivedFrames
from tests.server.harness import serving

MASK = b"\1\2\3\4"
TEXT, MORE, PING = 1, 0, 9
CREATE = b'{"type":"response.create","model":"m","store":false,"input":"hi"}'


def frame(opcode: int, payload: bytes, *, final: bool = True, masked: bool = True) -> bytes:
    size, bit = len(payload), 0x80 if masked else 0
    if size < 126:
        length = bytes([bit | size])
    elif size < 2**16:
        length = bytes([bit | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([bit | 127]) + size.to_bytes(8, "big")
    data = bytes(byte ^ MASK[at % 4] for at, byte in enumerate(payload)) if masked and size < 2**16 else payload
    return bytes([opcode | (0x80 if final else 0)]) + length + (MASK if masked else b"") + data


class Client:
    """A WebSocket whose frames are written by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def end(self) -> bytes:
        """What still comes, until the connection is closed."""
        data = b""
        async with asyncio.timeout(30):
            with contextlib.suppress(ConnectionError):
                data = await self.reader.read(-1)
        return data


@contextlib.asynccontextmanager
async def connected(base: str) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    key = base64.b64encode(b"0" * 16).decode()
    lines = ["GET /v1/responses HTTP/1.1", "host: localhost", "upgrade: websocket", "connection: upgrade"]
    writer.write("\r\n".join([*lines, "sec-websocket-version: 13", f"sec-websocket-key: {key}", "", ""]).encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


def config(**server: Any) -> dict[str, Any]:
    route = {"dialect": "openai-responses", "path": "/v1", "backend": "it", "options": {"websocket": True}}
    return {"server": server, "backends": {"it": {"dialect": "demo"}}, "routes": [route]}


def closing(code: int) -> bytes:
    return code.to_bytes(2, "big")


async def test_unfinished_messages_share_the_budget_of_bodies(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.access")
    async with serving(config(limits={"bodies": "1MiB"})) as base, connected(base) as first, connected(base) as second:
        first.send(frame(TEXT, b"x" * 800_000, final=False))
        await asyncio.sleep(0.3)
        second.send(frame(TEXT, b"x" * 800_000, final=False))
        assert await second.end() == b""
        first.writer.transport.abort()
        async with connected(base) as third:
            async with asyncio.timeout(30):
                while True:  # until what the first one held is given back
                    third.send(frame(TEXT, b"x" * 800_000, final=False) + frame(MORE, b""))
                    if b"invalid" in await third.reader.read(2**16):
                        break
                    await asyncio.sleep(0.05)
    assert "reading too many request bodies" in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        frame(TEXT, b"half", final=False),
        frame(TEXT, b"x" * 1000)[:500],
        frame(TEXT, b"", final=False) + frame(MORE, b"", final=False) * 20,
        frame(TEXT, b"half", final=False) + frame(PING, b"still here"),
    ],
    ids=["fragment", "half a frame", "empty fragments", "pings"],
)
async def test_a_message_that_does_not_arrive_in_time_closes_the_connection(sent: bytes) -> None:
    async with serving(config(body_time="500ms")) as base, connected(base) as client:
        client.send(sent)
        data = await client.end()
    assert closing(1008) in data
    assert b"did not arrive within 0.5 s" in data


async def test_each_message_has_a_time_of_its_own() -> None:
    """Fragments of one, and a pause longer than the time, then the next one."""
    async with serving(config(body_time="400ms")) as base, connected(base) as client:
        for _ in range(2):
            client.send(frame(TEXT, CREATE[:10], final=False))
            client.send(frame(MORE, CREATE[10:]))
            async with asyncio.timeout(20):
                await client.reader.readuntil(b"response.completed")
            await asyncio.sleep(0.6)
        assert not client.reader.at_eof()


@pytest.mark.parametrize(
    "sent", [frame(TEXT, CREATE, masked=False), frame(PING, b"", masked=False)], ids=["text", "ping"]
)
async def test_frames_without_a_mask_close_the_connection(sent: bytes) -> None:
    async with serving(config()) as base, connected(base) as client:
        client.send(sent)
        data = await client.end()
    assert closing(1002) in data
    assert b"response.completed" not in data


class Taken:
    """A parser that keeps its bytes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        self.ended = True


def messages(seed: int) -> tuple[bytes, int, int, bool]:
    """The bytes of some messages, their number, the bytes of the last one, and whether that is unfinished."""
    rnd, out, size, is_open = random.Random(seed), b"", 0, False
    count = rnd.randrange(1, 5)
    for number in range(count):
        size, is_open = 0, number == count - 1 and rnd.random() < 0.7
        parts = [b"x" * rnd.choice([0, 1, 125, 126, 300, 70_000]) for _ in range(rnd.randrange(1, 5))]
        for at, part in enumerate(parts):
            out += frame(TEXT if not at else MORE, part, final=at == len(parts) - 1 and not is_open)
            out += frame(PING, b"ping") if rnd.random() < 0.5 else b""
            size += len(part)
    return out, count, size if is_open else 0, is_open


@pytest.mark.parametrize("seed", range(40))
def test_frames_are_counted_however_they_are_cut(seed: int) -> None:
    data, count, size, is_open = messages(seed)
    rnd, taken, at = random.Random(seed), Taken(), 0
    frames = ReceivedFrames(taken)
    while at < len(data):
        step = rnd.choice([1, 2, 7, 1000, 100_000])
        frames.feed_data(data[at : at + step])
        at += step
    assert (frames.count, frames.size, frames.is_open, frames.are_masked) == (count, size, is_open, True)
    assert bytes(taken.data) == data
    frames.feed_eof()
    assert taken.ended


def test_nothing_passes_after_a_stop() -> None:
    taken = Taken()
    frames = ReceivedFrames(taken)
    frames.feed_data(frame(TEXT, b"one"))
    frames.stop()
    frames.feed_data(frame(TEXT, b"two"))
    frames.feed_eof()
    assert bytes(taken.data) == frame(TEXT, b"one")
