"""Habits of servers beyond the captures (section 17), and wires that make no sense."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import WireResponse
from bridge.dialects.agentscope import dialect
from bridge.dialects.agentscope.calls import output_parts
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Answer,
    Data,
    FileRef,
    FinishReason,
    Inline,
    MessageStatus,
    RunStarted,
    Text,
    ToolCall,
    Url,
    fold,
    verify,
)

from .helpers import context

CREATED = {"object": "response", "status": "created", "id": "r", "session_id": "s", "created_at": 1_700_000_001}
DONE = {**CREATED, "status": "completed"}
NO_TEXT = "The backend reported an error without a message."


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
    assert decoder.feed([json.dumps(CREATED).encode()]) == []
    started, *_ = decoder.feed([json.dumps(piece("m", "Hel")).encode()])
    assert started == RunStarted("run1", "s", None, 1_700_000_001, {}, {"agentscope": {"id": "r"}})


@pytest.mark.parametrize(("choice", "reason"), [(0, FinishReason.LENGTH), (1, FinishReason.STOP)])
def test_a_run_ends_for_the_reason_of_its_first_choice(choice: int, reason: FinishReason) -> None:
    whole = [{"type": "text", "text": "Hello"}]
    metadata = {"finish_reason": "length", "choice_index": choice}
    assert told(CREATED, message("m", "completed", whole, metadata=metadata), DONE).reason is reason


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


@pytest.mark.parametrize("kind", ["message", "reasoning"])
def test_contents_without_msg_id_belong_to_the_message_that_is_open(kind: str) -> None:
    whole = [{"type": "text", "text": "Hello"}]
    answer = told(
        CREATED, message("m", type=kind), piece(None, "Hel"), {"object": "message", "type": "HEARTBEAT"},
        piece(None, "lo"), message("m", "completed", whole, type=kind),
        {**DONE, "output": [message("m", "completed", whole, type=kind)]},
    )  # fmt: skip
    assert (answer.text, answer.reasoning) == (("Hello", "") if kind == "message" else ("", "Hello"))


def test_contents_without_msg_id_do_not_swallow_the_next_message() -> None:
    whole = [{"type": "text", "text": "World"}]
    assert told(CREATED, piece(None, "Hello "), message("m", "completed", whole), DONE).text == "Hello World"


def test_one_id_for_thinking_and_text() -> None:
    answer = told(
        CREATED, message("m", type="reasoning"), piece("m", "hm"), message("m", "completed", [], type="reasoning"),
        message("m"), piece("m", "text"), message("m", "completed", []), DONE,
    )  # fmt: skip
    assert (answer.reasoning, answer.text) == ("hm", "text")


@pytest.mark.parametrize("status", ["created", "in_progress", None, "unknown", 5])
def test_contents_of_a_message_that_goes_on_are_snapshots(status: Any) -> None:
    def at(text: str) -> dict[str, Any]:
        return message("m", status, [{"type": "text", "text": text}])

    assert told(CREATED, at("Hel"), at("Hello"), DONE).text == "Hello"
    assert told(CREATED, {**DONE, "output": [at("Hello")]}).text == "Hello"


def test_contents_are_recognised_however_they_are_numbered() -> None:
    text, image = {"type": "text", "text": "Hello"}, {"type": "image", "image_url": "https://x.example/a.png"}
    picture = {"object": "content", "msg_id": "m", "index": 0, "delta": True, **image}
    for index in (0, 1, None):
        answer = told(
            CREATED, message("m"), piece("m", "Hello", index=index), picture,
            message("m", "completed", [text, image]), {**DONE, "output": [message("m", "completed", [text, image])]},
        )  # fmt: skip
        assert (answer.text, len(answer.media)) == ("Hello", 1)
    second = message("m", "completed", [text, {"type": "text", "text": " you"}])
    assert (
        told(CREATED, piece("m", "Hello", delta=False, status="completed", index=1), second, DONE).text == "Hello you"
    )


def test_a_second_text_without_index_after_a_numbered_one() -> None:
    one = piece("m", "one", delta=None, status="completed", index=1)
    assert told(CREATED, one, {**one, "index": None, "text": "two"}, DONE).text == "onetwo"


def test_a_call_told_without_msg_id_and_again_in_the_output() -> None:
    call, result = {"call_id": "a", "name": "f", "arguments": "1"}, {"call_id": "a", "output": "x"}
    output = [
        message("m", "completed", [data(None, call)], type="plugin_call"),
        message("n", "completed", [data(None, result)], type="plugin_call_output"),
        message("o", "completed", [data(None, {**call, "call_id": "b"})], type="plugin_call"),
        message("p", "completed", [data(None, {"call_id": "a"})]),
    ]
    for again in ([], output):
        answer = told(CREATED, data(None, call), data(None, result), *again, {**DONE, "output": output})
        assert [c.call_id for c in answer.calls] == ["a", "b"]
        assert [r.call_id for r in answer.results] == ["a"]
        assert [p.value for p in answer.parts() if isinstance(p, Data)] == [{"call_id": "a"}]


def test_a_completed_content_without_msg_id_is_repeated_by_its_message() -> None:
    whole = [{"type": "text", "text": "Hello"}]
    final = piece(None, "Hello", delta=False, status="completed")
    for contents in ([piece(None, "Hello"), final], [final, final], [final, {**final, "index": None}]):
        answer = told(
            CREATED, *contents, message("m", "completed", whole), {**DONE, "output": [message("m", "completed", whole)]}
        )
        assert answer.text == "Hello"


def test_a_content_without_an_index_that_comes_twice() -> None:
    picture = {**data("m", None, index=None), "type": "image", "image_url": "https://x.example/a.png"}
    text = piece("m", "Hello", index=None, delta=False, status="completed")
    other_text, other_picture = {**text, "text": "!"}, {**picture, "image_url": "https://x.example/b.png"}
    answer = told(CREATED, text, text, picture, picture, other_text, other_picture, DONE)
    assert (answer.text, len(answer.media)) == ("Hello!", 2)
    one, other = ({"call_id": c, "name": "f", "arguments": "{}"} for c in "ab")
    twice = [data("m", d, index=None) for d in (one, one, other, other)]
    answer = told(CREATED, message("m", type="plugin_call"), *twice, DONE)
    assert [c.call_id for c in answer.calls] == ["a", "b"]


@pytest.mark.parametrize("final", [{}, {"call_id": "c"}, {"name": "f", "arguments": '{"a":1}'}, {"arguments": ""}])
def test_a_completion_that_says_less_keeps_what_was_known(final: dict[str, Any]) -> None:
    snapshot = data("m", {"call_id": "c", "name": "f", "arguments": '{"a":1}'}, status="in_progress")
    answer = told(CREATED, message("m", type="plugin_call"), snapshot, data("m", final), DONE)
    assert [(c.call_id, c.name, c.arguments) for c in answer.calls] == [("c", "f", '{"a":1}')]


def test_the_message_after_its_first_content_says_what_it_is() -> None:
    snapshot = data("m", {"call_id": "c", "name": "f", "arguments": ""}, status="in_progress")
    answer = told(CREATED, snapshot, message("m", type="component_call"), data("m", {"arguments": "{}"}), DONE)
    assert [(str(c.origin), c.arguments) for c in answer.calls] == [("component", "{}")]
    whole = message("n", "completed", [{"type": "text", "text": "Hello"}], type="weather")
    assert told(CREATED, piece("n", "Hel"), whole, DONE).text == "Hello"


def test_calls_and_results_without_messages() -> None:
    answer = told(
        CREATED, data(None, {"call_id": "a", "name": "f", "arguments": "1"}),
        data(None, {"call_id": "a", "output": "x"}),
        data(None, {"call_id": "b", "name": "g", "arguments": "2"}), DONE,
    )  # fmt: skip
    assert [(c.call_id, c.arguments) for c in answer.calls] == [("a", "1"), ("b", "2")]
    assert [r.call_id for r in answer.results] == ["a"]


@pytest.mark.parametrize("index", [None, 0])
def test_several_calls_and_outputs_in_one_message(index: int | None) -> None:
    """As the langgraph adapter sends them, whose contents have an index of their own or none."""
    calls = [{"call_id": i, "name": "f", "arguments": "{}"} for i in "ab"]
    outputs = [{"call_id": i, "output": f"of {i}"} for i in "ab"]
    places = [None, None] if index is None else [0, 1]
    answer = told(
        CREATED, message("m", type="plugin_call"),
        *(data("m", c, index=i) for c, i in zip(calls, places, strict=True)), message("m", "completed", []),
        message("o", type="plugin_call_output"),
        *(data("o", c, index=i) for c, i in zip(outputs, places, strict=True)),
        *(data("o", c, index=i) for c, i in zip(outputs, places, strict=True)), message("o", "completed", []), DONE,
    )  # fmt: skip
    assert [c.call_id for c in answer.calls] == ["a", "b"]
    assert [(r.call_id, r.parts[0].text) for r in answer.results] == [("a", "of a"), ("b", "of b")]


def test_what_the_end_of_an_output_says_counts_and_a_cut_loses_nothing() -> None:
    opened = [CREATED, message("o", type="plugin_call_output"), data("o", {"call_id": "a", "output": "x"})]
    end = message("o", "completed", [], type="plugin_call_output", metadata={"is_error": True})
    assert [r.is_error for r in told(*opened, end, DONE).results] == [True]
    assert [r.is_error for r in told(*opened).results] == [False]
    failed = message("o", "failed", [], type="plugin_call_output")
    assert [r.call_id for r in told(*opened, failed, DONE).results] == ["a"]


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


def test_two_calls_without_ids_whose_outputs_have_some() -> None:
    answer = told(
        CREATED, data("a", {"name": "f", "arguments": "1"}), data("b", {"name": "g", "arguments": "2"}),
        data("c", {"call_id": "x", "output": "X"}), data("d", {"call_id": "y", "output": "Y"}), DONE,
    )  # fmt: skip
    assert [r.call_id for r in answer.results] == [c.call_id for c in answer.calls]
    assert answer.reason is FinishReason.STOP


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
    for nothing_new in (
        [{**DONE, "output": [message("m", "completed", [{"type": "text", "text": "before"}])]}],
        [message("n"), piece("n", ""), message("n", "completed", [{"type": "text", "text": ""}]), DONE],
    ):
        assert told(CREATED, message("m"), piece("m", "before"), error, *nothing_new).failure == failed.failure


def test_an_error_message_without_a_status_is_one_by_its_code() -> None:
    error = {"object": "message", "id": "e", "type": "error", "code": "MODEL_TIMEOUT", "message": "too slow"}
    failed = told(CREATED, error, DONE)
    assert failed.failure is not None
    assert failed.failure.code is ErrorCode.BACKEND_TIMEOUT


@pytest.mark.parametrize("error", [{"error": {"code": "X", "message": "bad"}}, {"code": "X", "message": "bad"}])
def test_a_message_that_failed_keeps_what_it_says(error: dict[str, Any]) -> None:
    whole = [{"type": "text", "text": "Hello"}]
    answer = told(CREATED, message("m"), piece("m", "Hel"), {**message("m", "failed", whole), **error}, DONE)
    assert answer.failure == Failure(ErrorCode.BACKEND_ERROR, "bad", backend_code="X")
    assert answer.text == "Hello"
    assert [e.status for e in answer.endings.values()] == [MessageStatus.FAILED]


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
        ({"object": "error", "message": "m"}, ErrorCode.BACKEND_ERROR, None, "m"),
        ({"object": "error"}, ErrorCode.BACKEND_ERROR, None, NO_TEXT),
        ({**DONE, "status": "failed", "error": {"code": "500", "message": "x"}}, ErrorCode.BACKEND_ERROR, "500", "x"),
        ({**DONE, "status": "failed", "error": {"code": 500}}, ErrorCode.BACKEND_ERROR, "500", NO_TEXT),
        ({**DONE, "status": "failed", "error": None}, ErrorCode.BACKEND_ERROR, None, NO_TEXT),
        ({**DONE, "status": "failed", "error": "text"}, ErrorCode.BACKEND_ERROR, None, "text"),
        ({"error": "key sk-abcdefgh1234"}, ErrorCode.BACKEND_ERROR, None, "key ***"),
        (b"<html>", ErrorCode.BACKEND_PROTOCOL, None, "The backend sent an event that is not JSON."),
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


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ('[{"type":"text","text":"a"},{"type":"text","text":"b"}]', "ab"), ("[]", "[]"), ("[1]", "[1]"), ("[x", "[x"),
        ('[{"type":"text","text":"a"},{"type":"image"}]', '[{"type":"text","text":"a"},{"type":"image"}]'),
    ],
)  # fmt: skip
def test_only_a_result_of_texts_is_concatenated(output: str, shown: str) -> None:
    assert output_parts(output) == [Text(shown)]


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
    ("body", "code"),
    [
        (b"<html>", ErrorCode.BACKEND_PROTOCOL),
        (b"", ErrorCode.BACKEND_PROTOCOL),
        (b'{"status":"success","message":' + b"[" * 900 + b"]" * 900 + b"}", ErrorCode.BACKEND_PROTOCOL),
        (b'{"detail":"no"}', ErrorCode.BACKEND_UNAVAILABLE),
        (b'{"error":"no"}', ErrorCode.BACKEND_ERROR),
        (b"{}", ErrorCode.TRUNCATED_STREAM),
    ],
)
def test_answers_that_are_none(body: bytes, code: ErrorCode) -> None:
    answer = fold(verify(dialect.parse_response(WireResponse(200, {}, body), context())))
    assert answer.failure is not None
    assert answer.failure.code is code


def test_an_answer_without_status_is_complete() -> None:
    body = {**CREATED, "status": None, "output": [message("m", "completed", [{"type": "text", "text": "x"}])]}
    answer = fold(verify(dialect.parse_response(WireResponse(200, {}, json.dumps(body).encode()), context())))
    assert (answer.text, answer.reason) == ("x", FinishReason.STOP)


def test_an_answer_in_one_piece_with_half_a_surrogate() -> None:
    body = rb'{"output":[{"id":"m","type":"message","content":[{"type":"text","text":"a\ud83d"}]}]}'
    assert fold(verify(dialect.parse_response(WireResponse(200, {}, body), context()))).text == "a\ufffd"


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}, (1, 2, 3)),
        ({"prompt_tokens": 1, "completion_tokens": 2.0}, (1, 2, None)),
        ({"inputTokens": "1", "outputTokens": "2", "totalTokens": "3"}, (1, 2, 3)),
        ({"promptTokens": 1, "completionTokens": None, "total_tokens": True}, (1, None, None)),
        ({"input_tokens": "many", "output_tokens": -1}, None),
    ],
)
@pytest.mark.parametrize("place", ["message", "response"])
def test_usage_in_every_spelling(usage: Any, counts: Any, place: str) -> None:
    said = message("m", "completed", [{"type": "text", "text": "x"}], usage=usage if place == "message" else None)
    found = told(CREATED, said, {**DONE, "usage": usage if place == "response" else None}).usage
    assert (found and (found.input, found.output, found.total)) == counts


@pytest.mark.parametrize("time", [1_700_000_005, 1_700_000_005_000, "1700000005", "1700000005000", 1_700_000_005.0])
def test_times_in_seconds_or_milliseconds(time: Any) -> None:
    for name in ("created_at", "createdAt"):
        start = {"object": "response", "status": "created", name: time}
        assert told(start, {"object": "response", "status": "completed"}).created_at == 1_700_000_005


@pytest.mark.parametrize(
    ("content", "source", "mime", "filename"),
    [
        ({"type": "IMAGE", "imageUrl": "https://x.example/a"}, Url("https://x.example/a"), None, None),
        ({"type": "file", "file_data": "https://x.example/a"}, Url("https://x.example/a"), None, None),
        ({"type": "file", "fileUrl": "https://x.example/a", "fileName": "a"}, Url("https://x.example/a"), None, "a"),
        ({"type": "file", "file_data": "aGk=", "filename": "a"}, Inline("aGk="), None, "a"),
        ({"type": "file", "file_id": "f", "file_url": ""}, FileRef("f"), None, None),
        ({"type": "video", "videoUrl": "data:video/mp4;base64,aGk="}, Inline("aGk="), "video/mp4", None),
        ({"type": "audio", "data": "data:audio/wav;base64,aGk=", "format": "x"}, Inline("aGk="), "audio/wav", None),
        ({"type": "audio", "data": "aGk=", "format": "mp3"}, Inline("aGk="), "audio/mpeg", None),
    ],
)
def test_media_in_every_form(content: Any, source: Any, mime: str | None, filename: str | None) -> None:
    (medium,) = told(CREATED, message("m", "completed", [content]), DONE).media
    assert (medium.source, medium.mime, medium.filename) == (source, mime, filename)


def test_pieces_with_and_without_msg_id_are_told_apart() -> None:
    camel = {"object": "content", "type": "text", "msgId": "m", "index": 0, "delta": True, "text": "hm"}
    answer = told(
        CREATED, message("m", type="reasoning"), message("n"), piece(None, "a"), camel, piece(None, "b"), DONE
    )
    assert (answer.text, answer.reasoning) == ("ab", "hm")


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
