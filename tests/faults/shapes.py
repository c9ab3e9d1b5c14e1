"""Loads of an unusual shape for the soak: large, in many pieces, forwarded, pipelined, read slowly or not at all."""

from __future__ import annotations

import asyncio
import base64
import gzip
import os
import random
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any

import orjson

from bridge.contract import registry
from bridge.model import PartKind, ToolCall
from bridge.testing.pairs import frames_of
from bridge.testing.wires import context
from bridge.translation import framing
from tests.faults.wire import LIMIT, SPEAKING, ask, asking, connect, exchange, raw, read
from tests.fuzz.output import Answer, Invalid, judge_events, taken
from tests.server.harness import Exchange

MAX_BODY = 32 * 2**20
"""The default of `server.max_body`, in bytes."""
SLOW_READER = 3
"""Seconds that the server gives a client to take a piece."""
MODELS = ("openai-chat", "openai-responses", "anthropic-messages", "gemini")
CALLS, PARTS = 300, 40
BIG, HUGE = 2**20, 12 * 2**20
"""Bytes of an answer that is read slowly, and of one that nobody reads: more than the system's buffers take."""
_FRAGMENTS = 4_000
_FORWARDED = orjson.dumps({"data": [{"index": n, "embedding": [n / 7] * 20} for n in range(1_000)]})
_HEADS = ("/", "/healthz", "/readyz", "/metrics", "/nowhere", "/_page/page.js", "/_page/health", "/forward/v1/models")
_FINAL, _TEXT, _CONTINUATION, _CLOSE = 0x80, 1, 0, 8

Shape = Callable[[str, int, random.Random], Awaitable[str]]
"""Play one case against the server at this address; the number is its own. Returns what was wrong, if anything."""


# ---------------------------------------------------------------------- what backends say


@cache
def rich(name: str) -> list[bytes]:
    """The frames of an answer with many parts and calls, and, where the dialect has them, several choices."""
    dialect = registry.get(name)
    builder = context(None).builder()
    builder.begin(model="m")
    for number in range(PARTS):
        builder.open_part(number, "said", PartKind.TEXT)
        builder.delta(number, f"part {number} ")
        builder.end_part(number)
    for number in range(CALLS):
        builder.add("said", ToolCall(f"call-{number}", f"tool_{number % 9}", f'{{"n":{number}}}'))
    for choice in range(1, 4):
        builder.message(choice, choice=choice)
        builder.flow(choice, PartKind.TEXT, "another choice")
    builder.finish()
    builder.end()
    encoder = dialect.encoder(context(dialect.front_options()))
    return [framing.of(dialect.framing).join([frame]) for frame in encoder.encode(builder.take())]


@cache
def much(name: str, size: int) -> list[bytes]:
    """The frames of an answer of so many bytes."""
    return frames_of(registry.get(name), *[" " * 2**16] * (size // 2**16))


def prepare() -> None:
    """Make the answers that are made once."""
    for name in MODELS:
        rich(name)
        much(name, BIG)
    much("openai-chat", HUGE)
    _filler()


async def forwarded(exchange: Exchange) -> None:
    """Answer what is passed through: as it is, compressed or in chunks, whole or not, by its query."""
    kind = exchange.seen.path.rpartition("kind=")[2]
    if kind in ("gzip", "deflate"):
        packed = gzip.compress(_FORWARDED, 1) if kind == "gzip" else zlib.compress(_FORWARDED, 1)
        await exchange.answer(200, packed, content_encoding=kind)
    elif kind == "chunks":
        await exchange.head(200, "application/json")
        for at in range(0, len(_FORWARDED), 7_000):
            await exchange.send(_FORWARDED[at : at + 7_000])
        await exchange.end()
    elif kind == "cut":
        length = f"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: {len(_FORWARDED)}\r\n\r\n"
        await exchange.raw(length.encode() + _FORWARDED[:-100])
        exchange.close()
    elif kind == "large":
        await exchange.answer(200, b"x" * HUGE)
    elif "/models" in exchange.seen.path:
        await exchange.answer(200, b'{"object":"list","data":[{"id":"m","object":"model","owned_by":"o"}]}')
    else:
        await exchange.answer(200, _FORWARDED)


# ---------------------------------------------------------------------- the shapes


async def many_parts(base: str, number: int, chance: random.Random) -> str:
    """An answer with hundreds of calls and parts, streamed or whole."""
    front, back = registry.get(chance.choice(SPEAKING)), chance.choice(MODELS)
    streams = front.name == "agent-runs" or chance.random() < 0.7
    said = {"text": f"rich-{number}", "thread": f"t{number}", "run": f"r{number}", "stream": streams}
    saw = await ask(base, front, f"/{front.name}/{back}", **said)
    if not streams:
        missing = [n for n in range(PARTS) if b"part %d" % n not in saw.body]
        problem = saw.status != 200 or not saw.whole or bool(missing)
        return f"{front.name} over {back}: {saw.status}, without the parts {missing}" if problem else ""
    got = await asyncio.to_thread(read, front, saw)
    expected = "".join(f"part {n} " for n in range(PARTS))
    problem = (got.verdict, got.text.replace("\n", "")) != ("whole", expected)
    return f"{front.name} over {back}: {got.verdict}, {got.failure}, {got.text[:99]!r}" if problem else ""


@cache
def _filler() -> bytes:
    return b"all work and no play " * (MAX_BODY // 21 + 1)


async def large_request(base: str, number: int, chance: random.Random) -> str:
    """A request of up to the limit of a body, or just above it, whose client may leave in the middle of it."""
    front, back = registry.get(chance.choice(MODELS)), chance.choice(MODELS)
    wish = f"whole-{number}"
    wire = asking(front, text=f"~~{wish}", thread=f"t{number}", run=f"r{number}")
    size = chance.choice((MAX_BODY // 2, MAX_BODY - len(wire.body), MAX_BODY + 1))
    wire.body = wire.body.replace(b"~~", _filler()[:size] + b"\\n", 1)
    request = raw(wire, f"/{front.name}/{back}")
    if chance.random() < 0.3:
        await left_in_the_middle(base, request)
        return ""
    saw = await exchange(base, request)
    if len(wire.body) > MAX_BODY:
        return "" if saw.status == 413 else f"{len(wire.body)} bytes for {front.name}: {saw.status}"
    got = read(front, saw)
    return "" if got.verdict == "whole" and f"<{wish}>" in got.text else f"{front.name} over {back}: {got}"


async def left_in_the_middle(base: str, request: bytes) -> None:
    """Send most of a request, and close the connection."""
    _, writer = await connect(base)
    writer.write(memoryview(request)[: len(request) * 3 // 4])
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.drain()
    writer.transport.abort()


async def fragments(base: str, number: int, chance: random.Random) -> str:
    """A message of a WebSocket in thousands of fragments, with pings between them; some clients leave inside it."""
    text = f"whole-{number}"
    said = {"role": "user", "content": [{"type": "input_text", "text": "x" * _FRAGMENTS * 20 + text}]}
    message = orjson.dumps({"type": "response.create", "model": "m", "store": False, "input": [said]})
    size = len(message) // _FRAGMENTS + 1
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    leaves = chance.random() < 0.2
    async with _socket(base, f"/openai-responses/{chance.choice(MODELS)}/responses") as (reader, writer):
        for at, piece in enumerate(pieces[: len(pieces) // 2] if leaves else pieces):
            opcode = _CONTINUATION if at else _TEXT
            writer.write(_masked(opcode | _FINAL * (at == len(pieces) - 1), piece))
            if at % 100 == 0:
                writer.write(_masked(_FINAL | 9, b"ping"))
                await writer.drain()
        if leaves:
            return ""
        events = [event async for event in _messages(reader)]
    last = events[-1] if events else {}
    return "" if last.get("type") == "response.completed" and text in str(last) else f"{text}: {str(last)[:300]}"


async def passed_through(base: str, number: int, chance: random.Random) -> str:
    """Forwarded answers of every framing, and lists of models."""
    kind = chance.choice(("plain", "gzip", "deflate", "chunks", "cut", "models", "large"))
    line = _line("POST", f"/forward/v1/embeddings?kind={kind}", closes=True)
    saw = await exchange(base, _line("GET", "/forward/v1/models", closes=True) if kind == "models" else line)
    if kind == "models":
        return "" if saw.status == 200 and saw.whole else f"models: {saw.status}"
    if kind == "large":
        return "" if saw.whole and len(saw.body) == HUGE else f"{len(saw.body)} bytes of {HUGE}"
    whole = saw.whole and saw.body == _FORWARDED
    return "" if whole is (kind != "cut") else f"forwarded {kind}: {saw.status}, {len(saw.body)} bytes, {saw.whole}"


async def heads(base: str, number: int, chance: random.Random) -> str:
    """HEAD of everything, with a GET behind each: no byte of a body stands between them."""
    paths = list(_HEADS)
    chance.shuffle(paths)
    asked = [(method, path) for path in paths for method in ("HEAD", "GET")][:-1]
    return await _on_one_connection(base, [(method, _line(method, path)) for method, path in asked])


async def pipelined(base: str, number: int, chance: random.Random) -> str:
    """Requests sent at once on one connection, of which each gets its own answer, in order; some clients leave."""
    asked: list[tuple[str, bytes]] = []
    words: list[bytes] = []
    for at in range(chance.randint(2, 8)):
        front = registry.get(chance.choice(MODELS))
        wish = f"whole-{number}x{at}x"
        wire = asking(front, text=wish, stream=chance.random() < 0.5)
        asked.append(("POST", raw(wire, f"/{front.name}/{chance.choice(MODELS)}", connection="keep-alive")))
        words.append(wish.encode())
        if chance.random() < 0.3:
            asked.append(("GET", _line("GET", "/healthz")))
            words.append(b"")
    if chance.random() < 0.2:
        _, writer = await connect(base)
        writer.write(b"".join(request for _, request in asked))
        await asyncio.sleep(chance.random() * 0.1)
        writer.transport.abort()
        return ""
    return await _on_one_connection(base, asked, words)


async def nobody_reads(base: str, number: int, chance: random.Random) -> str:
    """An answer of many megabytes, whole, streamed or forwarded, that is not read: its connection is cut in time."""
    kind = chance.choice(("whole", "stream", "forwarded"))
    if kind == "forwarded":
        request = _line("POST", "/forward/v1/embeddings?kind=large")
    else:
        front = registry.get(chance.choice(MODELS))
        wire = asking(front, text=f"huge-{number}", stream=kind == "stream")
        request = raw(wire, f"/{front.name}/openai-chat")
    reader, writer = await connect(base)
    try:
        reader._limit = 1  # type: ignore[attr-defined]  # the test's own reader stops reading, too
        writer.write(request)
        async with asyncio.timeout(LIMIT):
            # A connection that was cut refuses what is sent to it.
            with suppress(ConnectionError):
                while True:
                    await asyncio.sleep(0.2)
                    writer.write(b"\r\n")
                    await writer.drain()
    except TimeoutError:
        return f"a {kind} answer that nobody reads was not cut"
    finally:
        writer.transport.abort()
    return ""


async def slow_readers(base: str, number: int, chance: random.Random) -> str:
    """An answer of a megabyte that is read in sips, each well within the limit, and is whole at its end."""
    front = registry.get(chance.choice(MODELS))
    streams = chance.random() < 0.5
    wire = asking(front, text=f"big-{number}", stream=streams)
    reader, writer = await connect(base)
    data = bytearray()
    try:
        writer.write(raw(wire, f"/{front.name}/{chance.choice(MODELS)}"))
        async with asyncio.timeout(LIMIT):
            for _ in range(40):
                data += await reader.read(4_096)
                await asyncio.sleep(0.01)
            while piece := await reader.read(2**20):
                data += piece
        answer = taken(bytes(data), "POST")
    except ConnectionError as error:
        return f"a slow reader of {front.name}: {error!r}"
    finally:
        writer.transport.abort()
    if answer is None or answer.status != 200 or len(answer.body) < BIG:
        return f"a slow reader of {front.name}: {len(data)} bytes"
    return ""


async def _on_one_connection(base: str, asked: list[tuple[str, bytes]], words: list[bytes] | None = None) -> str:
    reader, writer = await connect(base)
    data, is_over = b"", False
    try:
        writer.write(b"".join(request for _, request in asked))
        async with asyncio.timeout(LIMIT):
            for at, (method, request) in enumerate(asked):
                while (answer := taken(data, method)) is None and not is_over:
                    piece = await reader.read(2**20)
                    data, is_over = data + piece, not piece
                if answer is None:
                    return f"answer {at + 1} of {len(asked)} is missing: {data[:99]!r}"
                if problem := _unlike(answer, method, words[at] if words is not None else b""):
                    return f"{problem} for {request[:60]!r}"
                data = answer.rest
    except (Invalid, ConnectionError) as error:
        return f"{error} after {[request[:40] for _, request in asked]}"
    finally:
        writer.transport.abort()
    return ""


def _unlike(answer: Answer, method: str, word: bytes) -> str:
    if method == "HEAD" and answer.body:
        return "a body behind a head"
    if word and (answer.status != 200 or word not in answer.body):
        return f"status {answer.status} without {word!r}"
    if answer.header("content-type").startswith("text/event-stream"):
        judge_events(answer.body)
    return ""


def _line(method: str, path: str, *, closes: bool = False) -> bytes:
    body = b'{"input":"x"}' if method == "POST" else b""
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", "content-type: application/json"]
    lines += [f"content-length: {len(body)}", *(["connection: close"] if closes else [])]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


# ---------------------------------------------------------------------- a client of a WebSocket


@asynccontextmanager
async def _socket(base: str, path: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A WebSocket whose frames are written by hand, for what libraries do not send."""
    reader, writer = await connect(base)
    try:
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(
            f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
            f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n".encode()
        )
        async with asyncio.timeout(LIMIT):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101"), head
            yield reader, writer
    finally:
        writer.transport.abort()


def _masked(first: int, payload: bytes) -> bytes:
    """A frame of a client. A mask of zeros is a mask."""
    if len(payload) < 126:
        return struct.pack("!BB4x", first, 0x80 | len(payload)) + payload
    return struct.pack("!BBH4x", first, 0x80 | 126, len(payload)) + payload


async def _messages(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """The events of one answer, to the last."""
    while True:
        first, second = await reader.readexactly(2)
        length = second & 0x7F
        if length > 125:
            length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8))
        payload = await reader.readexactly(length)
        if first & 0x0F == _CLOSE:
            return
        if first & 0x0F == _TEXT:
            event = orjson.loads(payload)
            yield event
            if event["type"] in ("response.completed", "response.failed", "response.incomplete", "error"):
                return


SHAPES: dict[str, tuple[Shape, int, int]] = {
    # How often it is played, and how many may be played at a time.
    "many parts": (many_parts, 8, 24),
    "large request": (large_request, 1, 1),
    "fragments": (fragments, 2, 2),
    "passed through": (passed_through, 8, 8),
    "heads": (heads, 3, 24),
    "pipelined": (pipelined, 8, 24),
    "nobody reads": (nobody_reads, 1, 3),
    "slow reader of much": (slow_readers, 4, 8),
}
