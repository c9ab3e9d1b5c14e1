"""Wires that the captures do not show: what is odd, missing, mixed or wrong, piece by piece."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Frame
from bridge.dialects.openai_responses import dialect
from bridge.errors import ErrorCode
from bridge.model import Event, FinishReason, PartKind, PartStarted, Raw, Reasoning, RunStarted, Text, fold

from .helpers import back, decode, decode_events, frames, parse

ADDED, DONE = "response.output_item.added", "response.output_item.done"
COMPLETED: dict[str, Any] = {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": f"{kind}_1", **fields}


def added(value: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": ADDED, "output_index": index, "item": value}


def done(value: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": DONE, "output_index": index, "item": value}


def text(delta: str, **fields: Any) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "item_id": "message_1", "output_index": 0, "delta": delta, **fields}


def raws(events: list[Event]) -> list[Any]:
    return [e.value for e in events if isinstance(e, Raw)]


def test_texts_of_one_message_are_parts_of_it() -> None:
    got = fold(
        decode_events(
            added(item("message", content=[])),
            text("a", content_index=0),
            text("b", content_index=1),
            text("c", content_index=0),
            COMPLETED,
        )
    )
    assert got.messages[0].parts == [Text("ac"), Text("b")]


def test_pieces_of_other_kinds_and_places_come_between() -> None:
    events = [
        added(item("message", content=[])),
        text("a", content_index=0),
        {"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "no"},
        text("b", content_index=0),
        {"type": "response.output_text.done", "output_index": 0, "content_index": 1, "text": "whole"},
        text("c", content_index=0),
        {**done(item("message", role="assistant", content=[]))},
        text("late", content_index=0),
        COMPLETED,
    ]
    got = fold(decode_events(*events))
    assert (got.text, got.refusal) == ("abcwhole", "no")
    assert got.messages[0].parts[0] == Text("abc")


def test_the_pieces_of_a_pair_of_surrogates_are_joined() -> None:
    assert fold(decode_events(text("x\ud83d"), text("\ude00y"), COMPLETED)).text == "x\U0001f600y"


def test_a_call_whose_name_comes_late_waits_for_it() -> None:
    call = item("function_call", call_id="c", arguments='{"a":1}')
    got = fold(
        decode_events(
            added({**call, "arguments": ""}),
            {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"a":1}'},
            done({**call, "name": "f"}),
            COMPLETED,
        )
    )
    assert [(c.call_id, c.name, c.arguments) for c in got.calls] == [("c", "f", '{"a":1}')]
    assert got.reason is FinishReason.TOOL_CALLS


def test_a_summary_and_the_thoughts_themselves() -> None:
    value = item(
        "reasoning",
        summary=[{"type": "summary_text", "text": "short"}],
        content=[{"type": "reasoning_text", "text": "long"}],
        encrypted_content="e",
    )
    (part,) = fold(decode_events(done(value), COMPLETED)).parts()
    assert isinstance(part, Reasoning)
    assert (part.text, part.signature) == ("short\n\nlong", "e")


def test_an_item_that_was_streamed_is_not_told_again_by_the_last_event() -> None:
    value = item("message", role="assistant", content=[{"type": "output_text", "text": "Hi"}])
    last = {**COMPLETED, "response": {**COMPLETED["response"], "output": [{**value, "id": "another_id"}]}}
    assert fold(decode_events(added({**value, "content": []}), text("Hi"), done(value), last)).text == "Hi"


def test_late_pieces_of_a_finished_item_are_not_told() -> None:
    value = item("message", role="assistant", content=[{"type": "output_text", "text": "Hi"}])
    assert (
        fold(decode_events(added({**value, "content": []}), text("Hi"), done(value), text("Hi"), COMPLETED)).text
        == "Hi"
    )


def test_nothing_follows_the_last_event() -> None:
    assert fold(decode_events(text("a"), COMPLETED, text("b"))).text == "a"


def test_strangers_are_passed_over_or_kept() -> None:
    events = decode_events(
        {"type": "keepalive", "sequence_number": 3},
        {"type": "ping"},
        {"a": 1},
        {"type": "response.novel", "b": 2},
        COMPLETED,
    )
    assert raws(events) == [{"type": "response.novel", "b": 2}]
    assert fold(events).failure is None


def test_items_that_are_passed_on_get_indices_of_this_stream() -> None:
    """Those of the backend have gaps here, and its item has no id to be known by."""
    value = {"type": "novel_call", "status": "completed"}
    wire = frames(
        decode_events(
            added(value, 4),
            {"type": "response.novel_call.busy", "output_index": 4},
            done(value, 4),
            text("x"),
            COMPLETED,
        )
    )
    events = [json.loads(f.data) for f in wire if isinstance(f, Frame)]
    assert [e["output_index"] for e in events[2:5]] == [0, 0, 0]
    assert [i["type"] for i in events[-1]["response"]["output"]] == ["novel_call", "message"]


def test_a_message_of_somebody_else_is_kept_as_it_came() -> None:
    value = item("message", role="user", content=[])
    assert raws(decode_events(added(value), done(value), COMPLETED)) == [added(value), done(value)]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, ErrorCode.RATE_LIMITED, "slow"),
        ({"type": "error", "error": {"message": "gone", "code": None}}, ErrorCode.BACKEND_ERROR, "gone"),
        ({"type": "error", "code": "invalid_prompt", "message": "bad"}, ErrorCode.INVALID_REQUEST, "bad"),
        (
            {"type": "error", "message": "key sk-abcdefgh is wrong", "code": "invalid_api_key"},
            ErrorCode.BACKEND_AUTH,
            "",
        ),
        ({"error": {"message": "plain", "type": "server_error"}}, ErrorCode.BACKEND_ERROR, "plain"),
        ({"type": "error", "error": {"message": "odd", "type": ["x"], "code": None}}, ErrorCode.BACKEND_ERROR, "odd"),
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "server_error", "message": "m", "type": "canceled"}},
            },
            ErrorCode.CANCELED,
            "m",
        ),
        ({"type": "response.failed", "response": {}}, ErrorCode.BACKEND_ERROR, "without a message"),
    ],
)
def test_failures(error: dict[str, Any], code: ErrorCode, message: str) -> None:
    got = fold(decode_events(text("half"), error))
    assert got.failure is not None
    assert (got.failure.code, got.text) == (code, "half")
    assert message in got.failure.message
    assert "sk-" not in got.failure.message


def test_an_error_and_the_failed_response_after_it_are_one_failure() -> None:
    error = {
        "type": "error",
        "error": {"type": "rate_limit_error", "code": "slow_down", "message": "why", "param": "input"},
    }
    failed = {
        "type": "response.failed",
        "response": {
            "error": {"code": "server_error", "message": "short"},
            "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
        },
    }
    got = fold(decode_events(text("half"), error, failed))
    assert got.failure is not None
    assert got.usage is not None
    assert (got.failure.message, got.failure.param, got.failure.backend_code) == ("why", "input", "slow_down")
    assert (got.text, got.usage.input, got.usage.output) == ("half", 3, 2)


def test_a_response_that_is_completed_after_an_error_has_failed() -> None:
    got = fold(decode_events(text("half"), {"type": "error", "message": "why"}, COMPLETED))
    assert got.failure is not None
    assert got.failure.message == "why"


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (b"data: {nonsense\n\n", ErrorCode.BACKEND_PROTOCOL),
        (b"event: error\ndata: it broke\n\n", ErrorCode.BACKEND_ERROR),
        (b'event: error\ndata: "it broke"\n\n', ErrorCode.BACKEND_ERROR),
        (b"data: " + b"[" * 300 + b"]" * 300 + b"\n\n", ErrorCode.BACKEND_PROTOCOL),
        (b"data: [DONE]\n\n", ErrorCode.TRUNCATED_STREAM),
        (b"", ErrorCode.TRUNCATED_STREAM),
    ],
)
def test_bytes_that_are_no_events(wire: bytes, code: ErrorCode) -> None:
    failure = fold(decode([wire])).failure
    assert failure is not None
    assert failure.code is code


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"status": "completed"}, FinishReason.STOP),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, FinishReason.LENGTH),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_messages"}}, FinishReason.LENGTH),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, FinishReason.CONTENT_FILTER),
        ({"status": "cancelled"}, FinishReason.CANCELED),
        ({}, FinishReason.STOP),
    ],
)
def test_how_a_response_ended(response: dict[str, Any], reason: FinishReason) -> None:
    assert fold(parse({"id": "r", "output": [], **response})).reason is reason


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_an_answer_that_is_not_finished_is_none(status: str) -> None:
    failure = fold(parse({"id": "r", "output": [], "status": status})).failure
    assert failure is not None
    assert status in failure.message


def test_the_status_goes_before_the_name_of_the_event() -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}
    assert fold(decode_events({"type": "response.completed", "response": cut})).reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (b"<html>", "text/html", "neither a response object nor an error object"),
        (b"", "application/json", "neither"),
        (b"[]", "application/json", "neither"),
        (b'{"error":{"message":"no quota"}}', "application/json", "no quota"),
        (b'{"detail":"nope"}', "application/json", "nope"),
    ],
)
def test_bodies_that_are_no_answers(body: bytes, content_type: str, message: str) -> None:
    failure = fold(parse(body, content_type=content_type)).failure
    assert failure is not None
    assert message in failure.message


def test_usage_in_halves() -> None:
    usage = fold(
        parse({"output": [], "status": "completed", "usage": {"input_tokens": 3, "output_tokens": None}})
    ).usage
    assert usage is not None
    assert (usage.input, usage.output, usage.total, usage.cached, usage.reasoning) == (3, None, None, None, None)
    assert fold(parse({"output": [], "status": "completed", "usage": {"input_tokens": "x"}})).usage is None


def test_models() -> None:
    wire = dialect.models_request()
    assert wire is not None
    assert (wire.method, wire.path) == ("GET", "/models")


def test_after_the_end_nothing_comes() -> None:
    decoder = dialect.decoder(back())
    assert decoder.feed([json.dumps(COMPLETED).encode()])
    assert decoder.feed([json.dumps(text("x")).encode()]) == []
    assert decoder.close() == []


def test_a_part_begins_when_it_is_announced() -> None:
    """Not only with its first words: a client may show that something comes."""
    decoder = dialect.decoder(back())
    part = {"type": "response.content_part.added", "output_index": 0, "content_index": 0}
    opening = [added(item("message", content=[])), {**part, "part": {"type": "output_text", "text": ""}}]
    events = decoder.feed([json.dumps(event).encode() for event in opening])
    assert [e.kind for e in events if isinstance(e, PartStarted)] == [PartKind.TEXT]


def test_an_answer_whose_beginning_was_missed() -> None:
    """The last event has the whole answer, the names of its model and run included."""
    told = item("message", content=[{"type": "output_text", "text": "Hello"}])
    response = {"id": "resp_9", "model": "m-9", "created_at": 1700000009, "status": "completed", "output": [told]}
    events = decode_events({"type": "response.completed", "response": response})
    (head,) = [e for e in events if isinstance(e, RunStarted)]
    assert (head.model, head.created_at) == ("m-9", 1700000009.0)
    assert fold(events).text == "Hello"


def test_a_stream_that_is_its_end_alone_names_its_model_and_id() -> None:
    end = {"type": "response.completed", "response": {**COMPLETED["response"], "id": "resp_7", "model": "gpt-x"}}
    (started, *_) = decode_events(end)
    assert isinstance(started, RunStarted)
    assert (started.model, (started.extras or {})[dialect.name]["id"]) == ("gpt-x", "resp_7")


def test_a_part_begins_with_its_own_event_not_with_its_first_piece() -> None:
    part = {"type": "output_text", "text": ""}
    begun = {"type": "response.content_part.added", "item_id": "message_1", "output_index": 0, "content_index": 0}
    events = decode_events(added(item("message", content=[])), {**begun, "part": part})
    assert [e.kind for e in events if isinstance(e, PartStarted)] == [PartKind.TEXT]
