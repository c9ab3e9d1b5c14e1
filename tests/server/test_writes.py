"""What a stream costs in calls of the kernel, counted: one write for each read of the backend, none beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from bridge.engine.bridge import Bridge
from bridge.model import Message, Request, Text
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
    """What the server handed to aiohttp, write by write."""
    seen: list[bytes] = []
    write, write_eof = web.StreamResponse.write, web.StreamResponse.write_eof

    async def noted(self: web.StreamResponse, data: bytes) -> None:
        seen.append(data)
        await write(self, data)

    async def noted_end(self: web.StreamResponse, data: bytes = b"") -> None:
        seen.append(data)
        await write_eof(self, data)

    monkeypatch.setattr(web.StreamResponse, "write", noted)
    monkeypatch.setattr(web.StreamResponse, "write_eof", noted_end)
    return seen


async def test_a_stream_that_comes_in_one_read_goes_out_in_one_write(writes: list[bytes]) -> None:
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.streams(chunk("Hel") + chunk("lo") + END)
        assert (await post(f"{base}/v1/chat/completions", ASK)).body.endswith(b"data: [DONE]\n\n")
    (whole,) = filter(None, writes)
    assert whole.startswith(b"data: ")
    assert whole.endswith(b"data: [DONE]\n\n")


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
    written = [*filter(None, writes)]
    assert [word for word in WORDS for data in written if word.encode() in data] == WORDS
    assert len(written) == len(WORDS) + 1
    assert written[-1].endswith(b"data: [DONE]\n\n")


async def test_a_run_holds_the_bytes_of_its_last_read_alone() -> None:
    """A long stream must not grow in memory, though passthrough routes want the bytes as they came."""
    taken: asyncio.Queue[None] = asyncio.Queue()

    async def read(word: str) -> None:
        await taken.get()

    async with fake_backend() as backend, Bridge.from_config({**config(backend.url), **NOTHING_KEPT}) as bridge:
        backend.plays(one_by_one(read))
        run = await bridge.run(bridge.route(), Request([Message("user", [Text("hi")])], stream=True))
        held = []
        while not run.ended:
            await run.read()
            held.append(len(run.call.frames))
            taken.put_nowait(None)
        await run.close()
    assert held == [1, 1, 1, 1, 1, 2]
