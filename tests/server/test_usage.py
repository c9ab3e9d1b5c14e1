"""Usage that no backend reported: zeros, or an estimate where the route wants one. What was reported always wins."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.server.harness import FakeBackend, Reply, fake_backend, post, serving

QUESTION = "The quick brown fox jumps over the lazy dog."
SAID = "敏捷的狐狸"
RUN = {"threadId": "t", "runId": "r"}
CHAT = {"model": "m", "messages": [{"role": "user", "content": QUESTION}]}
FRONTS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai-chat": ("/chat/completions", {**CHAT, "stream_options": {"include_usage": True}}),
    "openai-responses": ("/responses", {"model": "m", "input": QUESTION}),
    "anthropic-messages": ("/messages", {**CHAT, "max_tokens": 100}),
    "gemini": ("/v1beta/models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": QUESTION}]}]}),
    "agentscope": ("/process", {"input": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]}),
    "ag-ui": ("", {**RUN, "messages": [{"id": "1", "role": "user", "content": QUESTION}]}),
}
ALWAYS_STREAMED = ("agentscope", "ag-ui")
CASES = [(f, s) for f in FRONTS for s in (True, False) if s or f not in ALWAYS_STREAMED]


def agent(backend: FakeBackend, **end: Any) -> None:
    events: list[dict[str, Any]] = [
        {"type": "RUN_STARTED", **RUN},
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": SAID[:2]},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": SAID[2:]},
        {"type": "TEXT_MESSAGE_END", "messageId": "m"},
        {"type": "RUN_FINISHED", **RUN, **end},
    ]
    backend.streams(*(b"data: " + orjson.dumps(event) + b"\n\n" for event in events))


async def asked(front: str, stream: bool, estimate: bool, **end: Any) -> Reply:
    async with fake_backend() as backend:
        agent(backend, **end)
        route = {"dialect": front, "path": "/it", "backend": "it", "estimate_usage": estimate}
        backends = {"it": {"dialect": "ag-ui", "url": backend.url}}
        async with serving({"backends": backends, "routes": [route]}) as base:
            path, body = FRONTS[front]
            if front == "gemini":
                path = path.replace(":generate", ":streamGenerate") + "?alt=sse" if stream else path
                return await post(f"{base}/it{path}", body)
            return await post(f"{base}/it{path}", {**body, **({"stream": stream} if front != "ag-ui" else {})})


def usage_of(reply: Reply) -> dict[str, Any] | None:
    """The last usage object of an answer, wherever its dialect has it."""
    frames = [f[5:] for f in reply.body.splitlines() if f[:6] == b"data: " and b"[DONE]" not in f] or [reply.body]
    found: list[Any] = []

    def search(value: Any) -> None:
        if isinstance(value, dict):
            found.extend(value[k] for k in ("usage", "usageMetadata") if value.get(k))
            for inner in value.values():
                search(inner)

    for frame in frames:
        search(orjson.loads(frame))
    last = found[-1] if found else None
    return last[0] if isinstance(last, list) else last


def counts(usage: dict[str, Any]) -> tuple[Any, Any]:
    names = (
        ("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"), ("inputTokens", "outputTokens"),
        ("promptTokenCount", "candidatesTokenCount"),
    )  # fmt: skip
    return next((usage[a], usage[b]) for a, b in names if a in usage)


@pytest.mark.parametrize(("front", "stream"), CASES)
async def test_an_estimate_is_marked_as_one(front: str, stream: bool) -> None:
    reply = await asked(front, stream, True)
    usage = usage_of(reply)
    assert usage is not None
    taken, given = counts(usage)
    assert 11 <= taken <= 25
    assert given == len(SAID)
    assert usage["estimated"] is True
    if not stream:
        assert "usage" in reply.headers["x-bridge-lost"]


@pytest.mark.parametrize(("front", "stream"), CASES)
async def test_what_the_backend_reports_wins(front: str, stream: bool) -> None:
    reply = await asked(front, stream, True, usage=[{"inputTokens": 7, "outputTokens": 3}])
    usage = usage_of(reply)
    assert usage is not None
    assert counts(usage) == (7, 3)
    assert "estimated" not in usage


@pytest.mark.parametrize(("front", "stream"), CASES)
async def test_without_the_option_nothing_is_estimated(front: str, stream: bool) -> None:
    usage = usage_of(await asked(front, stream, False))
    if front in ALWAYS_STREAMED:
        assert usage is None
    else:
        assert usage is not None
        assert counts(usage) in ((0, 0), (None, 0))  # Messages streams may say that the input is not known
        assert "estimated" not in usage


async def test_a_backend_that_says_zero_has_counted_nothing() -> None:
    usage = usage_of(await asked("openai-chat", True, True, usage=[{"inputTokens": 0, "outputTokens": 0}]))
    assert usage is not None
    assert usage["estimated"] is True
