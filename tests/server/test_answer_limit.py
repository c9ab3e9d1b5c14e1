"""`server.limits.answer`: no answer is endless, whatever reads it; and what counts against a backend."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bridge import Bridge, BridgeError, Message, Request, Text, decode, fold
from bridge.contract import Operation, offers, registry
from bridge.errors import ErrorCode
from bridge.model import verify
from bridge.testing import Exchange, fake_backend
from tests.server.harness import ask, post, serving

LIMIT = 64 * 1024
CHUNK = b'data: {"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"x" * 200)
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def config(url: str, *fronts: str, folder: Path | None = None, **route: Any) -> dict[str, Any]:
    return {
        "server": {"limits": {"answer": LIMIT}},
        "backends": {"it": {"dialect": "openai-chat", "url": url, "breaker": {"failures": 1, "open_for": "1h"}}},
        "routes": [{"dialect": front, "path": f"/{front}", "backend": "it", **route} for front in fronts],
        "stores": {"history": "off", "runs": f"sqlite:///{folder}/runs.db"} if folder else {"history": "off"},
    }


def written(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


async def endless(exchange: Exchange) -> None:
    """Sends until nobody reads."""
    await exchange.head()
    while True:
        await exchange.send(CHUNK)


async def small(exchange: Exchange) -> None:
    """Sends events of a few bytes, each of which is an object in memory here."""
    await exchange.head()
    while True:
        await exchange.send(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n' * 100)


FRONTS = [name for name in registry.names() if offers(registry.get(name).surface, Operation.RUN)]


@pytest.mark.parametrize("script", [endless, small], ids=lambda script: script.__name__)
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("front", FRONTS)
async def test_an_endless_answer_ends_with_an_error(front: str, streamed: bool, script: Any) -> None:
    dialect = registry.get(front)
    endpoint = next(e for e in dialect.surface if e.operation is Operation.RUN)
    wire = dialect.example_request("hi", streamed)
    async with fake_backend() as backend, serving(config(backend.url, front)) as base:
        backend.plays(script)
        async with asyncio.timeout(30):
            reply = await ask("POST", f"{base}/{front}{endpoint.path}", wire.body, dict(wire.headers))
    assert len(reply.body) < 20 * LIMIT
    answer = fold(verify(decode(reply.body, front)))
    assert answer.failure is not None
    assert b"limit of 65536 bytes" in reply.body


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_kept_run_is_limited_though_nobody_reads_it(streamed: bool, tmp_path: Path) -> None:
    async with fake_backend() as backend:
        backend.plays(endless)
        async with serving(config(backend.url, "openai-chat", folder=tmp_path, durable=True)) as base:
            async with asyncio.timeout(30):
                reply = await post(f"{base}/openai-chat/chat/completions", {**ASK, "stream": streamed})
    assert b"limit of 65536 bytes" in reply.body
    assert written(tmp_path) < 40 * LIMIT


async def test_the_library_is_limited_alike() -> None:
    async with fake_backend() as backend, Bridge.from_config(config(backend.url, "openai-chat")) as bridge:
        backend.plays(endless)
        with pytest.raises(BridgeError, match="limit of 65536 bytes") as caught:
            await bridge.complete(Request([Message("user", [Text("hi")])]))
    assert caught.value.code is ErrorCode.BACKEND_PROTOCOL


async def test_a_long_answer_does_not_open_the_breaker() -> None:
    """A client may have asked for it."""
    async with fake_backend() as backend, serving(config(backend.url, "openai-chat")) as base:
        backend.plays(endless)
        for _ in range(3):
            reply = await post(f"{base}/openai-chat/chat/completions", {**ASK, "stream": True})
            assert b"limit of 65536 bytes" in reply.body
        assert len(backend.seen) == 3


async def test_headers_that_cannot_be_sent_do_not_open_the_breaker() -> None:
    url = "/anthropic-messages/messages"
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    section = {"dialect": "anthropic-messages", "breaker": {"failures": 1, "open_for": "1h"}}
    async with fake_backend("anthropic-messages") as backend:
        backend.says("Hello")
        settings = config(backend.url, "anthropic-messages")
        settings["backends"]["it"] = {**section, "url": backend.url}
        async with serving(settings) as base:
            for _ in range(3):
                refused = await post(base + url, body, **{"anthropic-beta": "\xff"})
                assert refused.status == 400
                assert refused.json["error"]["type"] == "invalid_request_error"
                assert "anthropic-beta" in refused.json["error"]["message"]
            assert not backend.seen
            assert (await post(base + url, body)).status == 200
