"""The place of a waiting reader in aiohttp's own stream: what is taken, what is left, and who is woken."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp.streams import StreamReader

from bridge.transports.inlet import Inlet


class Connection:
    """What a stream reader asks of its connection."""

    def __init__(self) -> None:
        self.paused = False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self, resume_parser: bool = True) -> None:
        self.paused = False


class Wire:
    def __init__(self) -> None:
        self.connection = Connection()
        self.content = StreamReader(cast(Any, self.connection), 64, loop=asyncio.get_running_loop())
        self.taken: list[bytes] = []
        self.most = 100
        self.inlet = Inlet(cast(aiohttp.ClientResponse, SimpleNamespace(content=self.content)), self.take)

    def take(self, data: bytes) -> bool:
        self.taken.append(data)
        return len(self.taken) < self.most

    def chunk(self, data: bytes) -> None:
        """An HTTP chunk, as the parser tells it."""
        self.content.begin_http_chunk_receiving()
        self.content.feed_data(data)
        self.content.end_http_chunk_receiving()


@pytest.fixture
async def wire() -> Wire:
    return Wire()


async def waiting(wire: Wire) -> asyncio.Task[None]:
    assert wire.inlet.open()
    task = asyncio.create_task(wire.inlet.closed())
    await asyncio.sleep(0)
    return task


async def test_what_one_read_brings_comes_as_one(wire: Wire) -> None:
    task = await waiting(wire)
    wire.chunk(b"a")
    wire.chunk(b"b")
    await asyncio.sleep(0)
    wire.chunk(b"c")
    await asyncio.sleep(0)
    assert wire.taken == [b"ab", b"c"]
    assert not task.done()
    wire.content.feed_eof()
    await task
    assert await wire.content.readany() == b""


async def test_what_comes_after_enough_is_left_to_be_read(wire: Wire) -> None:
    wire.most = 1
    task = await waiting(wire)
    wire.chunk(b"a")
    await asyncio.sleep(0)
    wire.chunk(b"b")
    await task
    assert wire.taken == [b"a"]
    assert await wire.content.readany() == b"b"


async def test_the_last_bytes_are_taken_before_the_end_is_told(wire: Wire) -> None:
    task = await waiting(wire)
    wire.chunk(b"a")
    wire.content.feed_eof()
    await task
    assert wire.taken == [b"a"]


async def test_a_broken_connection_is_told_to_who_reads(wire: Wire) -> None:
    task = await waiting(wire)
    wire.chunk(b"a")
    wire.content.set_exception(ConnectionResetError("gone"))
    await task
    assert wire.taken == []
    with pytest.raises(ConnectionResetError):
        await wire.content.readany()


async def test_too_much_at_once_stops_the_wire_until_it_is_taken(wire: Wire) -> None:
    task = await waiting(wire)
    wire.chunk(b"x" * 1000)
    assert wire.connection.paused
    await asyncio.sleep(0)
    assert (len(wire.taken[0]), wire.connection.paused) == (1000, False)
    task.cancel()


async def test_who_is_cancelled_takes_no_more(wire: Wire) -> None:
    task = await waiting(wire)
    wire.chunk(b"a")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    wire.chunk(b"b")
    await asyncio.sleep(0)
    assert b"".join([*wire.taken, await wire.content.readany()]) == b"ab"


@pytest.mark.parametrize("how", ["data", "end", "error"])
async def test_what_is_there_already_is_to_be_read(wire: Wire, how: str) -> None:
    match how:
        case "data":
            wire.chunk(b"a")
        case "end":
            wire.content.feed_eof()
        case _:
            wire.content.set_exception(ConnectionResetError("gone"))
    assert not wire.inlet.open()
