"""An Ollama server as backend: what it is sent, and what its answers mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge import ErrorCode, FinishReason, RequestError, Unsupported
from bridge.contract import Losses, WireResponse
from bridge.contract.demands import NOTHING
from bridge.dialects.ollama import dialect
from bridge.model import (
    Data,
    FileRef,
    Inline,
    Media,
    MediaKind,
    Message,
    Reasoning,
    Request,
    ResponseFormat,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
    ToolResult,
    Url,
    fold,
    verify,
)
from bridge.testing import Exchange, fake_backend
from bridge.translation.requirements import required
from tests.server.harness import Reply, ask, post, serving

from .helpers import CAPTURES, HI, INDEX, PNG, TOOL, asked, back, decode, recorded, sent

ANSWERS = [entry for entry in INDEX if "file" in entry and entry.get("expect")]
HELLO = Request([Message("user", [Text("hi")])], model="m")


def response(entry: dict[str, Any]) -> WireResponse:
    return WireResponse(entry["status"], {"content-type": entry["content_type"]}, recorded(entry["file"]))


# ------------------------------------------------------------------ answers


@pytest.mark.parametrize("entry", ANSWERS, ids=[entry["name"] for entry in ANSWERS])
def test_what_a_server_sends_means_what_the_index_says(entry: dict[str, Any]) -> None:
    expect, wire = entry["expect"], response(entry)
    is_stream = entry["content_type"] == "application/x-ndjson"
    answer = fold(decode(wire.body) if is_stream else verify(dialect.parse_response(wire, back())))
    assert (answer.text, answer.reasoning) == (expect["text"], expect["reasoning"])
    if expect["outcome"] != "completed":
        assert answer.failure is not None
        if "contains" in expect["error"] and entry["name"] != "err-runner":
            assert expect["error"]["contains"] in answer.failure.message
        return
    assert answer.failure is None
    assert answer.reason is not None
    assert str(answer.reason) == expect["finish_reason"]
    for call, wanted in zip(answer.calls, expect["tool_calls"], strict=True):
        assert (call.name, json.loads(call.arguments)) == (wanted["name"], wanted["arguments"])
        assert call.call_id == wanted["id"] or (wanted["id"] is None and call.call_id)
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output) == (expect["usage"]["input"], expect["usage"]["output"])


def code_of(name: str) -> tuple[ErrorCode, str]:
    entry = next(each for each in INDEX if each["name"] == name)
    failure = dialect.decode_error(response(entry))
    return failure.code, failure.message


def test_what_errors_mean() -> None:
    assert code_of("err-model") == (ErrorCode.NOT_FOUND, "model 'nope' not found")
    assert code_of("err-tools")[0] is ErrorCode.INVALID_REQUEST
    assert "does not support tools" in code_of("err-tools")[1]
    assert "does not support thinking" in code_of("err-think")[1]
    assert code_of("err-runner") == (ErrorCode.BACKEND_ERROR, "something broke in the runner")
    assert code_of("err-option-type")[0] is ErrorCode.BACKEND_ERROR
    assert code_of("err-404")[0] is ErrorCode.BACKEND_ERROR


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (401, '{"error":"unauthorized","signin_url":"https://ollama.com/connect?key=abc"}', ErrorCode.BACKEND_AUTH),
        (429, '{"error":"too many requests"}', ErrorCode.RATE_LIMITED),
        (503, '{"error":"server busy, please try again.  maximum pending requests exceeded"}', ErrorCode.OVERLOADED),
        (400, '{"error":"the input length exceeds the context length; prompt too long"}', ErrorCode.CONTEXT_LENGTH),
        (500, '{"error":"model runner has unexpectedly stopped"}', ErrorCode.BACKEND_ERROR),
    ],
)
def test_statuses(status: int, body: str, code: ErrorCode) -> None:
    failure = dialect.decode_error(WireResponse(status, {"content-type": "application/json"}, body.encode()))
    assert failure.code is code
    assert "ollama.com" not in f"{failure.message}{failure.details}"
    assert failure.may_retry == (status in (429, 500, 503))


FIRST = (
    b'{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"Hel"},"done":false}\n'
)
LAST = b'{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","eval_count":4}\n'


def test_a_stream_that_is_cut_anywhere_failed() -> None:
    wire = FIRST + LAST
    for cut in range(len(wire) - 1):
        answer = fold(decode(wire[:cut]))
        assert answer.failure is not None, wire[:cut]
        assert answer.failure.code in (ErrorCode.TRUNCATED_STREAM, ErrorCode.BACKEND_PROTOCOL)
    assert fold(decode(FIRST)).failure == fold(decode(FIRST + b"\n")).failure
    failure = fold(decode(FIRST)).failure
    assert failure is not None
    assert failure.code is ErrorCode.TRUNCATED_STREAM
    assert fold(decode(wire[:-1])).failure is None, "the last line needs no line end"


def test_a_whole_answer_that_is_not_done_failed() -> None:
    answer = fold(verify(dialect.parse_response(WireResponse(200, {}, FIRST), back())))
    assert answer.failure is not None
    assert answer.failure.code is ErrorCode.TRUNCATED_STREAM


@pytest.mark.parametrize(
    "body", [b"<html>", b"{}", b"[]", b'{"id": "x"}', b'"text"', b"", b'{"error":"late"}', b'{"message":"x","code":5}']
)
def test_what_is_no_answer(body: bytes) -> None:
    assert fold(verify(dialect.parse_response(WireResponse(200, {}, body), back()))).failure is not None


def test_an_error_line() -> None:
    answer = fold(decode(FIRST + b'{"error":"an error was encountered, key sk-secret0123456789abcdef"}\n' + LAST))
    assert answer.text == "Hel"
    assert answer.failure is not None
    assert answer.failure.code is ErrorCode.BACKEND_ERROR
    assert answer.failure.message == "an error was encountered, key ***"


@pytest.mark.parametrize("line", [b"{broken}", b"[1]", b'"text"', b"null", b"5", b"<html>"])
def test_a_broken_line(line: bytes) -> None:
    answer = fold(decode(FIRST + line + b"\n" + LAST))
    assert answer.failure is not None
    assert answer.failure.code is ErrorCode.BACKEND_PROTOCOL


def test_blank_lines_other_line_ends_nulls_and_unknown_fields() -> None:
    wire = (FIRST + b"\n \n" + LAST).replace(b"\n", b"\r\n").replace(b'"done":false', b'"done":false,"logprobs":null')
    null = b'{"model":null,"message":{"content":null,"thinking":null,"tool_calls":null,"images":null},"more":1}\n'
    answer = fold(decode(null.replace(b"}\n", b',"done":false}\n') + wire))
    assert (answer.text, answer.reason, answer.failure) == ("Hel", FinishReason.STOP, None)


def test_pictures_of_an_answer_stand_between_its_texts() -> None:
    picture = json.dumps({"model": "m", "message": {"content": "", "images": [PNG, "", 5]}, "done": False}).encode()
    answer = fold(decode(FIRST + picture + b"\n" + FIRST + LAST))
    kinds = [type(part) for message in answer.messages for part in message.parts]
    pictures = [part for message in answer.messages for part in message.parts if isinstance(part, Media)]
    assert kinds == [Text, Media, Text]
    assert [(each.kind, each.source) for each in pictures] == [(MediaKind.IMAGE, Inline(PNG))]


def last(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, **fields}).encode()


@pytest.mark.parametrize(
    ("fields", "reason", "usage"),
    [
        ({"done_reason": "stop", "prompt_eval_count": 3, "eval_count": 4}, FinishReason.STOP, (3, 4)),
        ({"done_reason": "length", "prompt_eval_count": 3}, FinishReason.LENGTH, (3, 0)),
        ({"eval_count": 4}, FinishReason.STOP, (0, 4)),
        ({"done_reason": "load"}, FinishReason.STOP, None),
        ({"done_reason": "unload"}, FinishReason.STOP, None),
        ({"done_reason": ""}, FinishReason.STOP, None),
        ({"done_reason": None, "eval_count": "x"}, FinishReason.STOP, None),
    ],
)
def test_the_end(fields: dict[str, Any], reason: FinishReason, usage: tuple[int, int] | None) -> None:
    answer = fold(decode(last(**fields)))
    assert (answer.reason, answer.failure) == (reason, None)
    assert (answer.usage and (answer.usage.input, answer.usage.output)) == usage


def test_calls_of_any_object_and_without_ids() -> None:
    call = {"function": {"name": "look", "arguments": {"b": 1, "a": 2}}}
    message = {"role": "assistant", "content": "Wait.", "thinking": "Hmm.", "tool_calls": [call]}
    first = json.dumps({"model": "m", "message": message, "done": False}).encode() + b"\n"
    end = last(message={"role": "assistant", "content": "", "tool_calls": [call, {"id": "x", **call}]})
    answers = [fold(decode(first + end, context)) for context in (back(), back())]
    answer = answers[0]
    assert [type(part) for part in answer.messages[0].parts] == [Reasoning, Text, ToolCall, ToolCall, ToolCall]
    assert answer.reason is FinishReason.TOOL_CALLS
    assert answer.calls[0].arguments == '{"b":1,"a":2}'
    assert len({each.call_id for each in answer.calls}) == 3
    assert answer.calls[2].call_id == "x"
    other = back()
    other.run_id = "run2"
    assert {c.call_id for c in fold(decode(first + end, other)).calls} & {c.call_id for c in answer.calls} == {"x"}


def test_an_answer_of_generate_is_read_as_well() -> None:
    entry = next(each for each in INDEX if each["name"] == "gen-text")
    answer = fold(decode(recorded(entry["file"])))
    assert (answer.text, answer.reason) == ("Hello, world!", FinishReason.STOP)


# ------------------------------------------------------------------ requests


def test_every_part_of_a_request() -> None:
    request = Request(
        [
            Message("developer", [Text("Be brief.")]),
            Message("user", [Text("one"), Text("two"), Media(MediaKind.IMAGE, Inline(PNG)), Data({"a": 1})]),
            Message("assistant", [Reasoning("Hmm."), Text("Wait."), ToolCall("a", "look", '{"at":"sky"}'),
                                  ToolCall("b", "look", "broken")]),
            Message("tool", [ToolResult("a", [Text("blue"), Media(MediaKind.IMAGE, Inline(PNG), "image/png")])]),
            Message("user", [ToolResult("b", [Text("grey")], name="look"), Text("And now?")]),
        ],
        tools=[Tool("look", "Looks.", {"type": "object", "properties": {}})],
        model="m",
        sampling=Sampling(0.5, 0.9, 9, ["X"], 4, None, 0.1, 0.2),
        response_format=ResponseFormat("json_schema", name="n", schema={"type": "object"}),
        reasoning_effort="low",
        stream=False,
    )  # fmt: skip
    assert sent(request) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": 'one\ntwo\n{"a":1}', "images": [PNG]},
            {
                "role": "assistant",
                "content": "Wait.",
                "thinking": "Hmm.",
                "tool_calls": [
                    {"id": "a", "function": {"name": "look", "arguments": {"at": "sky"}}},
                    {"id": "b", "function": {"name": "look", "arguments": {"INVALID_JSON": "broken"}}},
                ],
            },
            {"role": "tool", "content": "blue", "images": [PNG], "tool_call_id": "a", "tool_name": "look"},
            {"role": "tool", "content": "grey", "tool_call_id": "b", "tool_name": "look"},
            {"role": "user", "content": "And now?"},
        ],
        "stream": False,
        "tools": [{"type": "function", "function": {"name": "look", "description": "Looks.",
                                                    "parameters": {"type": "object", "properties": {}}}}],
        "format": {"type": "object"},
        "think": "low",
        "options": {
            "temperature": 0.5, "top_p": 0.9, "num_predict": 9, "stop": ["X"], "seed": 4,
            "frequency_penalty": 0.1, "presence_penalty": 0.2,
        },
        "truncate": False,
    }  # fmt: skip


def test_the_least_request() -> None:
    assert sent(HELLO) == {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True, "truncate": False,
    }  # fmt: skip


def test_options_of_the_backend() -> None:
    said = sent(HELLO, truncate=True, num_ctx=16384, keep_alive="10m")
    assert (said["truncate"], said["options"], said["keep_alive"]) == (True, {"num_ctx": 16384}, "10m")
    own = asked({"model": "m", "messages": [{"role": "user", "content": "hi"}], "keep_alive": 0, "truncate": True,
                 "options": {"num_ctx": 5, "top_k": 4}})  # fmt: skip
    said = sent(own, num_ctx=16384, keep_alive="10m")
    assert (said["truncate"], said["options"], said["keep_alive"]) == (True, {"num_ctx": 5, "top_k": 4}, 0)
    assert "notes" not in said


@pytest.mark.parametrize(
    ("effort", "think"),
    [("none", False), ("minimal", False), ("low", "low"), ("medium", "medium"), ("high", "high"), ("xhigh", "high"),
     ("max", "high"), ("odd", None), (None, None)],
)  # fmt: skip
def test_efforts(effort: str | None, think: Any) -> None:
    request = HELLO.copy()
    request.reasoning_effort = effort
    context = back()
    said = json.loads(dialect.encode_request(request, context).body)
    assert said.get("think") == think
    assert ("think" in said) == (think is not None)
    assert ("reasoning_effort" in context.lost.names) == (effort == "odd")


@pytest.mark.parametrize("think", [True, "max"])
def test_a_client_of_this_dialect_has_its_own_word(think: Any) -> None:
    """Servers refuse levels for models that can only think or not, so that true is not a level."""
    request = asked({**HI, "think": think})
    assert sent(request)["think"] == think
    request.reasoning_effort = "low"
    assert sent(request)["think"] == "low", "whatever else has changed the effort"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [(ResponseFormat("text"), None), (ResponseFormat("json"), "json"), (ResponseFormat("json_schema", schema={}), {})],
)
def test_formats(wanted: ResponseFormat, said: Any) -> None:
    request = HELLO.copy()
    request.response_format = wanted
    assert sent(request).get("format") == said


def test_the_choice_of_a_tool() -> None:
    request = HELLO.copy()
    request.tools = [Tool("look")]
    for choice, tools, is_lost in (
        (ToolChoice(ToolMode.NONE), False, False),
        (ToolChoice(ToolMode.AUTO), True, False),
        (ToolChoice(ToolMode.REQUIRED), True, True),
        (ToolChoice(ToolMode.REQUIRED, ["look"]), True, True),
    ):
        request.tool_choice = choice
        context = back()
        said = json.loads(dialect.encode_request(request, context).body)
        assert ("tools" in said, "tool_choice" in context.lost.names) == (tools, is_lost)
        assert "tool_choice" not in said


@pytest.mark.parametrize(
    "media",
    [
        Media(MediaKind.IMAGE, Url("https://example.com/a.png")),
        Media(MediaKind.IMAGE, Inline("AA=="), "image/png"),
        Media(MediaKind.AUDIO, Inline("AAAA"), "audio/wav"),
        Media(MediaKind.VIDEO, Inline("AAAA"), "video/mp4"),
        Media(MediaKind.FILE, Inline("AAAA"), "application/pdf"),
        Media(MediaKind.FILE, FileRef("f1")),
    ],
)
def test_other_media_are_refused(media: Media) -> None:
    with pytest.raises(Unsupported) as caught:
        sent(Request([Message("user", [Text("x"), media])], model="m"))
    assert caught.value.failure.param == "messages[0].content[1]"


def test_results_come_in_the_order_of_their_calls() -> None:
    request = Request(
        [
            Message("assistant", [ToolCall("a", "look", "{}"), ToolCall("b", "hear", "{}")]),
            Message("tool", [ToolResult("b", [Text("heard")])]),
            Message("tool", [ToolResult("a", [Text("seen")])]),
        ],
        model="m",
    )
    said = sent(required(request, dialect.capabilities.demands, Losses()))
    assert [(m["tool_name"], m["content"]) for m in said["messages"][1:]] == [("look", "seen"), ("hear", "heard")]


def test_references_in_schemas_of_tools_are_inlined() -> None:
    place = {"type": "object", "properties": {"city": {"type": "string"}}}
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}}
    schema = {
        "type": "object",
        "properties": {
            "at": {"$ref": "#/$defs/place", "description": "Where."},
            "all": {"type": "array", "items": {"$ref": "#/$defs/place"}},
            "tree": {"$ref": "#/$defs/tree"},
            "gone": {"$ref": "#/$defs/gone"},
        },
        "$defs": {"place": place, "tree": tree},
    }
    lost = Losses()
    request = HELLO.copy()
    request.tools = [Tool("look", parameters=schema)]
    assert dialect.capabilities.demands is not NOTHING
    [tool] = required(request, dialect.capabilities.demands, lost).tools or ()
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "at": {**place, "description": "Where."},
            "all": {"type": "array", "items": place},
            "tree": {"type": "object", "properties": {"next": {}}},
            "gone": {},
        },
    }
    assert "$ref" in json.dumps(schema), "the client's schema is not changed"


# ------------------------------------------------------------------ over sockets


async def between(backend: Any, body: dict[str, Any], **more: Any) -> Reply:
    config = {
        "backends": {"it": {"dialect": "ollama", "url": backend.url, **more}},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
    }
    async with serving(config) as base:
        return await post(f"{base}/v1/chat/completions", body)


CHAT = {"model": "native", "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_recorded_answer_for_a_client_of_chat_completions(stream: bool) -> None:
    async with fake_backend() as backend:

        async def recording(exchange: Exchange) -> None:
            await exchange.head(200, "application/x-ndjson")
            for line in recorded("chat-thinktool-rendered.response.http").splitlines(keepends=True):
                await exchange.send(line)
            await exchange.end()

        if stream:
            backend.plays(recording)
        else:
            backend.answers(200, recorded("chat-tool-whole.response.http"))
        reply = await between(backend, {**CHAT, "stream": stream})
        assert (backend.seen[0].path, backend.seen[0].json["stream"]) == ("/api/chat", stream)
    assert reply.status == 200
    if stream:
        assert b"I need" in reply.body
        assert b'"finish_reason":"tool_calls"' in reply.body.replace(b" ", b"")
    else:
        choice = reply.json["choices"][0]
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
        assert (choice["message"]["content"], choice["finish_reason"]) == ("Let me look.", "tool_calls")


async def test_a_url_that_ends_in_api() -> None:
    async with fake_backend("ollama") as backend:
        backend.says("Hello")
        config = {
            "backends": {"it": {"dialect": "ollama", "url": f"{backend.url}/api"}},
            "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
        }
        async with serving(config) as base:
            await post(f"{base}/v1/chat/completions", CHAT)
        assert backend.seen[0].path == "/api/chat"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stream_without_an_end_is_an_error(stream: bool) -> None:
    async with fake_backend() as backend:
        if stream:
            backend.plays(lambda exchange: _half(exchange))
        else:
            backend.answers(200, FIRST)
        reply = await between(backend, {**CHAT, "stream": stream})
    assert b"[DONE]" not in reply.body
    assert b"error" in reply.body
    assert reply.status == (200 if stream else 502)


async def _half(exchange: Exchange) -> None:
    await exchange.head(200, "application/x-ndjson")
    await exchange.send(FIRST)
    await exchange.end()


async def test_models_both_ways() -> None:
    async with fake_backend() as backend:
        backend.answers(200, recorded("api/tags.response.http"))
        config = {
            "backends": {"it": {"dialect": "ollama", "url": backend.url}},
            "routes": [
                {"dialect": "ollama", "path": "/", "backend": "it"},
                {"dialect": "openai-chat", "path": "/v1", "backend": "it"},
            ],
        }
        async with serving(config) as base:
            tags = (await ask("GET", f"{base}/api/tags")).json["models"]
            models = (await ask("GET", f"{base}/v1/models")).json["data"]
            shown = (await post(f"{base}/api/show", {"model": "qwen:0.6b"})).json
            template = (await post(f"{base}/api/show", {"model": "native"})).json
        assert {seen.path for seen in backend.seen} == {"/api/tags"}
    names = ["native:latest", "tools:latest", "qwen:0.6b", "vision:latest", "embed:latest", "plain:latest"]
    assert [model["name"] for model in tags] == [model["id"] for model in models] == names
    assert {model["context_length"] for model in models} == {8192}
    assert shown["capabilities"] == ["completion", "thinking", "tools"]
    assert shown["model_info"]["bridge.context_length"] == 8192
    assert "tools" in template["capabilities"], "a server may not have read the template yet"


@pytest.mark.parametrize("body", [b'{"models":[]}', b'{"models":null}'])
def test_a_server_without_models(body: bytes) -> None:
    assert dialect.decode_models(WireResponse(200, {}, body)) == []


@pytest.mark.parametrize("body", [b"{}", b"[]", b"<html>", b'{"models":5}'])
def test_what_is_no_list_of_models(body: bytes) -> None:
    with pytest.raises(Exception, match="not a list of models") as caught:
        dialect.decode_models(WireResponse(200, {}, body))
    assert not isinstance(caught.value, RequestError)


def test_the_recordings_are_here() -> None:
    assert all((CAPTURES / entry["file"]).exists() for entry in INDEX if "file" in entry)
