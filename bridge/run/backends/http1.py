"""A small HTTP/1.1 client for the streams of backends, on asyncio protocols and the parser of `httptools`.

It exists for one gain: bytes are passed on in the callback that receives them, without waking a task for each, which
aiohttp's public interface cannot do. That saves about a third of the CPU time of a paced token. Everything else about
HTTP is left to aiohttp: backends behind a proxy, side requests, uploads, mocks. It sends one request at a time on a
connection, keeps connections for the next request, and follows no redirects.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import cast

import httptools
from aiohappyeyeballs import start_connection
from yarl import URL

from bridge.errors import shortened
from bridge.run.backends.connector import closed_at_once
from bridge.run.backends.http_answer import AT_ONCE, DRAIN_SECONDS, InvalidAnswer, InvalidCompression, LongHead
from bridge.run.backends.lookups import CONFIGURED
from bridge.run.backends.probes import probe

KEEP_SECONDS = 60.0
"""Seconds for which an idle connection is kept."""
PIECE = 128 * 1024
"""Bytes of a request body that are written at once; a larger one is written as the backend takes it."""
MAX_HEAD = 64 * 1024
"""Bytes that an answer may have before its body, and between and behind its pieces."""
_NEXT_ADDRESS = 0.25
"""Seconds after which a host's next address is tried beside the one before (RFC 8305)."""
_HIGH_WATER = 256 * 1024
"""Bytes that may wait for the reader before the backend is made to wait."""
_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
"""What the name of a header may consist of."""
_CONTROLS = frozenset({*range(0x20), 0x7F} - {0x09})
"""What no value may have."""
_USUAL = frozenset({"accept", "accept-encoding", "content-type", "user-agent"})
"""Headers whose lines are remembered: they are no secrets, and have few values."""
_ANY_HEADER = 32 + zlib.MAX_WBITS
"""For zlib: a header of gzip or of deflate."""


Origin = tuple[str, int, bool]
"""The host and the port of a server, and whether TLS is used."""


class Http1Client:
    """Sends requests to one backend, and keeps its connections."""

    def __init__(self, connect_timeout: float | None) -> None:
        self._connect_timeout = connect_timeout
        # The latest ones are last.
        self._idle: dict[Origin, list[Http1Connection]] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._closed = False

    async def request(self, method: str, url: URL, headers: Mapping[str, str], body: bytes) -> Http1Answer:
        """Return the answer to a request, once its head is there.

        Raises `OSError` if the backend cannot be reached or does not answer, `TimeoutError` if it cannot be reached in
        time, `ssl.SSLError`, `InvalidAnswer`, and `ValueError` for a header that HTTP cannot carry.
        """
        target = _target(method, url)
        head, key = _head(target, url, headers, len(body)), target.origin
        kept = self._kept(key)
        if kept is not None:
            try:
                return await kept.send(Http1Answer(self, key, kept), head, body)
            except ConnectionError as error:
                if kept.got_data or isinstance(error, InvalidAnswer) or not closed_at_once(kept.sent):
                    raise
        connection = await self._connect(key)
        return await connection.send(Http1Answer(self, key, connection), head, body)

    def _kept(self, key: Origin) -> Http1Connection | None:
        idle = self._idle.get(key, [])
        while idle:
            connection = idle.pop()
            if connection.is_open and time.monotonic() - connection.idle_since < KEEP_SECONDS:
                return connection
            connection.close()
        return None

    async def _connect(self, key: Origin) -> Http1Connection:
        host, port, secure = key
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._connect_timeout):
            addresses = await CONFIGURED.find(host, port)
            sock = probe(await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS))
            tls = _tls() if secure else None
            try:
                _, connection = await loop.create_connection(
                    Http1Connection, sock=sock, ssl=tls, server_hostname=host if tls else None
                )
            except BaseException:
                sock.close()
                raise
        return connection

    def keep(self, key: Origin, connection: Http1Connection) -> None:
        """Take a connection back, for the next request."""
        if self._closed:
            connection.close()
            return
        connection.idle_since = time.monotonic()
        self._idle.setdefault(key, []).append(connection)
        if self._expiry is None:
            self._expiry = asyncio.get_running_loop().call_later(KEEP_SECONDS, self._expire)

    def _expire(self) -> None:
        """Close the connections that nobody has needed for long, and come back for the next ones."""
        self._expiry, now = None, time.monotonic()
        for key, idle in list(self._idle.items()):
            while idle and (now - idle[0].idle_since >= KEEP_SECONDS or not idle[0].is_open):
                idle.pop(0).close()
            if not idle:
                del self._idle[key]
        if self._idle:
            oldest = min(idle[0].idle_since for idle in self._idle.values())
            pause = max(0.01, oldest + KEEP_SECONDS - now)
            self._expiry = asyncio.get_running_loop().call_later(pause, self._expire)

    def close(self) -> None:
        """Close the connections that are kept, and those that are given back from now on."""
        self._closed = True
        if self._expiry is not None:
            self._expiry.cancel()
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()


class Http1Answer:
    """The answer to a request: its head, and its body as it arrives.

    Attributes:
        status: The HTTP status; 0 before the head.
        headers: The headers, with lower-case names; those that occur several times are joined by commas.
        ended: The body has been received, if not read.
        head: Done when the head is there; None from then on.
    """

    __slots__ = (
        "_client", "_connection", "_drained", "_error", "_inflate", "_key", "_pieces", "_size", "_take", "_waiter",
        "ended", "head", "headers", "status",
    )  # fmt: skip

    def __init__(self, client: Http1Client, key: Origin, connection: Http1Connection) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = False
        self._take: Callable[[bytes], bool] | None = None
        self.head: asyncio.Future[None] | None = asyncio.get_running_loop().create_future()
        self._client = client
        self._key = key
        self._connection: Http1Connection | None = connection
        self._pieces: list[bytes] | None = None
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._inflate: zlib._Decompress | None = None
        self._drained: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------ for the reader

    @property
    def at_end(self) -> bool:
        """The body has ended, and all of it was read."""
        return self.ended and not self._pieces

    async def read(self, most: int) -> bytes:
        """Return up to `most` bytes that have arrived; nothing at the end of the body, or where `take` returned False.

        Raises `ConnectionError` if the answer breaks off; what arrived before is read first.
        """
        while True:
            if not self._pieces and self._error is None and not self.ended:
                self._waiter = asyncio.get_running_loop().create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            if not self._pieces and self._error is not None:
                raise self._error
            data = self.unread(most)
            if data or self._inflate is None or (self.ended and not self._pieces):
                return data
            # What has arrived is only a part of what compression puts around the data.

    def unread(self, most: int) -> bytes:
        """Return up to `most` bytes that have arrived, without waiting."""
        if not self._pieces:
            return b""
        arrived, self._pieces = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces), None
        if self._inflate is None:
            data, rest = arrived[:most], arrived[most:]
        else:
            try:
                data = self._inflate.decompress(arrived, most)  # never more is unpacked than is asked for
            except zlib.error:
                raise InvalidCompression("The compressed data is damaged.") from None
            rest = self._inflate.unconsumed_tail
        self._pieces, self._size = [rest] if rest else None, len(rest)
        if self._connection is not None and self._connection.paused and self._size < _HIGH_WATER:
            self._connection.resume()
        return data

    def pass_on(self, take: Callable[[bytes], bool] | None) -> None:
        """Call `take` with data that arrives while `read` waits. Where it returns False, `read` returns what else has
        arrived, possibly nothing. With None, `read` returns all data.
        """
        self._take = take

    def release(self, drain: bool = False) -> None:
        """Return the connection for the next request if the body has ended; else close it.

        `drain`: the few bytes that are still to come are waited for a moment, which nothing else waits for.
        """
        self._take = None
        connection = self._connection
        if connection is None:
            return
        if drain and not self.ended and self._error is None:
            self._drained = asyncio.get_running_loop().call_later(DRAIN_SECONDS, self.release)
            return
        self._connection = None
        if self.ended and connection.reusable:
            if connection.paused:
                connection.resume()
            self._client.keep(self._key, connection)
        else:
            connection.close()

    # ------------------------------------------------------------------ for the connection

    def begin(self, status: int, headers: dict[str, str]) -> None:
        """Take the head of the answer."""
        self.status, self.headers = status, headers
        coding = headers.get("content-encoding", "identity").lower()
        if coding in ("gzip", "x-gzip", "deflate"):
            self._inflate = zlib.decompressobj(_ANY_HEADER)
        elif coding not in ("", "identity"):
            raise InvalidCompression(f"The content-encoding {shortened(coding)!r} was not requested.")
        if self.head is not None and not self.head.done():
            self.head.set_result(None)

    def receive(self, data: bytes) -> None:
        """Take a piece of the body."""
        waiter = self._waiter
        if (
            self._take is not None
            and waiter is not None
            and not waiter.done()
            and self._inflate is None
            and len(data) <= AT_ONCE
        ):
            if not self._take(data):
                waiter.set_result(None)
            return
        if self._pieces is None:
            self._pieces = [data]
        else:
            self._pieces.append(data)
        self._size += len(data)
        if self._size > _HIGH_WATER and self._connection is not None:
            self._connection.pause()
        if waiter is not None:
            self._wake()

    def end(self, error: Exception | None = None) -> None:
        """Note that the body is complete, or why it breaks off."""
        self.ended, self._error = error is None, error
        if error is not None and self.head is not None and not self.head.done():
            self.head.set_exception(error)
        if self._waiter is not None:
            self._wake()
        if self._drained is not None:
            self._drained.cancel()
            self.release()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Http1Connection(asyncio.Protocol):
    """One connection to a backend. Callbacks `on_...` are those of the parser.

    Attributes:
        reusable: The last answer ended, and left the connection as the next request needs it.
        got_data: Something has arrived since the last request was sent.
        sent: When the last byte of the last request was sent, in monotonic seconds; None before that.
        paused: The backend is made to wait.
        idle_since: When the connection was given back, in monotonic seconds.
    """

    __slots__ = (
        "_answer", "_beside_body", "_ends_with_connection", "_full", "_headers", "_parser", "_pieces", "_sent_all",
        "_transport", "got_data", "idle_since", "paused", "reusable", "sent",
    )  # fmt: skip

    def __init__(self) -> None:
        self.reusable = False
        self.got_data = False
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._answer: Http1Answer | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] | None = None  # until the head is complete
        self._ends_with_connection = False
        self._beside_body = 0
        self._pieces: list[bytes] | None = None  # of the body, of what is being parsed
        self.sent: float | None = None
        self.paused = False
        self._sent_all = True
        self._full: asyncio.Future[None] | None = None

    @property
    def is_open(self) -> bool:
        """Return whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def send(self, answer: Http1Answer, head: bytes, body: bytes) -> Http1Answer:
        """Send a request, and return its answer once the head is there."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("The connection was closed.")
        self._answer = answer
        self.reusable = self.got_data = False
        self._beside_body, self.sent = 0, None
        try:
            if len(body) <= PIECE:
                transport.write(head + body)
            else:
                await self._write(answer, head, memoryview(body))
            if self._sent_all and not transport.get_write_buffer_size():
                self.sent = time.monotonic()
            if answer.head is not None:
                await answer.head
                answer.head = None
        except BaseException:
            self._answer = None
            self.close()
            raise
        return answer

    async def _write(self, answer: Http1Answer, head: bytes, body: memoryview) -> None:
        """Write a large request piece by piece. A backend that refuses it before its end gets no more of it."""
        transport = self._transport
        assert transport is not None
        self._sent_all = False
        transport.write(head)
        for start in range(0, len(body), PIECE):
            while (full := self._full) is not None and answer.status < 300:
                awaited = {full} if answer.head is None or answer.head.done() else {full, answer.head}
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if transport.is_closing() or answer.status >= 300:
                return
            transport.write(body[start : start + PIECE])
        self._sent_all = True

    def close(self) -> None:
        """Close at once; what is still to be written is dropped."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Make the backend wait."""
        if not self.paused and self.is_open and self._transport is not None:
            self.paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Let the backend go on."""
        if self.paused and self.is_open and self._transport is not None:
            self.paused = False
            self._transport.resume_reading()

    # ------------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of uvloop do not inherit from that class.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)  # `resume_writing` means that all is sent

    def pause_writing(self) -> None:
        """The backend does not keep up with a request."""
        self._full = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """The backend has taken all that was written."""
        if self._sent_all and self.sent is None:
            self.sent = time.monotonic()
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            # Nobody asked for it: the next request on this connection would get it for its answer.
            self.close()
            return
        self.got_data = True
        broken: Exception | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            broken = cause if isinstance(cause, InvalidAnswer) else InvalidAnswer("The answer is not HTTP.")
        except httptools.HttpParserUpgrade:
            broken = InvalidAnswer("The backend switched protocols.")
        pieces = self._pieces
        if pieces is not None:
            self._pieces, self._beside_body = None, 0
            answer.receive(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        else:
            # The parser keeps a header until it is complete: an endless one would fill memory.
            self._beside_body += len(data)
            if self._beside_body > MAX_HEAD and broken is None:
                broken = LongHead(f"The headers of the answer are longer than the limit of {MAX_HEAD} bytes.")
        if self._answer is None:
            # It is complete; what is broken behind it only means that the connection cannot be used again.
            self.reusable = self.reusable and broken is None
            answer.end()
        elif broken is not None:
            self._answer = None
            answer.end(broken)
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        del self._parser  # which refers to this connection
        self.resume_writing()
        answer, self._answer = self._answer, None
        self.reusable = False
        if answer is None:
            return
        if error is None and answer.status and self._ends_with_connection:
            answer.end()
        elif not self.got_data:
            answer.end(ConnectionResetError("The backend closed the connection without an answer."))
        else:
            answer.end(ConnectionAbortedError("The connection broke in the middle of the answer."))

    # ------------------------------------------------------------------ the parser's callbacks

    def on_message_begin(self) -> None:
        if self._answer is None:
            raise InvalidAnswer("The backend sent a second answer.")
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self._headers
        if headers is None:
            return  # behind the body
        key, text = _header_name(name), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        status, headers = self._parser.get_status_code(), self._headers or {}
        self._headers = None
        if self._answer is not None and status >= 200:
            self._ends_with_connection = "content-length" not in headers and "transfer-encoding" not in headers
            self._answer.begin(status, headers)

    def on_body(self, body: bytes) -> None:
        if self._pieces is None:
            self._pieces = [body]
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._answer is not None and self._parser.get_status_code() >= 200:
            # What follows on this connection, if anything, was not asked for.
            self.reusable = self._parser.should_keep_alive() and self._sent_all
            self._answer = None


@dataclass(frozen=True, slots=True)
class _Target:
    """What requests of one method to one URL have in common.

    Attributes:
        origin: The host, the port, and whether TLS is used.
        head: The lines of a head that are the same in each: the request line, the host and the credentials of the URL.
        sends: A request has a `content-length` even without a body.
    """

    origin: Origin
    head: str
    sends: bool


@lru_cache(maxsize=256)
def _target(method: str, url: URL) -> _Target:
    """Return what requests of a method to a URL have in common. Backends have few addresses."""
    host = url.host_subcomponent or ""
    head = f"{method} {url.raw_path_qs} HTTP/1.1\r\nhost: {host if url.is_default_port() else f'{host}:{url.port}'}"
    return _Target((url.host or "", url.port or 0, url.scheme == "https"), head, method not in ("GET", "HEAD"))


def _head(target: _Target, url: URL, headers: Mapping[str, str], size: int) -> bytes:
    """Return the request line and the headers, whose names are in lower case. Raises `ValueError` for what cannot be
    written.
    """
    lines = [target.head]
    if "accept" not in headers:
        lines.append("accept: */*")
    if url.user is not None and "authorization" not in map(str.lower, headers):
        credentials = base64.b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
        lines.append(f"authorization: Basic {credentials}")
    for name, value in headers.items():
        lines.append(_usual_line(name, value) if name in _USUAL else _line(name, value))
    if size or target.sends:
        lines.append(f"content-length: {size}")
    lines.append("\r\n")
    return "\r\n".join(lines).encode()


def _line(name: str, value: str) -> str:
    """Return the line of a header. Raises `ValueError` for what cannot be written."""
    # Most values are printable, which is one look in C.
    if not _is_token(name) or not (value.isprintable() or _CONTROLS.isdisjoint(value.encode())):
        raise ValueError(f"The header {name!r} cannot be sent.")
    return f"{name}: {value}"


@lru_cache(maxsize=256)
def _is_token(name: str) -> bool:
    """Return whether this can be the name of a header. There are few."""
    return bool(name) and _TOKEN.issuperset(name.encode())


_usual_line = lru_cache(maxsize=256)(_line)


@lru_cache(maxsize=256)
def _header_name(name: bytes) -> str:
    """Return the name of a header in lower case. Backends send few different ones."""
    return name.decode("latin-1").lower()


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
