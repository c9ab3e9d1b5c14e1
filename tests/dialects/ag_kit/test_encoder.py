"""Events -> generation 1's stream: the writing rules of the page, checked by a client that shares no code with us."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.contract import KEEPALIVE, Frame
from bridge.dialects.ag_kit import dialect
from bridge.dialects.ag_kit.options import FrontOptions
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Builder,
    Custom,
    Data,
    FileRef,
    FinishReason,
    Heartbeat,
    Interrupted,
    Media,
    MediaKind,
    PartKind,
    Raw,
    Reasoning,
    Refusal,
    StateChanged,
    StateOp,
    StepEnded,
    StepStarted,
    Text,
    ToolCall,
    Url,
    UsageReported,
)
from bridge.translation.framing.sse import join

from .helpers import asked, context, encode, payloads, shown

CALL = PartKind.TOOL_CALL


def builder() -> Builder:
    return context(run_id="back").builder()


def written(made: Builder, **options: Any) -> tuple[list[Any], Any]:
    """The wire events of this run, and the context with its losses."""
    ctx = context(options=FrontOptions(**options))
    return payloads(encode(made.take(), ctx)), ctx


def text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


def call(name: str, *deltas: str, end: bool = True) -> list[dict[str, str]]:
    out = [{"type": "tool-call-start", "toolCallId": name, "toolCallName": "f"}]
    out += [{"type": "tool-call-args", "toolCallId": name, "delta": d} for d in deltas]
    return [*out, *([{"type": "tool-call-end", "toolCallId": name}] if end else [])]


def open_call(made: Builder, name: str) -> None:
    made.open_part(name, "m", CALL, call_id=name, name="f")


def finished(made: Builder, reason: FinishReason = FinishReason.STOP) -> Builder:
    made.finish(reason)
    made.end()
    return made


def test_text_is_compact_json_in_one_line_each() -> None:
    made = builder()
    for piece in ("Hé ", '"q"\n', "", "a\u2028b\u2029c\x85d"):
        if piece:
            made.flow("m", PartKind.TEXT, piece)
    body = join(encode(finished(made).take()))
    assert (
        body
        == (
            'data: {"type":"text","content":"Hé "}\n\n'
            'data: {"type":"text","content":"\\"q\\"\\n"}\n\n'
            'data: {"type":"text","content":"a\\u2028b\\u2029c\\u0085d"}\n\n'
            "data: [DONE]\n\n"
        ).encode()
    )


def test_an_empty_run_is_only_the_end() -> None:
    assert encode(finished(builder()).take()) == [b"[DONE]"]


def test_a_call_without_arguments_gets_an_empty_object() -> None:
    made = builder()
    made.add("m", ToolCall("a", "f", ""))
    made.add("m", ToolCall("b", "f", "  "))
    assert written(finished(made))[0] == [*call("a", "{}"), *call("b", "  ", "{}")]


def test_interleaved_calls_and_text_come_one_after_another() -> None:
    made = builder()
    made.flow("m", PartKind.TEXT, "Wait. ")
    open_call(made, "a")
    made.delta("a", "{")
    open_call(made, "b")
    made.delta("b", "[")
    made.flow("m", PartKind.TEXT, "and ")
    made.delta("a", "}")
    made.flow("m", PartKind.TEXT, "so on")
    made.end_part("a")
    made.delta("b", "]")
    made.end_part("b")
    made.result("b", [Text("B")])
    made.result("a", [Text("A"), Data([1])])
    out, _ = written(finished(made))
    assert out == [
        text("Wait. "),
        *call("a", "{", "}"),
        *call("b", "[", "]"),
        text("and "),
        text("so on"),
        {"type": "tool-result", "toolCallId": "b", "result": "B"},
        {"type": "tool-result", "toolCallId": "a", "result": "A[1]"},
    ]


@pytest.mark.parametrize("kind", [PartKind.TEXT, PartKind.REFUSAL, PartKind.REASONING])
def test_words_wait_for_the_end_of_the_call_that_is_open(kind: PartKind) -> None:
    made = builder()
    made.open_part("w", "m", kind)
    open_call(made, "a")
    for piece in ("{", "}"):
        made.delta("w", piece)
        made.delta("a", piece)
    made.end_part("a")
    made.delta("w", "!")
    made.end_part("w")
    client = shown(finished(made).take(), context(options=FrontOptions(reasoning="text")))
    assert client.calls == {"a": {"name": "f", "input": "{}", "ended": True}}
    assert client.text in ("{}!", "<think>{}!</think>\n\n")


def test_the_client_sees_it_as_it_happened() -> None:
    made = builder()
    made.flow("m", PartKind.TEXT, "Checking. ")
    open_call(made, "s")
    made.delta("s", '{"city":"Paris"}')
    made.end_part("s")
    made.result("s", [Text("Sunny")])
    made.flow("n", PartKind.TEXT, "It is sunny.")
    client = shown(finished(made).take())
    assert client.text == "Checking. It is sunny."
    assert client.calls == {"s": {"name": "f", "input": '{"city":"Paris"}', "ended": True, "result": "Sunny"}}


def test_texts_of_two_messages_are_separated() -> None:
    """Clients append a text to the one before, unless a result came in between."""
    made = builder()
    made.flow("m", PartKind.TEXT, "aa")
    made.flow("m", PartKind.TEXT, "aa")
    made.add("n", Refusal("bb"))
    made.add("n", Text("cc"))
    made.result("s", [Text("Sunny")])
    made.flow("o", PartKind.TEXT, "dd")
    out = payloads(encode(finished(made).take(), context()))
    told = [event["content"] for event in out if event["type"] == "text"]
    assert told == ["aa", "aa", "\n\nbb", "cc", "dd"]


def test_calls_that_a_failure_cut_get_no_end() -> None:
    made = builder()
    open_call(made, "a")
    made.delta("a", '{"x":1}')
    open_call(made, "b")
    made.delta("b", "{")
    made.flow("m", PartKind.TEXT, "behind")
    made.fail(Failure(ErrorCode.BACKEND_ERROR, "the model fell over"))
    out, _ = written(made)
    assert out == [
        *call("a", '{"x":1}', end=False),
        *call("b", "{", end=False),
        text("behind"),
        {"type": "error", "error": "the model fell over"},
    ]


def test_a_call_that_was_over_before_the_failure_has_its_end() -> None:
    made = builder()
    open_call(made, "a")
    made.end_part("a")
    made.flow("m", PartKind.TEXT, "Now ")
    made.fail(Failure(ErrorCode.BACKEND_TIMEOUT, "The backend stopped responding."))
    out, _ = written(made)
    assert out == [*call("a", "{}"), text("Now "), {"type": "error", "error": "The backend stopped responding."}]


def test_the_end_of_a_call_waits_for_nothing_when_its_arguments_are_whole() -> None:
    made = builder()
    open_call(made, "a")
    made.delta("a", "{}")
    made.end_part("a")
    encoder = dialect.encoder(context())
    assert [b"args" in f or b"end" in f for f in encoder.encode(made.take()) if isinstance(f, bytes)] == [
        False, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CONTENT_FILTER])
@pytest.mark.parametrize("early", [True, False], ids=["ended", "open"])
@pytest.mark.parametrize("size", [None, 1])
def test_a_call_that_a_limit_cut_off_has_no_end(reason: FinishReason, early: bool, size: int | None) -> None:
    """Some backends end the call before they tell that the answer was cut (`early`), others leave it open."""
    made = builder()
    open_call(made, "a")
    made.delta("a", '{"color": "bl')
    if early:
        made.end_part("a")
    frames = encode(finished(made, reason).take(), size=size)
    out = payloads(frames)
    assert [e["type"] for e in out] == ["tool-call-start", "tool-call-args", "error"]
    assert ("length limit" in out[-1]["error"]) == (reason is FinishReason.LENGTH)


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.TOOL_CALLS])
def test_a_call_that_no_limit_cut_off_has_its_end(reason: FinishReason) -> None:
    made = builder()
    open_call(made, "a")
    made.delta("a", "{}" if reason is FinishReason.LENGTH else "{")
    out, _ = written(finished(made, reason))
    assert [e["type"] for e in out] == ["tool-call-start", "tool-call-args", "tool-call-end"]


def test_a_broken_call_that_the_answer_goes_on_behind_has_its_end() -> None:
    made = builder()
    open_call(made, "a")
    made.delta("a", "{")
    made.end_part("a")
    made.flow("m", PartKind.TEXT, "Now ")
    out, _ = written(finished(made, FinishReason.LENGTH))
    assert [e["type"] for e in out] == ["tool-call-start", "tool-call-args", "tool-call-end", "text"]


def test_heartbeats_do_not_wait_for_the_end_of_a_broken_call() -> None:
    made = builder()
    open_call(made, "a")
    made.delta("a", "{")
    made.end_part("a")
    encoder = dialect.encoder(context())
    assert len(encoder.encode(made.take())) == 2
    assert encoder.encode([Heartbeat()]) == [KEEPALIVE]


def test_refusals_media_and_data_are_text() -> None:
    made = builder()
    made.add("m", Refusal("No. "))
    made.add("m", Media(MediaKind.IMAGE, Url("https://x.example/a.png"), filename="a"))
    made.add("m", Media(MediaKind.FILE, FileRef("f1")))
    made.add("m", Data({"a": 1}))
    events = finished(made).take()
    out = payloads(encode(events))
    assert out == [text("No. "), text("![a](https://x.example/a.png)"), text("[file: f1]"), text('{"a":1}')]
    for media, shown_as, lost in (("text", out, "sent as text"), ("drop", out[:1], "dropped")):
        ctx = context(options=FrontOptions(media=media))
        assert payloads(encode(events, ctx)) == shown_as
        joined = {"part_borders": ""} if media == "text" else {}
        assert ctx.lost.details == {"refusal": "sent as text", "image": lost, "file": lost, "data": lost, **joined}


def test_reasoning_is_dropped_or_marked() -> None:
    made = builder()
    for piece in ("hm", "m"):
        made.flow("m", PartKind.REASONING, piece)
    made.add("m", Reasoning("", "signature"))
    made.flow("m", PartKind.TEXT, "So: 42")
    events = finished(made).take()
    ctx = context()
    assert payloads(encode(events, ctx)) == [text("So: 42")]
    assert ctx.lost.names == ["reasoning", "reasoning_signature"]
    client = shown(events, context(options=FrontOptions(reasoning="text")))
    assert client.text == "<think>hmm</think>\n\nSo: 42"


def test_what_has_no_event_is_recorded() -> None:
    made = builder()
    made.emit(StepStarted("s"))
    made.emit(StepEnded("s"))
    made.emit(StateChanged(StateOp.SNAPSHOT, {}))
    made.emit(Custom("c", 1))
    made.emit(Raw("other", 1))
    made.usage(UsageReported(1, 2))
    made.flow("m", PartKind.TEXT, "x")
    made.message("second", choice=1)
    made.flow("second", PartKind.TEXT, "y")
    out, ctx = written(finished(made, FinishReason.LENGTH))
    assert out == [text("x")]
    assert sorted(ctx.lost.names) == ["choices", "custom", "finish_length", "raw", "state", "step", "usage"]


@pytest.mark.parametrize(
    ("counts", "lost"),
    [({}, ["usage"]), ({"cached": 1}, ["usage", "usage_details"]), ({"reasoning": 1}, ["usage", "usage_details"])],
)
def test_counts_of_tokens_have_no_event(counts: dict[str, int], lost: list[str]) -> None:
    made = builder()
    made.usage(UsageReported(1, 2, **counts))
    out, ctx = written(finished(made))
    assert (out, ctx.lost.names) == ([], lost)


@pytest.mark.parametrize(
    ("reason", "option", "error"),
    [
        (FinishReason.LENGTH, "none", None),
        (FinishReason.CONTENT_FILTER, "none", None),
        (FinishReason.LENGTH, "error", "The answer was cut at its length limit."),
        (FinishReason.CONTENT_FILTER, "error", "The answer was stopped by a content filter."),
        (FinishReason.CANCELED, "none", "The run was canceled."),
    ],
)
def test_how_a_run_ended(reason: FinishReason, option: str, error: str | None) -> None:
    made = builder()
    made.flow("m", PartKind.TEXT, "x")
    client = shown(finished(made, reason).take(), context(options=FrontOptions(finish_notice=option)))
    assert (client.text, client.error) == ("x", error)


def test_a_question_with_nothing_before_it_comes_in_a_message() -> None:
    """AG-Kit's React client shows a question only in a message of the assistant, and an empty text makes one."""
    made = builder()
    made.interrupt(Interrupted("i1", "approval", "Go on?"))
    out, _ = written(finished(made))
    assert out == [
        {"type": "text", "content": ""},
        {"type": "interrupt", "id": "i1", "reason": "approval", "payload": "Go on?"},
    ]


def test_interrupts_come_last_and_have_a_string_for_a_reason() -> None:
    made = builder()
    made.interrupt(Interrupted("i1", None, {"content": "the page's clients look only at the top"}))
    open_call(made, "a")
    made.interrupt(Interrupted("i2", "approval", "Go on?"))
    made.delta("a", "{}")
    out, _ = written(finished(made))
    assert out == [
        *call("a", "{}"),
        {
            "type": "interrupt",
            "id": "i1",
            "reason": "",
            "payload": {"content": "the page's clients look only at the top"},
        },
        {"type": "interrupt", "id": "i2", "reason": "approval", "payload": "Go on?"},
    ]


def test_errors_are_short_and_name_no_keys_and_no_addresses() -> None:
    made = builder()
    made.fail(Failure(ErrorCode.BACKEND_ERROR, "POST http://10.0.0.7:81/v1?k=v with sk-abcdef123456 " + "x" * 5000))
    ((error,), _) = written(made)
    assert "10.0.0.7" not in error["error"]
    assert "abcdef" not in error["error"]
    assert len(error["error"]) < 600
    made = builder()
    made.fail(Failure(ErrorCode.INTERNAL, ""))
    assert written(made)[0] == [{"type": "error", "error": "The run failed."}]


@pytest.mark.parametrize("generation", [1, 2])
def test_keepalive_is_a_comment(generation: int) -> None:
    of_route = context(options=FrontOptions(generation=generation))
    of_route.request = None
    assert list(dialect.encoder(of_route).encode([Heartbeat()])) == [KEEPALIVE]
    assert isinstance(KEEPALIVE, Frame)


def test_keepalive_waits_for_no_call() -> None:
    made = builder()
    open_call(made, "a")
    encoder = dialect.encoder(context())
    encoder.encode(made.take())
    assert encoder.encode([Heartbeat()]) == [KEEPALIVE]
    made.flow("m", PartKind.TEXT, "behind the call")
    assert encoder.encode([*made.take(), Heartbeat()]) == [KEEPALIVE]


def test_unknown_events_of_the_same_dialect_pass() -> None:
    made = builder()
    made.emit(Raw("ag-kit", {"type": "new-thing", "value": 1}))
    assert written(finished(made))[0] == [{"type": "new-thing", "value": 1}]


# ---------------------------------------------------------------------- what a route may ask for


def test_a_conversation_that_was_made_up_is_told_in_every_event() -> None:
    def run(**body: Any) -> list[Any]:
        made = builder()
        made.flow("m", PartKind.TEXT, "Hi \u2028")
        open_call(made, "a")
        request = asked({"messages": [], **body})
        return payloads(encode(finished(made).take(), context(request=request)))

    request = asked({"messages": []})
    assert {e.get("conversationId") for e in run()} == {request.thread_id}
    assert [{k: v for k, v in e.items() if k != "conversationId"} for e in run()] == run(conversationId="c1")


@pytest.mark.parametrize(("said", "before"), [("part", "\n\n"), ("", "")])
def test_a_failure_is_a_text_too_where_the_route_says_so(said: str, before: str) -> None:
    made = builder()
    if said:
        made.flow("m", PartKind.TEXT, said)
    made.fail(Failure(ErrorCode.BACKEND_TIMEOUT, "The backend stopped responding."))
    out, _ = written(made, errors="text")
    assert out[-2:] == [
        text(f"{before}Error: The backend stopped responding."),
        {"type": "error", "error": "The backend stopped responding."},
    ]
