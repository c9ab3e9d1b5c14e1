"""What servers send, legal and not."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.contract import WireResponse
from bridge.dialects.ai_sdk_ui import dialect
from bridge.errors import ErrorCode
from bridge.model import FinishReason, ToolResult, fold, result_text

from .helpers import asked, context, heard, read

TEXT = [{"type": "start"}, {"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "half"}]


@pytest.mark.parametrize(
    ("rest", "done", "code"),
    [
        ([], False, ErrorCode.TRUNCATED_STREAM),
        ([{"type": "finish", "finishReason": "interrupted"}], True, ErrorCode.TRUNCATED_STREAM),
        ([{"type": "finish", "finishReason": "error"}], True, ErrorCode.BACKEND_ERROR),
        ([{"type": "error", "errorText": "broke"}], False, ErrorCode.BACKEND_ERROR),
        ([{"type": "error", "errorText": "broke"}, {"type": []}], False, ErrorCode.BACKEND_ERROR),
        ([{"type": "error", "errorText": "broke"}, {"type": "finish", "finishReason": "stop"}], True,
         ErrorCode.BACKEND_ERROR),
    ],
)  # fmt: skip
def test_a_cut_answer_is_a_failure(rest: list[dict[str, Any]], done: bool, code: ErrorCode) -> None:
    answer = heard([*TEXT, *rest], done=done)
    assert answer.failure is not None
    assert (answer.failure.code, answer.text) == (code, "half")


@pytest.mark.parametrize("rest", [([{"type": "finish"}], False), ([], True)])
def test_either_mark_ends_well(rest: tuple[list[dict[str, Any]], bool]) -> None:
    answer = heard([*TEXT, *rest[0]], done=rest[1])
    assert (answer.failure, answer.text, answer.reason) == (None, "half", FinishReason.STOP)


def test_usage_after_an_error_is_reported() -> None:
    usage = {"type": "finish", "messageMetadata": {"totalUsage": {"inputTokens": 3, "outputTokens": 4}}}
    answer = heard([*TEXT, {"type": "error", "errorText": "broke"}, usage])
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output) == (3, 4)
    assert answer.failure is not None


def test_nothing_but_usage_is_read_after_an_error() -> None:
    """A client closes its connection at an error."""
    again = [*TEXT[1:], TEXT[2], {"type": "tool-input-available", "toolCallId": "k", "toolName": "f", "input": {}}]
    answer = heard([*TEXT, {"type": "error", "errorText": "broke"}, TEXT[2], *again])
    assert (answer.text, answer.calls) == ("half", [])
    assert answer.failure is not None
    assert answer.failure.message == "broke"


BEGUN = {"type": "tool-input-start", "toolCallId": "k", "toolName": "f"}


@pytest.mark.parametrize(
    ("text", "reason", "failed"),
    [
        ('{"a":', "tool-calls", True),
        ('{"a":', "stop", True),
        ("[1]", "stop", True),
        ('{"a":', "length", False),
        ('{"a":1}', "stop", False),
        ("", "tool-calls", False),
    ],
)
def test_half_a_call_is_no_call(text: str, reason: str, failed: bool) -> None:
    pieces = [{"type": "tool-input-delta", "toolCallId": "k", "inputTextDelta": piece} for piece in text]
    answer = heard([{"type": "start"}, BEGUN, *pieces, {"type": "finish", "finishReason": reason}])
    assert (answer.failure is not None) == failed
    assert answer.failure is None or answer.failure.code == ErrorCode.BACKEND_PROTOCOL


def test_a_file_without_a_url_is_none() -> None:
    answer = heard([*TEXT, {"type": "file", "url": 7, "mediaType": "image/png"}, {"type": "finish"}])
    assert (answer.text, len(answer.parts())) == ("half", 1)


def test_an_abort_is_a_canceled_run() -> None:
    assert heard([*TEXT, {"type": "abort"}]).reason is FinishReason.CANCELED


def test_ids_repeat_across_steps() -> None:
    step = [{"type": "start-step"}, *TEXT[1:], {"type": "text-end", "id": "t"}, {"type": "finish-step"}]
    answer = heard([*step, *step, {"type": "finish"}])
    assert [result_text(m.parts) for m in answer.messages] == ["half", "half"]


def test_pieces_without_a_beginning_begin() -> None:
    assert heard([{"type": "text-delta", "id": "x", "delta": "so"}, {"type": "finish"}]).text == "so"


def call(*chunks: dict[str, Any]) -> Any:
    answer = heard([*({"toolCallId": "c", **c} for c in chunks), {"type": "finish"}])
    return answer, [p for m in answer.messages for p in m.parts if isinstance(p, ToolResult)]


def test_input_without_pieces() -> None:
    answer, _ = call({"type": "tool-input-available", "toolName": "f", "input": {"a": 1}})
    assert [(c.name, c.arguments) for c in answer.calls] == [("f", '{"a":1}')]
    assert answer.reason is FinishReason.TOOL_CALLS
    answer, _ = call(
        {"type": "tool-input-start", "toolName": "f", "inputEncoding": "text"},
        {"type": "tool-input-delta", "inputTextDelta": "no json"},
        {"type": "tool-input-available", "toolName": "f", "input": {"a": 1}},
    )
    assert [c.arguments for c in answer.calls] == ['{"a":1}']


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [(['{"a"'], '{"a":1}'), (['{"a"', ":1}"], '{"a":1}'), (['{"a": 1}'], '{"a": 1}'), (["{", '"b"'], '{"b"')],
    ids=["cut short", "whole", "written otherwise", "of another input"],
)
def test_pieces_are_completed_by_the_input(pieces: list[str], whole: str) -> None:
    answer, _ = call(
        {"type": "tool-input-start", "toolName": "f"},
        *({"type": "tool-input-delta", "inputTextDelta": piece} for piece in pieces),
        {"type": "tool-input-available", "toolName": "f", "input": {"a": 1}},
    )
    assert [c.arguments for c in answer.calls] == [whole]


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [([], "{}"), (["null"], "null"), (["nu", "ll"], "null"), (["null", '{"a":1}'], '{"a":1}'), (["{}"], "{}")],
)
def test_an_input_of_null_leaves_the_arguments_to_the_pieces(pieces: list[str], whole: str) -> None:
    answer, _ = call(
        {"type": "tool-input-start", "toolName": "f"},
        *({"type": "tool-input-delta", "inputTextDelta": piece} for piece in pieces),
        {"type": "tool-input-available", "toolName": "f", "input": None},
    )
    assert [c.arguments for c in answer.calls] == [whole]


def test_the_last_of_preliminary_outputs_counts() -> None:
    start = {"type": "tool-input-available", "toolName": "f", "input": {}}
    _, results = call(
        start,
        {"type": "tool-output-available", "output": {"p": 1}, "preliminary": True},
        {"type": "tool-output-available", "output": {"p": 2}},
    )
    assert [result_text(r.parts) for r in results] == ['{"p":2}']
    _, results = call(start, {"type": "tool-output-available", "output": 5, "preliminary": True})
    assert [result_text(r.parts) for r in results] == ["5"]


def test_invalid_input_is_a_failed_call() -> None:
    answer, results = call({"type": "tool-input-error", "toolName": "f", "input": "{", "errorText": "no JSON"})
    assert answer.calls[0].arguments == "{"
    assert [(result_text(r.parts), r.is_error) for r in results] == [("no JSON", True)]


def test_a_repeated_call_of_an_earlier_answer_is_none_of_this_one() -> None:
    part = {"type": "tool-f", "toolCallId": "c", "state": "approval-responded", "input": {},
            "approval": {"id": "c", "approved": True}}  # fmt: skip
    request = asked({"messages": [{"id": "a", "role": "assistant", "parts": [part]}]})
    answer = heard(
        [
            {"type": "tool-input-available", "toolCallId": "c", "toolName": "f", "input": {}},
            {"type": "tool-output-denied", "toolCallId": "c"},
            {"type": "finish"},
        ],
        request,
    )
    assert answer.calls == []
    assert answer.reason is FinishReason.STOP


def test_odd_chunks_do_no_harm() -> None:
    odd = [{"type": "text-delta"}, {"type": 5}, {"type": "tool-input-delta"}, {"type": "file"}, {"type": "custom"},
           {"type": "start", "messageMetadata": "x"}, {"type": "data-x"}, {"type": "reasoning-end", "id": []},
           {"type": "tool-approval-request"}, {"type": "tool-output-available", "toolCallId": {}},
           {"type": "data-state", "data": {"op": {}, "value": 1}},
           {"type": "data-step", "data": {"name": "a", "status": {}}},
           {"type": "data-interrupt", "data": {"id": []}}]  # fmt: skip
    for chunk in odd:
        assert heard([chunk, {"type": "finish"}]).failure is None


def test_an_answer_that_is_no_stream() -> None:
    for kind, body, code in (
        ("text/html", b"<html>", ErrorCode.BACKEND_PROTOCOL),
        ("application/json", b"{}", ErrorCode.BACKEND_PROTOCOL),
        ("application/json", b'{"error": "x"}', ErrorCode.BACKEND_ERROR),
    ):
        events = dialect.parse_response(WireResponse(200, {"content-type": kind}, body), context())
        failure = fold(events).failure
        assert failure is not None
        assert failure.code is code


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (429, b'{"error": "slow down"}', "slow down"),
        (422, b'[{"loc": ["messages", 0], "msg": "bad", "input": "secret"}]', "messages.0: bad"),
        (500, b"Internal", "The backend answered with status 500."),
        (500, b'{"error": {"message": "deep"}}', "deep"),
    ],
)
def test_errors_before_the_stream(status: int, body: bytes, said: str) -> None:
    assert dialect.decode_error(WireResponse(status, {}, body)).message == said


def test_halves_of_a_character_are_joined() -> None:
    pieces = (rb'data: {"type":"text-delta","id":"t","delta":"%b"}' % half for half in (rb"\ud83d", rb"\ude00"))
    stream = b"\n\n".join([*pieces, b'data: {"type":"finish"}\n\n'])
    assert fold(read(stream)).text == "\U0001f600"
