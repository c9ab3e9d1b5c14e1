"""Section 4: the strict form, rule by rule, on the bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Feature
from bridge.dialects.openai_chat import dialect
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    ArgsDelta,
    Builder,
    Custom,
    Data,
    Event,
    FileRef,
    FinishReason,
    Heartbeat,
    Interrupted,
    Media,
    MediaKind,
    Origin,
    PartKind,
    Raw,
    Reasoning,
    RunFinished,
    RunStarted,
    StateChanged,
    StateOp,
    StepEnded,
    StepStarted,
    Text,
    ToolCall,
    Url,
    UsageReported,
)

from .helpers import asked, build, chunk, chunks_of, decode_chunks, deltas, emitted, encode, front, request, usage_asked

TEXT, REASONING, REFUSAL, CALL = PartKind.TEXT, PartKind.REASONING, PartKind.REFUSAL, PartKind.TOOL_CALL


def speak(builder: Builder) -> None:
    builder.flow(0, REASONING, "Hm")
    builder.flow(0, TEXT, "Hel")
    builder.flow(0, TEXT, "lo \u2028\n")


def one_call(builder: Builder) -> None:
    builder.open_part("a", 0, CALL, call_id="call_1", name="f")
    builder.delta("a", '{"x"')
    builder.delta("a", ":1}")


def test_whole_stream_as_it_is() -> None:
    head = b'data: {"id":"chatcmpl-run1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":['
    tail = b',"logprobs":null,"finish_reason":null}]}\n\n'
    assert encode(build(speak)) == b"".join(
        [
            head + b'{"index":0,"delta":{"role":"assistant","content":""}' + tail,
            head + b'{"index":0,"delta":{"reasoning_content":"Hm"}' + tail,
            head + b'{"index":0,"delta":{"content":"Hel"}' + tail,
            head + '{"index":0,"delta":{"content":"lo \u2028\\n"}'.encode() + tail,
            head + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}\n\n',
            b"data: [DONE]\n\n",
        ]
    )


def test_each_chunk_is_whole_and_constant() -> None:
    chunks = emitted(build(lambda b: [speak(b), one_call(b)]), usage_asked())
    assert chunks.pop() == "[DONE]"
    assert {(c["id"], c["created"], c["model"], c["object"]) for c in chunks} == {
        ("chatcmpl-run1", 1700000000, "m", "chat.completion.chunk")
    }
    for entry in (e for c in chunks for e in c["choices"]):
        assert isinstance(entry["index"], int)
        assert isinstance(entry["delta"], dict)


def test_role_once() -> None:
    roles = [c for c in emitted(build(speak)) if "role" in str(c)]
    assert len(roles) == 1


def test_call_fragments() -> None:
    events = build(one_call)
    assert emitted(events)[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert deltas(events) == [
        {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
    ]
    finish = emitted(events)[-2]
    assert finish["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "tool_calls"}]


def test_a_call_without_arguments_gets_an_object() -> None:
    events = build(lambda b: b.add(0, ToolCall("c", "f", "")))
    assert deltas(events)[-1] == {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}


def test_a_call_whose_arguments_are_white_space_gets_an_object() -> None:
    events = build(lambda b: b.add(0, ToolCall("c", "f", " \n")))
    assert [d["tool_calls"][0]["function"]["arguments"] for d in deltas(events) if "tool_calls" in d] == [
        "", " \n", "{}",
    ]  # fmt: skip
    (call,) = json.loads(dialect.assemble(events, front()).body)["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {}


def test_calls_never_interleave() -> None:
    def tell(b: Builder) -> None:
        b.open_part("a", 0, CALL, call_id="a", name="f")
        b.open_part("b", 0, CALL, call_id="b", name="g")
        for key, text in (("a", "{"), ("b", "["), ("a", "}"), ("b", "]")):
            b.delta(key, text)
            b.flow(0, TEXT, "t")
        b.end_part("a")

    order = [d["tool_calls"][0]["index"] for d in deltas(build(tell)) if "tool_calls" in d]
    assert order == [0, 0, 0, 1, 1, 1]


def test_choice_zero_comes_first() -> None:
    def tell(b: Builder) -> None:
        b.message("one", choice=1)
        b.flow("one", TEXT, "B")
        b.message("zero", choice=0)
        b.flow("zero", TEXT, "A")
        b.end_reason("one", FinishReason.LENGTH)

    chunks = emitted(build(tell))[:-1]
    assert [c["choices"][0]["index"] for c in chunks] == [0, 1, 1, 0, 0, 1]
    assert [c["choices"][0]["finish_reason"] for c in chunks[-2:]] == ["stop", "length"]


def test_choices_begin_in_their_order() -> None:
    """The SDK's helper fails at a choice that is more than one beyond the last."""

    def tell(b: Builder) -> None:
        for choice in (2, 10**9):
            b.message(choice, choice=choice)
            b.flow(choice, TEXT, "B")

    begun = [c["choices"][0] for c in emitted(build(tell))[:-1] if "role" in c["choices"][0]["delta"]]
    assert [choice["index"] for choice in begun] == [*range(128), 10**9]


def test_an_answer_of_nothing_still_has_role_and_finish() -> None:
    chunks = emitted(build(lambda b: None))
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None, "stop"]


def test_empty_deltas_are_dropped() -> None:
    assert deltas(build(lambda b: [b.flow(0, TEXT, ""), b.flow(0, TEXT, "x")])) == [{"content": "x"}]


def with_usage(b: Builder) -> None:
    speak(b)
    b.usage(UsageReported(3, 4, None, 2, 1))


@pytest.mark.parametrize(
    ("context", "shown"),
    [
        (usage_asked(), True),
        (front(), True),
        (front(request=request(asked(stream=True))), False),
        (front(request=request(asked(stream=True, stream_options={"include_usage": False}))), False),
    ],
    ids=["asked", "no-request", "not-asked", "refused"],
)
def test_usage_is_the_last_chunk_and_only_if_asked(context: Any, shown: bool) -> None:
    chunks = emitted(build(with_usage), context)
    assert [i for i, c in enumerate(chunks) if "usage" in c] == ([len(chunks) - 2] if shown else [])
    if shown:
        assert chunks[-2]["choices"] == []
        assert chunks[-2]["usage"] == {
            "prompt_tokens": 3,
            "completion_tokens": 4,
            "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 1},
        }


def test_a_usage_that_was_asked_for_and_not_told_is_zeros_and_named_as_lost() -> None:
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    streamed, whole = usage_asked(), front()
    chunks = emitted(build(speak), streamed)
    assert [(c["choices"], c["usage"]) for c in chunks if "usage" in c] == [([], zeros)]
    assert "usage" in chunks[-2]
    assert json.loads(dialect.assemble(build(speak), whole).body)["usage"] == zeros
    for context in (streamed, whole):
        assert context.lost.details == {"usage": "zeros; the backend reported no usage"}


@pytest.mark.parametrize("body", [None, asked(), asked(stream_options={"include_usage": False})])
def test_no_usage_where_none_was_asked_for_or_told(body: Any) -> None:
    context = front(request=request(body) if body else None)
    assert not any("usage" in c for c in emitted(build(speak), context))
    assert context.lost.names == []


def test_failure_is_the_last_event() -> None:
    def tell(b: Builder) -> None:
        with_usage(b)
        b.fail(Failure(ErrorCode.RATE_LIMITED, "slow down, Bearer abc", backend_code="insufficient_quota", param="n"))

    chunks = emitted(build(tell))
    assert chunks[-1] == {
        "error": {
            "message": "slow down, Bearer ***",
            "type": "rate_limit_error",
            "param": "n",
            "code": "insufficient_quota",
        }
    }
    assert not any("usage" in c or c["choices"][0]["finish_reason"] for c in chunks[:-1])


def test_canceled_is_an_error_never_a_stop() -> None:
    context = front()
    events: list[Event] = [RunStarted("run1"), RunFinished(FinishReason.CANCELED)]
    assert emitted(events, context)[-1]["error"]["code"] == "canceled"
    assert context.lost.names == ["finish_canceled"]


@pytest.mark.parametrize(
    ("reason", "calls", "word"),
    [
        (FinishReason.STOP, False, "stop"),
        (FinishReason.STOP, True, "tool_calls"),
        (FinishReason.LENGTH, True, "length"),
        (FinishReason.CONTENT_FILTER, False, "content_filter"),
        (FinishReason.INTERRUPTED, True, "tool_calls"),
        (FinishReason.INTERRUPTED, False, "stop"),
        (FinishReason.TOOL_CALLS, False, "stop"),
    ],
)
def test_finish_words(reason: FinishReason, calls: bool, word: str) -> None:
    events = build(one_call if calls else speak)[:-1]
    assert emitted([*events, RunFinished(reason)])[-2]["choices"][0]["finish_reason"] == word


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "both"])
def test_reasoning_field(field: str) -> None:
    names = ("reasoning_content", "reasoning") if field == "both" else (field,)
    assert deltas(build(speak), front({"reasoning_field": field}))[0] == dict.fromkeys(names, "Hm")


def test_a_blank_line_between_messages_and_none_inside_one() -> None:
    def tell(b: Builder) -> None:
        b.flow("0", TEXT, "")
        for key in "ab":
            b.flow(key, TEXT, key)
            b.flow(key, REASONING, "-")
            b.flow(key, TEXT, key)
        b.flow("1", TEXT, "")

    assert "".join(d.get("content", "") for d in deltas(build(tell), front())) == "aa\n\nbb"
    whole = json.loads(dialect.assemble(build(tell), front()).body)
    assert whole["choices"][0]["message"]["content"] == "aa\n\nbb"


MEDIA = [
    (Media(MediaKind.IMAGE, Url("https://x.test/a.png")), "![image](https://x.test/a.png)", Feature.IMAGE),
    (Media(MediaKind.FILE, FileRef("f1"), None, "a.pdf"), "[a.pdf: f1]", Feature.FILE),
    (Media(MediaKind.AUDIO, Url("https://x.test/a.wav")), "[audio](https://x.test/a.wav)", Feature.AUDIO),
    (Media(MediaKind.VIDEO, Url("https://x.test/v")), "[video](https://x.test/v)", Feature.VIDEO),
    (Data({"a": 1}), '{"a":1}', Feature.DATA),
]


@pytest.mark.parametrize(("part", "text", "feature"), MEDIA, ids=[str(m[2]) for m in MEDIA])
def test_media(part: Any, text: str, feature: Feature) -> None:
    events = build(lambda b: b.add(0, part))
    context = front()
    assert deltas(events, context) == [{"content": text}]
    assert context.lost.names == [str(feature)]
    dropped = front({"media": "drop"})
    assert deltas(events, dropped) == []
    assert dropped.lost.names == [str(feature)]
    for options in ({"media": "text"}, {"media": "drop"}):
        body = json.loads(dialect.assemble(events, front(options)).body)
        assert body["choices"][0]["message"]["content"] == (text if options["media"] == "text" else "")


@pytest.mark.parametrize(
    ("mode", "frames"),
    [
        ("comment", b": keep-alive\n\n"),
        ("off", b""),
        (False, b""),
    ],
)
def test_heartbeat(mode: Any, frames: bytes) -> None:
    assert encode([Heartbeat()], front({"keepalive": mode})) == frames


def test_heartbeat_as_chunk_waits_for_the_head() -> None:
    encoder = dialect.encoder(front({"keepalive": "chunk"}))
    assert encoder.encode([Heartbeat()]) == []
    frames = encoder.encode([RunStarted("r"), Heartbeat()])
    last = chunks_of(b"".join(b"data: " + f + b"\n\n" for f in frames if isinstance(f, bytes)))[-1]
    assert last["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}]


def test_what_the_wire_has_no_word_for_is_recorded() -> None:
    def tell(b: Builder) -> None:
        b.emit(StepStarted("s"))
        b.emit(StepEnded("s"))
        b.emit(StateChanged(StateOp.SNAPSHOT, {}))
        b.emit(Custom("c"))
        b.emit(Raw("ag-ui", {}))
        b.open_part("t", 0, REASONING)
        b.end_part("t", signature="sig")
        b.add(0, ToolCall("c", "f", "{}", Origin.MCP))
        b.result("c", [Text("x")])
        b.interrupt(Interrupted("i"))

    wanted = {
        "step",
        "state",
        "custom",
        "raw",
        "reasoning_signature",
        "tool_origin",
        "tool_result",
        "interrupt",
        "usage",
    }
    for run in (lambda c: encode(build(tell), c), lambda c: dialect.assemble(build(tell), c)):
        context = usage_asked()
        run(context)
        assert set(context.lost.names) == wanted


def test_lists_get_an_index_and_numbers_come_once() -> None:
    """The SDK's helper raises at lists without one, and adds numbers up."""

    def tell(b: Builder) -> None:
        for url in "ab":
            b.emit(Raw("openai-chat", {"index": 0, "delta": {"annotations": [{"url": url}], "score": 3, "flag": True}}))

    assert deltas(build(tell)) == [
        {"annotations": [{"url": "a", "index": 0}], "score": 3, "flag": True},
        {"annotations": [{"url": "b", "index": 1}]},
    ]


def test_lists_and_numbers_deep_inside() -> None:
    def tell(b: Builder) -> None:
        for _ in range(2):
            b.emit(Raw("openai-chat", {"index": 0, "delta": {"meta": {"n": 1, "l": [{"a": "x"}]}}}))

    assert deltas(build(tell)) == [
        {"meta": {"n": 1, "l": [{"a": "x", "index": 0}]}},
        {"meta": {"l": [{"a": "x", "index": 1}]}},
    ]


def test_pieces_of_an_entry_are_joined_in_one_piece_as_the_sdk_joins_them() -> None:
    def tell(b: Builder) -> None:
        for text in "ab":
            entry = {"type": "reasoning.text", "text": text, "index": 0}
            b.emit(Raw("openai-chat", {"index": 0, "delta": {"reasoning_details": [entry]}}))

    message = whole(tell)["choices"][0]["message"]
    assert message["reasoning_details"] == [{"type": "reasoning.text", "text": "ab", "index": 0}]


def test_raw_of_a_stranger_does_no_harm() -> None:
    def tell(b: Builder) -> None:
        for value in (None, 7, {}, {"delta": 5}, {"choice": [], "chunk": "x"}, {"chunk": {}}):
            b.emit(Raw("openai-chat", value))

    assert deltas(build(tell)) == []


def test_head_from_the_backend() -> None:
    extras = {"openai-chat": {"id": "chatcmpl-x", "system_fingerprint": "fp", "service_tier": "flex", "provider": "P"}}
    events = [RunStarted("r", model=None, created_at=9.7, extras=extras), *build(speak)[1:]]
    chunks = emitted(events, front(model="shown"))
    for c in chunks[:-1]:
        assert (c["id"], c["created"], c["model"]) == ("chatcmpl-x", 9, "shown")
        assert (c["system_fingerprint"], c["service_tier"]) == ("fp", "flex")
    assert ["provider" in c for c in chunks[:3]] == [True, False, False]


def test_the_model_is_never_null() -> None:
    assert emitted([RunStarted("r"), RunFinished()])[0]["model"] == ""
    context = front(request=request(asked()))
    assert emitted([RunStarted("r"), RunFinished()], context)[0]["model"] == "m"


def test_lone_surrogates_of_a_python_backend() -> None:
    def tell(b: Builder) -> None:
        b.flow(0, TEXT, "a\ud83d")
        b.open_part("a", 0, CALL, call_id="c", name="f")
        b.emit(ArgsDelta("msg_run1-1", "\udc00"))

    found = deltas(build(tell))
    assert found[0] == {"content": "a\ufffd"}
    assert found[-1]["tool_calls"][0]["function"]["arguments"] == "\ufffd"


def test_same_events_same_bytes() -> None:
    assert encode(build(with_usage)) == encode(build(with_usage))


def test_event_by_event_is_the_same_bytes() -> None:
    events = build(lambda b: [with_usage(b), one_call(b)])
    encoder = dialect.encoder(front())
    frames = [f for e in events for f in encoder.encode([e])]
    assert b"".join(b"data: " + f + b"\n\n" for f in frames if isinstance(f, bytes)) == encode(events)


# ------------------------------------------------------------------ in one piece


def whole(tell: Any, **options: Any) -> dict[str, Any]:
    wire = dialect.assemble(build(tell), front(options or None))
    assert (wire.status, wire.content_type) == (200, "application/json")
    body: dict[str, Any] = json.loads(wire.body)
    return body


def test_completion_as_it_is() -> None:
    def tell(b: Builder) -> None:
        with_usage(b)
        b.add(0, ToolCall("c", "f", ""))

    assert whole(tell) == {
        "id": "chatcmpl-run1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Hello \u2028\n",
                    "refusal": None,
                    "annotations": [],
                    "reasoning_content": "Hm",
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 4,
            "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
    }


def test_content_is_null_only_beside_something_else() -> None:
    assert whole(one_call)["choices"][0]["message"]["content"] is None
    assert whole(lambda b: b.flow(0, REFUSAL, "no"))["choices"][0]["message"]["content"] is None
    assert whole(lambda b: None)["choices"][0]["message"]["content"] == ""
    assert whole(speak, reasoning_field="both")["choices"][0]["message"]["reasoning"] == "Hm"


def test_completion_of_a_failure() -> None:
    wire = dialect.assemble(build(lambda b: b.fail(Failure(ErrorCode.OVERLOADED, "busy"))), front())
    assert (wire.status, json.loads(wire.body)["error"]["message"]) == (503, "busy")
    events: list[Event] = [RunStarted("run1"), RunFinished(FinishReason.CANCELED)]
    wire = dialect.assemble(events, front())
    assert (wire.status, json.loads(wire.body)["error"]["code"]) == (499, "canceled")


def thinking(builder: Builder) -> None:
    builder.open_part("r", "m", REASONING)
    for piece in ("hm", "m"):
        builder.delta("r", piece)
    builder.end_part("r", signature="c2ln")
    builder.add("m", Reasoning("", redacted="c2VjcmV0"))
    builder.flow("m", TEXT, "Yes")


def test_reasoning_details_by_option() -> None:
    context = front({"reasoning_field": "reasoning_details"})

    def text(**said: Any) -> dict[str, Any]:
        return {"type": "reasoning.text", "index": 0, **said}

    encrypted = {"type": "reasoning.encrypted", "index": 1, "data": "c2VjcmV0"}
    assert deltas(build(thinking), context) == [
        {"reasoning": "hm", "reasoning_details": [text(text="hm")]},
        {"reasoning": "m", "reasoning_details": [text(text="m")]},
        {"reasoning_details": [text(signature="c2ln")]},
        {"reasoning_details": [encrypted]},
        {"content": "Yes"},
    ]
    assert not context.lost.names
    message = json.loads(dialect.assemble(build(thinking), context).body)["choices"][0]["message"]
    assert message["reasoning"] == "hmm"
    assert message["reasoning_details"] == [text(text="hmm", signature="c2ln"), encrypted]
    plain = front()
    assert all("reasoning_details" not in delta for delta in deltas(build(thinking), plain))
    assert plain.lost.names == ["reasoning_signature"]


def test_reasoning_without_a_text_writes_no_field() -> None:
    events = build(lambda builder: builder.add("m", Reasoning("", redacted="c2VjcmV0")))
    message = json.loads(dialect.assemble(events, front()).body)["choices"][0]["message"]
    assert "reasoning_content" not in message
    assert deltas(events) == []


def test_reasoning_details_of_a_chat_backend_pass_once() -> None:
    details = [{"type": "reasoning.text", "index": 0, "text": "hm"}]
    events = decode_chunks(chunk({"reasoning": "hm", "reasoning_details": details}))
    told = deltas(events, front({"reasoning_field": "reasoning_details"}))
    assert [d["reasoning_details"] for d in told if "reasoning_details" in d] == [details]
    assert [d["reasoning"] for d in told if "reasoning" in d] == ["hm"]
