"""What clients are told. Every stream here is walked by the SDK's types and the grammar (`helpers.judge`)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.contract import WireResponse
from bridge.dialects.anthropic_messages import dialect
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Builder,
    Custom,
    Data,
    FinishReason,
    Heartbeat,
    Interrupted,
    Media,
    MediaKind,
    Origin,
    PartKind,
    Raw,
    Reasoning,
    Refusal,
    RunFailed,
    StateChanged,
    StateOp,
    Text,
    ToolCall,
    Url,
    UsageReported,
    fold,
)
from tests.strategies import answers

from .helpers import (
    START,
    STOP,
    asked,
    back,
    block,
    build,
    decode,
    decode_events,
    emitted,
    encode,
    ended,
    frames_of,
    front,
    judge,
    judged_message,
    request,
    sdk,
    stop,
)

UNKNOWN_USAGE = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
    "inference_geo": None,
    "output_tokens_details": None,
    "server_tool_use": None,
    "service_tier": None,
}


def kinds(values: list[Any]) -> list[str]:
    """The events in short: blocks by their type, deltas by theirs."""
    out = []
    for value in values:
        inner = value.get("content_block") or value.get("delta") or {}
        out.append(inner.get("type") or value["type"].removeprefix("content_block_"))
    return out


def rich(b: Builder) -> None:
    """Reasoning, text, a picture, two calls whose pieces alternate, usage."""
    b.flow(0, PartKind.REASONING, "Hm")
    b.end_flow(0, signature="c2ln")
    b.flow(0, PartKind.TEXT, "Hel")
    b.flow(0, PartKind.TEXT, "lo \u2028")
    b.add(0, Media(MediaKind.IMAGE, Url("https://x.test/a")))
    b.open_part("a", 0, PartKind.TOOL_CALL, call_id="call_a", name="f")
    b.open_part("b", 0, PartKind.TOOL_CALL, call_id="call_b", name="g")
    for key, text in (("a", '{"x"'), ("b", '{"x":'), ("a", ":1}"), ("b", "2}")):
        b.delta(key, text)
    b.usage(UsageReported(10, 5, None, 3, 2))


def test_blocks_follow_each_other() -> None:
    values = emitted(build(rich))
    assert kinds(values) == [
        "message_start",
        "thinking", "thinking_delta", "signature_delta", "stop",
        "text", "text_delta", "text_delta", "stop",
        "text", "text_delta", "stop",
        "tool_use", "input_json_delta", "input_json_delta", "stop",
        "tool_use", "input_json_delta", "input_json_delta", "stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    assert values[-2]["delta"] == {
        "stop_reason": "tool_use", "stop_sequence": None, "stop_details": None, "container": None,
    }  # fmt: skip
    assert values[-2]["usage"] == {
        "input_tokens": 7,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 3,
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 2},
        "server_tool_use": None,
    }
    blocks = [v["content_block"] for v in values if "content_block" in v]
    assert blocks[1] == {"type": "text", "text": "", "citations": []}
    assert blocks[3] == {"type": "tool_use", "id": "call_a", "name": "f", "input": {}, "caller": {"type": "direct"}}


def test_the_head() -> None:
    message = emitted(build(lambda b: b.flow(0, PartKind.TEXT, "x")))[0]["message"]
    assert message == {
        "id": "msg_run1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
        "stop_sequence": None, "stop_details": None, "container": None, "usage": UNKNOWN_USAGE,
    }  # fmt: skip


def test_a_message_in_one_piece_has_every_field() -> None:
    context = front()
    message = judged_message(dialect.assemble(build(lambda b: b.flow(0, PartKind.TEXT, "x")), context)).to_dict()
    assert message["usage"] == UNKNOWN_USAGE
    assert message["content"] == [{"type": "text", "text": "x", "citations": []}]
    assert (message["stop_details"], message["container"]) == (None, None)
    assert context.lost.details == {"usage": "zeros; the backend reported no usage"}


def test_a_backend_that_tells_more_is_repeated() -> None:
    said = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
    head = {**START["message"], "usage": {"input_tokens": 5, "output_tokens": 1, "service_tier": "priority"}}
    events = decode_events(
        {"type": "message_start", "message": head},
        block(0, "tool_use", id="t", name="f", input={}, caller=said),
        stop(0),
        ended("tool_use", server_tool_use={"web_search_requests": 1, "web_fetch_requests": 0}, input_tokens=5),
        STOP,
    )
    values = emitted(events)
    assert values[0]["message"]["usage"] == {
        **UNKNOWN_USAGE, "input_tokens": 5, "output_tokens": 1, "service_tier": "priority",
    }  # fmt: skip
    assert values[1]["content_block"]["caller"] == said
    assert values[-2]["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 0}
    whole = json.loads(dialect.assemble(events, front()).body)
    assert (whole["usage"]["service_tier"], whole["usage"]["inference_geo"]) == ("priority", None)


def test_a_message_in_one_piece_says_the_same() -> None:
    message = judged_message(dialect.assemble(build(rich), front()))
    with sdk(encode(build(rich))).messages.stream(model="m", max_tokens=9, messages=[]) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_message()
    assert [b.to_dict() for b in message.content] == [b.to_dict() for b in streamed.content]
    assert message.usage.to_dict() == streamed.usage.to_dict()
    assert (message.id, message.stop_reason) == (streamed.id, streamed.stop_reason)
    assert [getattr(b, "input", None) for b in message.content[-2:]] == [{"x": 1}, {"x": 2}]


def test_an_answer_that_starts_with_a_call_has_no_empty_text() -> None:
    def tell(b: Builder) -> None:
        b.add(0, Text(""))
        b.flow(0, PartKind.TEXT, "")
        b.add(0, Reasoning(""))
        b.add(0, ToolCall("c", "f", ""))

    values = emitted(build(tell))
    assert kinds(values)[1:4] == ["tool_use", "input_json_delta", "stop"]
    assert values[2]["delta"]["partial_json"] == "{}"


def test_a_call_that_begins_while_text_is_open_waits_for_it() -> None:
    def tell(b: Builder) -> None:
        b.open_part("t", 0, PartKind.TEXT)
        b.delta("t", "one ")
        b.open_part("c", 0, PartKind.TOOL_CALL, call_id="c", name="f")
        b.delta("c", '{"a":')
        b.delta("t", "two")
        b.delta("c", "1}")

    values = emitted(build(tell))
    assert kinds(values)[1:9] == [
        "text", "text_delta", "text_delta", "stop", "tool_use", "input_json_delta", "input_json_delta", "stop",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "calls", "word"),
    [
        (FinishReason.STOP, False, "end_turn"),
        (FinishReason.STOP, True, "tool_use"),
        (FinishReason.TOOL_CALLS, True, "tool_use"),
        (FinishReason.TOOL_CALLS, False, "end_turn"),
        (FinishReason.LENGTH, True, "max_tokens"),
        (FinishReason.CONTENT_FILTER, False, "refusal"),
    ],
)
def test_stop_reasons(reason: FinishReason, calls: bool, word: str) -> None:
    def tell(b: Builder) -> None:
        b.flow(0, PartKind.TEXT, "x")
        if calls:
            b.add(0, ToolCall("c", "f", "{}"))
        b.finish(reason)
        b.end()

    assert emitted(build(tell))[-2]["delta"]["stop_reason"] == word
    assert judged_message(dialect.assemble(build(tell), front())).stop_reason == word


def test_a_run_that_waits_for_a_person_ends_as_after_its_call() -> None:
    def tell(b: Builder) -> None:
        b.add(0, ToolCall("c", "f", "{}"))
        b.interrupt(Interrupted("i", "approval", None, "c"))

    context = front()
    values = emitted(build(tell), context)
    assert kinds(values)[1:4] == ["tool_use", "input_json_delta", "stop"]
    assert values[-2]["delta"]["stop_reason"] == "tool_use"
    assert context.lost.names == ["interrupt", "usage"]


def test_what_a_run_waits_for_is_asked_last() -> None:
    def tell(b: Builder) -> None:
        b.interrupt(Interrupted("i", "approval", {"question": "Shall I?"}))
        b.flow(0, PartKind.TEXT, "Well.")

    message = judged_message(dialect.assemble(build(tell), front()))
    assert [getattr(b, "text", None) for b in message.content] == ["Well.", "Shall I?"]
    assert message.stop_reason == "end_turn"
    assert kinds(emitted(build(tell)))[1:7] == ["text", "text_delta", "stop"] * 2


def test_a_canceled_run_is_an_error() -> None:
    def tell(b: Builder) -> None:
        b.flow(0, PartKind.TEXT, "x")
        b.finish(FinishReason.CANCELED)
        b.end()

    last = emitted(build(tell))[-1]
    assert (last["type"], last["error"]["code"]) == ("error", "canceled")
    assert dialect.assemble(build(tell), front()).status == 499


def test_usage_that_nobody_knows_is_zeros_which_no_reader_takes_for_counts() -> None:
    events = build(lambda b: b.flow(0, PartKind.TEXT, "x"))
    context = front()
    told = emitted(events, context)
    for usage in (told[0]["message"]["usage"], told[-2]["usage"]):
        for name in ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"):
            assert type(usage[name]) is int, name
    assert context.lost.names == ["usage"]
    assert fold(decode([encode(events)])).usage is None


@pytest.mark.parametrize("parts", [None, {"ephemeral_1h_input_tokens": 3, "ephemeral_5m_input_tokens": 1}])
def test_the_parts_of_a_cache_are_those_that_were_told(parts: Any) -> None:
    usage = {"input_tokens": 5, "output_tokens": 1, "cache_creation_input_tokens": 4, "cache_creation": parts}
    body = json.dumps({**START["message"], "stop_reason": "end_turn", "usage": usage}).encode()
    whole = dialect.parse_response(WireResponse(200, {}, body), back())
    streamed = decode_events({"type": "message_start", "message": json.loads(body)}, ended(input_tokens=5), STOP)
    for events in (whole, streamed):
        answered = json.loads(dialect.assemble(events, front()).body)["usage"]
        assert (answered["cache_creation_input_tokens"], answered["cache_creation"]) == (4, parts)


@pytest.mark.parametrize(("cached", "made"), [(0, 0), (4, 0), (4, 3), (99, 0), (2, 99)])
def test_the_parts_of_the_input_never_exceed_it(cached: int, made: int) -> None:
    def tell(b: Builder) -> None:
        b.flow(0, PartKind.TEXT, "x")
        extras = {"anthropic-messages": {"cache_creation_input_tokens": made}}
        b.usage(UsageReported(10, 1, None, cached, extras=extras))

    usage = emitted(build(tell))[-2]["usage"]
    counts = [usage[f"{n}input_tokens"] for n in ("", "cache_read_", "cache_creation_")]
    assert sum(counts) == 10
    assert min(counts) >= 0


def test_a_failure_closes_what_is_open_and_ends_the_stream() -> None:
    def tell(b: Builder) -> None:
        b.flow(0, PartKind.TEXT, "Half")
        b.fail(Failure(ErrorCode.OVERLOADED, "too busy"))

    values = emitted(build(tell))
    assert kinds(values) == ["message_start", "text", "text_delta", "stop", "error"]
    assert values[-1] == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "too busy"},
        "request_id": None,
    }


def test_a_failure_alone_is_one_event() -> None:
    assert kinds(emitted([RunFailed(Failure(ErrorCode.INTERNAL, "broke"))])) == ["error"]


@pytest.mark.parametrize("mode", ["ping", "comment", "off"])
def test_keepalive(mode: str) -> None:
    events = build(lambda b: (b.flow(0, PartKind.TEXT, "x"), b.emit(Heartbeat())))
    data = encode(events, front({"keepalive": mode}))
    judge(data)
    assert (b'event: ping\ndata: {"type":"ping"}\n\n' in data) is (mode == "ping")
    assert (b": keep-alive\n\n" in data) is (mode == "comment")


def test_keepalive_off_is_false_in_yaml() -> None:
    assert dialect.front_options.model_validate({"keepalive": False}).keepalive == "off"


def test_reasoning_may_be_left_out() -> None:
    def tell(b: Builder) -> None:
        b.add(0, Reasoning("Hm", "c2ln", "cmVk"))
        b.flow(0, PartKind.TEXT, "x")

    context = front({"reasoning": "drop"})
    assert kinds(emitted(build(tell), context))[1] == "text"
    assert context.lost.names == ["reasoning", "reasoning_signature", "usage"]


def test_reasoning_with_signature_and_redacted_part() -> None:
    def tell(b: Builder) -> None:
        b.add(0, Reasoning("Hm", "c2ln", "cmVk"))
        b.add(0, Reasoning("", "b25seQ=="))
        b.add(0, Reasoning("", None, "cmVk"))
        b.add(0, Reasoning("unsigned"))

    values = emitted(build(tell))
    assert kinds(values)[1:] == [
        "thinking", "thinking_delta", "signature_delta", "stop", "redacted_thinking", "stop",
        "thinking", "signature_delta", "stop",
        "redacted_thinking", "stop",
        "thinking", "thinking_delta", "stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    message = judged_message(dialect.assemble(build(tell), front()))
    assert [getattr(b, "signature", None) for b in message.content] == ["c2ln", None, "b25seQ==", None, ""]


@pytest.mark.parametrize("media", ["text", "drop"])
def test_media_and_data(media: str) -> None:
    def tell(b: Builder) -> None:
        b.add(0, Media(MediaKind.AUDIO, Url("https://x.test/a")))
        b.add(0, Data({"a": 1}))

    context = front({"media": media})
    texts = [v["delta"]["text"] for v in emitted(build(tell), context) if "text" in v.get("delta", {})]
    assert texts == (["[audio](https://x.test/a)", '{"a":1}'] if media == "text" else [])
    assert context.lost.names == ["audio", "data", "usage"]


def test_what_has_no_place_is_named() -> None:
    def tell(b: Builder) -> None:
        b.add(0, Refusal("No."))
        b.open_part("c", 0, PartKind.TOOL_CALL, call_id="c", name="f", origin=Origin.MCP)
        b.end_part("c")
        b.result("c", [Text("1")])
        b.emit(StateChanged(StateOp.SNAPSHOT, {}))
        b.emit(Custom("x"))
        b.emit(Raw("other", {"block": {"type": "text", "text": "sneaky"}}))
        b.message(1, choice=1)

    context = front()
    values = emitted(build(tell), context)
    assert kinds(values)[1] == "text"
    assert "sneaky" not in str(values)
    assert set(context.lost.names) == {
        "refusal",
        "tool_origin",
        "tool_result",
        "state",
        "custom",
        "raw",
        "choices",
        "usage",
    }


def test_a_block_of_its_own_waits_for_the_open_one() -> None:
    def tell(b: Builder) -> None:
        b.open_part("t", 0, PartKind.TEXT)
        b.delta("t", "one ")
        block = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
        b.emit(Raw("anthropic-messages", {"block": block}))
        b.delta("t", "two")

    assert kinds(emitted(build(tell)))[1:7] == [
        "text", "text_delta", "text_delta", "stop", "web_search_tool_result", "stop",
    ]  # fmt: skip


def test_the_input_of_a_call_of_the_servers_own_is_streamed_in_deltas() -> None:
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    events = build(lambda b: b.emit(Raw("anthropic-messages", {"block": call})))
    start, delta = emitted(events)[1:3]
    assert start["content_block"] == {**call, "input": {}}
    assert delta["delta"] == {"type": "input_json_delta", "partial_json": '{"query":"x"}'}
    assert json.loads(dialect.assemble(events, front()).body)["content"] == [call]


@pytest.mark.parametrize(
    "arguments", ["not json", "[1, 2]", '"text"', "null", '{"a": 1} trailing', '{"city": "K'], ids=str
)
def test_arguments_that_are_no_object_survive_a_message_in_one_piece(arguments: str) -> None:
    """As a key of their own, and from there into the next request and back to the backend, unchanged."""
    events = build(lambda b: b.add(0, ToolCall("c", "f", arguments)))
    (block,) = judged_message(dialect.assemble(events, front())).content
    assert block.to_dict()["input"] == {"INVALID_JSON": arguments}
    conversation = [{"role": "user", "content": "x"}, {"role": "assistant", "content": [block.to_dict()]}]
    (call,) = request(asked(conversation)).messages[1].parts
    assert isinstance(call, ToolCall)
    assert call.arguments == arguments


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        (["nu", "ll"], ['{"INVALID_JSON":"null"}']),
        (["[", '{"a":1}]'], ['{"INVALID_JSON":"[{\\"a\\":1}]"}']),
        ([" ", "\n"], ["{}"]),
        ([" \n", '\t{"a":', " 1}"], ['{"a":', " 1}"]),
    ],
    ids=str,
)
def test_arguments_are_streamed_as_an_object(pieces: list[str], told: list[str]) -> None:
    """The SDK fails at a text that is no JSON, and clients send any other value back as an input, which is refused."""

    def tell(b: Builder) -> None:
        b.open_part("c", 0, PartKind.TOOL_CALL, call_id="c", name="f")
        for piece in pieces:
            b.delta("c", piece)

    events = emitted(build(tell))
    assert [e["delta"]["partial_json"] for e in events if e["type"] == "content_block_delta"] == told
    (call,) = fold(decode([encode(build(tell))])).calls
    assert call.arguments.strip() == ("".join(pieces).strip() or "{}")


@pytest.mark.parametrize("call_id", ["", "functions.f:0", "ü", "a b", "toolx_abc", "x" * 300, "\ud800"])
def test_ids_of_any_kind_come_back(call_id: str) -> None:
    from bridge.dialects.anthropic_messages.wire import call_id_of, wire_id

    wire = wire_id(call_id)
    assert wire.replace("_", "").replace("-", "").isalnum()
    assert wire.isascii()
    assert call_id_of(wire) == call_id


@pytest.mark.parametrize("wire", ["toolu_01", "call-1", "toolx_", "toolx_!!", "toolx_YQ=="])
def test_ids_that_were_not_made_here_stay(wire: str) -> None:
    from bridge.dialects.anthropic_messages.wire import call_id_of, wire_id

    back = call_id_of(wire)
    assert back == wire or wire_id(back) == wire


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(data=st.data())
def test_whatever_happens_the_judge_is_content(data: st.DataObject) -> None:
    """Any stream of any backend, in any batches, is one that the SDK's types and the grammar allow."""
    events = data.draw(answers())
    context = front({"keepalive": data.draw(st.sampled_from(["ping", "comment", "off"]))})
    stream = encode(events, context)
    judge(stream)
    if b"event: message_stop" in stream:
        message = judged_message(dialect.assemble(events, front()))
        blocks = [v["content_block"]["type"] for _, v in frames_of(stream) if v["type"] == "content_block_start"]
        assert [b.type for b in message.content] == blocks


def test_per_token_only_the_text_is_written() -> None:
    """The bytes around a piece are those of every other piece of its block."""
    pieces = ["a", 'b"\n', "ü\u2028"]
    events = build(lambda b: [b.flow(0, PartKind.TEXT, p) for p in pieces])
    lines = [line for line in encode(events).split(b"\n") if b"text_delta" in line]
    before, after = b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":', b"}}"
    assert lines == [before + json.dumps(p, ensure_ascii=False).encode() + after for p in pieces]
