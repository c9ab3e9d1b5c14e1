"""Requests that the official services refuse, refused alike: status 400, the place, in the dialect's own shape."""

from __future__ import annotations

from typing import Any

import pytest

from tests import official
from tests.server.harness import fake_backend, post, serving

HELLO = [{"role": "user", "content": "Hi"}]
FRONTS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai-chat": ("/chat/completions", {"model": "m", "messages": HELLO}),
    "openai-responses": ("/responses", {"model": "m", "input": "Hi"}),
    "anthropic-messages": ("/messages", {"model": "m", "max_tokens": 9, "messages": HELLO}),
}
MISSING = [
    ("openai-chat", "model"), ("openai-chat", "messages"),
    ("openai-responses", "model"), ("openai-responses", "input"),
    ("anthropic-messages", "model"), ("anthropic-messages", "messages"), ("anthropic-messages", "max_tokens"),
]  # fmt: skip
WRONG: list[tuple[str, str, Any]] = [
    ("openai-chat", "model", 1), ("openai-chat", "messages", "Hi"), ("openai-chat", "messages", []),
    ("openai-chat", "temperature", "hot"), ("openai-chat", "stream", "yes"), ("openai-chat", "max_tokens", 1.5),
    ("openai-chat", "tools", {}), ("openai-chat", "stop", 1), ("openai-chat", "logprobs", "yes"),
    ("openai-chat", "top_logprobs", "5"), ("openai-chat", "logit_bias", []), ("openai-chat", "store", 1),
    ("openai-chat", "service_tier", 1), ("openai-chat", "metadata", "x"),
    ("openai-responses", "model", 1), ("openai-responses", "input", 1), ("openai-responses", "input", []),
    ("openai-responses", "temperature", "hot"), ("openai-responses", "stream", "yes"),
    ("openai-responses", "max_output_tokens", 1.5), ("openai-responses", "tools", {}),
    ("openai-responses", "instructions", 1), ("openai-responses", "truncation", "some"),
    ("openai-responses", "service_tier", 1), ("openai-responses", "safety_identifier", 1),
    ("openai-responses", "prompt_cache_key", 1), ("openai-responses", "max_tool_calls", "3"),
    ("openai-responses", "top_logprobs", "3"), ("openai-responses", "presence_penalty", "1"),
    ("openai-responses", "frequency_penalty", "1"), ("openai-responses", "metadata", "x"),
    ("openai-responses", "metadata.k", {"k": 1}), ("openai-responses", "reasoning.summary", {"summary": 1}),
    ("openai-responses", "parallel_tool_calls", "yes"),
    ("anthropic-messages", "model", 1), ("anthropic-messages", "messages", "Hi"),
    ("anthropic-messages", "messages", []), ("anthropic-messages", "max_tokens", "9"),
    ("anthropic-messages", "max_tokens", -1), ("anthropic-messages", "temperature", "hot"),
    ("anthropic-messages", "stream", "yes"), ("anthropic-messages", "tools", {}),
    ("anthropic-messages", "system", 1), ("anthropic-messages", "top_k", "1"),
    ("anthropic-messages", "stop_sequences", "x"), ("anthropic-messages", "metadata", "x"),
    ("anthropic-messages", "service_tier", 1),
]  # fmt: skip


def routes(url: str, **backend: Any) -> dict[str, Any]:
    return {
        "backends": {"it": {"dialect": "openai-chat", "url": f"{url}/v1", **backend}},
        "routes": [{"dialect": front, "path": f"/{front}", "backend": "it"} for front in FRONTS],
    }


async def check_refused(front: str, body: dict[str, Any], place: str, said: str) -> None:
    async with fake_backend() as backend, serving(routes(backend.url)) as base:
        reply = await post(f"{base}/{front}{FRONTS[front][0]}", body)
        assert backend.seen == []
    assert reply.status == 400
    if front == "anthropic-messages":
        official.judge_message_event(reply.json)
    else:
        official.ChatFailure.model_validate(reply.json)
        assert reply.json["error"]["param"] == place
    assert reply.json["error"]["type"] == "invalid_request_error"
    assert reply.json["error"]["message"].startswith(f"{place}: {said} ")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("front", "name"), MISSING)
async def test_what_is_missing(front: str, name: str, stream: bool) -> None:
    body = {**FRONTS[front][1], "stream": stream}
    del body[name]
    await check_refused(front, body, name, "required, expected")


@pytest.mark.parametrize(("front", "place", "value"), WRONG)
async def test_what_is_of_another_type(front: str, place: str, value: Any) -> None:
    await check_refused(front, {**FRONTS[front][1], place.partition(".")[0]: value}, place, "expected")


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("model", [{"model": "default"}, {"model_map": {"*": "m"}, "model": "default"}])
async def test_a_model_that_is_configured_need_not_be_named(front: str, model: dict[str, Any]) -> None:
    async with fake_backend() as backend, serving(routes(backend.url, **model)) as base:
        backend.streams(b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
        body = {name: value for name, value in FRONTS[front][1].items() if name != "model"}
        reply = await post(f"{base}/{front}{FRONTS[front][0]}", body)
        assert (reply.status, reply.json["model"]) == (200, "default")
        assert backend.seen[0].json["model"] == "default"


@pytest.mark.parametrize(
    ("models", "status"), [({"m": "it"}, 400), ({"m": "it", "*": "other"}, 400), ({"*": "it"}, 200)]
)
async def test_the_default_is_that_of_the_backend_for_no_name(models: dict[str, str], status: int) -> None:
    async with fake_backend("openai-chat") as backend:
        backend.says("Hi")
        config = routes(backend.url, model="default")
        config["backends"]["other"] = {"dialect": "openai-chat", "url": backend.url}
        config["routes"] = [{"dialect": "openai-chat", "path": "/v1", "models": models}]
        async with serving(config) as base:
            reply = await post(f"{base}/v1/chat/completions", {"messages": HELLO})
    assert (reply.status, len(backend.seen)) == (status, status == 200)


async def test_tokens_are_counted_without_a_model() -> None:
    async with fake_backend() as backend, serving(routes(backend.url)) as base:
        reply = await post(f"{base}/openai-responses/responses/input_tokens", {"input": "Hi"})
    assert (reply.status, reply.json["object"]) == (200, "response.input_tokens")


async def test_tokens_are_counted_by_a_model_that_is_configured() -> None:
    async with fake_backend() as backend, serving(routes(backend.url, model="default")) as base:
        reply = await post(f"{base}/anthropic-messages/messages/count_tokens", {"messages": HELLO})
    assert reply.status == 200
    assert reply.json["input_tokens"] > 0
