"""Signatures and encrypted reasoning: back to the vendor that made them, and to nobody else."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anthropic
import openai
import pytest
from anthropic.lib.streaming import AsyncMessageStream

from bridge.contract import registry
from bridge.errors import ErrorCode, Failure
from bridge.model import HistoryMode, Reasoning, Text, ToolCall
from bridge.run.backends.demo_backend import PICTURE
from bridge.testing import FakeBackend, ScriptedBackend, fake_backend
from bridge.toolkit.signed_parts import signed
from bridge.translation.library import Translator
from tests.pairs.test_recorded import translated
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


# ---------------------------------------------------------------------- signed calls


PARALLEL, LATER = "Rk9P+/8=", "YmFyLi4u"
SIGNED = [
    [
        Reasoning("Hm."),
        ToolCall("c1", "f", '{"a":1}', extras=signed(None, PARALLEL)),
        ToolCall("c2", "f", '{"a":2}'),
    ],
    [ToolCall("c3", "f", '{"a":3}', extras=signed(None, LATER))],
    ["It is done."],
]
"""Of calls in parallel Gemini signs the first; of calls after each other, each."""
FUNCTION = {"name": "f", "description": "A tool", "parameters": {"type": "object", "properties": {}}}
Talk = Callable[[str, bool, str], Awaitable[Any]]
"""A client that runs all calls, until none comes: the base URL, whether it streams, the model."""


async def talk_chat(url: str, stream: bool, model: str) -> Any:
    tools: Any = [{"type": "function", "function": FUNCTION}]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        messages: list[Any] = [{"role": "user", "content": "Hi"}]
        while True:
            body: Any = {"model": model, "messages": messages, "tools": tools}
            if stream:
                async with client.chat.completions.stream(**body) as events:
                    said = (await events.get_final_completion()).choices[0].message
            else:
                said = (await client.chat.completions.create(**body)).choices[0].message
            if not said.tool_calls:
                return said.content
            kept = said.model_dump(exclude_none=True, exclude={"parsed", "tool_calls"})
            calls = [call.model_dump(exclude_none=True, exclude={"index"}) for call in said.tool_calls]
            for call in calls:
                call["function"].pop("parsed_arguments", None)
            messages += [{**kept, "tool_calls": calls}]
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]


async def talk_responses(url: str, stream: bool, model: str) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:
        items: list[Any] = [{"role": "user", "content": "Hi"}]
        while True:
            body: Any = {"model": model, "input": items, "tools": [{"type": "function", "strict": False, **FUNCTION}]}
            body |= {"store": False, "include": ["reasoning.encrypted_content"]}
            if stream:
                async with client.responses.stream(**body) as events:
                    said: Any = await events.get_final_response()
            else:
                said = await client.responses.create(**body)
            calls = [item for item in said.output if item.type == "function_call"]
            if not calls:
                return said.output_text
            items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in said.output]
            items += [{"type": "function_call_output", "call_id": call.call_id, "output": "ok"} for call in calls]


async def talk_messages(url: str, stream: bool, model: str) -> Any:
    tool = {"name": "f", "input_schema": FUNCTION["parameters"]}
    async with anthropic.AsyncAnthropic(base_url=url, api_key="x", max_retries=0) as client:
        messages: list[Any] = [{"role": "user", "content": "Hi"}]
        while True:
            body: Any = {"model": model, "max_tokens": 100, "messages": messages, "tools": [tool]}
            if stream:
                events: AsyncMessageStream[None]
                async with client.messages.stream(**body) as events:
                    said: Any = await events.get_final_message()
            else:
                said = await client.messages.create(**body)
            calls = [block for block in said.content if block.type == "tool_use"]
            if not calls:
                return said.content[-1].text
            # As strict clients do: each block with the fields that requests have
            fields = {"thinking": ("thinking", "signature"), "tool_use": ("id", "name", "input"), "text": ("text",)}
            kept = [{"type": b.type, **{name: getattr(b, name) for name in fields[b.type]}} for b in said.content]
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": "ok"} for call in calls]
            messages += [{"role": "assistant", "content": kept}, {"role": "user", "content": results}]


async def talk_gemini(url: str, stream: bool, model: str) -> Any:
    contents: list[Any] = [{"role": "user", "parts": [{"text": "Hi"}]}]
    while True:
        body = {"contents": contents, "tools": [{"functionDeclarations": [FUNCTION]}]}
        method = "streamGenerateContent" if stream else "generateContent"
        reply = await post(f"{url}/v1beta/models/{model}:{method}", body)
        chunks = reply.json if stream else [reply.json]
        said = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
        calls = [part["functionCall"] for part in said if "functionCall" in part]
        if not calls:
            return "".join(part.get("text", "") for part in said)
        responses = [{"functionResponse": {"id": c["id"], "name": "f", "response": {"output": "ok"}}} for c in calls]
        contents += [{"role": "model", "parts": said}, {"role": "user", "parts": responses}]


TALKS: dict[str, Talk] = {
    "openai-chat": talk_chat,
    "openai-responses": talk_responses,
    "anthropic-messages": talk_messages,
    "gemini": talk_gemini,
}


@contextlib.asynccontextmanager
async def signing(front: str, back: str = "gemini", **more: Any) -> AsyncIterator[tuple[str, FakeBackend]]:
    async with fake_backend(back) as backend:
        backend.turns(*SIGNED)
        config = {
            "backends": {"it": {"dialect": back, "url": f"{backend.url}/v1"}},
            "routes": [{"dialect": front, "path": "/" if front == "gemini" else "/v1", "backend": "it"}],
            **more,
        }
        if back == "gemini":
            config["backends"]["it"]["url"] = backend.url
        async with serving(config) as base:
            yield base, backend


def marks(backend: FakeBackend) -> list[list[str | None]]:
    """The signatures of the calls in each turn of the model, as the last request has them on the wire."""
    parts = [c["parts"] for c in backend.seen[-1].json["contents"] if c["role"] == "model"]
    return [[part.get("thoughtSignature") for part in turn if "functionCall" in part] for turn in parts]


@pytest.mark.parametrize("front", TALKS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_geminis_signatures_of_calls_come_back_over_every_client(front: str, stream: bool) -> None:
    async with signing(front) as (base, backend):
        assert await TALKS[front](base, stream, "gemini-3-pro") == "It is done."
        assert marks(backend) == [[PARALLEL, None], [LATER]]
        assert len(backend.seen) == 3


@pytest.mark.parametrize("front", TALKS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_signatures_come_back_to_googles_chat_completions_as_well(front: str, stream: bool) -> None:
    async with signing(front, "openai-chat") as (base, backend):
        assert await TALKS[front](base, stream, "gemini-3-pro") == "It is done."
        calls = [call for m in backend.seen[-1].json["messages"] for call in m.get("tool_calls", ())]
        found = [call.get("extra_content") for call in calls]
        assert found == [{"google": {"thought_signature": s}} if s else None for s in (PARALLEL, None, LATER)]


async def test_signatures_come_back_to_an_ai_sdk_server_as_well() -> None:
    async with signing("gemini", "ai-sdk-ui") as (base, backend):
        assert await TALKS["gemini"](base, True, "gemini-3-pro") == "It is done."
        said = [part for m in backend.seen[-1].json["messages"] for part in m["parts"]]
        found = [part.get("callProviderMetadata") for part in said if part["type"] == "tool-f"]
        assert found == [{"google": {"thoughtSignature": s}} if s else None for s in (PARALLEL, None, LATER)]


def test_a_chat_of_the_ai_sdk_returns_every_signature() -> None:
    gemini, chat = registry.get("gemini"), registry.get("ai-sdk-ui")
    out, lost = translated(gemini, chat, [SIGNED_TEXT])
    assert "reasoning_signature" not in lost
    chunks = [json.loads(line[6:]) for line in out.splitlines() if line.startswith(b"data: {")]
    found = {c["type"]: c["providerMetadata"] for c in chunks if "providerMetadata" in c}
    assert found == {
        "text-end": {"google": {"thoughtSignature": PARALLEL}},
        "file": {"google": {"thoughtSignature": LATER}},
    }
    parts = [
        {"type": "text", "text": "Hello", "state": "done", "providerMetadata": found["text-end"]},
        {
            "type": "file",
            "mediaType": "image/png",
            "url": f"data:image/png;base64,{PICTURE}",
            "providerMetadata": found["file"],
        },
    ]
    body = {"id": "c", "messages": [{"id": "m", "role": "assistant", "parts": parts}]}
    request = Translator("gemini", "ai-sdk-ui").request(json.dumps(body).encode())
    sent = [part for turn in json.loads(request)["contents"] for part in turn["parts"]]
    assert [part.get("thoughtSignature") for part in sent if part != {"text": ""}] == [PARALLEL, LATER]


async def test_a_stored_response_keeps_the_signature() -> None:
    stores = {"stores": {"history": "sqlite:///:memory:"}}
    async with signing("openai-responses", **stores) as (base, backend):
        tools = [{"type": "function", **FUNCTION}]
        reply = await post(f"{base}/v1/responses", {"model": "gemini-3-pro", "input": "Hi", "tools": tools})
        results = [{"type": "function_call_output", "call_id": c, "output": "ok"} for c in ("c1", "c2")]
        body = {"model": "gemini-3-pro", "input": results, "tools": tools, "previous_response_id": reply.json["id"]}
        assert (await post(f"{base}/v1/responses", body)).status == 200
        assert marks(backend) == [[PARALLEL, None]]


def refuse_signatures(backend: FakeBackend) -> None:
    good = backend.script

    async def script(exchange: Any) -> None:
        if LATER.encode() in exchange.seen.body or PARALLEL.encode() in exchange.seen.body:
            error = {"code": 400, "message": "Corrupted thought signature.", "status": "INVALID_ARGUMENT"}
            await exchange.answer(400, json.dumps({"error": error}).encode())
        else:
            assert good is not None
            await good(exchange)

    backend.plays(script)


@pytest.mark.parametrize("front", TALKS)
async def test_a_refused_signature_is_left_out_and_the_call_goes_without(front: str) -> None:
    async with signing(front) as (base, backend):
        refuse_signatures(backend)
        assert await TALKS[front](base, False, "gemini-2.5-flash") == "It is done."
        assert marks(backend) == [[None, None], [None]]
        assert len(backend.seen) == 5


@pytest.mark.parametrize("front", TALKS)
@pytest.mark.parametrize("back", ["anthropic-messages", "openai-responses", "agentscope"])
async def test_another_backend_does_not_get_them(front: str, back: str) -> None:
    """A conversation begins at Gemini and continues at another backend, when Gemini is overloaded."""
    async with fake_backend("gemini") as backend, fake_backend(back) as other:
        backend.turns(SIGNED[0], Failure(ErrorCode.OVERLOADED, "Later."))
        other.says("It is done.")
        urls = {"gemini": backend.url, back: f"{other.url}/v1"}
        config = {
            "backends": {name: {"dialect": name, "url": url} for name, url in urls.items()},
            "routes": [{"dialect": front, "path": "/" if front == "gemini" else "/v1", "backend": list(urls)}],
        }
        async with serving(config) as base:
            assert await TALKS[front](base, False, "gemini-3-pro") == "It is done."
        sent = other.seen[-1].body.decode()
        assert "bridge-call-1" not in sent
        assert PARALLEL not in sent
        assert base64.urlsafe_b64encode(PARALLEL.encode()).decode() not in sent


def test_a_client_that_cannot_return_a_signature_loses_it_by_name() -> None:
    script = ScriptedBackend("gemini", *SIGNED[0])
    translator = Translator("gemini", "ag-ui", model="gemini-3-pro")
    run = {"threadId": "t", "runId": "r", "state": {}, "messages": [{"id": "1", "role": "user", "content": "Hi"}]}
    reply = script.reply(translator.request(json.dumps({**run, "tools": [], "context": []}).encode()))
    out = b"".join(map(translator.feed, reply.pieces)) + translator.close()
    assert b"TOOL_CALL_START" in out
    assert translator.lost_details["reasoning_signature"] == "of a tool call"


def spoken(*parts: dict[str, Any]) -> bytes:
    """A stream of Gemini, one chunk for each part."""
    candidates = [{"content": {"role": "model", "parts": [part]}, "index": 0} for part in parts]
    candidates[-1]["finishReason"] = "STOP"
    return b"".join(b"data: " + json.dumps({"candidates": [each]}).encode() + b"\n\n" for each in candidates)


SIGNED_TEXT = spoken(
    {"text": "Hello"},
    {"text": "", "thoughtSignature": PARALLEL},  # as Google sends that of a text
    {"inlineData": {"mimeType": "image/png", "data": PICTURE}, "thoughtSignature": LATER},
)


@pytest.mark.parametrize("front", [name for name in registry.served() if name not in ("gemini", "ai-sdk-ui", "mcp")])
def test_signatures_of_texts_and_media_are_lost_by_name(front: str) -> None:
    """Google recommends to return them and does not require it. Conversations that the bridge keeps have them."""
    source, target = registry.get("gemini"), registry.get(front)
    lost = translated(source, target, [SIGNED_TEXT])[1]
    assert ("reasoning_signature" in lost) == (target.capabilities.history is HistoryMode.FULL)


def test_geminis_clients_get_signatures_of_texts_and_media() -> None:
    gemini = registry.get("gemini")
    out, lost = translated(gemini, gemini, [SIGNED_TEXT])
    parts = re.findall(rb'"parts":(\[.*?\])', out)
    signatures = [part.get("thoughtSignature") for found in parts for part in json.loads(found)]
    assert list(filter(None, signatures)) == [PARALLEL, LATER]
    assert lost <= {"usage"}


ASKED = {
    "contents": [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"text": "Hello", "thoughtSignature": PARALLEL}]},
        {"role": "user", "parts": [{"text": "Go on"}]},
    ]
}


@pytest.mark.parametrize(("back", "keeps"), [("gemini", True), ("openai-chat", False), ("anthropic-messages", False)])
async def test_the_signature_of_a_text_goes_to_gemini_alone(back: str, keeps: bool) -> None:
    async with signing("gemini", back) as (base, backend):
        backend.says("Hello.")
        reply = await post(f"{base}/models/m:generateContent", ASKED)
        assert reply.status == 200
        assert (PARALLEL in backend.seen[-1].body.decode()) == keeps
        assert ("reasoning_history" in reply.headers.get("x-bridge-lost", "")) == (not keeps)


async def test_a_refused_signature_of_a_text_is_left_out() -> None:
    async with signing("gemini") as (base, backend):
        refuse_signatures(backend)
        reply = await post(f"{base}/models/m:generateContent", ASKED)
        assert (reply.status, len(backend.seen)) == (200, 2)
        assert PARALLEL not in backend.seen[-1].body.decode()
        assert "reasoning_history" in reply.headers["x-bridge-lost"]


@pytest.mark.parametrize("value", ["bridge-call-1.google.!", "bridge-call-1.google._w==", "bridge-call-1.x.YQ=="])
async def test_what_a_client_makes_up_as_the_signature_of_a_call_breaks_nothing(value: str) -> None:
    content = [
        {"type": "thinking", "thinking": "", "signature": value},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
    ]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "ok"}
    body = first("anthropic-messages", "gemini-3-pro")
    body["messages"] += [{"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
    async with signing("anthropic-messages") as (base, backend):
        backend.says("Hello.")
        assert (await post(f"{base}/v1/messages", body)).status == 200
        (call,) = backend.seen[-1].json["contents"][1]["parts"]
        assert base64.b64decode(call["thoughtSignature"]) == b"skip_thought_signature_validator"
