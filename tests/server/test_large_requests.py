"""Large requests are decoded beside the event loop, and answered like small ones."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bridge.contract import registry
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


@pytest.mark.parametrize(("size", "beside"), [(10, False), (LARGE, True)])
async def test_a_large_request_is_encoded_in_a_thread(size: int, beside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    dialect = registry.get("anthropic-messages")
    threads: list[bool] = []
    encode = type(dialect).encode_request

    def noted(self: Any, request: Any, context: Any) -> Any:
        threads.append(threading.current_thread() is not threading.main_thread())
        return encode(self, request, context)

    monkeypatch.setattr(type(dialect), "encode_request", noted)
    async with fake_backend("anthropic-messages") as backend:
        backend.says("Hello.")
        section = {"dialect": "anthropic-messages", "url": backend.url}
        async with serving({**CONFIG, "backends": {"it": section}}) as base:
            body = {"model": "m", "messages": [{"role": "user", "content": "text" + " " * size}]}
            assert (await post(f"{base}/v1/chat/completions", body)).status == 200
            # What cannot be said to the backend is refused as elsewhere.
            logit = await post(f"{base}/v1/chat/completions", {**body, "logit_bias": "x"})
            assert logit.status == 400
    assert threads == [beside]


async def test_a_request_that_the_backend_cannot_be_told_is_refused_whatever_its_size() -> None:
    async with fake_backend("anthropic-messages") as backend:
        section = {"dialect": "anthropic-messages", "url": backend.url}
        async with serving({**CONFIG, "backends": {"it": section}}) as base:
            seen = []
            for size in (10, LARGE):
                audio = {"type": "input_audio", "input_audio": {"data": "A" * 4 * size, "format": "wav"}}
                body = {"model": "m", "messages": [{"role": "user", "content": [audio]}]}
                reply = await post(f"{base}/v1/chat/completions", body)
                seen.append((reply.status, reply.json["error"]["param"]))
    assert seen[0] == seen[1]
    assert seen[0][0] == 400


@pytest.mark.parametrize(("text", "count", "beside"), [("x", 10, False), ("x", 20_000, True), ("x" * 50_000, 10, True)])
@pytest.mark.parametrize("durable", [False, True])
async def test_an_answer_of_many_events_or_much_text_is_put_together_in_a_thread(
    text: str, count: int, beside: bool, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = registry.get("anthropic-messages")
    threads: list[bool] = []
    assemble = type(dialect).assemble

    def noted(self: Any, events: Any, context: Any) -> Any:
        threads.append(threading.current_thread() is not threading.main_thread())
        return assemble(self, events, context)

    monkeypatch.setattr(type(dialect), "assemble", noted)
    async with fake_backend() as backend:
        frame = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode()
        backend.streams(frame * count, b"data: [DONE]\n\n")
        route = {"dialect": "anthropic-messages", "path": "/v1", "backend": "it", "durable": durable}
        section = {"dialect": "openai-chat", "url": backend.url}
        async with serving({"backends": {"it": section}, "routes": [route]}) as base:
            body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
            reply = await post(f"{base}/v1/messages", body)
    assert reply.json["content"][0]["text"] == text * count
    assert threads == [beside]
