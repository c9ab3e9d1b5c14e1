"""Served for real: paths, preflights, and errors before the stream in the generation that asked."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.server.harness import ask, fake_backend, post, serving

FIRST = {"conversationId": "c1", "messages": [{"role": "user", "content": "hi"}]}
SECOND = {"threadId": "t1", "runId": "r1", "messages": [{"id": "u1", "role": "user", "content": "hi"}]}


def config(url: str | None = None, path: str = "/ag-kit") -> dict[str, Any]:
    backend = {"dialect": "openai-chat", "url": url} if url else {"dialect": "demo"}
    return {
        "backends": {"it": backend},
        "routes": [{"dialect": "ag-kit", "path": path, "backend": "it"}],
    }


@pytest.mark.parametrize("mount", ["", "/ag-kit"])
async def test_every_path_of_the_contract(mount: str) -> None:
    """`/` is the protocol's own default, where the server's health endpoint stands too."""
    async with serving(config(path=mount or "/")) as base:
        for path in ("/send-message", "/v1/aibot/bots/b-1/send-message", "/aibot/bots/b-1/send-message"):
            first = await post(f"{base}{mount}{path}", FIRST)
            assert first.body.endswith(b"\n\ndata: [DONE]\n\n")
            assert first.headers["cache-control"] == "no-cache, no-transform"
            second = await post(f"{base}{mount}{path}", SECOND)
            assert b'"type":"RUN_FINISHED"' in second.body
            assert b"[DONE]" not in second.body
            assert (await ask("GET", f"{base}{mount}{path}")).status == 405
        health = await ask("GET", f"{base}{mount}/healthz")
        assert (health.status, bool(health.json["status"])) == (200, True)


async def test_a_browsers_preflight() -> None:
    asks = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type, authorization",
    }
    async with serving({**config(), "server": {"cors": {"origins": ["*"]}}}) as base:
        reply = await ask("OPTIONS", f"{base}/ag-kit/send-message", headers=asks)
        assert reply.status == 200
        assert reply.headers["access-control-allow-origin"] in ("*", "https://app.example")
        assert "authorization" in reply.headers["access-control-allow-headers"]


async def test_errors_before_the_stream_have_the_shape_of_the_generation_that_asked() -> None:
    async with fake_backend() as backend, serving(config(f"{backend.url}/v1")) as base:
        backend.answers(503, b'{"error":{"message":"busy"}}')
        first = await post(f"{base}/ag-kit/send-message", FIRST)
        assert (first.status, first.json["detail"][0]["msg"]) == (503, "busy")
        second = await post(f"{base}/ag-kit/send-message", SECOND)
        assert (second.status, second.json) == (
            503,
            {"error": {"code": "OVERLOADED", "message": "busy"}, "requestId": "r1"},
        )
        video = {"type": "video", "source": {"type": "url", "value": "https://example.test/a.mp4"}}
        asked = {**SECOND, "messages": [{"id": "u1", "role": "user", "content": [video]}]}
        refused = await post(f"{base}/ag-kit/send-message", asked)
        assert (refused.status, refused.json["error"]["code"]) == (400, "INVALID_REQUEST")
        nobody_asked = await post(
            f"{base}/ag-kit/send-message", {"conversationId": "c1", "resume": {"interruptId": "i", "payload": "yes"}}
        )
        assert (nobody_asked.status, nobody_asked.json["detail"][0]["loc"]) == (422, ["body", "resume"])
        wrong = await post(f"{base}/ag-kit/send-message", orjson.dumps({**SECOND, "messages": 5}))
        assert (wrong.status, wrong.json["requestId"]) == (400, "r1")
