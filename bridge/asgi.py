"""The server as an ASGI application, for Starlette, FastAPI, Django and every ASGI server.

Each ASGI request becomes a request of the aiohttp application (`make_app`), so that both have the same endpoints,
history, fallback and limits. Received messages are fed to the request's body; what the response writes is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from typing import Any
from urllib.parse import quote

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11, RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from bridge.engine.bridge import Bridge
from bridge.errors import ConfigError
from bridge.server.host.app import make_app
from bridge.server.requests.state import STATE, Hosting

__all__ = ["ASGIApp", "Message", "Receive", "Send", "app"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_HOP = frozenset({"connection", "date", "keep-alive", "transfer-encoding"})
"""Response headers that are the ASGI server's own."""
_PIECE = 64 * 1024
_INPUT = 4 * 1024
"""Compressed bytes that are decompressed at a time."""
_ANY_HEADER = 32 + zlib.MAX_WBITS
"""For zlib: a header of gzip or of deflate."""


def app(bridge: Bridge) -> ASGIApp:
    """Return an ASGI application that serves all routes of `bridge`; its lifespan opens and closes the bridge.

    Raises `ConfigError` for a route over gRPC, which no ASGI server carries.
    """
    if not isinstance(bridge, Bridge):
        raise TypeError(f"expected a bridge.Bridge, got {type(bridge).__name__}; write Bridge.from_config(...)")
    for index, route in enumerate(bridge.routes):
        if route.listen:
            raise ConfigError("ASGI has no gRPC; serve it with `dialect-bridge serve`", key=f"routes[{index}].listen")
    return ASGIApp(bridge)


class ASGIApp:
    """An ASGI application that serves a bridge.

    ASGI servers run its lifespan. An application that mounts it runs `lifespan` within its own.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._server: web.Server | None = None

    @contextlib.asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Keep the bridge open inside the block. Leaving it gives open runs `server.drain` seconds to finish.

        Raises `BridgeError` for a configuration that cannot be served and a store that cannot be opened.
        """
        application = make_app(self._bridge, Hosting(cancels=True))
        state = application[STATE]
        runner = web.AppRunner(application, handle_signals=False)
        try:
            await runner.setup()
            self._server = runner.server
            yield
            state.begin_to_stop()
            await state.drain(self._bridge.config.server.drain)
        finally:
            self._server = None
            await runner.cleanup()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one connection. Raises `RuntimeError` for a request outside of the lifespan."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close"})
        elif self._server is None:
            raise RuntimeError("The bridge is not open: run the ASGI lifespan, or `async with app.lifespan():`.")
        else:
            await _Connection(scope, receive, send).serve(self._server)

    async def _live(self, receive: Receive, send: Send) -> None:
        began = False
        try:
            async with self.lifespan():
                await receive()
                began = True
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:
            await send({"type": f"lifespan.{'shutdown' if began else 'startup'}.failed", "message": str(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})


class _Connection:
    """One request and its response. To aiohttp it is the protocol, and the transport, of a connection."""

    connected = True
    sockname = None
    max_field_size = 8190
    max_headers = 128

    def __init__(self, scope: Message, receive: Receive, send: Send) -> None:
        self.peername = tuple(scope["client"]) if scope.get("client") else None
        self.ssl_context = scope.get("scheme") in ("https", "wss") or None
        self.transport = self
        self._scope = scope
        self._receive = receive
        self._writer = _Writer(send, "websocket.http.response" if scope["type"] == "websocket" else "http.response")
        self._payload = StreamReader(self, _PIECE, loop=asyncio.get_running_loop())  # type: ignore[arg-type]
        encoding = dict(scope["headers"]).get(b"content-encoding", b"").strip().lower()
        self._inflate = _Inflate() if encoding in (b"gzip", b"deflate") else None
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._handling: asyncio.Task[None] | None = None
        self._has_left = False

    async def serve(self, server: web.Server) -> None:
        """Answer the request; a client that leaves cancels it."""
        if not self._names_body():
            await self._take(await self._receive())
            if self._has_left:
                return
        self._handling = asyncio.create_task(self._handle(server))
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait({self._handling, reading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()
            self._handling.cancel()
            await asyncio.gather(reading, self._handling, return_exceptions=True)
        if not self._handling.cancelled():
            self._handling.result()

    async def _handle(self, server: web.Server) -> None:
        message, task = _message(self._scope), asyncio.current_task()
        request = server.request_factory(message, self._payload, self, self._writer, task)  # type: ignore[arg-type]
        response = await server.request_handler(request)
        if self._writer.is_closed:
            return
        with contextlib.suppress(ConnectionError):
            await response.prepare(request)
            await response.write_eof()

    def _names_body(self) -> bool:
        """Return whether a header says that there is a body; without one, the first message tells."""
        headers = dict(self._scope["headers"])
        return b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip() != b"0"

    async def _read(self) -> None:
        """Feed the body to the request. Returns when the client has left."""
        while not self._has_left:
            await self._take(await self._receive())
        if not self._payload.is_eof():
            self._payload.set_exception(ConnectionResetError("The client disconnected."))

    async def _take(self, message: Message) -> None:
        if message["type"].endswith(".disconnect"):
            self._has_left = True
            return
        if self._payload.is_eof():
            return
        data, inflate = message.get("body", b""), self._inflate
        try:
            for piece in [data] if inflate is None else inflate.pieces(data):
                await self._wanted.wait()
                self._payload.feed_data(piece)
            if message.get("more_body"):
                return
            if inflate is not None:
                inflate.close()
        except zlib.error as error:
            self._payload.set_exception(web.RequestPayloadError(str(error)))
        self._payload.feed_eof()

    # ------------------------------------------------------------------ the protocol and the transport

    def pause_reading(self) -> None:
        self._wanted.clear()

    def resume_reading(self, resume_parser: bool = True) -> None:
        self._wanted.set()

    def is_closing(self) -> bool:
        return self._has_left or self._writer.is_closed or self._handling is None or self._handling.cancelling() > 0

    def abort(self) -> None:
        """Break off the response: an ASGI server closes the connection of one that does not end."""
        self._writer.is_closed = True
        if self._handling is not None and self._handling is not asyncio.current_task():
            self._handling.cancel()

    def get_write_buffer_size(self) -> int:
        """Nothing is held back here."""
        return 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": self.peername, "sslcontext": self.ssl_context}.get(name, default)


class _Inflate:
    """Decompresses a body as it comes. A body of gzip may have several members (RFC 1952, section 2.2); what follows
    the end and begins none is an error, and is not kept.
    """

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_ANY_HEADER)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield the data in chunks, since a few bytes may expand to many. Raises `zlib.error`."""
        # At the end of a member zlib copies what is left of its input: little, so that many short members cost no more.
        for start in range(0, len(data), _INPUT):
            left = data[start : start + _INPUT]
            while left:
                if self._member.eof:
                    self._member = zlib.decompressobj(_ANY_HEADER)
                yield self._member.decompress(left, _PIECE)
                left = self._member.unconsumed_tail or self._member.unused_data

    def close(self) -> None:
        """The body ended. Raises `zlib.error` inside a member."""
        if not self._member.eof:
            raise zlib.error("the end is missing")


class _Writer(AbstractStreamWriter):
    """Sends what a response writes."""

    def __init__(self, send: Send, kind: str) -> None:
        self._send = send
        self._kind = kind
        self.is_closed = False
        """Nothing more is sent: the client is gone, or the response was broken off."""

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        sent = [(k.lower().encode(), v.encode()) for k, v in headers.items() if k.lower() not in _HOP]
        await self._say("start", status=int(status_line.split()[1]), headers=sent)

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        self.output_size += len(chunk)
        await self._say("body", body=bytes(chunk), more_body=True)

    async def write_eof(self, chunk: bytes = b"") -> None:
        self.output_size += len(chunk)
        await self._say("body", body=bytes(chunk), more_body=False)

    async def _say(self, what: str, **facts: object) -> None:
        if self.is_closed:
            raise ConnectionResetError("The connection is closed.")
        try:
            await self._send({"type": f"{self._kind}.{what}", **facts})
        except OSError as error:
            # What servers raise when the client has left differs.
            self.is_closed = True
            raise ConnectionResetError("The client disconnected.") from error

    async def drain(self) -> None:
        """Nothing is held back here."""

    def enable_chunking(self) -> None:
        """The ASGI server frames the body."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        raise NotImplementedError("responses are not compressed here")


def _message(scope: Message) -> RawRequestMessage:
    """Return the request as aiohttp's parser would, with its path below where the application is mounted."""
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    if root and f"{path}/".startswith(f"{root}/"):
        path = path[len(root) :]
    target = quote(path or "/", safe="/:@!$&'()*+,;=~")
    if query := scope.get("query_string", b""):
        target += f"?{query.decode('latin-1')}"
    # The ASGI server answers `Expect` by itself.
    raw = tuple((name, value) for name, value in scope["headers"] if name != b"expect")
    headers = CIMultiDict((name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in raw)
    method = scope.get("method", "GET")
    return RawRequestMessage(
        method,
        target,
        HttpVersion11,
        CIMultiDictProxy(headers),
        raw,
        False,
        None,
        False,
        False,
        URL(target, encoded=True),
    )
