"""Large requests are decoded beside the event loop, and answered like small ones."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bridge.codec import registry
from bridge.model import Request
from tests.server.harness import post, serving

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
