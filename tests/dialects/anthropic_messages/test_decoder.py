"""Habits of servers beyond the captures, and wires that make no sense."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import WireResponse
from bridge.dialects.anthropic_messages import dialect
from bridge.errors import ErrorCode, Failure
from bridge.model import FinishReason, Heartbeat, Raw, RunFailed, fold, verify

from .helpers import START, STOP, answer, back, block, decode, decode_events, delta, ended, stop, wire


def test_pieces_arrive_one_by_one() -> None:
    """A read with one delta gives one event: nothing is held back."""
    decoder = dialect.decoder(back())
    decoder.feed([json.dumps(START).encode(), json.dumps(block(0, "text")).encode()])
    (event,) = decoder.feed([json.dumps(delta(0, "text_delta", text="x")).encode()])
    assert (type(event).__name__, event.text) == ("TextDelta", "x")  # type: ignore[union-attr]


def test_the_head_names_run_model_and_message() -> None:
    found = answer(decode_events(START, block(0, "text"), delta(0, "text_delta", text="x"), stop(0), ended(), STOP))
    assert (found.model, found.messages[0].id) == ("m", "msg_1")


def test_blocks_without_a_start_of_the_message() -> None:
    found = answer(decode_events(block(0, "text"), delta(0, "text_delta", text="x"), stop(0), ended(), STOP))
    assert (found.text, found.reason) == ("x", FinishReason.STOP)


def test_a_delta_whose_block_never_began() -> None:
    events = decode_events(
        START, delta(0, "thinking_delta", thinking="Hm"), delta(1, "text_delta", text="x"), ended(), STOP
    )
    found = answer(events)
    assert (found.reasoning, found.text) == ("Hm", "x")


def test_a_call_that_never_began_is_nothing() -> None:
    assert answer(decode_events(START, delta(0, "input_json_delta", partial_json="{}"), ended(), STOP)).calls == []


def test_indexes_that_are_missing_or_repeated() -> None:
    found = answer(
        decode_events(
            START,
            {"type": "content_block_start", "content_block": {"type": "text", "text": "a"}},
            delta(None, "text_delta", text="b"),
            {"type": "content_block_stop"},
            block(0, "text"), delta(0, "text_delta", text="c"),
            block(0, "text"), delta(0, "text_delta", text="d"),
            ended(), STOP,
        )
    )  # fmt: skip
    assert found.text == "abcd"


def test_a_call_at_the_index_of_another_ends_that_one() -> None:
    first, second = (block(0, "tool_use", id=name, name="f", input={name: 1}) for name in "ab")
    found = answer(decode_events(START, first, second, stop(0), ended("tool_use"), STOP))
    assert [(c.call_id, c.arguments) for c in found.calls] == [("a", '{"a":1}'), ("b", '{"b":1}')]


@pytest.mark.parametrize("index", ["0", [0], {"a": 1}, -1, 1.5, True])
def test_indexes_of_any_shape(index: Any) -> None:
    events = [{**e, "index": index} for e in (block(0, "text"), delta(0, "text_delta", text="x"), stop(0))]
    assert answer(decode_events(START, *events, ended(), STOP)).text == "x"


def test_two_blocks_open_at_once() -> None:
    found = answer(
        decode_events(
            START,
            block(0, "tool_use", id="a", name="f", input={}), block(1, "tool_use", id="b", name="g", input={}),
            delta(0, "input_json_delta", partial_json='{"x":'), delta(1, "input_json_delta", partial_json='{"y":2}'),
            delta(0, "input_json_delta", partial_json="1}"), stop(1), stop(0), ended("tool_use"), STOP,
        )
    )  # fmt: skip
    assert [(c.call_id, c.arguments) for c in found.calls] == [("a", '{"x":1}'), ("b", '{"y":2}')]


def test_an_input_in_the_start_gives_way_to_its_pieces() -> None:
    start = block(0, "tool_use", id="a", name="f", input={"old": 1})
    pieces = delta(0, "input_json_delta", partial_json='{"new":2}')
    found = answer(decode_events(START, start, pieces, stop(0), ended("tool_use"), STOP))
    assert [c.arguments for c in found.calls] == ['{"new":2}']


def test_a_call_without_an_id_gets_one() -> None:
    found = answer(decode_events(START, block(0, "tool_use", name="f", input={}), stop(0), ended("tool_use"), STOP))
    assert found.calls[0].call_id


@pytest.mark.parametrize("word", ["end_turn", "tool_use"])
def test_a_finish_word_that_does_not_fit(word: str) -> None:
    call = block(0, "tool_use", id="a", name="f", input={})
    assert answer(decode_events(START, call, stop(0), ended(word), STOP)).reason is FinishReason.TOOL_CALLS
    assert answer(decode_events(START, block(0, "text"), stop(0), ended(word), STOP)).reason is FinishReason.STOP


def test_an_end_mark_alone_is_a_clean_end() -> None:
    assert answer(decode_events(START, block(0, "text"), STOP)).reason is FinishReason.STOP


def test_no_end_at_all_is_a_failure() -> None:
    events = decode_events(START, block(0, "text"), delta(0, "text_delta", text="x"), stop(0))
    assert isinstance(events[-1], RunFailed)
    assert events[-1].error.code is ErrorCode.TRUNCATED_STREAM


def test_a_connection_that_breaks_after_the_stop_reason_has_told_all() -> None:
    events = decode([wire(START, block(0, "text"), ended())], failure=Failure(ErrorCode.TRUNCATED_STREAM, "cut"))
    assert fold(events).reason is FinishReason.STOP


def test_usage_is_cumulative() -> None:
    """Later values replace earlier ones; adding them counts twice."""
    events = decode_events(START, ended(input_tokens=7), ended(cache_read_input_tokens=2), STOP)
    usage = answer(events).usage
    assert usage is not None
    assert (usage.input, usage.output, usage.cached) == (9, 3, 2)


@pytest.mark.parametrize(
    "usage", [None, [], "5", {"output_tokens": "5"}, {"output_tokens": -1}, {"output_tokens": True}]
)
def test_usage_of_any_shape(usage: Any) -> None:
    start = {**START, "message": {**START["message"], "usage": usage}}
    event = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    assert answer(decode_events(start, event, STOP)).usage is None


def test_a_ping_keeps_the_other_side_warm_too() -> None:
    events = decode_events({"type": "ping"}, START, {"type": "ping"}, ended(), STOP)
    assert [type(e) for e in events].count(Heartbeat) == 1


def test_the_last_signature_counts() -> None:
    events = decode_events(
        START, block(0, "thinking", signature="first"), delta(0, "signature_delta", signature="second"), stop(0),
        ended(), STOP,
    )  # fmt: skip
    (part,) = answer(events).parts()
    assert part.signature == "second"  # type: ignore[union-attr]


def test_unknown_deltas_of_a_known_block_are_kept() -> None:
    strange = {"type": "tone_delta", "tone": "calm"}
    wire_delta = {"type": "content_block_delta", "index": 0, "delta": strange}
    events = decode_events(
        START, block(0, "text"), delta(0, "text_delta", text="x"), wire_delta, stop(0), ended(), STOP
    )
    (part,) = answer(events).parts()
    assert part.extras == {"anthropic-messages": {"deltas": [strange]}}


def test_half_a_block_that_nobody_here_knows_is_not_told() -> None:
    events = decode_events(START, block(0, "hologram"), delta(0, "z", z=1))
    assert not [e for e in events if isinstance(e, Raw)]


@pytest.mark.parametrize(
    ("event", "code", "message"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, ErrorCode.OVERLOADED, "busy"),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}, ErrorCode.RATE_LIMITED, "x"),
        ({"type": "error", "error": {"type": "api_error", "message": "x"}}, ErrorCode.BACKEND_ERROR, "x"),
        ({"type": "error", "error": {"type": "timeout_error", "message": "x"}}, ErrorCode.BACKEND_TIMEOUT, "x"),
        ({"type": "error", "error": "text"}, ErrorCode.BACKEND_ERROR, "text"),
        ({"type": "error", "message": "flat"}, ErrorCode.BACKEND_ERROR, "flat"),
        ({"type": "error"}, ErrorCode.BACKEND_ERROR, "The backend reported an error without a message."),
        ({"error": {"message": "no type"}}, ErrorCode.BACKEND_ERROR, "no type"),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}},
         ErrorCode.CONTEXT_LENGTH, "prompt is too long: 9 > 8"),
        ({"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key sk-ant-1"}},
         ErrorCode.BACKEND_AUTH, "The backend refused the bridge's credentials."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("begun", [True, False])
def test_errors_in_the_stream(event: Any, code: ErrorCode, message: str, begun: bool) -> None:
    events = decode_events(*([START, block(0, "text"), delta(0, "text_delta", text="Half")] if begun else []), event)
    failure = answer(events).failure
    assert failure is not None
    assert (failure.code, failure.message) == (code, message)
    assert answer(events).text == ("Half" if begun else "")


@pytest.mark.parametrize(
    "data", [b"event: error\ndata: overloaded\n\n", b'event: error\ndata: "overloaded"\n\n'], ids=["text", "string"]
)
def test_errors_that_are_no_object(data: bytes) -> None:
    failure = answer(decode([data])).failure
    assert failure is not None
    assert failure.message == "overloaded"


@pytest.mark.parametrize("data", [b"{nonsense", b"\xff\xfe", b'{"a":' * 300 + b"1" + b"}" * 300, b"[" * 100_000])
def test_what_is_no_event_fails_the_run(data: bytes) -> None:
    failure = answer(decode_events(START, data)).failure
    assert failure is not None
    assert failure.code is ErrorCode.BACKEND_PROTOCOL


@pytest.mark.parametrize("data", [b"", b" ", b"[DONE]", b"null", b"5", b'"x"', b"[1]", b"{}", b'{"choices":[]}'])
def test_what_says_nothing_is_passed_over(data: bytes) -> None:
    found = answer(decode_events(START, block(0, "text"), data, delta(0, "text_delta", text="x"), ended(), STOP))
    assert (found.text, found.reason) == ("x", FinishReason.STOP)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "message_start"}, {"type": "message_start", "message": []},
        {"type": "message_start", "message": {"id": 5, "model": [], "usage": []}},
        {"type": "content_block_start"}, {"type": "content_block_start", "index": 0, "content_block": "x"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": 5}},
        {"type": "content_block_start", "index": 0, "content_block": {}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": 5, "citations": 5}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": 5, "input": "x"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "redacted_thinking"}},
        {"type": "content_block_delta"}, {"type": "content_block_delta", "index": 0, "delta": "x"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": ["x"]}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 5}},
        {"type": "content_block_stop"}, {"type": "message_delta"}, {"type": "message_delta", "delta": 5, "usage": 5},
        {"type": "message_delta", "delta": {"stop_reason": 5, "stop_sequence": 5}}, {"type": ""}, {"type": None},
    ],
    ids=str,
)  # fmt: skip
def test_fields_of_the_wrong_kind(event: Any) -> None:
    decode_events(event)
    decode_events(START, block(0, "text"), event, delta(0, "text_delta", text="x"), ended(), STOP)


# ---------------------------------------------------------------------- answers in one piece


def parse(body: bytes) -> Any:
    wire_response = WireResponse(200, {"content-type": "application/json"}, body)
    return fold(verify(dialect.parse_response(wire_response, back())))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"<html>", ErrorCode.BACKEND_PROTOCOL),
        (b"", ErrorCode.BACKEND_PROTOCOL),
        (b"[]", ErrorCode.BACKEND_PROTOCOL),
        (b'{"type":"message"}', ErrorCode.BACKEND_PROTOCOL),
        (b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}', ErrorCode.OVERLOADED),
    ],
)
def test_what_is_no_message(body: bytes, code: ErrorCode) -> None:
    assert parse(body).failure.code is code


def test_a_message_without_a_stop_reason_is_over_all_the_same() -> None:
    found = parse(b'{"content":[{"type":"text","text":"x"},5,{"type":"tool_use","id":"a","name":"f","input":{}}]}')
    assert (found.text, found.reason) == ("x", FinishReason.TOOL_CALLS)


def test_counts_that_are_missing_are_none_and_not_one() -> None:
    begun = {"type": "message_start", "message": {**START["message"], "usage": {}}}
    found = answer(decode_events(begun, block(0, "text"), delta(0, "text_delta", text="x"), stop(0), ended(), STOP))
    assert found.usage is not None
    assert (found.usage.input, found.usage.output) == (0, 3)


def test_a_usage_without_output_tokens_counts_none() -> None:
    start = {"type": "message_start", "message": {"id": "m", "role": "assistant", "usage": {"input_tokens": 3}}}
    found = answer(decode_events(start, {**ended(), "usage": {}}, STOP)).usage
    assert found is not None
    assert (found.input, found.output) == (3, 0)
