"""Real sockets for tests: the bridge as it runs in production, a scripted backend, a plain client.

The scripted backend speaks bytes, so that it can do what HTTP libraries do not: cut a character in two, reset a
connection, send nothing. It notes when the bridge left it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from bridge.engine import Bridge
from bridge.server import running

_PORTS = itertools.cycle(range(20_000 + os.getpid() % 11_000, 32_000))


def bound_socket() -> socket.socket:
    """A socket on a port below the range from which the kernel gives outgoing connections theirs.

    The protocol is named because asyncio sets TCP_NODELAY only on a socket whose protocol says TCP;
    without it a small write waits, and a reset that follows throws it away.
    """
    for port in itertools.islice(_PORTS, 2_000):
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError:
            listening.close()
            continue
        return listening
    raise OSError("no free port")


def free_port() -> int:
    """A port that was free a moment ago."""
    with bound_socket() as listening:
        return int(listening.getsockname()[1])


@dataclass
class Seen:
    """One request as the backend saw it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


class Exchange:
    """The backend's side of one request: what a script may do."""

    def __init__(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen = seen
        self._reader = reader
        self._writer = writer
        self._chunked = False

    async def head(self, status: int = 200, content_type: str | None = "text/event-stream", **headers: str) -> None:
        """Sends a head whose body follows in chunks."""
        lines = [f"HTTP/1.1 {status} X", "transfer-encoding: chunked"]
        if content_type:
            lines.append(f"content-type: {content_type}")
        lines += [f"{k.replace('_', '-')}: {v}" for k, v in headers.items()]
        self._chunked = True
        await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def send(self, data: bytes) -> None:
        """Sends one piece of the body."""
        if data:
            await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """Ends the body properly."""
        await self.raw(b"0\r\n\r\n")

    async def answer(self, status: int, body: bytes, content_type: str = "application/json", **headers: str) -> None:
        """A whole answer."""
        lines = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", f"content-length: {len(body)}"]
        lines += [f"{k.replace('_', '-')}: {v}" for k, v in headers.items()]
        await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode() + body)

    async def stream(self, *pieces: bytes) -> None:
        """A whole event stream."""
        await self.head()
        for piece in pieces:
            await self.send(piece)
        await self.end()

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def reset(self) -> None:
        """Cuts the connection with a TCP reset."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def close(self) -> None:
        """Closes the connection without ending the body."""
        self._writer.close()

    async def left(self) -> None:
        """Waits until the bridge has closed this connection."""
        await self.seen.gone.wait()


Script = Callable[[Exchange], Awaitable[None]]


class FakeBackend:
    """Plays a script for each request; `seen` holds the requests in order."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.script: Script | None = None
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def plays(self, script: Script) -> None:
        self.script = script

    def streams(self, *pieces: bytes) -> None:
        """Answers every request with this event stream."""

        async def script(exchange: Exchange) -> None:
            await exchange.stream(*pieces)

        self.script = script

    def answers(self, status: int, body: bytes, content_type: str = "application/json", **headers: str) -> None:
        """Answers every request with this body."""

        async def script(exchange: Exchange) -> None:
            await exchange.answer(status, body, content_type, **headers)

        self.script = script

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        last: Seen | None = None
        try:
            while (seen := await _read_request(reader)) is not None:
                last = seen
                self.seen.append(seen)
                assert self.script is not None
                play = asyncio.ensure_future(self.script(Exchange(seen, reader, writer)))
                watch = asyncio.ensure_future(_until_closed(reader, writer))
                await asyncio.wait({play, watch}, return_when=asyncio.FIRST_COMPLETED)
                if watch.done():
                    seen.gone.set()
                    if not play.done():
                        # A script that waits for us to leave may go on; one that writes finds out by itself.
                        await asyncio.wait({play}, timeout=5)
                    play.cancel()
                    return
                watch.cancel()
                play.result()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            if last is not None:
                last.gone.set()
            writer.close()


async def _until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Returns when the peer closed; looks without consuming bytes of a next request."""
    while not reader.at_eof() and not writer.transport.is_closing() and reader.exception() is None:
        await asyncio.sleep(0.005)


async def _read_request(reader: asyncio.StreamReader) -> Seen | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode().rstrip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, path, headers, body)


@contextlib.asynccontextmanager
async def fake_backend() -> AsyncIterator[FakeBackend]:
    backend = FakeBackend()
    # The socket is bound here and stays bound: a port that is only looked for may be taken by then.
    listening = bound_socket()
    backend.port = listening.getsockname()[1]
    server = await asyncio.start_server(backend._connected, sock=listening, limit=64 * 2**20)
    try:
        yield backend
    finally:
        server.close()
        for task in asyncio.all_tasks():
            if getattr(task.get_coro(), "__qualname__", "") == "FakeBackend._connected":
                task.cancel()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def serving(config: dict[str, Any]) -> AsyncIterator[str]:
    """The bridge with this configuration, served as in production; gives its base URL.

    Conversations are kept only where the configuration says so: the default's file would outlive the test.
    """
    server = config.pop("server", {})
    config = {**config, "stores": {"history": "off", **config.get("stores", {})}}
    async with contextlib.AsyncExitStack() as stack:
        for attempt in range(10):
            section = {"port": free_port(), "drain": "1s", **server}
            try:
                port = await stack.enter_async_context(running(Bridge.from_config({"server": section, **config})))
                break
            except OSError:
                # Another test process took the port in between.
                if attempt == 9:
                    raise
        yield f"http://127.0.0.1:{port}"


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


async def post(url: str, body: Any, **headers: str) -> Reply:
    """A POST and its whole answer. A body that is not bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    sent = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return await ask("POST", url, data, sent)


async def ask(method: str, url: str, data: bytes = b"", headers: dict[str, str] | None = None) -> Reply:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, data=data or None, headers=headers) as response,
    ):
        return Reply(response.status, {k.lower(): v for k, v in response.headers.items()}, await response.read())
