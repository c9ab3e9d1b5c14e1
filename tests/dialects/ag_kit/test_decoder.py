"""Generation 1's stream -> events: the reading rules of the page, and what real servers do against them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from bridge.contract import Frame
from bridge.dialects.ag_kit import dialect
from bridge.errors import ErrorCode
from bridge.model import (
    FinishReason,
    MessageEnded,
    MessageStarted,
    PartEnded,
    Raw,
    RunFinished,
    RunStarted,
    TextDelta,
    fold,
    result_text,
)

from .helpers import context, decode, said


def start(name: Any, tool: Any = "f") -> dict[str, Any]:
    return {"type": "tool-call-start", "toolCallId": name, "toolCallName": tool}


def args(name: Any, delta: Any) -> dict[str, Any]:
    return {"type": "tool-call-args", "toolCallId": name, "delta": delta}


def end(name: Any) -> dict[str, Any]:
    return {"type": "tool-call-end", "toolCallId": name}


def result(name: Any, value: Any) -> dict[str, Any]:
    return {"type": "tool-result", "toolCallId": name, "result": value}


def text(content: Any) -> dict[str, Any]:
    return {"type": "text", "content": content}


def calls(*events: Any, **more: Any) -> list[tuple[str, str, str]]:
    return [(c.call_id, c.name, c.arguments) for c in fold(said(*events, **more)).calls]


def test_calls_are_kept_apart_by_their_ids() -> None:
    answer = fold(
        said(
            start("a"), start("b", "g"), args("b", "["), args("a", "{"), text("x"), args("b", "]"), end("b"),
            args("a", "}"), end("a"),
        )
    )  # fmt: skip
    assert [(c.call_id, c.name, c.arguments) for c in answer.calls] == [("a", "f", "{}"), ("b", "g", "[]")]
    assert (answer.text, answer.reason) == ("x", FinishReason.TOOL_CALLS)


@pytest.mark.parametrize("content", [5, True, ["x"], {"text": "x"}, None])
def test_content_that_is_no_string_is_no_text(content: Any) -> None:
    assert fold(said(text("a"), text(content), text("b"))).text == "ab"


@pytest.mark.parametrize("deltas", [[], [""], ["", ""], [None]])
def test_a_call_without_arguments(deltas: list[Any]) -> None:
    assert calls(start("a"), *(args("a", d) for d in deltas), end("a")) == [("a", "f", "")]


def test_what_the_langgraph_adapter_does_with_parallel_calls() -> None:
    """The second start is lost, its arguments land at the first call, and a result comes with the lost id."""
    events = said(
        start("a"), args("a", '{"city": "Paris"}'), args("a", '{"city": "Rome"}'), end("a"), end("b"), args("b", "{}"),
        result("a", "Sunny"), result("b", "Rainy"), text("Done."),
    )  # fmt: skip
    answer = fold(events)
    assert [(c.call_id, c.arguments) for c in answer.calls] == [("a", '{"city": "Paris"}{"city": "Rome"}')]
    results = [(r.call_id, result_text(r.parts)) for m in answer.messages if m.role == "tool" for r in m.parts]
    assert results == [("a", "Sunny"), ("b", "Rainy")]
    assert (answer.text, answer.reason) == ("Done.", FinishReason.STOP)
    assert [e.value for e in events if isinstance(e, Raw)] == [end("b"), args("b", "{}")]


def test_starts_that_are_repeated_or_nameless() -> None:
    assert calls(start("a"), start("a"), args("a", "{}"), end("a"), start("a"), end("a")) == [("a", "f", "{}")]
    unnamed = calls(start(None, "f"), args(None, "{}"), end(None), start("", "g"), end(""))
    assert [(n, a) for _, n, a in unnamed] == [("f", "{}"), ("g", "")]
    assert len({i for i, _, _ in unnamed}) == 2
    assert calls(start("a", None), args("a", "{}"), end("a")) == []
    unended = calls(start(None), args(None, "{}"), start(None, "g"), args(None, "[]"), end(None))
    assert [(n, a) for _, n, a in unended] == [("f", "{}"), ("g", "[]")]
    assert calls(start(7), args(7, {"a": 1}), end(7)) == [("7", "f", '{"a":1}')]


def test_a_call_is_over_with_its_own_end() -> None:
    """A client runs a tool once its arguments are whole, though the server goes on talking."""
    events = said(start("a"), args("a", "{}"), end("a"), text("Meanwhile"))
    assert [type(e) for e in events if isinstance(e, (PartEnded, TextDelta))][:2] == [PartEnded, TextDelta]


def test_a_message_ends_with_its_results() -> None:
    answer = fold(
        said(start("a"), end("a"), start("b"), result("a", "1"), end("b"), result("b", {"n": 2}), text("x"), text("y"))
    )
    assert [[type(p).__name__ for p in m.parts] for m in answer.messages] == [
        ["ToolCall", "ToolCall"],
        ["ToolResult"],
        ["ToolResult"],
        ["Text"],
    ]


def test_what_is_said_behind_a_result_is_a_message_of_its_own() -> None:
    """Also when another call was open as the result came, and its own result never does."""
    events = said(start("a"), end("a"), start("b"), result("a", "1"), end("b"), text("x"))
    assert [[type(p).__name__ for p in m.parts] for m in fold(events).messages] == [
        ["ToolCall", "ToolCall"],
        ["ToolResult"],
        ["Text"],
    ]
    borders = [type(e) for e in events if isinstance(e, (MessageStarted, MessageEnded))]
    assert borders == [MessageStarted, MessageEnded] * 2


@pytest.mark.parametrize("mark", [b"[DONE]", b" [DONE] ", b"\t[DONE]\t", b"[DONE]\t "])
def test_nothing_counts_after_the_end_mark(mark: bytes) -> None:
    decoder = dialect.decoder(context())
    events = decoder.feed([b'{"type":"text","content":"a"}', mark, b'{"type":"text","content":"b"}'])
    assert fold(events).text == "a"
    assert isinstance(events[-1], RunFinished)
    assert decoder.feed([b"nonsense"]) == decoder.close() == []


def test_the_end_of_a_body_is_an_end_only_when_no_call_is_open() -> None:
    assert fold(said(text("a"), done=False)).reason is FinishReason.STOP
    assert fold(said(done=False)).reason is FinishReason.STOP
    assert fold(said(start("a"), args("a", "{}"), end("a"), done=False)).reason is FinishReason.TOOL_CALLS
    failure = fold(said(start("a"), args("a", "{}"), done=False)).failure
    assert failure is not None
    assert failure.code is ErrorCode.TRUNCATED_STREAM


def test_an_end_mark_inside_a_call() -> None:
    """A whole call only lacks its end; half a call is a failure that the server swallowed."""
    assert fold(said(start("a"), args("a", '{"x":1}'))).reason is FinishReason.TOOL_CALLS
    for half in ([], [args("a", '{"x":')]):
        answer = fold(said(start("a"), *half, b"[DONE]", text("late")))
        assert answer.failure is not None
        assert (answer.failure.code, answer.text) == (ErrorCode.TRUNCATED_STREAM, "")


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"type": "error", "error": "It broke"}, "It broke"),
        ({"type": "error", "error": {"message": "It broke", "code": 7}}, "It broke"),
        ({"type": "error"}, "The backend reported an error without a message."),
        ({"error": "Server error", "details": "no agent"}, "Server error: no agent"),
        ({"error": {"message": "It broke", "details": "no agent"}}, "It broke: no agent"),
        ({"error": {"message": "It broke", "details": "in"}, "details": "beside"}, "It broke: beside"),
        ({"error": "key sk-abcdefghij is wrong"}, "key *** is wrong"),
        ({"error": []}, "The backend reported an error without a message."),
    ],
)
def test_errors_end_the_run(event: Any, message: str) -> None:
    answer = fold(said(text("part"), event, text("late")))
    assert answer.failure is not None
    assert (answer.text, answer.failure.code, answer.failure.message) == ("part", ErrorCode.BACKEND_ERROR, message)


@pytest.mark.parametrize("data", [b"nonsense", b"{", b'{"type":"text"', b"\xff", b"NaN"])
def test_what_is_not_json_is_a_protocol_error(data: bytes) -> None:
    failure = fold(said(data)).failure
    assert failure is not None
    assert failure.code is ErrorCode.BACKEND_PROTOCOL


@pytest.mark.parametrize(
    "data",
    [b"5", b"null", b"[]", b'""', b" ", b'["\\ud83d"]', b'{"type":"text","content":null}', b'{"type":"text"}'],
)
def test_what_says_nothing_is_skipped(data: bytes) -> None:
    answer = fold(said(data, text("x")))
    assert (answer.text, answer.reason) == ("x", FinishReason.STOP)


def test_unknown_events_are_kept_for_the_same_dialect() -> None:
    odd = [{"type": "new-thing", "content": "not shown"}, {"no": "type"}, {"type": ""}, {"type": 5}]
    events = said(*odd, text("x"))
    assert fold(events).text == "x"
    assert [(e.dialect, e.value) for e in events if isinstance(e, Raw)] == [("ag-kit", o) for o in odd]


def test_interrupts() -> None:
    answer = fold(said({"type": "interrupt", "id": "i", "reason": None, "payload": "x"}, {"type": "interrupt"}))
    assert answer.reason is FinishReason.INTERRUPTED
    assert [(i.interrupt_id, i.reason, i.payload) for i in answer.interrupts] == [
        ("i", None, "x"),
        ("interrupt_run1", None, None),
    ]


def test_halves_of_a_surrogate_pair_in_two_events() -> None:
    half = [b'{"type":"text","content":"a\\ud83d"}', b'{"type":"text","content":"\\ude00b"}']
    assert fold(said(*half)).text == "a😀b"
    halves = [
        orjson.dumps(start("a")),
        b'{"type":"tool-call-args","toolCallId":"a","delta":"\\"\\ud83d"}',
        b'{"type":"tool-call-args","toolCallId":"a","delta":"\\ude00\\""}',
        orjson.dumps(end("a")),
    ]
    assert calls(*halves) == [("a", "f", '"😀"')]
    assert fold(said(b'{"type":"tool-result","toolCallId":"\\ud83d","result":"\\ud83d"}')).failure is None


@pytest.mark.parametrize("inner", [b"", b'"\\ud83d"'], ids=["", "half a surrogate pair"])
@pytest.mark.parametrize("depth", [300, 700])
def test_depth_is_bounded(depth: int, inner: bytes) -> None:
    deep = b'{"type":"interrupt","id":"i","payload":' + b"[" * depth + inner + b"]" * depth + b"}"
    failure = fold(said(deep)).failure
    assert failure is not None
    assert failure.code is ErrorCode.BACKEND_PROTOCOL


@pytest.mark.parametrize(("value", "told"), [("", ""), (None, ""), ({"n": 2}, '{"n":2}')])
def test_a_result_may_be_empty(value: Any, told: str) -> None:
    answer = fold(said(start("a"), end("a"), result("a", value)))
    assert [result_text(p.parts) for m in answer.messages if m.role == "tool" for p in m.parts] == [told]


def test_many_brackets_make_no_depth() -> None:
    payload = {"fields": [{"name": f"f{n}"} for n in range(500)]}
    answer = fold(said({"type": "interrupt", "id": "i", "payload": payload}))
    assert [i.payload for i in answer.interrupts] == [payload]


def test_named_frames_and_odd_line_ends() -> None:
    decoder = dialect.decoder(context())
    assert (
        fold([*decoder.feed([Frame(b'{"type":"text","content":"x"}', "message", "1")]), *decoder.close()]).text == "x"
    )
    body = b': hi\r\nevent: x\rdata:{"type":"text",\r\ndata: "content":"a\xe2\x80\xa8b"}\r\n\r\ndata: [DONE]'
    assert fold(decode([body])).text == "a\u2028b"


def test_the_thread_is_told_and_tokens_come_as_they_are() -> None:
    events = decode([b'data: {"type":"text","content":"a"}\n\n' * 2], context(thread_id="c1"))
    assert isinstance(events[0], RunStarted)
    assert (events[0].thread_id, events[0].run_id) == ("c1", "run1")
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["a", "a"]
