"""The real SDK reads what we emit: everything of an answer arrives, in each way of asking for it."""

from __future__ import annotations

import json
from typing import Any

import openai
import pydantic
import pytest

from bridge.contract import ModelInfo
from bridge.dialects.openai_chat import dialect
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Builder,
    Data,
    Event,
    FinishReason,
    Heartbeat,
    Media,
    MediaKind,
    PartKind,
    RunFinished,
    ToolCall,
    Url,
    UsageReported,
)

from .helpers import STREAMS, build, capture, decode, encode, front, names, sdk, usage_asked

pytestmark = pytest.mark.interop

USER: Any = [{"role": "user", "content": "Hi"}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": name,
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"x": {"type": "integer"}},
                "required": ["x"],
                "additionalProperties": False,
            },
        },
    }
    for name in ("f", "g")
]


def rich(b: Builder) -> None:
    """Reasoning, text, a picture, two calls whose pieces alternate, usage."""
    b.flow(0, PartKind.REASONING, "Hm")
    b.flow(0, PartKind.TEXT, "Hel")
    b.flow(0, PartKind.TEXT, "lo")
    b.add(0, Media(MediaKind.IMAGE, Url("https://x.test/a")))
    b.open_part("a", 0, PartKind.TOOL_CALL, call_id="call_a", name="f")
    b.open_part("b", 0, PartKind.TOOL_CALL, call_id="call_b", name="g")
    for key, text in (("a", '{"x"'), ("b", '{"x":'), ("a", ":1}"), ("b", "2}")):
        b.delta(key, text)
    b.emit(Heartbeat())
    b.usage(UsageReported(10, 5, None, 3, 2))


def check_rich(completion: Any) -> None:
    choice = completion.choices[0]
    assert completion.id == "chatcmpl-run1"
    assert completion.model == "m"
    assert choice.finish_reason == "tool_calls"
    assert choice.message.role == "assistant"
    assert choice.message.content == "Hello![image](https://x.test/a)"
    assert choice.message.reasoning_content == "Hm"
    assert [(c.id, c.type, c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls] == [
        ("call_a", "function", "f", {"x": 1}),
        ("call_b", "function", "g", {"x": 2}),
    ]
    usage = completion.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (10, 5, 15)
    assert usage.prompt_tokens_details.cached_tokens == 3
    assert usage.completion_tokens_details.reasoning_tokens == 2


@pytest.mark.parametrize("pieces", [1, 40])
def test_plain_iteration(pieces: int) -> None:
    stream = sdk(encode(build(rich), usage_asked()), pieces).chat.completions.create(
        model="m", messages=USER, stream=True
    )
    chunks = list(stream)
    deltas = [c.choices[0].delta for c in chunks if c.choices]
    assert "".join(d.content or "" for d in deltas) == "Hello![image](https://x.test/a)"
    fragments = [t for d in deltas for t in d.tool_calls or []]
    assert [(t.index, t.id, t.function.name) for t in fragments if t.id] == [(0, "call_a", "f"), (1, "call_b", "g")]
    assert [t.type for t in fragments if t.id] == ["function", "function"]
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "tool_calls"
    assert chunks[-1].usage.total_tokens == 15
    assert all(c.usage is None for c in chunks[:-1])


@pytest.mark.parametrize("keepalive", ["comment", "chunk", "off"])
def test_helper(keepalive: str) -> None:
    context = usage_asked()
    context.options = dialect.front_options(keepalive=keepalive)
    with sdk(encode(build(rich), context)).chat.completions.stream(model="m", messages=USER, tools=TOOLS) as stream:
        kinds = [(e.type, getattr(e, "name", None), getattr(e, "parsed_arguments", None)) for e in stream]
        check_rich(stream.get_final_completion())
    done = [k for k in kinds if k[0] == "tool_calls.function.arguments.done"]
    assert done == [(done[0][0], "f", {"x": 1}), (done[0][0], "g", {"x": 2})]
    assert "content.done" in [k[0] for k in kinds]


def test_in_one_piece() -> None:
    wire = dialect.assemble(build(rich), front())
    check_rich(sdk(wire).chat.completions.create(model="m", messages=USER))
    parsed = sdk(wire).chat.completions.parse(model="m", messages=USER, tools=TOOLS)
    calls = parsed.choices[0].message.tool_calls or []
    assert [c.function.parsed_arguments for c in calls] == [{"x": 1}, {"x": 2}]


class City(pydantic.BaseModel):
    name: str
    people: int


def city(b: Builder) -> None:
    for piece in ('{"name":', '"Oslo","peo', 'ple":7}'):
        b.flow(0, PartKind.TEXT, piece)


def test_structured_output() -> None:
    wire = dialect.assemble(build(city), front())
    whole = sdk(wire).chat.completions.parse(model="m", messages=USER, response_format=City)
    assert whole.choices[0].message.parsed == City(name="Oslo", people=7)
    with sdk(encode(build(city))).chat.completions.stream(model="m", messages=USER, response_format=City) as stream:
        assert [e.parsed for e in stream if e.type == "content.done"] == [City(name="Oslo", people=7)]


def test_call_without_arguments() -> None:
    data = encode(build(lambda b: b.add(0, ToolCall("c", "f", ""))))
    with sdk(data).chat.completions.stream(model="m", messages=USER) as stream:
        calls = stream.get_final_completion().choices[0].message.tool_calls or []
    assert [c.function.arguments for c in calls] == ["{}"]


def test_refusal() -> None:
    with sdk(encode(build(lambda b: b.flow(0, PartKind.REFUSAL, "No.")))).chat.completions.stream(
        model="m", messages=USER
    ) as stream:
        assert "refusal.done" in [e.type for e in stream]
        assert stream.get_final_completion().choices[0].message.refusal == "No."


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (FinishReason.LENGTH, openai.LengthFinishReasonError),
        (FinishReason.CONTENT_FILTER, openai.ContentFilterFinishReasonError),
    ],
)
def test_cut_answers_raise_by_design(reason: FinishReason, error: type[Exception]) -> None:
    data = encode([*build(city)[:-1], RunFinished(reason)])
    with (
        sdk(data).chat.completions.stream(model="m", messages=USER, response_format=City) as stream,
        pytest.raises(error),
    ):
        list(stream)
    chunks = list(sdk(data).chat.completions.create(model="m", messages=USER, stream=True))
    assert chunks[-1].choices[0].finish_reason == str(reason)


def test_several_choices() -> None:
    with sdk(encode(decode([capture("openai-n2")]))).chat.completions.stream(model="m", messages=USER, n=2) as stream:
        list(stream)
        final = stream.current_completion_snapshot  # the final one raises, since choice 1 was cut
    assert [(c.index, c.message.content, c.finish_reason) for c in final.choices] == [
        (0, "Red!", "stop"),
        (1, "Blue?", "length"),
    ]


def test_error_in_the_stream() -> None:
    def tell(b: Builder) -> None:
        b.flow(0, PartKind.TEXT, "Half")
        b.fail(Failure(ErrorCode.OVERLOADED, "too busy", param="n"))

    stream = sdk(encode(build(tell))).chat.completions.create(model="m", messages=USER, stream=True)
    seen = [next(stream).choices[0].delta.content for _ in range(2)]
    assert seen == ["", "Half"]
    with pytest.raises(openai.APIError) as caught:
        next(stream)
    assert (caught.value.message, caught.value.code, caught.value.param) == ("too busy", "overloaded", "n")


ERRORS = [
    (Failure(ErrorCode.INVALID_REQUEST, "bad", param="messages[0]"), openai.BadRequestError, None),
    (Failure(ErrorCode.UNAUTHORIZED, "who?"), openai.AuthenticationError, "invalid_api_key"),
    (Failure(ErrorCode.NOT_FOUND, "no such model"), openai.NotFoundError, "model_not_found"),
    (
        Failure(ErrorCode.RATE_LIMITED, "slow", headers={"retry-after": "7"}),
        openai.RateLimitError,
        "rate_limit_exceeded",
    ),
    (Failure(ErrorCode.CONTEXT_LENGTH, "long"), openai.BadRequestError, "context_length_exceeded"),
    (Failure(ErrorCode.INVALID_REQUEST, "odd", status=422, backend_code="x"), openai.UnprocessableEntityError, "x"),
    (Failure(ErrorCode.BACKEND_AUTH, "our key"), openai.InternalServerError, "backend_auth"),
]


@pytest.mark.parametrize(("failure", "kind", "code"), ERRORS, ids=[str(e[0].code) + str(e[0].status) for e in ERRORS])
def test_http_errors(failure: Failure, kind: type[openai.APIStatusError], code: str | None) -> None:
    with pytest.raises(kind) as caught:
        sdk(dialect.encode_error(failure)).chat.completions.create(model="m", messages=USER, stream=True)
    error = caught.value
    assert error.status_code == failure.http_status
    assert (error.code, error.param) == (code, failure.param)
    assert failure.message in str(error)
    for name, value in failure.headers.items():
        assert error.response.headers[name] == value


def test_models() -> None:
    infos = [ModelInfo("a/b", 5, "me"), ModelInfo("c")]
    listed = sdk(dialect.encode_models(infos)).models.list()
    assert [(m.id, m.created, m.owned_by, m.object) for m in listed] == [
        ("a/b", 5, "me", "model"),
        ("c", 0, "dialect-bridge", "model"),
    ]
    assert sdk(dialect.encode_model(infos[0])).models.retrieve("a/b").id == "a/b"


GOOD = [c for c in STREAMS if c["expect"]["outcome"] == "completed" and c["expect"]["finish_reason"] != "length"]
GOOD = [c for c in GOOD if c["expect"]["finish_reason"] != "content_filter" and "choices" not in c["expect"]]


@pytest.mark.parametrize("entry", GOOD, ids=names(GOOD))
def test_every_capture_reaches_the_helper(entry: dict[str, Any]) -> None:
    """What quirky backends sent, normalised, is something the strict helper can add up."""
    expect = entry["expect"]
    data = encode(decode([capture(entry["name"])]), usage_asked())
    with sdk(data).chat.completions.stream(model="m", messages=USER, n=1) as stream:
        list(stream)
        final = stream.get_final_completion()
    message = final.choices[0].message
    assert (message.content or "") == ("" if "audio" in expect else expect["text"])
    calls = message.tool_calls or []
    assert [(c.id, c.function.name, json.loads(c.function.arguments)) for c in calls] == [
        (c["id"] or calls[i].id, c["name"], json.loads(c["arguments"] or "{}"))
        for i, c in enumerate(expect["tool_calls"])
    ]
    assert final.choices[0].finish_reason in ("stop", "tool_calls")
    assert final.usage is not None
    assert (final.usage.total_tokens > 0) == (expect["usage"] is not None)


def test_data_is_text() -> None:
    events: list[Event] = build(lambda b: b.add(0, Data([1])))
    assert (
        sdk(dialect.assemble(events, front()))
        .chat.completions.create(model="m", messages=USER)
        .choices[0]
        .message.content
        == "[1]"
    )
