"""A scripted HTTP backend on a local port, controlled byte by byte if necessary.

It writes raw bytes, so that it can do what HTTP libraries do not: split a character, reset a connection, send nothing.
It records when its caller has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from bridge.contract import Dialect, QueuedRunsDialect
from bridge.errors import Failure
from bridge.model import Request
from bridge.testing.queue import QueuedRuns
from bridge.testing.script import Item, ScriptedBackend, Turn
from bridge.testing.sockets import bound_socket

_LIMIT = 64 * 2**20
_LAST_WORDS = 5.0
"""Seconds that a script has to end after its caller left."""


@dataclass
class Seen:
    """A request that the backend received; header names are in lower case. `gone` is set when the connection closed."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        """The body as a JSON value."""
        return orjson.loads(self.body)


class Exchange:
    """The backend's side of one request, for scripts."""

    def __init__(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        self.seen = seen
        self._writer = writer

    async def head(self, status: int = 200, content_type: str | None = "text/event-stream", **headers: str) -> None:
        """Sends a head whose body follows in chunks."""
        lines = [f"HTTP/1.1 {status} X", "transfer-encoding: chunked"]
        if content_type:
            lines.append(f"content-type: {content_type}")
        lines += [f"{k.replace('_', '-')}: {v}" for k, v in headers.items()]
        await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def send(self, data: bytes) -> None:
        """Sends one piece of the body."""
        if data:
            await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """Ends the body properly."""
        await self.raw(b"0\r\n\r\n")

    async def answer(self, status: int, body: bytes, content_type: str = "application/json", **headers: str) -> None:
        """Send a whole answer."""
        lines = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", f"content-length: {len(body)}"]
        lines += [f"{k.replace('_', '-')}: {v}" for k, v in headers.items()]
        await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode() + body)

    async def stream(self, *pieces: bytes) -> None:
        """Send a whole event stream."""
        await self.head()
        for piece in pieces:
            await self.send(piece)
        await self.end()

    async def raw(self, data: bytes) -> None:
        """Sends bytes that need not be HTTP."""
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
        """Waits until the caller has closed this connection."""
        await self.seen.gone.wait()


Play = Callable[[Exchange], Awaitable[object]]
"""One request at a backend, and its answer."""


class FakeBackend:
    """Plays a script for each request; `seen` holds the requests in order, `connections` counts them.

    With a dialect, it answers with parts and events (`says`, `turns`, `fails`, `breaks_off`), and `requests` holds the
    decoded requests; without one, it sends bytes (`streams`, `answers`, `plays`). `problems` holds the exceptions that
    scripts raised.
    """

    def __init__(self, dialect: str | Dialect | None = None) -> None:
        self.seen: list[Seen] = []
        self.script: Play | None = None
        self.connections = 0
        self.port = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.problems: list[Exception] = []
        self._speaker = ScriptedBackend(dialect) if dialect is not None else None
        self._queue: QueuedRuns | None = None
        if self._speaker is not None and isinstance(self._speaker.dialect, QueuedRunsDialect):
            self._queue = QueuedRuns(self._speaker, self._speaker.dialect)

    @property
    def url(self) -> str:
        """Its base URL. It answers at every path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[Request]:
        """The request as the backend's dialect decodes it."""
        return self._speaking().requests

    # ------------------------------------------------------------------ in its dialect

    def says(self, *items: Item) -> None:
        """Answer every request with text, parts and events, streamed or whole as requested."""
        self.turns(items)

    def turns(self, *turns: Turn) -> None:
        """Answers the next requests one after another, each with a list of items or a `Failure`; repeats the last."""
        self._speaking().turns(*turns)
        self.script = self._speak

    def fails(self, failure: Failure) -> None:
        """Refuses every request, with the status and the body that its dialect has for the failure."""
        self.turns(failure)

    def breaks_off(self, *items: Item) -> None:
        """Answer every request with these items, and reset the connection before the end."""
        self.turns(items)

        async def script(exchange: Exchange) -> None:
            if not await self._speak(exchange, ended=False):
                exchange.reset()

        self.script = script

    def _speaking(self) -> ScriptedBackend:
        if self._speaker is None:
            raise TypeError("this backend speaks no dialect: name one, as in fake_backend('...')")
        return self._speaker

    async def _speak(self, exchange: Exchange, *, ended: bool = True) -> bool:
        """Return whether the answer was sent completely. Without `ended`, a run is cut off before its end."""
        seen = exchange.seen
        if seen.method == "GET" and self._queue is None:
            # What some clients ask before their runs, such as an agent's card: this backend has nothing but runs.
            await exchange.answer(404, b"{}")
            return True
        if self._queue is not None:
            reply, ended = self._queue.reply(seen.method, seen.path, seen.headers, seen.body, ended=ended)
        else:
            reply = self._speaking().reply(seen.body, seen.headers, path=seen.path, ended=ended)
        headers = {k.replace("-", "_"): v for k, v in reply.headers.items()}
        await exchange.head(reply.status, headers.pop("content_type", None), **headers)
        for piece in reply.pieces:
            await exchange.send(piece)
        if ended:
            await exchange.end()
        return ended

    # ------------------------------------------------------------------ in bytes

    def plays(self, script: Play) -> None:
        """Calls this with the `Exchange` of every request."""
        self.script = script

    def streams(self, *pieces: bytes) -> None:
        """Answers every request with this event stream."""
        self.script = lambda exchange: exchange.stream(*pieces)

    def answers(self, status: int, body: bytes, content_type: str = "application/json", **headers: str) -> None:
        """Answers every request with this body."""
        self.script = lambda exchange: exchange.answer(status, body, content_type, **headers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, closed: asyncio.Event) -> None:
        """One connection, until either side closes it."""
        self.connections += 1
        last: Seen | None = None
        try:
            while (seen := await _read_request(reader)) is not None:
                last = seen
                self.seen.append(seen)
                if not await self._play(Exchange(seen, writer), closed):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except Exception as error:
            self.problems.append(error)
        finally:
            if last is not None:
                last.gone.set()
            writer.close()

    async def _play(self, exchange: Exchange, closed: asyncio.Event) -> bool:
        """Runs the script beside a watch on the connection; False when the caller left meanwhile."""
        if self.script is None:
            raise RuntimeError("a request came before the fake backend had an answer for it")
        play = asyncio.ensure_future(self.script(exchange))
        watch = asyncio.ensure_future(closed.wait())
        try:
            await asyncio.wait({play, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not watch.done():
                play.result()
                return True
            exchange.seen.gone.set()
            # A script that waits for the caller to leave may continue; one that writes gets an error.
            await asyncio.wait({play}, timeout=_LAST_WORDS)
            return False
        finally:
            watch.cancel()
            play.cancel()


class _Connection(asyncio.StreamReaderProtocol):
    """Notice the peer's closing at once, though nothing is read."""

    def __init__(self, backend: FakeBackend) -> None:
        self._closing = asyncio.Event()
        self._backend = backend
        super().__init__(asyncio.StreamReader(limit=_LIMIT), self._begin)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._backend.serve(reader, writer, self._closing))
        self._backend.tasks.add(task)
        task.add_done_callback(self._backend.tasks.discard)

    def eof_received(self) -> bool | None:
        self._closing.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing.set()
        super().connection_lost(exc)


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
async def fake_backend(dialect: str | Dialect | None = None) -> AsyncIterator[FakeBackend]:
    """A backend on a free port of 127.0.0.1, for the duration of the block, which raises the exceptions of its scripts.

        async with fake_backend("openai-chat") as backend:
            backend.says("Hello")
            ...  # call backend.url
            assert backend.requests[0].messages

    `dialect` is that of its answers; without one, its scripts send bytes.
    """
    backend = FakeBackend(dialect)
    # The socket is bound here and stays bound: a port that is only looked for may be taken by then.
    listening = bound_socket()
    backend.port = listening.getsockname()[1]
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(backend), sock=listening)
    try:
        yield backend
    finally:
        server.close()
        for task in backend.tasks:
            task.cancel()
        await asyncio.gather(*backend.tasks, return_exceptions=True)
    if backend.problems:
        raise backend.problems[0]
