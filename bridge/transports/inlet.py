"""What a backend sends is taken where it arrives, without waking the task that waits for the answer.

A task that is woken for every token pays for a future, a turn of the event loop and a walk through each coroutine
between the socket and the pump: with aiohttp's own books a third of the bytecodes of a paced token. An `Inlet` stands
where aiohttp's stream reader keeps the future of whoever waits, so that the bytes of one network read come as a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.streams import StreamReader

_NAMES = frozenset({"_waiter", "_wait", "_buffer", "_size", "_cursor", "_http_chunk_splits", "_protocol"})
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
    """All that has come. Keeps aiohttp's books, as its own reading does with thrice the work."""
    buffer = content._buffer
    data: bytes = buffer.popleft() if len(buffer) == 1 else b"".join(buffer)
    if buffer:
        buffer.clear()
    content._cursor += len(data)
    content._size = 0
    if content._http_chunk_splits:
        content._http_chunk_splits.clear()
    # Too much at once had stopped the connection.
    content._protocol.resume_reading()
    return data


class Inlet:
    """Stands for a waiting reader of one answer: `take` gets what came, until it returns False.

    `open` tells whether this aiohttp lets it, and whether there is anything to wait for; then await `closed`.
    """

    __slots__ = ("_content", "_future", "_loop", "_take")

    def __init__(self, response: aiohttp.ClientResponse, take: Callable[[bytes], bool]) -> None:
        self._content: Any = response.content
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] | None = None

    def open(self) -> bool:
        """False when the answer is to be read as usual: something came already, or this is another kind of reader."""
        content = self._content
        if not _usual(content):
            return False
        return not (content._waiter or content._buffer or content.is_eof() or content.exception() is not None)

    async def closed(self) -> None:
        """Until `take` has had enough, the answer has ended or its connection has broken."""
        self._future = self._loop.create_future()
        self._content._waiter = self
        try:
            await self._future
        finally:
            self._future = None
            if self._content._waiter is self:
                self._content._waiter = None

    # What aiohttp calls of a future.

    def done(self) -> bool:
        return False

    def set_result(self, _: None) -> None:
        # The rest of the same network read is still to come: HTTP chunks come one by one.
        self._loop.call_soon(self._arrived)

    def set_exception(self, error: BaseException) -> None:
        # Whoever reads next is told.
        self._close()

    def _arrived(self) -> None:
        content = self._content
        if self._future is None or self._future.done():
            return
        if content.exception() is None:
            content._waiter = self
            data = _all(content)
            if (not data or self._take(data)) and not content.is_eof():
                return
            if content._waiter is self:
                content._waiter = None
        self._close()

    def _close(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
