"""The HTTP/1.1 client that reads answers of runs: what it sends, what it makes of each kind of answer, which
connections it uses again, and what it passes on without waking a task."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import re
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import aiohttp
import orjson
import pytest
import trustme
from yarl import URL

from bridge.engine.bridge import Bridge
from bridge.errors import ConfigError
from bridge.model import Event, RunFinished, TextDelta
from bridge.run.backends import http1, probes
from bridge.run.backends.http1 import Http1Answer, Http1Client
from bridge.run.backends.http_answer import AT_ONCE, InvalidAnswer
from bridge.run.backends.http_backend import HttpCall
from bridge.run.run import Run
from bridge.translation import Stage
from tests.server.harness import Exchange, bound_socket, fake_backend, post, serving
from tests.server.test_writes import ASK, END, WORDS, chunk, config, one_by_one

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Server:
    """A server that plays one script for each connection, in order, and the last one for all further ones."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self.scripts: list[Script] = []
        self.heads: list[bytes] = []
        self.connections = 0
        self.open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def close(self) -> None:
        for task in self.open:
            task.cancel()
        await asyncio.gather(*self.open, return_exceptions=True)
        for writer in self.open.values():
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.open[task] = writer
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await script(reader, writer)
        writer.close()

    def sends(self, *answers: bytes, then: str = "waits") -> None:
        """Answers requests on one connection in turn, and then waits for the client to close it, or closes it."""

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for answer in answers:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(answer)
                await writer.drain()
            if then == "waits":
                await reader.read()
            elif then == "resets":
                writer.transport.abort()

        self.scripts.append(script)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    sock = bound_socket()
    made = Server(URL(f"http://127.0.0.1:{sock.getsockname()[1]}"))
    listening = await asyncio.start_server(made.handle, sock=sock)
    yield made
    listening.close()
    await made.close()


@pytest.fixture
def client() -> Iterator[Http1Client]:
    made = Http1Client(5.0)
    yield made
    made.close()


async def ask(client: Http1Client, server: Server, **headers: str) -> Http1Answer:
    async with asyncio.timeout(10):
        return await client.request("POST", server.url / "run", headers, b"")


async def body(answer: Http1Answer, at_once: int = AT_ONCE) -> bytes:
    pieces = []
    async with asyncio.timeout(10):
        while piece := await answer.read(at_once):
            assert len(piece) <= at_once
            pieces.append(piece)
    return b"".join(pieces)


# ---------------------------------------------------------------------- requests


async def test_what_is_sent(client: Http1Client, server: Server) -> None:
    server.sends(PLAIN)
    url = server.url.with_user("me").with_password("pw") / "a b" % {"q": "1 2"}
    answer = await client.request("POST", url, {"x-name": "ünï"}, b"")
    assert (answer.status, await body(answer)) == (200, b"hello")
    line, *lines = server.heads[0].decode().split("\r\n")
    assert line == "POST /a%20b?q=1+2 HTTP/1.1"
    assert lines == [
        f"host: 127.0.0.1:{server.url.port}", "accept: */*", "authorization: Basic bWU6cHc=", "x-name: ünï",
        "content-length: 0", "", "",
    ]  # fmt: skip


LARGE = bytes(range(256)) * 64 * 1024  # 16 MiB


async def test_a_large_body_is_written_as_the_backend_takes_it(
    client: Http1Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits in this process is a part of it, however slowly the backend reads."""
    waiting: list[int] = []
    taken = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.heads.append(await reader.readuntil(b"\r\n\r\n"))
        await taken.wait()
        assert await reader.readexactly(len(LARGE)) == LARGE
        writer.write(PLAIN)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(PLAIN)
        await reader.read()

    connections: list[http1.Http1Connection] = []
    made = http1.Http1Connection.connection_made

    def noted(self: http1.Http1Connection, transport: asyncio.BaseTransport) -> None:
        made(self, transport)
        connections.append(self)

    monkeypatch.setattr(http1.Http1Connection, "connection_made", noted)
    server.scripts.append(script)
    async with asyncio.timeout(20):
        asked = asyncio.ensure_future(client.request("POST", server.url, {}, LARGE))
        for _ in range(20):
            await asyncio.sleep(0.01)
            waiting += [c._transport.get_write_buffer_size() for c in connections if c._transport is not None]
        taken.set()
        answer = await asked
        assert await body(answer) == b"hello"
        answer.release()
        assert f"content-length: {len(LARGE)}".encode() in server.heads[0]
        assert 0 < max(waiting) < 4 * http1.PIECE
        assert await body(await ask(client, server)) == b"hello"
    assert server.connections == 1, "it serves the next request"


@pytest.mark.parametrize("status", [413, 401])
async def test_a_large_body_that_is_refused_is_not_sent_to_its_end(
    client: Http1Client, server: Server, status: int
) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %d No\r\ncontent-length: 2\r\n\r\nno" % status)
        await writer.drain()
        await asyncio.Event().wait()

    server.scripts.append(script)
    async with asyncio.timeout(20):
        answer = await client.request("POST", server.url, {}, LARGE)
        assert (answer.status, await body(answer)) == (status, b"no")
    answer.release()
    server.sends(PLAIN)
    server.scripts.pop(0)
    assert await body(await ask(client, server)) == b"hello"
    assert server.connections == 2, "what is left of the body would be the next request"


async def test_a_backend_that_vanishes_while_it_is_sent_a_large_body(client: Http1Client, server: Server) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    server.scripts.append(script)
    async with asyncio.timeout(20):
        with pytest.raises(ConnectionError):
            await client.request("POST", server.url, {}, LARGE)


async def test_idle_connections_are_closed_though_nothing_happens(
    client: Http1Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "KEEP_SECONDS", 0.2)
    closed = asyncio.Semaphore(0)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(PLAIN)
        await reader.read()
        closed.release()

    server.scripts.append(script)
    answers = await asyncio.gather(*(ask(client, server) for _ in range(3)))
    for number, answer in enumerate(answers):
        assert await body(answer) == b"hello"
        answer.release()
        await asyncio.sleep(0.05 * number)
    async with asyncio.timeout(10):
        for _ in answers:
            await closed.acquire()


async def test_trailers_are_no_headers(client: Http1Client, server: Server) -> None:
    """RFC 9110, section 6.5.1. The connection is used again behind them."""
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nX-A: 1\r\nx-a: 2\r\n\r\n"
    server.sends(head + b"5\r\nhello\r\n0\r\nx-a: 3\r\nx-b: 4\r\n\r\n", PLAIN)
    for headers in ({"transfer-encoding": "chunked", "x-a": "1, 2"}, {"content-length": "5"}):
        answer = await ask(client, server)
        assert await body(answer) == b"hello"
        assert answer.headers == headers
        answer.release()
    assert server.connections == 1


@pytest.mark.parametrize("http_client", ["aiohttp", "httptools"])
async def test_connections_are_probed_by_the_operating_system(
    http_client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may be silent for long: that tells one that is gone from one that thinks."""
    made: list[socket.socket] = []
    probe = probes.probe

    def noted(sock: socket.socket) -> socket.socket:
        made.append(sock)
        return probe(sock)

    monkeypatch.setattr(probes, "probe", noted)
    monkeypatch.setattr(http1, "probe", noted)
    seen: list[tuple[int, int]] = []

    async def script(exchange: Exchange) -> None:
        seen.append(
            (
                made[-1].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                made[-1].getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            )
        )
        await exchange.stream(chunk("hi"), END)

    async with fake_backend() as backend:
        backend.plays(script)
        it = config(backend.url)
        it["server"] = {**it.get("server", {}), "http_client": http_client}
        async with serving(it) as base:
            await post(f"{base}/v1/chat/completions", ASK)
    assert seen == [(1, 60)]


@pytest.mark.parametrize("headers", [{"x": "a\r\nhost: b"}, {"x": "a\0"}, {"a b": "c"}, {"": "c"}, {"a:": "c"}])
async def test_headers_that_cannot_be_sent(client: Http1Client, server: Server, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        await client.request("POST", server.url, headers, b"")
    assert server.connections == 0


async def test_tls(client: Http1Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is checked, with the name of the host."""
    ca = trustme.CA()
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("localhost").configure_cert(served)
    sock = bound_socket()
    made = Server(URL(f"https://localhost:{sock.getsockname()[1]}"))
    made.sends(PLAIN)
    listening = await asyncio.start_server(made.handle, sock=sock, ssl=served)
    with pytest.raises(ssl.SSLCertVerificationError):
        await ask(client, made)
    trusting = ssl.create_default_context()
    ca.configure_trust(trusting)
    monkeypatch.setattr(http1, "_tls", lambda: trusting)
    assert await body(await ask(client, made)) == b"hello"
    with pytest.raises(ssl.SSLCertVerificationError):
        await client.request("POST", made.url.with_host("127.0.0.1"), {}, b"")
    client.close()
    listening.close()
    await made.close()


# ---------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    "wire",
    [
        PLAIN,
        CHUNKED + b"2\r\nhe\r\n3;name=value\r\nllo\r\n0\r\nx-trailer: 1\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + PLAIN,
    ],
    ids=["length", "chunked", "informational"],
)
async def test_an_answer_that_comes_byte_by_byte(client: Http1Client, server: Server, wire: bytes) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for byte in wire:
            writer.write(bytes((byte,)))
            await asyncio.sleep(0)
        await reader.read()

    server.scripts.append(script)
    answer = await ask(client, server)
    assert (answer.status, await body(answer)) == (200, b"hello")
    assert answer.ended


@pytest.mark.parametrize(("coding", "packed"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_compressed_answers(
    client: Http1Client, server: Server, coding: str, packed: Callable[[bytes], bytes]
) -> None:
    text = b"0" * 3_000_000
    data = packed(text)
    server.sends(
        b"HTTP/1.1 200 OK\r\ncontent-encoding: %b\r\ncontent-length: %d\r\n\r\n" % (coding.encode(), len(data)) + data
    )
    answer = await ask(client, server)
    assert await body(answer, 1000) == text


async def test_the_beginning_of_a_compressed_answer_is_not_its_end(client: Http1Client, server: Server) -> None:
    data, more = gzip.compress(b"hello"), asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(data)
        writer.write(head + data[:10])
        await more.wait()
        writer.write(data[10:])
        await reader.read()

    server.scripts.append(script)
    answer = await ask(client, server)
    read = asyncio.create_task(body(answer))
    await asyncio.sleep(0)  # it waits for more than the header of gzip
    more.set()
    assert await read == b"hello"


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 1\r\n\r\nx",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 400_000,
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
    ],
    ids=["ssh", "br", "upgrade", "long head", "two lengths", "no length"],
)
async def test_what_is_no_answer(client: Http1Client, server: Server, wire: bytes) -> None:
    server.sends(wire)
    with pytest.raises(InvalidAnswer):
        await ask(client, server)


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", CHUNKED + b"9\r\n"])
@pytest.mark.parametrize("then", ["closes", "resets"])
async def test_an_answer_that_breaks_off(client: Http1Client, server: Server, head: bytes, then: str) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"hello")
        await read.wait()
        if then == "resets":
            writer.transport.abort()

    read = asyncio.Event()
    server.scripts.append(script)
    answer = await ask(client, server)
    assert await answer.read(AT_ONCE) == b"hello"
    read.set()
    with pytest.raises(ConnectionError, match="middle"):
        await answer.read(AT_ONCE)
    assert not answer.ended


async def test_an_answer_that_ends_with_its_connection(client: Http1Client, server: Server) -> None:
    server.sends(b"HTTP/1.1 200 OK\r\n\r\nhello", then="closes")
    answer = await ask(client, server)
    assert await body(answer) == b"hello"
    assert answer.ended


async def test_a_wrong_chunk_size(client: Http1Client, server: Server) -> None:
    server.sends(CHUNKED + b"5\r\nhello\r\nzz\r\nhello\r\n")
    answer = await ask(client, server)
    assert await answer.read(AT_ONCE) == b"hello"
    with pytest.raises(InvalidAnswer):
        await answer.read(AT_ONCE)


async def test_a_reader_that_waits_holds_up_the_backend(client: Http1Client, server: Server) -> None:
    """An endless answer that nobody reads does not fill memory."""
    sent = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    server.scripts.append(script)
    answer = await ask(client, server)
    before = -1
    while before != sent:  # until the buffers of the kernel are full
        before = sent
        await asyncio.sleep(0.3)
    assert sent < 32 * 2**20
    taken = 0
    while sent == before:
        taken += len(await answer.read(AT_ONCE))
    assert taken > 0
    answer.release()


# ---------------------------------------------------------------------- connections


async def test_a_connection_is_used_again(client: Http1Client, server: Server) -> None:
    server.sends(PLAIN, PLAIN, CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")
    for _ in range(3):
        answer = await ask(client, server)
        assert await body(answer) == b"hello"
        answer.release()
    assert server.connections == 1


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        PLAIN + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged",
        PLAIN + b"x",
        PLAIN + b"HTTP/1.",
    ],
    ids=["close", "1.0", "second answer", "rest", "beginning of an answer"],
)
async def test_a_connection_that_is_not_used_again(client: Http1Client, server: Server, first: bytes) -> None:
    server.sends(first)
    server.sends(PLAIN)
    for _ in range(2):
        answer = await ask(client, server)
        assert await body(answer) == b"hello"
        answer.release()
    assert server.connections == 2


async def test_an_answer_that_nobody_asked_for(client: Http1Client, server: Server) -> None:
    """It came on a kept connection, after the answer before it: the next request must not get it."""
    kept = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(PLAIN)
        await kept.wait()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged")
        assert await reader.read() == b""
        kept.clear()

    server.scripts.append(script)
    server.sends(PLAIN)
    answer = await ask(client, server)
    assert await body(answer) == b"hello"
    answer.release()
    kept.set()
    async with asyncio.timeout(10):
        while kept.is_set():
            await asyncio.sleep(0.01)
    assert await body(await ask(client, server)) == b"hello"
    assert server.connections == 2


async def test_a_kept_connection_that_the_backend_closed_is_no_failure(client: Http1Client, server: Server) -> None:
    server.sends(PLAIN, b"", then="closes")  # reads the second request, and closes without an answer
    server.sends(PLAIN)
    for _ in range(2):
        answer = await ask(client, server)
        assert await body(answer) == b"hello"
        answer.release()
    assert server.connections == 2
    assert len(server.heads) == 3


async def test_a_new_connection_without_an_answer_is_a_failure(client: Http1Client, server: Server) -> None:
    server.sends(b"", then="closes")
    with pytest.raises(ConnectionResetError, match="without an answer"):
        await ask(client, server)
    assert server.connections == 1


@pytest.mark.parametrize("ends", [True, False])
async def test_the_last_bytes_are_waited_for(client: Http1Client, server: Server, ends: bool) -> None:
    """After the end mark of a stream only the end of the body is left: with it, the connection is used again."""
    left = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED + b"5\r\nhello\r\n")
        await left.wait()
        if ends:
            writer.write(b"0\r\n\r\n")
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(PLAIN)
        await reader.read()

    server.scripts.append(script)
    server.sends(PLAIN)
    answer = await ask(client, server)
    assert await answer.read(AT_ONCE) == b"hello"
    answer.release(drain=True)
    left.set()
    await asyncio.sleep(0.6)
    assert await body(await ask(client, server)) == b"hello"
    assert server.connections == (1 if ends else 2)


async def test_a_request_that_is_cancelled_closes_its_connection(client: Http1Client, server: Server) -> None:
    gone = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        gone.set()

    server.scripts.append(script)
    task = asyncio.create_task(ask(client, server))
    async with asyncio.timeout(10):
        while server.connections == 0:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone.wait()


# ---------------------------------------------------------------------- in the server


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """One entry for each batch that `Run.read` returned."""
    seen: list[Run] = []
    read = Run.read

    async def noted(self: Run) -> Any:
        events = await read(self)
        seen.append(self)
        return events

    monkeypatch.setattr(Run, "read", noted)
    return seen


async def streamed(section: dict[str, Any], **asked: Any) -> bytes:
    """The body of a stream whose every word is sent when the client has the one before."""
    came: asyncio.Queue[bytes] = asyncio.Queue()

    async def arrived(word: str) -> None:
        while word.encode() not in await came.get():
            pass

    body = b""
    async with (
        fake_backend() as backend,
        serving({**config(backend.url), **section}) as base,
        aiohttp.ClientSession() as session,
    ):
        backend.plays(one_by_one(arrived))
        async with session.post(f"{base}/v1/chat/completions", json={**ASK, **asked}) as response:
            async for piece in response.content.iter_any():
                came.put_nowait(piece)
                body += piece
    return body


async def test_deltas_wake_no_task(reads: list[Run]) -> None:
    there = await streamed({"server": {"http_client": "httptools"}})
    assert len(reads) <= 3  # the start, the end, and nothing for the words between
    reads.clear()
    assert untimed(await streamed({"server": {"http_client": "aiohttp"}})) == untimed(there)
    assert len(reads) > len(WORDS)


@pytest.mark.parametrize("name", ["httptools", "aiohttp"])
async def test_an_answer_in_one_piece_takes_one_read(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    read, seen = HttpCall.read, list[list[Event]]()

    async def noted(self: HttpCall) -> list[Event]:
        seen.append(await read(self))
        return seen[-1]

    monkeypatch.setattr(HttpCall, "read", noted)
    message = {"role": "assistant", "content": "Hello"}
    whole = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    async with fake_backend() as backend, serving({**config(backend.url), "server": {"http_client": name}}) as base:
        backend.answers(200, orjson.dumps(whole))
        reply = await post(f"{base}/v1/chat/completions", {**ASK, "stream": False})
    assert reply.json["choices"][0]["message"]["content"] == "Hello"
    (events,) = seen
    assert isinstance(events[-1], RunFinished)


def untimed(body: bytes) -> bytes:
    return re.sub(rb'"created":\d+', b"", body)


@pytest.mark.parametrize("sample", [0, 1])
async def test_traces_leave_deltas_alone(reads: list[Run], sample: int) -> None:
    """Also of a run that is traced: its span needs the first content and the end."""
    traces = {"endpoint": "http://127.0.0.1:9", "sample": sample}
    there = await streamed({"server": {"http_client": "httptools", "traces": traces}})
    assert all(word.encode() in there for word in WORDS)
    assert len(reads) <= 3


async def test_estimated_usage_counts_deltas_as_they_pass(reads: list[Run]) -> None:
    route = {"dialect": "openai-chat", "path": "/v1", "backend": "it", "estimate_usage": True}
    asked = {"stream_options": {"include_usage": True}}
    there = await streamed({"server": {"http_client": "httptools"}, "routes": [route]}, **asked)
    assert len(reads) <= 3
    told = await streamed({"server": {"http_client": "aiohttp"}, "routes": [route]}, **asked)
    assert usage_in(there) == usage_in(told)
    assert usage_in(there)[0] > 0


def usage_in(body: bytes) -> list[Any]:
    """The output tokens of each chunk that reports any."""
    chunks = [line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith(b"data: {")]
    usages = [orjson.loads(data).get("usage") for data in chunks]
    return [usage["completion_tokens"] for usage in usages if usage]


def stage(events: list[Any]) -> list[Any]:
    """A stage that must see every event."""
    return events


async def test_a_stage_that_wants_deltas_gets_them(reads: list[Run]) -> None:
    route = {"dialect": "openai-chat", "path": "/v1", "backend": "it", "stages": [f"{__name__}:stages"]}
    there = await streamed({"server": {"http_client": "httptools"}, "routes": [route]})
    assert all(word.encode() in there for word in WORDS)
    assert len(reads) > len(WORDS)


def stages(*_: Any) -> Any:
    return stage


class Waking(Stage):
    """Lets deltas go by at first, and must see later ones: so does a stage that begins to withhold a call."""

    def __init__(self) -> None:
        self.asked = 0
        self.text = ""

    @property
    def passes_deltas(self) -> bool:  # type: ignore[override]
        self.asked += 1
        return self.asked < 4

    def __call__(self, events: list[Any]) -> list[Any]:
        self.text += "".join(event.text for event in events if isinstance(event, TextDelta))
        return events


class Observing(Waking):
    """Sees every delta and changes none, as what records a conversation."""

    passes_deltas = True  # type: ignore[assignment]

    def passed(self, deltas: list[Any]) -> None:
        self(deltas)


MADE: list[Waking] = []


def waking(*_: Any) -> Waking:
    MADE.append(Waking())
    return MADE[-1]


def observing(*_: Any) -> Waking:
    MADE.append(Observing())
    return MADE[-1]


@pytest.mark.parametrize("name", ["waking", "observing"])
async def test_what_a_stage_must_see_passes_it(reads: list[Run], name: str) -> None:
    route = {"dialect": "openai-chat", "path": "/v1", "backend": "it", "stages": [f"{__name__}:{name}"]}
    there = await streamed({"server": {"http_client": "httptools"}, "routes": [route]})
    assert all(word.encode() in there for word in WORDS)
    assert WORDS[-1] in MADE[-1].text
    if name == "observing":
        assert len(reads) <= 3


async def test_a_client_that_does_not_read_holds_up_the_backend() -> None:
    """Tokens for a client that does not read are not piled up; all of them arrive, in order, once it reads."""
    sent = 0
    stop = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.head()
        while not stop.is_set():
            await exchange.send(chunk(f"{sent:06d}" + "x" * 8000))
            sent += 1
        await exchange.send(END)
        await exchange.end()

    async with fake_backend() as backend:
        section = {"server": {"http_client": "httptools", "slow_reader": "off"}}
        async with serving({**config(backend.url), **section}) as base, aiohttp.ClientSession() as session:
            backend.plays(script)
            async with session.post(f"{base}/v1/chat/completions", json=ASK) as response:
                before = -1
                while before != sent:
                    before = sent
                    await asyncio.sleep(0.5)
                assert 0 < sent < 5000
                stop.set()
                text = await response.read()
    numbers = [int(piece[:6]) for piece in text.split(b'"content":"')[1:] if piece[:6].isdigit()]
    assert numbers == list(range(sent))
    assert text.endswith(b"data: [DONE]\n\n")


async def test_the_limit_of_an_answer_counts_what_is_passed_on() -> None:
    sent = 0
    came = asyncio.Semaphore(0)

    async def script(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.head()
        while True:
            await exchange.send(chunk("word"))
            sent += 1
            await came.acquire()

    limits = {"server": {"http_client": "httptools", "limits": {"answer": "4KiB"}}}
    async with fake_backend() as backend, serving({**config(backend.url), **limits}) as base:
        backend.plays(script)
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{base}/v1/chat/completions", json=ASK) as response,
        ):
            text = b""
            async for piece in response.content.iter_any():
                text += piece
                came.release()
    assert b"limits.answer" in text
    assert 10 < sent < 64


def test_the_configuration_names_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.engine.assembly.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"server.http_client: httptools is not installed; pip install"):
        Bridge.from_config({**config("http://127.0.0.1:9"), "server": {"http_client": "httptools"}})
    Bridge.from_config({**config("http://127.0.0.1:9"), "server": {"http_client": "aiohttp"}})
