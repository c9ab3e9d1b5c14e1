"""Signatures and encrypted reasoning: back to the vendor that made them, and to nobody else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bridge.model import Reasoning, Text
from bridge.testing import FakeBackend, fake_backend
from tests.server.harness import Reply, post, serving

OURS = "bridge-reasoning-1."
FRONTS = {"anthropic-messages": "/v1/messages", "openai-responses": "/v1/responses"}


@contextlib.asynccontextmanager
async def bridged(front: str, *backs: str) -> AsyncIterator[tuple[str, list[FakeBackend]]]:
    """A route whose models `0`, `1`, ... are backends of these dialects."""
    async with contextlib.AsyncExitStack() as stack:
        backends = [await stack.enter_async_context(fake_backend(name)) for name in backs]
        config: dict[str, Any] = {
            "backends": {
                f"b{n}": {"dialect": name, "url": f"{backend.url}/v1"}
                for n, (name, backend) in enumerate(zip(backs, backends, strict=True))
            },
            "routes": [{"dialect": front, "path": "/v1", "models": {str(n): f"b{n}" for n in range(len(backs))}}],
            "stores": {"history": "off"},
        }
        base = await stack.enter_async_context(serving(config))
        yield base + FRONTS[front], backends


def first(front: str, model: str = "0") -> dict[str, Any]:
    user = {"role": "user", "content": "Hi"}
    if front == "anthropic-messages":
        return {"model": model, "max_tokens": 100, "messages": [user]}
    return {"model": model, "input": [user]}


def again(front: str, reply: Reply, model: str) -> dict[str, Any]:
    """The next request of a client that returns all that it got."""
    body, user = first(front, model), {"role": "user", "content": "Go on"}
    if front == "anthropic-messages":
        body["messages"] += [{"role": "assistant", "content": reply.json["content"]}, user]
    else:
        body["input"] += [*reply.json["output"], user]
    return body


def opaque(front: str, reply: Reply) -> str | None:
    if front == "anthropic-messages":
        return next((b.get("signature") for b in reply.json["content"] if b["type"] == "thinking"), None)
    return next((i.get("encrypted_content") for i in reply.json["output"] if i["type"] == "reasoning"), None)


def thought(backend: FakeBackend) -> list[tuple[str, str | None, str | None]]:
    parts = [p for m in backend.requests[-1].messages for p in m.parts]
    return [(p.text, p.signature, p.redacted) for p in parts if isinstance(p, Reasoning)]


OTHER = {"anthropic-messages": "openai-responses", "openai-responses": "anthropic-messages"}


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("sent", [("Hm.", "c2ln", None), ("", None, "c2VjcmV0")])
async def test_a_value_goes_back_to_its_vendor_over_a_client_of_another(front: str, sent: Any) -> None:
    async with bridged(front, OTHER[front], front) as (url, backends):
        backends[0].says(Reasoning(*sent), Text("Hello."))
        reply = await post(url, first(front))
        value = opaque(front, reply)
        assert value is not None
        assert value.startswith(OURS)
        await post(url, again(front, reply, "0"))
        assert thought(backends[0]) == [sent]
        # Another vendor's backend is not sent it.
        backends[1].says("Hello.")
        other = await post(url, again(front, reply, "1"))
        assert other.status == 200
        assert not any(signature or redacted for _, signature, redacted in thought(backends[1]))
        assert value not in json.dumps(backends[1].seen[-1].json)
        assert "reasoning_history" in other.headers["x-bridge-lost"]


@pytest.mark.parametrize("front", FRONTS)
async def test_a_value_of_its_own_is_not_wrapped_and_not_sent_elsewhere(front: str) -> None:
    async with bridged(front, front, OTHER[front]) as (url, backends):
        backends[0].says(Reasoning("Hm.", "c2ln"), Text("Hello."))
        reply = await post(url, first(front))
        assert opaque(front, reply) == "c2ln"
        await post(url, again(front, reply, "0"))
        assert thought(backends[0]) == [("Hm.", "c2ln", None)]
        backends[1].says("Hello.")
        other = await post(url, again(front, reply, "1"))
        assert "c2ln" not in json.dumps(backends[1].seen[-1].json)
        assert "reasoning_history" in other.headers["x-bridge-lost"]


async def test_the_item_of_a_responses_backend_keeps_its_id() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "gAAAA"}  # fmt: skip
    spoken = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
              "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]}  # fmt: skip
    whole = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [item, spoken]}
    async with bridged("anthropic-messages", "openai-responses") as (url, (backend,)):
        backend.answers(200, json.dumps(whole).encode())
        reply = await post(url, first("anthropic-messages"))
        await post(url, again("anthropic-messages", reply, "0"))
        assert backend.seen[-1].json["input"][1] == item


@pytest.mark.parametrize("value", [f"{OURS}anthropic.AAAA", f"{OURS}anthropic.", f"{OURS}openai.!", f"{OURS}x"])
async def test_what_a_client_makes_up_breaks_nothing(value: str) -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": value}
    body = first("anthropic-messages")
    body["messages"] += [{"role": "assistant", "content": [thinking, {"type": "text", "text": "Hello."}]}]
    for back in FRONTS:
        async with bridged("anthropic-messages", back) as (url, (backend,)):
            backend.says("Hello.")
            assert (await post(url, body)).status == 200


# ---------------------------------------------------------------------- a backend that refuses


REFUSALS = {
    "anthropic-messages": {"type": "error", "error": {
        "type": "invalid_request_error", "message": "messages.1.content.0: Invalid `signature` in `thinking` block"}},
    "openai-responses": {"error": {
        "type": "invalid_request_error", "code": "invalid_encrypted_content", "param": None,
        "message": "The encrypted content gAAA... could not be verified."}},
}  # fmt: skip


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_backend_that_refuses_one_is_asked_once_more_without(front: str, stream: bool) -> None:
    async with bridged(front, front) as (url, (backend,)):
        backend.says(Reasoning("Hm.", "c2ln"), Text("Hello."))
        reply = await post(url, first(front))
        good = backend.script

        async def script(exchange: Any) -> None:
            if b"c2ln" in exchange.seen.body:
                await exchange.answer(400, json.dumps(REFUSALS[front]).encode())
            else:
                assert good is not None
                await good(exchange)

        backend.plays(script)
        asked = len(backend.seen)
        second = await post(url, {**again(front, reply, "0"), "stream": stream})
        assert (second.status, len(backend.seen)) == (200, asked + 2)
        assert b"Hello." in second.body
        assert "reasoning_history" in second.headers["x-bridge-lost"]


@pytest.mark.parametrize("front", FRONTS)
async def test_it_is_asked_once_more_only(front: str) -> None:
    async with bridged(front, front) as (url, (backend,)):
        backend.says(Reasoning("Hm.", "c2ln"), Text("Hello."))
        reply = await post(url, first(front))
        backend.answers(400, json.dumps(REFUSALS[front]).encode())
        asked = len(backend.seen)
        assert (await post(url, again(front, reply, "0"))).status == 400
        assert len(backend.seen) == asked + 2
        assert (await post(url, first(front))).status == 400
        assert len(backend.seen) == asked + 3, "without such a value there is nothing to try"


# ---------------------------------------------------------------------- thinking without a signature


@pytest.mark.parametrize("back", ["openai-chat", "anthropic-messages", "openai-responses", "ag-ui"])
@pytest.mark.parametrize("stream", [False, True])
async def test_thinking_without_a_signature_gets_one_that_says_nothing(back: str, stream: bool) -> None:
    async with bridged("anthropic-messages", back) as (url, (backend,)):
        backend.says(Reasoning("Hm."), Text("Hello."))
        reply = await post(url, {**first("anthropic-messages"), "stream": stream})
        if stream:
            assert f'{{"type":"signature_delta","signature":"{OURS}."}}'.encode() in reply.body
            return
        assert opaque("anthropic-messages", reply) == f"{OURS}."
        second = await post(url, again("anthropic-messages", reply, "0"))
        assert second.status == 200
        assert OURS not in json.dumps(backend.seen[-1].json)
        if back == "openai-chat":
            third = backend.seen[-1].json["messages"][1]
            assert third["content"] == "Hello."


async def test_a_talk_with_such_thinking_goes_on_at_an_agent_that_remembers() -> None:
    async with fake_backend("agentscope") as backend:
        config = {
            "backends": {"it": {"dialect": "agentscope", "url": backend.url}},
            "routes": [{"dialect": "anthropic-messages", "path": "/v1", "backend": "it"}],
            "stores": {"history": "sqlite:///:memory:"},
        }
        async with serving(config) as base:
            url = f"{base}/v1/messages"
            backend.says(Reasoning("Hm."), Text("Hello."))
            reply = await post(url, first("anthropic-messages"))
            assert opaque("anthropic-messages", reply) == f"{OURS}."
            await post(url, again("anthropic-messages", reply, "0"))
        last = backend.requests[-1]
        assert ["".join(p.text for p in m.parts if isinstance(p, Text)) for m in last.messages] == ["Go on"]
        assert last.thread_id == backend.requests[0].thread_id
