"""What a backend sends is taken where it arrives, without waking the task that waits for the answer.

A task that is woken for every token pays for a future, a turn of the event loop and a walk through each coroutine
between the socket and the pump, and aiohttp's stream reader keeps books on every HTTP chunk for readers of other kinds.
Without these, 700 of 1,260 bytecodes of a paced token are left; aiohttp takes 675 to copy its bytes. While an `Inlet`
is open, the reader notes what comes and no more, and the connection calls the inlet once for what one network read
brought.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp.streams import StreamReader

from bridge.transports.answers import Answer
from bridge.transports.connections import Handler

_NAMES = frozenset(
    {"_waiter", "_wait", "_buffer", "_size", "_cursor", "_eof", "_http_chunk_splits", "_protocol", "_high_water"}
)
_KNOWN = _NAMES.issubset(dir(StreamReader))
"""Whether this aiohttp calls the parts of its reader as those do that this was written for; else all goes its way."""


def _usual(content: Any) -> bool:
    """Whether it is a reader whose parts may be used, not a derived one, nor one of another aiohttp."""
    return _KNOWN and type(content) is StreamReader


async def some(content: Any) -> bytes:
    """What has come, waiting for it when there is nothing; empty at the end. aiohttp's `readany`, for fewer books."""
    if not _usual(content):
        return bytes(await content.readany())
    if (error := content.exception()) is not None:
        raise error
    while not content._buffer and not content.is_eof():
        await content._wait("some")
    return _all(content) if content._buffer else b""


def _all(content: Any) -> bytes:
    """All that has come, with aiohttp's books on what is read, which its own reading keeps with thrice the work.

    A connection that was stopped for there was too much of it goes on.
    """
    data = b"".join(content._buffer)
    content._buffer.clear()
    content._cursor += len(data)
    content._size = 0
    if content._http_chunk_splits:
        content._http_chunk_splits.clear()
    content._protocol.resume_reading()
    return data


class _Straight(StreamReader):
    """aiohttp's reader while an inlet is open: nobody waits for it, and nobody asks where an HTTP chunk ended."""

    __slots__ = ()

    def feed_data(self, data: bytes, _: int = 0) -> bool:
        if not data:  # which read as usual would be the end
            return False
        self._buffer.append(data)
        self._size = size = self._size + len(data)
        if size > self._high_water:
            self._protocol.pause_reading()  # few bytes may be packed megabytes
        return False

    def end_http_chunk_receiving(self) -> None:
        pass


class Inlet:
    """Stands for a waiting reader of one answer: `take` gets what came, until it returns False.

    `open` tells whether this aiohttp lets it, and whether there is anything to wait for; then await `closed`.
    """

    __slots__ = ("_connection", "_content", "_future", "_loop", "_read", "_take")

    def __init__(self, response: Answer, take: Callable[[bytes], bool]) -> None:
        self._content: Any = response.content
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._read = 0
        self._future: asyncio.Future[None] | None = None
        self._connection: Handler | None = None

    def open(self) -> bool:
        """False when the answer is to be read as usual: something came already, or this is another kind of reader."""
        content = self._content
        if not _usual(content) or not isinstance(content._protocol, Handler):
            return False
        self._connection = content._protocol
        began = content._waiter or content._buffer or content.is_eof() or content.exception() is not None
        return self._connection.lets and not began

    async def closed(self) -> None:
        """Until `take` has had enough, the answer has ended or its connection has broken."""
        assert self._connection is not None, "closed() before open()"
        self._future = self._loop.create_future()
        self._content.__class__ = _Straight
        self._content._waiter = self
        self._connection.has_read = self._has_read
        try:
            await self._future
        finally:
            self._close()

    # What aiohttp calls of a future.

    def done(self) -> bool:
        return False

    def set_result(self, _: None) -> None:
        # The end of an answer. What came before it, in the same network read, is still to be taken.
        self._loop.call_soon(self._has_read)

    def set_exception(self, error: BaseException) -> None:
        # Whoever reads next is told.
        self._close()

    def _has_read(self) -> None:
        """The connection has passed on all of one network read."""
        content, connection = self._content, self._connection
        if connection is None:
            return
        buffer = content._buffer
        if buffer:
            data = buffer.popleft()
            if buffer:
                data += b"".join(buffer)
                buffer.clear()
            content._size = 0
            self._read += len(data)
            wants = self._take(data)
            if connection.paused:
                # Not from here: what is unpacked next would come before this has returned.
                self._loop.call_soon(connection.resume_reading)
            if not wants:
                self._close()
                return
        if content._eof:
            self._close()

    def _close(self) -> None:
        """From here on aiohttp's reader is as it was. Called as often as wanted."""
        content, connection, self._connection = self._content, self._connection, None
        if connection is None:
            return
        content.__class__ = StreamReader
        content._cursor += self._read
        content.total_bytes += self._read
        self._read = 0
        if content._waiter is self:
            content._waiter = None
        # An answer that has ended may have given its connection to the next one.
        if connection.has_read == self._has_read:
            connection.has_read = None
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
