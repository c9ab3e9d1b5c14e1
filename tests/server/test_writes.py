"""What a stream costs in calls of the kernel, counted: one write for each read of the backend, none beside them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp.http_writer import StreamWriter

from bridge.engine import Bridge
from bridge.model import Event, Message, Request, Text
from bridge.pipeline import Run
from bridge.pipeline.run import Outlet
from bridge.server.wire import EventStream
from tests.server.harness import Exchange, fake_backend, post, serving

NOTHING_KEPT = {"stores": {"history": "off"}}
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def config(url: str) -> dict[str, Any]:
    return {
        "backends": {"it": {"dialect": "openai-chat", "url": url}},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
    }


def chunk(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return b"data: " + orjson.dumps({"id": "c", "model": "m", "choices": [choice]}) + b"\n\n"


END = b'data: {"id":"c","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


WORDS = [f"word{n} " for n in range(5)]


def one_by_one(taken: Callable[[str], Awaitable[None]]) -> Callable[[Exchange], Awaitable[None]]:
    """A backend that sends the next word when the one before was `taken`."""

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        for word in WORDS:
            await exchange.send(chunk(word))
            await taken(word)
        await exchange.send(END)
        await exchange.end()

    return script


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the server handed to its transports; the client in this process writes nothing but its request."""
    seen: list[bytes] = []
    one, many = StreamWriter._write, StreamWriter._writelines

    def note(data: bytes) -> None:
        if not data.startswith(b"POST "):
            seen.append(data)

    def _write(self: StreamWriter, data: Any) -> None:
        note(bytes(data))
        one(self, data)

    def _writelines(self: StreamWriter, pieces: Any) -> None:
        note(b"".join(pieces))
        many(self, pieces)

    put = EventStream.put

    def _put(self: EventStream, data: bytes) -> None:
        note(data)
        put(self, data)

    monkeypatch.setattr(EventStream, "put", _put)
    monkeypatch.setattr(StreamWriter, "_write", _write)
    monkeypatch.setattr(StreamWriter, "_writelines", _writelines)
    return seen


async def test_a_stream_that_comes_in_one_read_goes_out_in_one_write(writes: list[bytes]) -> None:
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.streams(chunk("Hel") + chunk("lo") + END)
        assert (await post(f"{base}/v1/chat/completions", ASK)).body.endswith(b"data: [DONE]\n\n")
    (whole,) = writes
    assert whole.startswith(b"HTTP/1.1 200 OK\r\n")
    assert whole.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


async def word_by_word() -> None:
    """A stream whose every word is sent when the client has the one before."""
    came: asyncio.Queue[bytes] = asyncio.Queue()

    async def arrived(word: str) -> None:
        while word.encode() not in await came.get():
            pass

    async with (
        fake_backend() as backend,
        serving(config(backend.url)) as base,
        aiohttp.ClientSession() as session,
    ):
        backend.plays(one_by_one(arrived))
        async with session.post(f"{base}/v1/chat/completions", json=ASK) as response:
            async for piece in response.content.iter_any():
                came.put_nowait(piece)


async def test_every_read_is_one_write(writes: list[bytes]) -> None:
    """A token that comes alone goes out at once and alone; the end of the body goes with the last event."""
    await word_by_word()
    assert [word for word in WORDS for data in writes if word.encode() in data] == WORDS
    assert len(writes) == len(WORDS) + 1
    assert writes[-1].endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


async def test_a_run_holds_the_bytes_of_its_last_read_alone() -> None:
    """A long stream must not grow in memory, though passthrough routes want the bytes as they came."""
    taken: asyncio.Queue[None] = asyncio.Queue()

    async def read(word: str) -> None:
        await taken.get()

    async with fake_backend() as backend, Bridge.from_config({**config(backend.url), **NOTHING_KEPT}) as bridge:
        backend.plays(one_by_one(read))
        run = await bridge.run(bridge.route(), Request([Message("user", [Text("hi")])], stream=True))
        held = []
        while not run.done:
            await run.read()
            held.append(len(run.call.frames))
            taken.put_nowait(None)
        await run.close()
    assert held == [1, 1, 1, 1, 1, 2]


async def test_tokens_wake_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes in the middle of an answer goes from its read to its write: the pump asks for the start and the end.

    It rests on names within aiohttp; where these are others, every token wakes the pump as before, and this fails.
    """
    reads: list[list[str]] = []
    read = Run.read

    async def counted(self: Run, outlet: Outlet | None = None) -> list[Event]:
        events = await read(self, outlet)
        reads.append([type(event).__name__ for event in events])
        return events

    monkeypatch.setattr(Run, "read", counted)
    await word_by_word()
    assert len(reads) == 2
    assert reads[0][0] == "RunStarted"
    assert reads[1][-1] == "RunFinished"


async def test_all_words_come_in_order_to_a_client_that_stops_to_think(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection fills up, so that the pump takes over, and is free again, so that it sleeps, some times."""
    ways = {"put": 0, "send": 0, "blocked": 0}
    put, send = EventStream.put, EventStream.send

    def at_once(self: EventStream, data: bytes) -> None:
        ways["put"] += 1
        put(self, data)

    async def waiting(self: EventStream, data: bytes) -> None:
        ways["send"] += 1
        ways["blocked"] += 1
        await send(self, data)
        ways["blocked"] -= 1

    monkeypatch.setattr(EventStream, "put", at_once)
    monkeypatch.setattr(EventStream, "send", waiting)
    words = [f"<{n}>" + "x" * 9_997 for n in range(4_000)]

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        for n in range(0, len(words), 3):
            await exchange.send(b"".join(map(chunk, words[n : n + 3])))
        await exchange.send(END)
        await exchange.end()

    pieces: list[bytes] = []
    size, thinks_at = 0, 2**20
    async with (
        fake_backend() as backend,
        serving(config(backend.url)) as base,
        aiohttp.ClientSession(read_bufsize=2**14) as session,
    ):
        backend.plays(script)
        async with session.post(f"{base}/v1/chat/completions", json=ASK) as response:
            async for piece in response.content.iter_any():
                pieces.append(piece)
                size += len(piece)
                if size > thinks_at:
                    thinks_at += 16 * 2**20  # more than the kernel holds
                    async with asyncio.timeout(60):
                        while size < 20 * 2**20 and not ways["blocked"]:
                            await asyncio.sleep(0.01)
    said = [
        choice["delta"].get("content") or ""
        for event in b"".join(pieces).split(b"\n\n")
        if event.startswith(b"data: {")
        for choice in orjson.loads(event[6:])["choices"]
    ]
    assert "".join(said) == "".join(words)
    assert ways["put"] > ways["send"] >= 2


def held(marker: bytes) -> list[bytes]:
    """All bytes in this process, as far as the collector sees, that contain this and more."""
    found = {id(o): o for o in gc.get_referents(*gc.get_objects()) if type(o) is bytes and marker in o}
    return [data for data in found.values() if data != marker]


async def test_the_bytes_of_a_request_are_not_held_while_its_answer_streams() -> None:
    marker = b"\\u006darker"  # written otherwise wherever it is written anew
    body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"%b"}]}' % marker
    open_still = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(chunk("first"))
        await open_still.wait()
        await exchange.send(END)
        await exchange.end()

    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.plays(script)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        assert held(marker) == [body]
        del body
        await reader.readuntil(b"first")
        assert held(marker) == []
        open_still.set()
        await reader.readuntil(b"[DONE]")
        writer.close()
    assert [seen.json["messages"][0]["content"] for seen in backend.seen] == ["marker"]
