"""Large requests are decoded beside the event loop, and answered like small ones."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bridge.codec import registry
from bridge.model import Request
from tests.server.harness import fake_backend, post, serving

LARGE = 400_000
CONFIG = {
    "backends": {"it": {"dialect": "demo"}},
    "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
}


@pytest.mark.parametrize(("size", "beside"), [(10, False), (LARGE, True)])
async def test_a_large_request_is_decoded_in_a_thread(size: int, beside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    dialect = registry.get("openai-chat")
    threads: list[bool] = []
    decode = type(dialect).decode_request

    def noted(self: Any, wire: Any, context: Any) -> Request:
        threads.append(threading.current_thread() is not threading.main_thread())
        return decode(self, wire, context)

    monkeypatch.setattr(type(dialect), "decode_request", noted)
    async with serving(dict(CONFIG)) as base:
        body = {"model": "m", "messages": [{"role": "user", "content": "text" + " " * size}]}
        assert (await post(f"{base}/v1/chat/completions", body)).status == 200
    assert threads == [beside]


async def test_a_large_request_that_is_wrong_is_refused_as_a_small_one() -> None:
    async with serving(dict(CONFIG)) as base:
        for size in (10, LARGE):
            body = {"model": "m", "messages": [{"role": "nobody", "content": "x" * size}]}
            reply = await post(f"{base}/v1/chat/completions", body)
            assert (reply.status, reply.json["error"]["param"]) == (400, "messages[0].role")


async def test_a_large_request_reaches_the_backend_whole() -> None:
    """Without a warning of aiohttp, which is an error here."""
    photo = "A" * 3_000_000
    async with fake_backend() as backend:
        backend.streams(b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n', b"data: [DONE]\n\n")
        config = {**CONFIG, "backends": {"it": {"dialect": "openai-chat", "url": f"{backend.url}/v1"}}}
        async with serving(config) as base:
            parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{photo}"}}]
            body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": parts}]}
            reply = await post(f"{base}/v1/chat/completions", body)
        assert (reply.status, b'"error"' in reply.body) == (200, False)
        assert backend.seen[0].json["messages"][0]["content"] == parts
