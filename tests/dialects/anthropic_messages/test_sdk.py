"""The real `anthropic` package drives the running bridge, in front of chat, a Messages model and the demo agent.

What each backend is told is checked where it hears it, what the client is told by what the SDK makes of it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import orjson
import pytest

from bridge.run.backends.demo_backend import PICTURE
from tests.pairs.test_conversations import chat_calls, chat_stream
from tests.server.harness import Exchange, FakeBackend, ask, fake_backend, post, serving

from .server import REDACTED, SIGNATURE, message, messages_api, sse, streamed

pytestmark = pytest.mark.interop

TOOLS: Any = [
    {
        "name": "get_weather",
        "description": "Current weather",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]
USER: Any = [{"role": "user", "content": "Hello"}]
PNG = {"type": "base64", "media_type": "image/png", "data": PICTURE}


def config(url: str = "http://127.0.0.1:1", **more: Any) -> dict[str, Any]:
    """Messages in front of three backends, chosen by model, and beside chat on one path."""
    return {
        "backends": {
            "chat": {"dialect": "openai-chat", "url": f"{url}/v1", "api_key": "backend-key"},
            "claude": {"dialect": "anthropic-messages", "url": url, "api_key": "backend-key"},
            "demo": {"dialect": "demo"},
        },
        "routes": [
            {
                "dialect": "anthropic-messages",
                "path": "/v1",
                "models": {"chat": "chat", "claude-*": "claude", "*": "demo"},
            },
            {"dialect": "openai-chat", "path": "/v1", "backend": "demo"},
            {"dialect": "anthropic-messages", "path": "/as-it-is/v1", "backend": "claude", "passthrough": True},
            {"dialect": "anthropic-messages", "path": "/claude/v1", "backend": "claude"},
            {"dialect": "openai-chat", "path": "/chat/v1", "backend": "claude"},
        ],
        **more,
    }


def client(base: str, **more: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=base, api_key="client-key", max_retries=0, **more)


@contextlib.asynccontextmanager
async def bridge() -> AsyncIterator[tuple[anthropic.AsyncAnthropic, FakeBackend, str]]:
    async with fake_backend() as backend, serving(config(backend.url)) as base, client(base) as sdk:
        backend.plays(messages_api)
        yield sdk, backend, base


async def ask_for(
    sdk: anthropic.AsyncAnthropic, stream: bool, model: str, messages: Any = USER, **more: Any
) -> anthropic.types.Message:
    if not stream:
        return await sdk.messages.create(model=model, max_tokens=2000, messages=messages, **more)
    async with sdk.messages.stream(model=model, max_tokens=2000, messages=messages, **more) as running:
        async for _ in running:
            pass
        return await running.get_final_message()


ways = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


# ---------------------------------------------------------------------- text


@ways
async def test_the_demo_agent(stream: bool) -> None:
    async with serving(config()) as base, client(base) as sdk:
        said = await ask_for(sdk, stream, "demo", [{"role": "user", "content": "reasoning"}])
        assert [b.type for b in said.content] == ["thinking", "text"]
        assert said.content[-1].text == "The answer is 42."
        assert (said.stop_reason, said.role, said.type) == ("end_turn", "assistant", "message")
        assert said.usage.output_tokens > 0
        assert stream or said._request_id
        tools = await ask_for(sdk, stream, "demo", [{"role": "user", "content": "tools"}], tools=TOOLS)
        calls = [b for b in tools.content if b.type == "tool_use"]
        assert len(calls) > 1
        assert tools.stop_reason == "tool_use"


@ways
async def test_text_over_a_chat_model(stream: bool) -> None:
    async with bridge() as (sdk, backend, _):
        backend.streams(*chat_stream({"reasoning_content": "Hm."}, {"content": "Hel"}, {"content": "lo \u2028 ☀"}))
        said = await ask_for(
            sdk,
            stream,
            "chat",
            system="Be brief.",
            stop_sequences=["END"],
            metadata={"user_id": "u-1"},
            extra_body={"temperature": 0.5, "top_p": 0.9},  # the SDK itself has none since 1.0
        )
        assert [(b.type, getattr(b, "text", None)) for b in said.content] == [
            ("thinking", None),
            ("text", "Hello \u2028 ☀"),
        ]
        assert (said.content[0].thinking, said.content[0].signature) == ("Hm.", "bridge-reasoning-1..")
        assert (said.usage.input_tokens, said.usage.output_tokens) == (9, 4)
        body = backend.seen[0].json
        assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
        assert (body["max_tokens"], body["stop"], body["temperature"], body["user"]) == (2000, ["END"], 0.5, "u-1")
        assert body["stream"] is stream


@ways
async def test_text_over_a_messages_model(stream: bool) -> None:
    async with bridge() as (sdk, backend, _):
        said = await ask_for(
            sdk, stream, "claude-x", extra_headers={"anthropic-beta": "a-1,b-2"}, extra_body={"top_k": 5}
        )
        assert (said.id, said.content[0].text, said.stop_reason) == ("msg_backend", "You said: Hello", "end_turn")
        usage = said.usage
        assert (usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens) == (9, 4, 3)
        seen = backend.seen[0]
        assert (seen.path, seen.headers["x-api-key"]) == ("/v1/messages", "backend-key")
        assert (seen.headers["anthropic-version"], seen.headers["anthropic-beta"]) == ("2026-10-21", "a-1,b-2")
        assert seen.json["top_k"] == 5


async def test_the_beta_client() -> None:
    """It adds `?beta=true`, its betas as a header, and fields of theirs."""
    async with bridge() as (sdk, backend, _):
        edits: Any = {"edits": []}
        said = await sdk.beta.messages.create(
            model="claude-x", max_tokens=9, messages=USER, betas=["b-1"], context_management=edits
        )
        assert said.content[0].text == "You said: Hello"
        async with sdk.beta.messages.stream(model="claude-x", max_tokens=9, messages=USER, betas=["b-1"]) as running:
            assert await running.get_final_text() == "You said: Hello"
        assert [s.headers["anthropic-beta"] for s in backend.seen] == ["b-1", "b-1"]
        assert backend.seen[0].json["context_management"] == edits


async def test_the_text_arrives_while_the_backend_still_speaks() -> None:
    async with bridge() as (sdk, backend, _):
        begun, rest = streamed(message([{"type": "text", "text": "Hello"}]))[:4], []

        async def script(exchange: Exchange) -> None:
            await exchange.head()
            await exchange.send(sse(*begun))
            await exchange.left()

        backend.plays(script)
        async with sdk.messages.stream(model="claude-x", max_tokens=9, messages=USER) as running:
            async for text in running.text_stream:
                rest.append(text)
                break
        assert rest == ["He"]
        await backend.seen[0].gone.wait()


# ---------------------------------------------------------------------- tools


def results(said: anthropic.types.Message) -> list[dict[str, Any]]:
    """The user's next message: a result for each call, the last one a picture and an error."""
    calls = [b for b in said.content if b.type == "tool_use"]
    out: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": c.id, "content": f"sunny in {c.input['city']}"} for c in calls[:-1]
    ]
    picture = [{"type": "text", "text": "see"}, {"type": "image", "source": PNG}]
    last = {"type": "tool_result", "tool_use_id": calls[-1].id, "content": picture, "is_error": True}
    return [*out, last, {"type": "text", "text": "Well?"}]


@ways
async def test_a_tool_loop_with_thinking_over_a_messages_model(stream: bool) -> None:
    """Signatures and redacted thinking go back unchanged: the backend refuses them otherwise."""
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    async with bridge() as (sdk, backend, _):
        first = await ask_for(sdk, stream, "claude-x", tools=TOOLS, thinking=thinking)
        assert [b.type for b in first.content] == ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]
        assert (first.content[0].signature, first.content[1].data) == (SIGNATURE, REDACTED)
        assert [b.input for b in first.content[3:]] == [{"city": "Paris"}, {"city": "Rome"}]
        assert first.stop_reason == "tool_use"
        conversation = [
            *USER,
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": results(first)},
        ]
        second = await ask_for(sdk, stream, "claude-x", conversation, tools=TOOLS, thinking=thinking)
        assert second.content[0].text == "toolu_Paris=sunny in Paris; toolu_Rome=see<image>!"
        sent = backend.seen[1].json
        assert sent["thinking"] == thinking
        assert [b["type"] for b in sent["messages"][1]["content"]] == [b.type for b in first.content]
        assert sent["messages"][2]["content"] == results(first)


@ways
async def test_a_tool_loop_over_a_chat_model(stream: bool) -> None:
    async with bridge() as (sdk, backend, _):
        backend.streams(*chat_calls("Paris", "Rome"))
        choice: Any = {"type": "any", "disable_parallel_tool_use": False}
        first = await ask_for(sdk, stream, "chat", tools=TOOLS, tool_choice=choice)
        calls = [b for b in first.content if b.type == "tool_use"]
        assert [(c.id, c.name, c.input) for c in calls] == [
            ("call_Paris", "get_weather", {"city": "Paris"}),
            ("call_Rome", "get_weather", {"city": "Rome"}),
        ]
        assert first.stop_reason == "tool_use"
        body = backend.seen[0].json
        assert body["tools"][0]["function"]["parameters"] == TOOLS[0]["input_schema"]
        assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", True)
        backend.streams(*chat_stream({"content": "Sunny."}))
        answered = [{"type": "tool_result", "tool_use_id": c.id, "content": f"in {c.id}"} for c in calls]
        conversation = [
            *USER,
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [*answered, {"type": "text", "text": "And?"}]},
        ]
        second = await ask_for(sdk, stream, "chat", conversation, tools=TOOLS)
        assert (second.content[0].text, second.stop_reason) == ("Sunny.", "end_turn")
        said = backend.seen[1].json["messages"]
        assert [m["role"] for m in said] == ["user", "assistant", "tool", "tool", "user"]
        assert [json.loads(c["function"]["arguments"]) for c in said[1]["tool_calls"]] == [
            {"city": "Paris"},
            {"city": "Rome"},
        ]
        assert [(m["tool_call_id"], m["content"]) for m in said[2:4]] == [
            ("call_Paris", "in call_Paris"),
            ("call_Rome", "in call_Rome"),
        ]


async def test_a_picture_in_a_result_reaches_a_chat_model_as_a_picture() -> None:
    async with bridge() as (sdk, backend, _):
        backend.streams(*chat_calls("Paris", "Rome"))
        first = await ask_for(sdk, True, "chat", tools=TOOLS)
        backend.streams(*chat_stream({"content": "Nice."}))
        conversation = [
            *USER,
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": results(first)},
        ]
        await ask_for(sdk, True, "chat", conversation, tools=TOOLS)
        *_, paris, rome, shown = backend.seen[1].json["messages"]
        assert (paris["content"], rome["content"]) == ("sunny in Paris", "see[image: shown below]")
        assert [p["type"] for p in shown["content"]] == ["text", "image_url", "text"]
        assert shown["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PICTURE}"


async def test_ids_that_this_wire_does_not_take_come_back_as_they_were() -> None:
    async with bridge() as (sdk, backend, _):
        chunk = {"id": "functions.f:0", "index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        backend.streams(*chat_stream({"tool_calls": [chunk]}, finish="tool_calls"))
        first = await ask_for(sdk, True, "chat")
        (call,) = first.content
        assert call.id.isascii()
        assert call.id.replace("_", "").replace("-", "").isalnum()
        backend.streams(*chat_stream({"content": "ok"}))
        answered = [{"type": "tool_result", "tool_use_id": call.id, "content": "1"}]
        conversation = [*USER, {"role": "assistant", "content": first.content}, {"role": "user", "content": answered}]
        await ask_for(sdk, True, "chat", conversation)
        said = backend.seen[1].json["messages"]
        assert (said[1]["tool_calls"][0]["id"], said[2]["tool_call_id"]) == ("functions.f:0", "functions.f:0")


# ---------------------------------------------------------------------- pictures and documents


@ways
@pytest.mark.parametrize("source", [PNG, {"type": "url", "url": "https://x.example/a.png"}], ids=["inline", "url"])
async def test_a_picture_goes_in(stream: bool, source: Any) -> None:
    parts: Any = [{"type": "image", "source": source}, {"type": "text", "text": "What is it?"}]
    conversation = [{"role": "user", "content": parts}]
    async with bridge() as (sdk, backend, _):
        said = await ask_for(sdk, stream, "claude-x", conversation)
        assert said.content[0].text == f"I see {source['type']} {source.get('media_type', source.get('url'))}"
        assert backend.seen[0].json["messages"] == conversation
        backend.streams(*chat_stream({"content": "A square."}))
        await ask_for(sdk, stream, "chat", conversation)
        url = backend.seen[1].json["messages"][0]["content"][0]["image_url"]["url"]
        assert url == source.get("url", f"data:image/png;base64,{PICTURE}")


# ---------------------------------------------------------------------- failures


@ways
async def test_failures_before_the_answer(stream: bool) -> None:
    async with bridge() as (sdk, backend, _):
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        backend.answers(529, orjson.dumps(error), retry_after="3")
        with pytest.raises(anthropic.APIStatusError) as caught:
            await ask_for(sdk, stream, "claude-x")
        assert (caught.value.status_code, caught.value.body) == (529, {**error, "request_id": None})
        assert caught.value.response.headers["retry-after"] == "3"
        assert caught.value.request_id
        backend.answers(503, b'{"error":{"message":"busy"}}')
        with pytest.raises(anthropic.APIStatusError) as caught:
            await ask_for(sdk, stream, "chat")
        assert (caught.value.status_code, caught.value.body["error"]["type"]) == (529, "overloaded_error")
        backend.answers(400, b'{"error":{"message":"too long","code":"context_length_exceeded"}}')
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            await ask_for(sdk, stream, "chat")
        backend.answers(401, b'{"error":{"message":"Incorrect API key provided: backend-key"}}')
        with pytest.raises(anthropic.InternalServerError) as caught_auth:
            await ask_for(sdk, stream, "chat")
        assert "backend-key" not in str(caught_auth.value)
        assert caught_auth.value.response.headers["x-should-retry"] == "false"


async def test_a_failure_in_the_stream() -> None:
    async with bridge() as (sdk, backend, _):
        begun = sse(*streamed(message([{"type": "text", "text": "Half an answer"}]))[:5])
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        backend.streams(begun, sse(error))
        texts: list[str] = []

        async def read() -> None:
            async with sdk.messages.stream(model="claude-x", max_tokens=9, messages=USER) as running:
                async for text in running.text_stream:
                    texts.append(text)

        with pytest.raises(anthropic.APIStatusError) as caught:
            await read()
        assert "".join(texts) == "Half an answer"
        assert caught.value.body == {**error, "request_id": None}


async def test_bad_requests_are_told_in_this_dialects_shape() -> None:
    async with bridge() as (sdk, _, base):
        with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\].content\[0\].type"):
            await ask_for(sdk, True, "demo", [{"role": "user", "content": [{"text": "no type"}]}])
        for path, status, kind in (
            ("/v1/messages/nothing", 404, "not_found_error"),
            ("/claude/v1/nothing", 404, "not_found_error"),
        ):
            reply = await ask("POST", base + path, b"{}", {"anthropic-version": "2023-06-01"})
            assert (reply.status, reply.json["type"], reply.json["error"]["type"]) == (status, "error", kind)
        reply = await ask("GET", f"{base}/claude/v1/messages")
        assert (reply.status, reply.json["type"]) == (405, "error")


async def test_keys_in_either_header() -> None:
    auth = {"auth": {"keys": [{"name": "me", "key": "client-key"}]}}
    async with serving(config(server=auth)) as base:
        async with client(base) as sdk:
            assert (await ask_for(sdk, False, "demo")).content
        async with anthropic.AsyncAnthropic(base_url=base, auth_token="client-key", max_retries=0) as sdk:
            assert (await ask_for(sdk, False, "demo")).content
        async with anthropic.AsyncAnthropic(base_url=base, api_key="wrong", max_retries=0) as sdk:
            with pytest.raises(anthropic.AuthenticationError):
                await ask_for(sdk, False, "demo")


# ---------------------------------------------------------------------- beside runs


async def test_counting_tokens() -> None:
    async with bridge() as (sdk, backend, base):
        asked: dict[str, Any] = {"messages": USER, "system": "Be brief.", "tools": TOOLS}
        counted = await sdk.messages.count_tokens(model="claude-x", **asked)
        assert counted.input_tokens == 2095
        seen = backend.seen[0]
        assert seen.path == "/v1/messages/count_tokens"
        assert seen.json == {"model": "claude-x", **asked}
        estimated = await sdk.messages.count_tokens(model="demo", **asked)
        assert 10 < estimated.input_tokens < 200
        body = orjson.dumps({"model": "demo", "messages": USER})
        reply = await post(f"{base}/v1/messages/count_tokens", body)
        assert reply.json["estimated"] is True
        assert reply.headers["x-bridge-estimated"] == "tokens"
        backend.answers(404, b'{"detail":"Not Found"}')
        # A compatible server without that endpoint: an estimate is better than its 404.
        assert (await sdk.messages.count_tokens(model="claude-x", messages=USER)).input_tokens > 0
        backend.answers(429, b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}')
        with pytest.raises(anthropic.RateLimitError, match="slow down"):
            await sdk.messages.count_tokens(model="claude-x", messages=USER)
        with pytest.raises(anthropic.BadRequestError, match="messages: required"):
            await sdk.post("/v1/messages/count_tokens", body={"model": "m"}, cast_to=object)


async def test_models_share_their_address_with_chat() -> None:
    async with bridge() as (sdk, _, base):
        listed = [m async for m in await sdk.models.list()]
        assert [(m.id, m.type, m.lifecycle) for m in listed] == [("chat", "model", "active")]
        assert (await sdk.models.retrieve("chat")).display_name == "chat"
        with pytest.raises(anthropic.NotFoundError):
            await sdk.models.retrieve("nothing")
        chat = await ask("GET", f"{base}/v1/models")
        assert chat.json["object"] == "list"
        alone = await ask("GET", f"{base}/claude/v1/models")
        assert [m["id"] for m in alone.json["data"]] == ["claude-x"]
        assert alone.json["data"][0]["created_at"] == "2025-02-19T00:00:00Z"


# ---------------------------------------------------------------------- as it is


async def test_passthrough_is_byte_for_byte() -> None:
    async with bridge() as (_, backend, base):
        spaced = b'event: message_start\ndata: { "type": "message_start",  "message": {"x": 1.0} }\n\n'
        strange = b'event: new_thing\ndata: {"type":"new_thing","a":[ ]}\n\n'
        whole = spaced + strange + sse(*streamed(message([{"type": "text", "text": "Hi"}]))[1:])
        backend.streams(whole)
        body = (
            b'{"model": "m",  "max_tokens": 5, "messages": [{"role":"user","content":"Hi"}], "stream": true, "z": 1.0}'
        )
        headers = {"anthropic-beta": "b-1", "anthropic-version": "2023-01-01", "content-type": "application/json"}
        reply = await ask("POST", f"{base}/as-it-is/v1/messages", body, headers)
        assert reply.body == whole
        assert backend.seen[0].body == body
        assert backend.seen[0].headers["anthropic-beta"] == "b-1"
        assert backend.seen[0].headers["anthropic-version"] == "2023-01-01"
        answer = (
            b'{"id":"msg_1","type":"message","content":[ {"type":"text","text":"Hi"} ], "usage":{"input_tokens":1}}'
        )
        backend.answers(200, answer)
        reply = await ask("POST", f"{base}/as-it-is/v1/messages", body.replace(b"true", b"false"), headers)
        assert reply.body == answer


async def test_a_chat_client_over_a_messages_model() -> None:
    """The other way round: the tools of a chat client, two parallel calls and their results."""
    function = {"name": "get_weather", "parameters": TOOLS[0]["input_schema"]}
    asked: dict[str, Any] = {"model": "claude-x", "tools": [{"type": "function", "function": function}]}
    async with bridge() as (_, backend, base):
        conversation: list[dict[str, Any]] = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "user", "content": "Weather?"},
        ]
        first = (await post(f"{base}/chat/v1/chat/completions", {**asked, "messages": conversation})).json
        said = first["choices"][0]["message"]
        assert [c["id"] for c in said["tool_calls"]] == ["toolu_Paris", "toolu_Rome"]
        assert first["choices"][0]["finish_reason"] == "tool_calls"
        assert first["usage"]["prompt_tokens"] == 12
        sent = backend.seen[0].json
        assert (sent["system"], sent["max_tokens"]) == ("Be brief.", 4096)
        assert sent["messages"] == [
            {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "Weather?"}]}
        ]
        conversation += [
            said,
            *({"role": "tool", "tool_call_id": c["id"], "content": "sun"} for c in said["tool_calls"]),
        ]
        second = (await post(f"{base}/chat/v1/chat/completions", {**asked, "messages": conversation})).json
        assert second["choices"][0]["message"]["content"] == "toolu_Paris=sun; toolu_Rome=sun"


# ---------------------------------------------------------------------- message threads


async def test_a_thread_is_created_and_its_client_learns_that_it_is_not_held() -> None:
    """To hold one is best effort: the SDK's helpers then send the whole conversation in a new thread."""
    continues = {"type": "continue", "previous_message_id": "msg_1"}
    async with bridge() as (_, backend, base):
        backend.streams(*chat_stream({"content": "Hello"}))
        body = {"model": "chat", "max_tokens": 9, "messages": USER, "stream": True}
        begun = await post(f"{base}/v1/messages", {**body, "thread": {"type": "create"}})
        assert (begun.status, begun.headers["x-bridge-lost"]) == (200, "extras")
        assert "thread" not in backend.seen[0].json
        refused = await post(f"{base}/v1/messages", {**body, "thread": continues})
        assert refused.status == 404
        assert refused.json["error"]["type"] == "not_found_error"
        assert refused.json["error"]["details"] == {"error_code": "thread_not_found"}
        assert (await post(f"{base}/v1/messages", {**body, "thread": {"type": "x"}})).status == 400
        assert len(backend.seen) == 1


async def test_a_backend_that_gets_requests_as_they_came_holds_threads_itself() -> None:
    continues = {"type": "continue", "previous_message_id": "msg_1"}
    async with bridge() as (_, backend, base):
        body = {"model": "claude-x", "max_tokens": 9, "messages": USER, "thread": continues}
        reply = await post(f"{base}/as-it-is/v1/messages", body)
        assert (reply.status, backend.seen[0].json) == (200, body)
