"""A dialect of a third party, served and called; the engine has never heard of it."""

from __future__ import annotations

import asyncio

import pytest

from bridge import Message, Request, Text, translate
from bridge.contract import registry
from bridge.engine.bridge import Bridge
from tests.server.harness import ask, fake_backend, post, serving

SAID = b'data: {"say":"Hel"}\n\ndata: {"say":"lo"}\n\n'
END = b'data: {"end":"stop"}\n\n'

pytestmark = pytest.mark.usefixtures("toy")


def _config(url: str | None = None) -> dict:
    backend = {"dialect": "toy", "url": url} if url else {"dialect": "demo"}
    return {"backends": {"it": backend}, "routes": [{"dialect": "toy", "path": "/toy", "backend": "it"}]}


def test_its_entry_point_makes_it_known() -> None:
    assert "toy" in registry.names()
    assert registry.get("toy").name == "toy"


async def test_it_is_served_streamed_and_whole() -> None:
    async with serving(_config()) as base:
        streamed = await post(f"{base}/toy/ask", {"ask": "reasoning"})
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert streamed.body.endswith(b'data: {"end":"stop"}\n\n')
        whole = await post(f"{base}/toy/ask", {"ask": "reasoning", "stream": False})
        assert whole.json == {"say": "The answer is 42.", "end": "stop"}
        assert (await ask("GET", f"{base}/toy/alive")).json == {"alive": True}


async def test_it_is_called_over_http() -> None:
    async with fake_backend() as backend, serving(_config(backend.url)) as base:
        backend.streams(SAID, END)
        reply = await post(f"{base}/toy/ask", {"ask": "hi"})
        assert reply.body == SAID + END
        assert backend.seen[0].json == {"ask": "hi", "stream": True}
        backend.answers(200, b'{"say":"whole","end":"length"}')
        reply = await post(f"{base}/toy/ask", {"ask": "hi", "stream": False})
        assert reply.json == {"say": "whole", "end": "length"}


async def test_its_errors_have_its_own_shape() -> None:
    async with serving(_config()) as base:
        wrong = await post(f"{base}/toy/ask", {"ask": 3})
        assert (wrong.status, wrong.json) == (400, {"wrong": "ask: expected a string, got 3."})
        nowhere = await ask("GET", f"{base}/toy/nix")
        assert (nowhere.status, nowhere.json) == (
            404,
            {"wrong": "There is nothing at GET /toy/nix. Routes: toy at /toy."},
        )
        method = await ask("GET", f"{base}/toy/ask")
        assert method.status == 405
        assert method.headers["allow"] == "POST"


async def test_it_works_as_a_library() -> None:
    async with Bridge.from_config(_config()) as bridge:
        request = Request([Message("user", [Text("reasoning")])])
        answer = await bridge.complete(request)
        assert (answer.text, answer.reasoning[:8]) == ("The answer is 42.", "The user")
        kinds = [type(event).__name__ async for event in bridge.stream(request)]
        assert (kinds[0], kinds[-1]) == ("RunStarted", "RunFinished")


def test_translate_knows_it() -> None:
    assert translate(SAID + END, "toy", "toy") == SAID + END
    assert b'"wrong"' in translate(SAID, "toy", "toy")


async def test_leaving_the_stream_early_stops_the_backend() -> None:
    async with fake_backend() as backend, Bridge.from_config(_config(backend.url)) as bridge:

        async def script(exchange) -> None:
            await exchange.head()
            await exchange.send(SAID)
            await exchange.left()

        backend.plays(script)
        stream = bridge.stream(Request([Message("user", [Text("x")])]))
        async for event in stream:
            if type(event).__name__ == "TextDelta":
                break
        await stream.aclose()
        await asyncio.wait_for(backend.seen[0].gone.wait(), 1)


async def test_a_broken_stream_is_an_error_in_the_stream() -> None:
    async with fake_backend() as backend, serving(_config(backend.url)) as base:

        async def script(exchange) -> None:
            await exchange.head()
            await exchange.send(SAID)
            exchange.reset()

        backend.plays(script)
        reply = await post(f"{base}/toy/ask", {"ask": "hi"})
        assert reply.status == 200
        assert reply.body.startswith(SAID)
        assert reply.body.count(b"wrong") == 1
