"""The one way in which bytes of a response reach a client, and what holds while they do.

Once the head of a response is out, its request gets no other head: whatever fails then aborts the connection, which is
all that still shows a client that its answer is incomplete. A body has the length that its head promises, or the
connection is aborted. HEAD gets no body, so that handlers of GET need not know of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from aiohttp import web

from bridge.errors import BridgeError

BEGUN = web.RequestKey("begun", web.StreamResponse)
"""The response of the request whose head is out, or about to be."""
_HELD = web.RequestKey("held", AsyncExitStack)
_PIECE = 48 * 1024
"""Bytes of a body that are written at a time, and get `slow_reader` seconds: fewer than a connection buffers."""
_EMPTY = frozenset({204, 304})


class StreamedResponse(web.StreamResponse):
    """A response whose body is written in pieces. It is whole when `write_eof` has returned (`ended`), not before.

    `slow_reader`: seconds for the client to take a piece of 48 KiB, None = no limit. Writing raises `ConnectionError`
    if the client is gone or does not read, `BridgeError` for a body that is not of the promised length; the connection
    is aborted in each case.
    """

    def __init__(
        self, *, status: int = 200, headers: Mapping[str, str] | None = None, slow_reader: float | None = None
    ) -> None:
        super().__init__(status=status, headers=headers)
        self.ended = False
        self._http: web.BaseRequest | None = None
        self._slow_reader = slow_reader
        self._missing: int | None = None
        self._last = b""
        """The last byte of the promised length, which the client gets when the body is known to end there."""
        self._is_empty = False
        self._passes = False
        """Nothing is to be checked: a body in chunks, to a client that is looked after elsewhere."""

    async def prepare(self, request: web.BaseRequest) -> object:  # type: ignore[override]
        """Write the head."""
        if self.prepared:
            return await super().prepare(request)
        self._http = request
        self._is_empty = request.method == "HEAD" or self.status in _EMPTY
        self._missing = None if self._is_empty else self.content_length
        self._passes = not self._is_empty and self._missing is None and self._slow_reader is None
        return await super().prepare(request)

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write a piece of the body, and wait until the client has taken most of what was written before."""
        if self._passes:
            await super().write(data)
        elif not self._is_empty:
            self._check(len(data))
            rest = memoryview(data)
            if data and self._missing == 0:
                self._last, rest = bytes(data[-1:]), rest[:-1]
            for start in range(0, len(rest), _PIECE):
                await self._taken_in_time(rest[start : start + _PIECE])

    async def write_eof(self, data: bytes = b"") -> None:
        """End the body, and wait until the client has taken all of it."""
        if self.ended:
            return
        if self._is_empty:
            data = b""
        elif not self._passes:
            await self.write(data)
            data = self._last
            if self._missing:
                raise self._broken(f"ended {self._missing} bytes before its content-length")
        assert self._http is not None, "a response is prepared before it is ended"
        http = self._http
        try:
            async with asyncio.timeout(self._slow_reader):
                await super().write_eof(data)
                await _flushed(http)
        except TimeoutError:
            raise _not_read(http) from None
        self.ended, self._http = True, None  # the request refers to its response

    async def _taken_in_time(self, data: memoryview) -> None:
        assert self._http is not None, "a response is prepared before it is written"
        try:
            async with asyncio.timeout(self._slow_reader):
                await super().write(data)
        except TimeoutError:
            raise _not_read(self._http) from None

    def _check(self, size: int) -> None:
        if self._http is not None and has_left(self._http):
            raise ConnectionResetError("The client has closed its connection.")
        if self._missing is not None:
            self._missing -= size
            if self._missing < 0:
                raise self._broken("is longer than its content-length")

    def _broken(self, how: str) -> BridgeError:
        if self._http is not None:
            abort(self._http)
        return BridgeError(f"The body of the response {how}; the connection was closed.")


async def send(http: web.Request, response: web.StreamResponse, slow_reader: float | None) -> web.StreamResponse:
    """Write a whole response, unless its handler has written it, and wait until the client has taken it.

    Returns the response that was written: a large one is written in pieces. Raises `ConnectionError` for a client that
    is gone or does not read.
    """
    if not isinstance(response, web.Response) or response.prepared:
        return response
    body = response.body
    if isinstance(body, bytes | bytearray) and len(body) > _PIECE:
        streamed = _in_pieces(response, len(body), slow_reader)
        await streamed.prepare(http)
        await streamed.write_eof(bytes(body))
        return streamed
    transport = http.transport
    is_waiting = transport is None or transport.get_extra_info("socket") is None or transport.get_write_buffer_size()
    if not is_waiting and transport is not None:
        # A small response fits into an empty buffer of the connection, which ASGI does not have.
        await response.prepare(http)
        await response.write_eof()
        if not transport.get_write_buffer_size():
            return response
    try:
        async with asyncio.timeout(slow_reader):
            await response.prepare(http)
            await response.write_eof()
            await _flushed(http)
    except TimeoutError:
        raise _not_read(http) from None
    return response


def is_whole(response: web.StreamResponse) -> bool:
    """Return whether a response, whose head is out, was written to its end. A WebSocket ends by itself."""
    return not isinstance(response, StreamedResponse) or response.ended


def has_left(http: web.BaseRequest) -> bool:
    """Return whether the client has closed its connection, or that was aborted."""
    transport = http.transport
    return transport is None or transport.is_closing()


def abort(http: web.BaseRequest) -> None:
    """Close the connection without the end of what is being written."""
    if http.transport is not None:
        http.transport.abort()


async def hold(http: web.Request, place: AbstractAsyncContextManager[None]) -> None:
    """Enter `place`, such as a slot, until the response of the request is written: see `release`."""
    stack = http.get(_HELD)
    if stack is None:
        stack = http[_HELD] = AsyncExitStack()
    await stack.enter_async_context(place)


async def release(http: web.Request) -> None:
    """Leave what the request holds: its response is written, or never will be."""
    stack = http.pop(_HELD, None)
    if stack is not None:
        await stack.aclose()


def _in_pieces(response: web.Response, size: int, slow_reader: float | None) -> StreamedResponse:
    streamed = StreamedResponse(headers=response.headers, slow_reader=slow_reader)
    streamed.set_status(response.status, response.reason)
    streamed.content_length = size
    streamed.update(response)
    if response.keep_alive is False:
        streamed.force_close()
    return streamed


def _buffered(http: web.BaseRequest) -> int:
    """Return how many bytes the system has not taken yet."""
    transport = http.transport
    return transport.get_write_buffer_size() if transport is not None else 0


async def _flushed(http: web.BaseRequest) -> None:
    """Wait until the system has taken all bytes, which is all that a server can see of its client."""
    if not _buffered(http):
        return
    await asyncio.sleep(0)  # uvloop writes at the end of each turn
    transport = http.transport
    if transport is None or not _buffered(http):
        return
    transport.set_write_buffer_limits(0)
    await http.writer.drain()
    if not has_left(http):
        transport.set_write_buffer_limits()


def _not_read(http: web.BaseRequest) -> ConnectionError:
    abort(http)
    return ConnectionResetError("The client did not read the response in time; the connection was closed.")
