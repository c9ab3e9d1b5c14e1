"""The place of a waiting reader in aiohttp's own stream: what is taken, what is left, and who is woken."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from bridge.transports.connections import Handler
from bridge.transports.inlet import Inlet, some

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n%b\r\n"
LIMIT = 2**16


class Transport(asyncio.Transport):
    """Knows whether it is to read; once closed, it says so as a real one does."""

    def __init__(self, connection: Handler) -> None:
        super().__init__()
        self.connection = connection
        self.reads = True
        self.closed = False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True
        asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)


def chunks(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


class Wire:
    """A connection with aiohttp's own parser, and the answer that begins on it."""

    def __init__(self, *, head: bytes = b"") -> None:
        self.connection = Handler(asyncio.get_running_loop())
        self.transport = Transport(self.connection)
        self.connection.connection_made(self.transport)
        self.connection.set_response_params(read_until_eof=True, auto_decompress=True, read_bufsize=LIMIT)
        self.head = HEAD % head
        self.taken: list[bytes] = []
        self.most = 10_000

    async def begin(self) -> Wire:
        self.connection.data_received(self.head)
        _, content = await self.connection.read()
        self.content: Any = content
        self.inlet = Inlet(cast(aiohttp.ClientResponse, SimpleNamespace(content=content)), self.take)
        return self

    def take(self, data: bytes) -> bool:
        self.taken.append(data)
        return len(self.taken) < self.most

    def read(self, *pieces: bytes, end: bool = False) -> None:
        """One network read, of these HTTP chunks."""
        self.connection.data_received(chunks(*pieces) + b"0\r\n\r\n" * end)


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    wire = await Wire().begin()
    yield wire
    wire.connection.connection_lost(None)


async def waiting(wire: Wire) -> asyncio.Task[None]:
    assert wire.inlet.open()
    task = asyncio.create_task(wire.inlet.closed())
    await asyncio.sleep(0)
    return task


async def test_what_one_read_brings_comes_as_one_and_at_once(wire: Wire) -> None:
    task = await waiting(wire)
    wire.read(b"a", b"b")
    wire.read(b"c")
    assert wire.taken == [b"ab", b"c"]
    assert not task.done()
    wire.read(end=True)
    await task
    assert await some(wire.content) == b""


async def test_a_chunk_that_comes_in_pieces_is_passed_on_in_pieces(wire: Wire) -> None:
    task = await waiting(wire)
    for piece in (b"5", b"\r\na", b"bcd", b"e\r", b"\n0\r\n\r", b"\n"):
        assert not task.done()
        wire.connection.data_received(piece)
    await task
    assert wire.taken == [b"a", b"bcd", b"e"]


async def test_what_comes_after_enough_is_left_to_be_read(wire: Wire) -> None:
    wire.most = 1
    task = await waiting(wire)
    wire.read(b"a")
    wire.read(b"b", b"c")
    await task
    assert wire.taken == [b"a"]
    assert await some(wire.content) == b"bc"
    # As if nothing had been: aiohttp's own ways of reading, and another inlet.
    wire.read(b"d", b"e")
    assert await wire.content.readchunk() == (b"d", True)
    assert await wire.content.readany() == b"e"
    wire.most = 3
    task = await waiting(wire)
    wire.read(b"f", end=True)
    await task
    assert wire.taken == [b"a", b"f"]


async def test_the_last_bytes_are_taken_before_the_end_is_told(wire: Wire) -> None:
    task = await waiting(wire)
    wire.read(b"a", end=True)
    await task
    assert wire.taken == [b"a"]


async def test_an_answer_that_ends_with_its_connection() -> None:
    wire = Wire()
    wire.head = b"HTTP/1.1 200 OK\r\n\r\n"
    await wire.begin()
    task = await waiting(wire)
    wire.connection.data_received(b"a")
    wire.connection.connection_lost(None)
    await task
    assert wire.taken == [b"a"]
    assert await some(wire.content) == b""


async def test_a_broken_connection_is_told_to_who_reads(wire: Wire) -> None:
    task = await waiting(wire)
    wire.read(b"a")
    wire.connection.connection_lost(ConnectionResetError("gone"))
    await task
    assert wire.taken == [b"a"]
    with pytest.raises(aiohttp.ClientPayloadError):
        await some(wire.content)


async def test_what_came_before_nonsense_is_left_to_be_read(wire: Wire) -> None:
    task = await waiting(wire)
    wire.connection.data_received(chunks(b"a") + b"no chunk\r\n")
    await task
    assert (wire.taken, list(wire.content._buffer), wire.transport.closed) == ([], [b"a"], True)
    with pytest.raises(aiohttp.ClientPayloadError):
        await some(wire.content)


@pytest.mark.parametrize("most", [10_000, 1])
async def test_megabytes_in_few_bytes_are_unpacked_piece_by_piece(most: int) -> None:
    size = 8 * 2**20
    wire = await Wire(head=b"content-encoding: gzip\r\n").begin()
    wire.most = most
    task = await waiting(wire)
    wire.read(gzip.compress(bytes(size)), end=True)
    assert not wire.transport.reads
    await task
    got, largest = sum(map(len, wire.taken)), max(map(len, wire.taken))
    while data := await some(wire.content):
        got, largest = got + len(data), max(largest, len(data))
    assert got == size
    assert largest <= 8 * LIMIT
    assert wire.transport.reads


async def test_who_is_cancelled_takes_no_more(wire: Wire) -> None:
    task = await waiting(wire)
    wire.read(b"a")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    wire.read(b"b")
    assert wire.taken == [b"a"]
    assert await some(wire.content) == b"b"


async def test_the_next_answer_on_the_same_connection_is_another_matter(wire: Wire) -> None:
    task = await waiting(wire)
    wire.read(b"a", end=True)
    wire.connection.set_response_params(read_until_eof=True, read_bufsize=LIMIT)
    wire.connection.data_received(HEAD % b"")
    await task
    _, content = await wire.connection.read()
    wire.read(b"b")
    assert wire.taken == [b"a"]
    assert await some(content) == b"b"


@pytest.mark.parametrize("how", ["data", "end", "error"])
async def test_what_is_there_already_is_to_be_read(wire: Wire, how: str) -> None:
    match how:
        case "data":
            wire.read(b"a")
        case "end":
            wire.read(end=True)
        case _:
            wire.content.set_exception(ConnectionResetError("gone"))
    assert not wire.inlet.open()


async def test_a_connection_of_another_kind_is_read_as_usual(wire: Wire) -> None:
    """It would not tell that it has read."""
    wire.content._protocol = aiohttp.client_proto.ResponseHandler(asyncio.get_running_loop())
    assert not wire.inlet.open()


async def test_an_answer_that_nobody_asked_for_ends_its_connection(wire: Wire) -> None:
    """Whose request came next on it would get it."""
    task = await waiting(wire)
    wire.connection.data_received(chunks(b"a") + b"0\r\n\r\n" + HEAD % b"" + chunks(b"evil"))
    await task
    assert (wire.taken, wire.transport.closed, wire.connection.should_close) == ([b"a"], True, True)


async def test_a_connection_with_a_clock_of_its_own_is_read_as_usual(wire: Wire) -> None:
    """It starts anew with each read."""
    wire.connection.read_timeout = 40
    assert not wire.inlet.open()


@pytest.mark.parametrize("name", ["_payload_parser", "_tail"])
async def test_a_connection_whose_parts_have_other_names_is_read_as_usual(wire: Wire, name: str) -> None:
    delattr(wire.connection, name)
    assert not wire.inlet.open()
    setattr(wire.connection, name, None if name == "_payload_parser" else b"")  # which its end asks for
    assert wire.inlet.open()


async def test_the_books_are_right_when_it_is_over(wire: Wire) -> None:
    task = await waiting(wire)
    wire.read(b"abc", b"d")
    wire.read(b"e")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (wire.taken, wire.content.total_bytes, wire.content._cursor, wire.content._size) == (
        [b"abcd", b"e"],
        5,
        5,
        0,
    )
