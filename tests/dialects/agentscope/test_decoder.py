"""Habits of servers beyond the captures (section 17), and wires that make no sense."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.agentscope import dialect
from bridge.codec import WireResponse
from bridge.errors import ErrorCode, Failure
from bridge.model import Answer, FinishReason, MessageStatus, RunStarted, ToolCall, fold, verify

from .helpers import context

CREATED = {"object": "response", "status": "created", "id": "r", "session_id": "s", "created_at": 1_700_000_001}
DONE = {**CREATED, "status": "completed"}
NO_TEXT = "The backend reported an error."


def told(*events: Any) -> Answer:
    decoder = dialect.decoder(context())
    out = decoder.feed([e if isinstance(e, bytes) else json.dumps(e).encode() for e in events])
    return fold(verify([*out, *decoder.close()]))


def message(wire_id: str | None, status: str = "in_progress", content: Any = None, **more: Any) -> dict[str, Any]:
    return {"object": "message", "id": wire_id, "type": "message", "status": status, "content": content, **more}


def piece(
    msg_id: str | None, text: str, *, delta: bool | None = True, status: str = "in_progress", index: Any = 0
) -> Any:
    return {
        "object": "content", "type": "text", "msg_id": msg_id, "index": index, "delta": delta, "status": status,
        "text": text,
    }  # fmt: skip


def data(msg_id: str | None, value: Any, *, delta: bool = False, status: str = "completed", index: Any = 0) -> Any:
    return {
        "object": "content", "type": "data", "msg_id": msg_id, "index": index, "delta": delta, "status": status,
        "data": value,
    }  # fmt: skip


def test_a_run_begins_with_its_response() -> None:
    decoder = dialect.decoder(context())
    (started,) = decoder.feed([json.dumps(CREATED).encode()])
    assert started == RunStarted("run1", "s", None, 1_700_000_001, {}, {"agentscope": {"id": "r"}})


def test_text_told_four_times_is_passed_once() -> None:
    whole = [{"type": "text", "text": "Hello"}]
    answer = told(
        CREATED, message("m"), piece("m", "Hel"), piece("m", "Hel", delta=False), piece("m", "lo"),
        piece("m", "Hello", delta=False, status="completed"), piece("m", "Hello", delta=False, status="completed"),
        message("m", "completed", whole), {**DONE, "output": [message("m", "completed", whole)]},
    )  # fmt: skip
    assert answer.text == "Hello"


@pytest.mark.parametrize(
    "rest",
    [
        [piece("m", "Hello", delta=False, status="completed"), DONE],
        [message("m", "completed", [{"type": "text", "text": "Hello"}]), DONE],
        [{**DONE, "output": [message("m", "completed", [{"type": "text", "text": "Hello"}])]}],
        [piece("m", "Hello", delta=None), DONE],
    ],
)
def test_what_was_not_streamed_is_passed_on(rest: list[Any]) -> None:
    assert told(CREATED, message("m"), piece("m", "Hel"), *rest).text == "Hello"


def test_a_different_final_text_is_not_sent_again() -> None:
    answer = told(CREATED, message("m"), piece("m", "Hello"), piece("m", "Bye", delta=False, status="completed"), DONE)
    assert answer.text == "Hello"


def test_messages_only_in_the_output() -> None:
    output = [
        message(None, "completed", [{"type": "text", "text": "one"}]),
        message("m2", "completed", [data(None, {"call_id": "c", "name": "f", "arguments": "{}"})], type="plugin_call"),
    ]
    answer = told(CREATED, {**DONE, "output": output, "usage": {"prompt_tokens": 1, "completion_tokens": 2}})
    assert answer.text == "one"
    assert answer.calls[0].name == "f"
    assert answer.reason is FinishReason.TOOL_CALLS
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output) == (1, 2)


def test_output_without_ids_is_matched_by_position() -> None:
    whole = [{"type": "text", "text": "one"}]
    answer = told(CREATED, message("m"), piece("m", "one"), {**DONE, "output": [message(None, "completed", whole)]})
    assert answer.text == "one"


def test_a_stream_without_any_ids() -> None:
    whole = [{"type": "text", "text": "Hello"}]
    answer = told(
        CREATED, message(None), piece(None, "Hel"), piece(None, "lo"), message(None, "completed", whole),
        {**DONE, "output": [message(None, "completed", whole)]},
    )  # fmt: skip
    assert answer.text == "Hello"


def test_calls_and_results_without_messages() -> None:
    answer = told(
        CREATED, data(None, {"call_id": "a", "name": "f", "arguments": "1"}),
        data(None, {"call_id": "a", "output": "x"}),
        data(None, {"call_id": "b", "name": "g", "arguments": "2"}), DONE,
    )  # fmt: skip
    assert [(c.call_id, c.arguments) for c in answer.calls] == [("a", "1"), ("b", "2")]
    assert [r.call_id for r in answer.results] == ["a"]


def test_argument_pieces_that_repeat_id_and_name() -> None:
    pieces = [
        {"call_id": "c", "name": "f", "arguments": '{"a"'},
        {"call_id": "c", "name": "f", "arguments": ": 1"},
        {"call_id": None, "name": None, "arguments": "}"},
    ]
    answer = told(
        CREATED, message("m", type="plugin_call"), *(data("m", p, delta=True, status="in_progress") for p in pieces),
        message("m", "completed", []), DONE,
    )  # fmt: skip
    (call,) = answer.calls
    assert (call.call_id, call.name, call.arguments) == ("c", "f", '{"a": 1}')


def test_a_call_whose_name_comes_late() -> None:
    pieces = [{"call_id": "c", "arguments": "{"}, {"call_id": "c", "name": "f", "arguments": "}"}]
    answer = told(
        CREATED, message("m", type="plugin_call"),
        *(data("m", p, delta=True, status="in_progress") for p in pieces), DONE,
    )  # fmt: skip
    assert [(c.call_id, c.name, c.arguments) for c in answer.calls] == [("c", "f", "{}")]


def test_arguments_may_be_an_object() -> None:
    answer = told(CREATED, data("m", {"call_id": "c", "name": "f", "arguments": {"a": 1}}), DONE)
    assert answer.calls[0].arguments == '{"a":1}'


def test_two_calls_without_ids_and_their_outputs() -> None:
    answer = told(
        CREATED, data("a", {"name": "f", "arguments": "1"}), data("b", {"name": "g", "arguments": "2"}),
        data("c", {"output": "x"}), data("d", {"output": "y"}), data("e", {"call_id": "else", "output": "z"}), DONE,
    )  # fmt: skip
    ids = [c.call_id for c in answer.calls]
    assert len(set(ids)) == 2
    assert [r.call_id for r in answer.results] == [*ids, "else"]


def test_overlapping_calls_are_told_apart_by_msg_id() -> None:
    answer = told(
        CREATED, message("a", type="mcp_call"), message("b", type="component_call"),
        data("a", {"call_id": "1", "name": "f", "arguments": "x", "server_label": "srv"}),
        data("b", {"call_id": "2", "name": "g", "arguments": "y"}),
        message("a", "completed", []), message("b", "completed", []), DONE,
    )  # fmt: skip
    assert [(c.call_id, str(c.origin), c.server_label) for c in answer.calls] == [
        ("1", "mcp", "srv"), ("2", "component", None),
    ]  # fmt: skip


def test_an_error_message_counts_only_when_nothing_follows() -> None:
    error = message("e", "failed", None, type="error", code="MODEL_TIMEOUT", message="too slow", role="assistant")
    failed = told(CREATED, message("m"), piece("m", "before"), {**error, "status": "in_progress"}, error, DONE)
    assert failed.failure is not None
    assert (failed.failure.code, failed.failure.message) == (ErrorCode.BACKEND_TIMEOUT, "too slow")
    assert failed.text == "before"
    assert told(CREATED, error, message("m"), piece("m", "after"), DONE).failure is None


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("rejected", FinishReason.CONTENT_FILTER),
        ("canceled", FinishReason.CANCELED),
        ("incomplete", FinishReason.LENGTH),
        ("completed", FinishReason.STOP),
    ],
)
def test_terminal_statuses(status: str, reason: FinishReason) -> None:
    answer = told(CREATED, message("m"), piece("m", "x"), {**DONE, "status": status}, piece("m", "late"))
    assert (answer.reason, answer.text) == (reason, "x")


def test_an_incomplete_message_is_told() -> None:
    answer = told(CREATED, message("m"), piece("m", "x"), message("m", "incomplete"), {**DONE, "status": "failed"})
    assert [e.status for e in answer.endings.values()] == [MessageStatus.INCOMPLETE]


@pytest.mark.parametrize(
    ("wire", "code", "word", "text"),
    [
        ({"error": "boom"}, ErrorCode.BACKEND_ERROR, None, "boom"),
        ({"error": {"code": "TIMEOUT", "message": "slow"}}, ErrorCode.BACKEND_TIMEOUT, "TIMEOUT", "slow"),
        ({"error": "t", "code": "CANCELED", "message": "m"}, ErrorCode.CANCELED, "CANCELED", "m"),
        ({**DONE, "status": "failed", "error": {"code": "500", "message": "x"}}, ErrorCode.BACKEND_ERROR, "500", "x"),
        ({**DONE, "status": "failed", "error": {"code": 500}}, ErrorCode.BACKEND_ERROR, "500", NO_TEXT),
        ({**DONE, "status": "failed", "error": None}, ErrorCode.BACKEND_ERROR, None, NO_TEXT),
        ({**DONE, "status": "failed", "error": "text"}, ErrorCode.BACKEND_ERROR, None, "text"),
        ({"error": "key sk-abcdefgh1234"}, ErrorCode.BACKEND_ERROR, None, "key ***"),
        (b"<html>", ErrorCode.BACKEND_PROTOCOL, None, "The backend's stream holds an event that is not JSON."),
        (b"[DONE]", ErrorCode.TRUNCATED_STREAM, None, "The backend's answer ended before it was complete."),
    ],
)  # fmt: skip
def test_failures(wire: Any, code: ErrorCode, word: str | None, text: str) -> None:
    answer = told(CREATED, message("m"), piece("m", "half"), wire)
    assert answer.failure is not None
    assert (answer.failure.code, answer.failure.backend_code, answer.failure.message) == (code, word, text)
    assert answer.text == "half"


def test_a_known_reason_of_the_end_is_kept() -> None:
    decoder = dialect.decoder(context())
    out = decoder.feed([json.dumps(CREATED).encode()])
    out += decoder.close(Failure(ErrorCode.BACKEND_TIMEOUT, "silent"))
    answer = fold(verify(out))
    assert answer.failure == Failure(ErrorCode.BACKEND_TIMEOUT, "silent")


def test_half_surrogates_are_joined_or_replaced() -> None:
    halves = [rb"\ud83d", rb"\ude00", rb"\ud83d", rb"x"]
    template = b'{"object":"content","type":"text","msg_id":"m","index":0,"delta":true,"text":"%b"}'
    final = piece("m", "\U0001f600\ufffdx and more", delta=False, status="completed")
    answer = told(CREATED, message("m"), *(template % h for h in halves), final, DONE)
    assert answer.text == "\U0001f600\ufffdx and more"


def test_unknown_content_is_skipped_and_numbers_do_not_matter() -> None:
    answer = told(
        5, [], "x", None, {}, {"object": "thing"}, {"sequence_number": "9", **CREATED},
        {"object": "content", "type": "hologram", "msg_id": "m"}, piece("m", "x"), DONE,
    )  # fmt: skip
    assert answer.text == "x"


@pytest.mark.parametrize("odd", [None, 5, True, "x", [], {}, [1], {"a": []}, 1e400, "\ud800"])
def test_any_value_in_any_field(odd: Any) -> None:
    """Whatever stands in whichever field of every object, nothing raises and the run ends once."""
    templates = [
        {
            **DONE,
            "completed_at": 1,
            "output": [message("m", "completed", [piece("m", "x")])],
            "usage": {"input_tokens": 1},
        },
        {**DONE, "status": "failed", "error": {"code": "x", "message": "y"}},
        message("m", "completed", [piece("m", "x"), data("m", {})], role="assistant", metadata={}, usage={}, code=None),
        message("n", "completed", [data("n", {"id": "a"})], type="mcp_approval_request", metadata={"interrupt": {}}),
        piece("m", "x"),
        data("c", {"call_id": "1", "name": "f", "arguments": "{}"}),
        data("o", {"call_id": "1", "name": "f", "output": "[]"}, delta=True),
        {**data("i", None), "type": "image", "image_url": "u"},
        {**data("f", None), "type": "file", "file_data": "u"},
    ]
    for template in templates:
        for name in template:
            told(CREATED, {**template, name: odd}, {**template, name: odd, "delta": True}, template)
        value = template.get("data")
        for name in value if isinstance(value, dict) else ():
            told(CREATED, {**template, "data": {**value, name: odd}}, {**template, "delta": True}, DONE)


def test_deep_nesting_fails_the_run() -> None:
    deep = b'{"object":"content","type":"data","msg_id":"m","data":{"a":' + b"[" * 900 + b"]" * 900 + b"}}"
    answer = told(CREATED, deep)
    assert answer.failure is not None
    assert answer.failure.code is ErrorCode.BACKEND_PROTOCOL


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (200, b"<html>", ErrorCode.BACKEND_PROTOCOL),
        (200, b"", ErrorCode.BACKEND_PROTOCOL),
        (200, b'{"detail":"no"}', ErrorCode.BACKEND_UNAVAILABLE),
        (200, b'{"error":"no"}', ErrorCode.BACKEND_ERROR),
        (200, b"{}", ErrorCode.TRUNCATED_STREAM),
        (429, b'{"detail":"no"}', ErrorCode.RATE_LIMITED),
    ],
)
def test_answers_that_are_none(status: int, body: bytes, code: ErrorCode) -> None:
    answer = fold(verify(dialect.parse_response(WireResponse(status, {}, body), context())))
    assert answer.failure is not None
    assert answer.failure.code is code


def test_an_answer_without_status_is_complete() -> None:
    body = {**CREATED, "status": None, "output": [message("m", "completed", [{"type": "text", "text": "x"}])]}
    answer = fold(verify(dialect.parse_response(WireResponse(200, {}, json.dumps(body).encode()), context())))
    assert (answer.text, answer.reason) == ("x", FinishReason.STOP)


def test_an_output_of_text_blocks_is_joined_and_kept() -> None:
    raw = '[{"type":"text","text":"a"},{"type":"text","text":"b"}]'
    other = '[{"type":"image"}]'
    answer = told(
        CREATED, data("a", {"call_id": "1", "output": raw}), data("b", {"call_id": "2", "output": other}), DONE
    )
    assert [(r.parts[0].text, (r.extras or {})["agentscope"]["output"]) for r in answer.results] == [
        ("ab", raw), (other, other),
    ]  # fmt: skip


def test_a_signature_belongs_to_its_reasoning() -> None:
    answer = told(
        CREATED, message("m", type="reasoning"), piece("m", "hm"), piece("m", "hm", delta=False, status="completed"),
        message("m", "completed", [], metadata={"signature": "s"}), DONE,
    )  # fmt: skip
    assert [p.signature for p in answer.parts() if not isinstance(p, ToolCall)] == ["s"]
