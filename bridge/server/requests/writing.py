"""The one way in which bytes of a response reach a client, and what holds while they do.

Once the head of a response is out, its request gets no other head: whatever fails then aborts the connection, which is
all that still shows a client that its answer is incomplete. A body has the length that its head promises, or the
connection is aborted. HEAD gets no body, so that handlers of GET need not know of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from aiohttp import web

from bridge.errors import BridgeError, Failure
from bridge.server.requests.http_messages import ErrorResponse

if TYPE_CHECKING:
    from bridge.server.requests.access_log import AccessRecord

_PIECE = 48 * 1024
"""Bytes of a body that are written at a time, and get `slow_reader` seconds: fewer than a connection buffers."""
_ROOM = 8 * 1024
"""Bytes that may wait in a connection that takes a piece at once."""
_WAITING = 64 * 1024
"""Bytes that a client has not taken yet, after which its stream waits for it."""
_EMPTY = frozenset({204, 304})

T = TypeVar("T")


def _nothing(_: Any) -> bytes:
    return b""


class StreamedResponse(web.StreamResponse):
    """A response whose body is written in pieces. It is whole when `write_eof` has returned (`ended`), not before.

    `slow_reader`: seconds for the client to take a piece of 48 KiB, None = no limit. `report` counts the body's bytes.
    Writing raises `ConnectionError` if the client is gone or does not read, `BridgeError` for a body that is not of the
    promised length; the connection is aborted in each case.

    A piece that the connection takes at once costs no timer, so that streams of tokens pay nothing for the limit.
    """

    failure: Failure | None = None
    """What it reports, if it is an `ErrorResponse` in pieces."""

    def __init__(
        self,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        slow_reader: float | None = None,
        report: AccessRecord | None = None,
    ) -> None:
        super().__init__(status=status, headers=headers)
        self.ended = False
        self._http: web.BaseRequest | None = None
        self._slow_reader = slow_reader
        self._report = report
        self._missing: int | None = None
        self._last = b""
        """The last byte of the promised length, which the client gets when the body is known to end there."""
        self._is_empty = False
        self._chunks: asyncio.Transport | None = None
        """The connection, if it is of aiohttp's own server and the body goes out in chunks."""
        self._make: Callable[[Any], bytes] = _nothing

    async def prepare(self, request: web.BaseRequest) -> object:  # type: ignore[override]
        """Write the head."""
        if self.prepared:
            return await super().prepare(request)
        self._http = request
        self._is_empty = request.method == "HEAD" or self.status in _EMPTY
        self._missing = None if self._is_empty else self.content_length
        writer = await super().prepare(request)
        if self.headers.get("transfer-encoding") == "chunked" and _has_socket(request):
            self._chunks = request.transport  # to all clients but those of HTTP/1.0 and ASGI
        return writer

    @property
    def writes_now(self) -> bool:
        """True if what `writing` returns can write to this client at all."""
        return self._chunks is not None

    def writing(self, make: Callable[[T], bytes]) -> Callable[[T], bool]:
        """Return a function that writes what `make` returns for its argument as a chunk, without waiting.

        It returns False, and does not call `make`, if the client is gone or does not keep up: then `write` waits for
        it. A response has one such function.
        """
        self._make = make
        return self._write_now

    def release(self) -> None:
        """Let go of the function of `writing`, and all that it refers to: a connection keeps its last response."""
        self._make = _nothing

    def _write_now(self, what: Any) -> bool:
        transport = self._chunks
        if transport is None or transport.is_closing() or transport.get_write_buffer_size() > _WAITING:
            return False
        if out := self._make(what):
            if self._report is not None:
                self._report.sent += len(out)
            # As aiohttp does, in a coroutine. It buffers nothing, so that chunks stay in order.
            transport.write(b"%x\r\n%b\r\n" % (len(out), out))
        return True

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write a piece of the body, and wait until the client has taken most of what was written before."""
        if self._is_empty:
            return
        self._count(len(data))
        if self._missing is None and len(data) <= _PIECE and self._http is not None and _has_room(self._http):
            await super().write(data)
            return
        self._check(len(data))
        rest = memoryview(data)
        if data and self._missing == 0:
            self._last, rest = bytes(data[-1:]), rest[:-1]
        for start in range(0, len(rest), _PIECE):
            assert self._http is not None, "a response is prepared before it is written"
            await in_time(self._http, self._slow_reader, super().write(rest[start : start + _PIECE]))

    async def write_eof(self, data: bytes = b"") -> None:
        """End the body, and wait until the client has taken all of it."""
        if self.ended:
            return
        assert self._http is not None, "a response is prepared before it is ended"
        http = self._http
        if self._is_empty:
            data = b""
        elif self._missing is not None or len(data) > _PIECE:
            await self.write(data)
            data = self._last
            if self._missing:
                raise self._broken(f"ended {self._missing} bytes before its content-length")
        else:
            self._count(len(data))
        if not _has_room(http):
            await in_time(http, self._slow_reader, super().write_eof(data))
        else:
            await super().write_eof(data)
        if _buffered(http) or not _has_socket(http):
            await in_time(http, self._slow_reader, _flushed(http))
        # The request refers to its response, and what makes the pieces to the run.
        self.ended, self._http, self._chunks, self._make = True, None, None, _nothing

    def _count(self, size: int) -> None:
        if self._report is not None:
            self._report.sent += size

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


async def in_time(http: web.BaseRequest, seconds: float | None, writing: Awaitable[None]) -> None:
    """Wait for something to be written. Aborts the connection of a client that does not take it within these seconds,
    and raises `ConnectionError`.
    """
    try:
        async with asyncio.timeout(seconds):
            await writing
    except TimeoutError:
        abort(http)
        raise ConnectionResetError("The client did not read the response in time; the connection was closed.") from None


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
    if _has_room(http):
        await response.prepare(http)
        await response.write_eof()
        if not _buffered(http):
            return response
    await in_time(http, slow_reader, _written(http, response))
    return response


async def _written(http: web.Request, response: web.Response) -> None:
    await response.prepare(http)
    await response.write_eof()
    await _flushed(http)


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


class HeldResource(Protocol):
    """What a request holds while it is answered, such as a slot."""

    async def enter(self) -> None:
        """Wait for the place. Raises `BridgeError` where there is none."""

    def leave(self) -> None:
        """Give it back. Never raises."""


def _in_pieces(response: web.Response, size: int, slow_reader: float | None) -> StreamedResponse:
    streamed = StreamedResponse(headers=response.headers, slow_reader=slow_reader)
    streamed.set_status(response.status, response.reason)
    streamed.content_length = size
    if isinstance(response, ErrorResponse):
        streamed.failure = response.failure
    if response.keep_alive is False:
        streamed.force_close()
    return streamed


def _has_socket(http: web.BaseRequest) -> bool:
    """Return whether aiohttp's own server has the connection. An ASGI server's can only be waited for."""
    return http.transport is not None and http.transport.get_extra_info("socket") is not None


def _has_room(http: web.BaseRequest) -> bool:
    """Return whether writing a piece, or a small response, waits for nobody: it fits into what a connection buffers."""
    transport = http.transport
    if transport is None or transport.get_extra_info("socket") is None:
        return False
    return transport.get_write_buffer_size() <= _ROOM


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
