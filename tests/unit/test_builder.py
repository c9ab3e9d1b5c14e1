"""The builder: whatever a wire says, in whatever order, a well-formed stream comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ErrorCode, Failure
from bridge.model import (
    ArgsDelta,
    Builder,
    ContentAdded,
    Custom,
    Data,
    Event,
    FinishReason,
    Heartbeat,
    Interrupted,
    MessageEnded,
    MessageStarted,
    MessageStatus,
    Origin,
    PartEnded,
    PartKind,
    PartStarted,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RunFailed,
    RunFinished,
    RunStarted,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolResulted,
    UsageReported,
    fold,
    verify,
)
from bridge.model.surrogates import repair
from tests.strategies import answers


def make() -> Builder:
    numbers = iter(range(1, 1000))
    return Builder("run", "thread", 5.0, lambda prefix: f"{prefix}{next(numbers)}")


def ended(builder: Builder, reason: FinishReason | None = FinishReason.STOP) -> list[Event]:
    """All events of the run, which is finished with `reason`."""
    builder.finish(reason)
    builder.end()
    return verify(builder.take())


def of(kind: type, events: list[Event]) -> list[Any]:
    return [e for e in events if isinstance(e, kind)]


@given(answers())
def test_generated_streams_are_well_formed(events: list[Event]) -> None:
    verify(events)


def test_a_whole_talk_on_a_wire_without_borders() -> None:
    builder = make()
    builder.begin(model="m", metadata={"a": 1})
    builder.message(0, message_id="x")
    builder.flow(0, PartKind.REASONING, "hm")
    builder.flow(0, PartKind.TEXT, "he")
    builder.flow(0, PartKind.TEXT, "llo")
    assert ended(builder) == [
        RunStarted("run", "thread", "m", 5.0, {"a": 1}),
        MessageStarted("x"),
        PartStarted("x-0", "x", PartKind.REASONING),
        ReasoningDelta("x-0", "hm"),
        PartEnded("x-0"),
        PartStarted("x-1", "x", PartKind.TEXT),
        TextDelta("x-1", "he"),
        TextDelta("x-1", "llo"),
        PartEnded("x-1"),
        MessageEnded("x"),
        RunFinished(FinishReason.STOP),
    ]


class TestHead:
    def test_facts_add_up_until_the_first_event(self) -> None:
        builder = make()
        builder.begin(model="m", metadata={"a": 1}, extras={"d": {"x": 1}})
        builder.begin(created_at=9.0, thread_id="other", metadata={"b": 2}, extras={"e": {"y": 2}})
        builder.start()
        builder.begin(model="late")
        assert builder.take() == [
            RunStarted("run", "thread", "m", 9.0, {"a": 1, "b": 2}, {"d": {"x": 1}, "e": {"y": 2}})
        ]

    def test_the_wires_thread_is_used_when_the_run_has_none(self) -> None:
        builder = Builder("run", None, 0.0, str)
        builder.begin(thread_id="wire")
        builder.start()
        assert builder.take() == [RunStarted("run", "wire")]

    def test_starts_once(self) -> None:
        builder = make()
        builder.start()
        builder.start()
        assert len(builder.take()) == 1


class TestTake:
    def test_gives_each_event_once(self) -> None:
        builder = make()
        builder.flow(0, PartKind.TEXT, "a")
        first = builder.take()
        builder.flow(0, PartKind.TEXT, "b")
        second = builder.take()
        assert [e.text for e in of(TextDelta, first)] == ["a"]
        assert second == [TextDelta("msg1-0", "b")]
        assert builder.take() == []

    def test_nothing_comes_after_the_end(self) -> None:
        builder = make()
        builder.end()
        assert builder.done
        assert type(builder.take()[-1]) is RunFailed
        builder.start()
        builder.message("late")
        builder.flow("late", PartKind.TEXT, "x")
        builder.add("late", Text("x"))
        builder.open_part("late-part", "late", PartKind.TEXT)
        builder.delta("late-part", "x")
        builder.end_part("late-part")
        builder.end_message("late")
        builder.result("c", [])
        builder.interrupt(Interrupted("i"))
        builder.emit(Heartbeat())
        builder.usage(UsageReported(1))
        builder.finish(FinishReason.STOP)
        builder.fail(Failure(ErrorCode.INTERNAL, "x"))
        builder.close()
        builder.end()
        assert builder.take() == []


class TestIds:
    def test_a_repeated_message_id_is_replaced(self) -> None:
        builder = make()
        assert builder.message(0, message_id="x") == "x"
        assert builder.message(0, message_id="y") == "x", "an open message is not opened again"
        builder.end_message(0)
        assert builder.message(0, message_id="x") == "msg1"
        ended(builder)

    def test_a_made_message_id_never_meets_one_of_the_wire(self) -> None:
        builder = make()
        builder.message(0, message_id="msg1")
        builder.message(1, message_id="msg2")
        assert builder.message(2) == "msg3"
        assert builder.message(3, message_id="msg1") == "msg4"
        ended(builder)

    def test_a_made_part_id_never_meets_one_of_the_wire(self) -> None:
        builder = make()
        builder.message(0, message_id="m")
        builder.open_part("a", 0, PartKind.TEXT, part_id="m-1")
        builder.open_part("b", 0, PartKind.TEXT)
        builder.open_part("c", 0, PartKind.TEXT, part_id="m-1")
        ids = [e.part_id for e in of(PartStarted, ended(builder))]
        assert len(set(ids)) == 3

    def test_a_repeated_part_id_is_replaced(self) -> None:
        builder = make()
        builder.message(0, message_id="m")
        builder.open_part("a", 0, PartKind.TEXT, part_id="p")
        builder.end_part("a")
        builder.open_part("b", 0, PartKind.TEXT, part_id="p")
        assert [e.part_id for e in of(PartStarted, ended(builder))] == ["p", "m-1"]

    def test_a_part_id_never_meets_a_message_id(self) -> None:
        builder = make()
        builder.message(0, message_id="same")
        builder.open_part("a", 0, PartKind.TEXT, part_id="same")
        assert of(PartStarted, ended(builder))[0].part_id == "same-0"


class TestExplicitParts:
    def test_interleaved_calls(self) -> None:
        builder = make()
        builder.open_part(0, "m", PartKind.TOOL_CALL, call_id="c1", name="f", origin=Origin.MCP, server_label="s")
        builder.open_part(1, "m", PartKind.TOOL_CALL, call_id="c2", name="g")
        builder.delta(0, "{")
        builder.delta(1, "[")
        builder.delta(0, "}")
        builder.delta(1, "]")
        builder.end_part(1)
        events = ended(builder)
        assert fold(events).calls == [ToolCall("c1", "f", "{}", Origin.MCP, "s"), ToolCall("c2", "g", "[]")]
        assert of(RunFinished, events)[0].reason is FinishReason.TOOL_CALLS

    @pytest.mark.parametrize("no_id", [None, "", "null", "None", "undefined"])
    def test_a_call_without_id_gets_one_and_so_does_its_result(self, no_id: str | None) -> None:
        builder = make()
        part = builder.open_part(0, "m", PartKind.TOOL_CALL, call_id=no_id, name="f")
        assert part.call_id == "call2"
        if no_id is not None:
            builder.result(no_id, [Text("r")])
        answer = fold(ended(builder))
        assert answer.calls == [ToolCall("call2", "f", "")]
        assert answer.reason is (FinishReason.TOOL_CALLS if no_id is None else FinishReason.STOP)

    def test_a_call_that_never_gets_a_name_fails_the_run(self) -> None:
        builder = make()
        builder.flow("m", PartKind.TEXT, "a")
        builder.open_part(0, "m", PartKind.TOOL_CALL, call_id="c")
        builder.delta(0, "{}")
        answer = fold(ended(builder))
        assert (answer.text, answer.calls) == ("a", [])
        assert answer.failure is not None
        assert answer.failure.code is ErrorCode.BACKEND_PROTOCOL

    @pytest.mark.parametrize(
        ("pieces", "arguments"),
        [
            (["{}"], "{}"),
            (["{}", " "], " {}"),
            (["{}", '{"a":', "1}"], '{"a":1}'),
            (["{}", "{}"], "{}"),
            (["{}", "{}", '{"a":1}'], '{"a":1}'),
            (["null", '{"a":1}'], '{"a":1}'),
            (["{ }", '{"a":', "1}"], '{"a":1}'),
            (['""', '{}{"a":1}'], '{"a":1}'),
            (["null"], "null"),
            (["null", "able"], "nullable"),
            (["{}", "x"], "{}x"),
            (["{}", "[1]"], "{}[1]"),
            (['{}{"a":1}'], '{"a":1}'),
            (["{} {", '"a":1}'], '{"a":1}'),
            (['{"a":', "{}", "}"], '{"a":{}}'),
            (["{}\n"], "{}\n"),
            (['{"a":1}', "{}"], '{"a":1}{}'),
            ([], ""),
        ],
    )
    def test_empty_arguments_before_the_real_ones_are_a_placeholder(self, pieces: list[str], arguments: str) -> None:
        builder = make()
        builder.open_part(0, "m", PartKind.TOOL_CALL, call_id="c", name="f")
        for piece in pieces:
            builder.delta(0, piece)
        assert fold(ended(builder)).calls == [ToolCall("c", "f", arguments)]

    @pytest.mark.parametrize(
        ("text", "arguments"),
        [("{}", "{}"), ('{}{"a":1}', '{"a":1}'), ('{} {"a":1}', '{"a":1}'), ("{} ", "{} "), ("{}x", "{}x"), ("", "")],
    )
    def test_a_placeholder_before_whole_arguments_is_left_out(self, text: str, arguments: str) -> None:
        builder = make()
        builder.add("m", ToolCall("c", "f", text))
        assert fold(ended(builder)).calls == [ToolCall("c", "f", arguments)]

    def test_an_open_key_is_opened_once(self) -> None:
        builder = make()
        assert builder.open_part(0, "m", PartKind.TEXT) is builder.open_part(0, "m", PartKind.TEXT)
        assert builder.part(0) is not None
        assert builder.part(1) is None
        assert len(of(PartStarted, ended(builder))) == 1

    def test_unknown_keys_and_empty_pieces_are_ignored(self) -> None:
        builder = make()
        builder.open_part(0, "m", PartKind.TEXT)
        builder.take()
        builder.delta(0, "")
        builder.delta(1, "x")
        builder.end_part(1)
        builder.end_message("other")
        builder.end_reason("other", FinishReason.STOP)
        builder.end_flow("m")
        assert builder.take() == []

    def test_signature_redacted_and_extras_stand_at_the_end(self) -> None:
        builder = make()
        builder.open_part(0, "m", PartKind.REASONING)
        builder.end_part(0, signature="s", redacted="r", extras={"d": {"a": 1}})
        builder.end_part(0, signature="twice")
        assert of(PartEnded, ended(builder)) == [PartEnded("msg1-0", "s", "r", {"d": {"a": 1}})]

    def test_ending_a_message_ends_its_parts_only(self) -> None:
        builder = make()
        builder.open_part("a", 1, PartKind.TEXT)
        builder.flow(1, PartKind.TEXT, "flows")
        builder.open_part("b", 2, PartKind.TEXT)
        builder.end_message(1, MessageStatus.INCOMPLETE, FinishReason.LENGTH, {"d": {}})
        assert not builder.is_open(1)
        assert builder.is_open(2)
        assert not builder.is_open(3)
        assert builder.part("a") is None
        assert builder.part("b") is not None
        builder.delta("b", "on")
        events = ended(builder)
        assert of(MessageEnded, events)[0] == MessageEnded(
            "msg1", MessageStatus.INCOMPLETE, FinishReason.LENGTH, {"d": {}}
        )
        assert fold(events).text == "flowson"


class TestFlow:
    def test_an_explicit_part_ends_what_flows(self) -> None:
        builder = make()
        builder.flow(0, PartKind.TEXT, "a")
        builder.add(0, ToolCall("c", "f", "{}"))
        builder.flow(0, PartKind.TEXT, "b")
        assert fold(ended(builder)).parts() == [Text("a"), ToolCall("c", "f", "{}"), Text("b")]

    def test_media_and_data_end_what_flows(self) -> None:
        builder = make()
        builder.flow(0, PartKind.TEXT, "a")
        builder.add(0, Data({"x": 1}))
        events = ended(builder)
        assert [type(e) for e in events[3:6]] == [TextDelta, PartEnded, ContentAdded]

    def test_messages_flow_apart(self) -> None:
        builder = make()
        builder.message(0)
        builder.message(1, choice=1)
        for piece in "ab":
            builder.flow(0, PartKind.TEXT, piece)
            builder.flow(1, PartKind.TEXT, piece.upper())
        answer = fold(ended(builder))
        assert answer.parts(0) == [Text("ab")]
        assert answer.parts(1) == [Text("AB")]

    def test_what_is_inside_a_message_has_its_choice(self) -> None:
        builder = make()
        builder.message(0)
        builder.message(1, choice=2)
        for key in (0, 1):
            builder.flow(key, PartKind.TEXT, "a")
            builder.add(key, Data({"x": 1}))
            builder.add(key, Text("b"))
        found = [e for e in ended(builder) if isinstance(e, (PartStarted, ContentAdded, MessageEnded))]
        assert [e.choice for e in found] == [0, 0, 0, 2, 2, 2, 0, 2]

    def test_a_signature_ends_the_flow(self) -> None:
        builder = make()
        builder.flow(0, PartKind.REASONING, "a")
        builder.end_flow(0, signature="s", redacted="r")
        builder.flow(0, PartKind.REASONING, "b")
        assert fold(ended(builder)).parts() == [Reasoning("a", "s", "r"), Reasoning("b")]

    def test_text_after_the_message_ended_opens_another(self) -> None:
        builder = make()
        builder.flow(0, PartKind.TEXT, "a")
        builder.end_message(0)
        builder.flow(0, PartKind.TEXT, "b")
        assert [m.id for m in fold(ended(builder)).messages] == ["msg1", "msg2"]


@pytest.mark.parametrize(
    "part",
    [
        Text("x", {"d": {"a": 1}}),
        Text(""),
        Refusal("no"),
        Reasoning("hm", "sig", "red"),
        ToolCall("c", "f", "not json", Origin.PLUGIN, "srv", {"d": {}}),
        ToolCall("c", "f", ""),
        Data([1, None]),
    ],
)
def test_whole_parts_come_back_as_they_were(part: Any) -> None:
    builder = make()
    builder.add("m", part)
    assert fold(ended(builder)).parts() == [part]


def test_a_whole_result_is_a_result() -> None:
    builder = make()
    builder.add("m", ToolResult("c", [Text("x")], "f", True, {"d": {}}))
    assert of(ToolResulted, ended(builder)) == [ToolResulted("c", [Text("x")], "f", True, None, {"d": {}})]


class TestRagged:
    """Half a surrogate pair at the end of a piece waits for the other half."""

    @pytest.mark.parametrize("flowing", [True, False])
    @pytest.mark.parametrize(
        ("pieces", "expected"),
        [
            (["a\ud83d", "\ude00b"], "a\U0001f600b"),
            (["\ud83d", "\ude00"], "\U0001f600"),
            (["\ud83d", "x"], "\ufffdx"),
            (["\ude00x"], "\ufffdx"),
            (["x\ud83d"], "x\ufffd"),
            (["\ud83d", "\ud83d", "\ude00"], "\ufffd\U0001f600"),
            (["plain"], "plain"),
        ],
    )
    def test_pieces(self, pieces: list[str], expected: str, flowing: bool) -> None:
        builder = make()
        builder.join_halves()
        builder.open_part("k", "m", PartKind.TEXT) if not flowing else None
        events: list[Event] = []
        for piece in pieces:
            if flowing:
                builder.flow("m", PartKind.TEXT, piece)
            else:
                builder.delta("k", piece)
            events += builder.take()
        builder.finish()
        builder.end()
        events += verify([*events, *builder.take()])[len(events) :]
        assert fold(events).text == expected
        assert all(e.text.encode() for e in of(TextDelta, events))

    def test_clean_pieces_may_follow(self) -> None:
        builder = make()
        builder.join_halves()
        builder.flow("m", PartKind.REASONING, "a\ud83d")
        builder.flow("m", PartKind.REASONING, "b")
        builder.flow("m", PartKind.REASONING, "c")
        assert [e.text for e in of(ReasoningDelta, ended(builder))] == ["a", "\ufffdb", "c"]

    def test_a_held_half_keeps_its_place_before_another_part(self) -> None:
        builder = make()
        builder.join_halves()
        builder.flow("m", PartKind.TEXT, "a\ud83d")
        builder.flow("m", PartKind.REASONING, "hm")
        assert fold(ended(builder)).parts() == [Text("a\ufffd"), Reasoning("hm")]

    def test_what_comes_beside_half_a_character_is_kept(self) -> None:
        builder = make()
        builder.join_halves()
        builder.flow("m", PartKind.TEXT, "\ud83d", {"x": {"logprobs": [1]}})
        builder.flow("m", PartKind.TEXT, "\ude00", {"x": {"logprobs": [2]}})
        found = [(e.text, e.extras) for e in of(TextDelta, ended(builder))]
        assert found == [("", {"x": {"logprobs": [1]}}), ("\U0001f600", {"x": {"logprobs": [2]}})]

    def test_halves_outside_of_pieces_are_replaced(self) -> None:
        builder = make()
        builder.join_halves()
        builder.result("c", [Text("a\ud83d")])
        builder.emit(Custom("x", {"k\ud83d": ["\ude00", 1, None]}))
        builder.fail(Failure(ErrorCode.BACKEND_ERROR, "b\ud83d"))
        _, result, custom, end = builder.take()
        assert result == ToolResulted("c", [Text("a\ufffd")])
        assert custom == Custom("x", {"k\ufffd": ["\ufffd", 1, None]})
        assert end == RunFailed(Failure(ErrorCode.BACKEND_ERROR, "b\ufffd"))

    @given(st.text(st.characters()))
    def test_mended_text_is_valid(self, text: str) -> None:
        assert repair(text).encode().decode() == repair(text)
        assert repair(repair(text)) == repair(text)


class TestEnd:
    @pytest.mark.parametrize(
        ("said", "calls", "results", "interrupts", "expected"),
        [
            (FinishReason.STOP, 0, 0, 0, FinishReason.STOP),
            (None, 0, 0, 0, FinishReason.STOP),
            (FinishReason.STOP, 1, 0, 0, FinishReason.TOOL_CALLS),
            (FinishReason.STOP, 2, 1, 0, FinishReason.TOOL_CALLS),
            (FinishReason.STOP, 1, 1, 0, FinishReason.STOP),
            (FinishReason.TOOL_CALLS, 0, 0, 0, FinishReason.STOP),
            (FinishReason.TOOL_CALLS, 1, 1, 0, FinishReason.STOP),
            (FinishReason.TOOL_CALLS, 1, 0, 0, FinishReason.TOOL_CALLS),
            (FinishReason.STOP, 1, 0, 1, FinishReason.INTERRUPTED),
            (FinishReason.INTERRUPTED, 0, 0, 1, FinishReason.INTERRUPTED),
            (FinishReason.INTERRUPTED, 0, 0, 0, FinishReason.STOP),
            (FinishReason.INTERRUPTED, 1, 0, 0, FinishReason.TOOL_CALLS),
            (FinishReason.LENGTH, 1, 0, 1, FinishReason.LENGTH),
            (FinishReason.CONTENT_FILTER, 0, 0, 0, FinishReason.CONTENT_FILTER),
            (FinishReason.CANCELED, 0, 0, 0, FinishReason.CANCELED),
        ],
    )
    def test_the_reason_fits_what_was_seen(
        self, said: FinishReason | None, calls: int, results: int, interrupts: int, expected: FinishReason
    ) -> None:
        builder = make()
        for number in range(calls):
            builder.add("m", ToolCall(f"c{number}", "f", "{}"))
        for number in range(results):
            builder.result(f"c{number}", [])
        assert builder.open_calls == [f"c{n}" for n in range(results, calls)]
        for number in range(interrupts):
            builder.interrupt(Interrupted(f"i{number}"))
        assert ended(builder, said)[-1] == RunFinished(expected)

    def test_the_first_reason_counts(self) -> None:
        builder = make()
        assert not builder.finishing
        builder.finish(FinishReason.LENGTH, {"d": {"first": 1}})
        assert builder.finishing
        builder.finish(FinishReason.STOP, {"d": {"second": 1}})
        builder.end()
        assert builder.take()[-1] == RunFinished(FinishReason.LENGTH, None, {"d": {"first": 1}})

    def test_each_choice_has_its_own_reason(self) -> None:
        builder = make()
        builder.message(0)
        builder.message(1, choice=1)
        builder.add(1, ToolCall("c", "f", "{}"))
        for choice in (0, 1):
            builder.end_reason(choice, FinishReason.STOP)
            builder.end_reason(choice, FinishReason.LENGTH)
        endings = fold(ended(builder)).endings.values()
        assert [e.reason for e in endings] == [FinishReason.STOP, FinishReason.TOOL_CALLS]

    @pytest.mark.parametrize(
        ("finish", "status"),
        [
            (lambda b: b.finish(FinishReason.STOP), MessageStatus.COMPLETED),
            (lambda b: b.finish(FinishReason.LENGTH), MessageStatus.INCOMPLETE),
            (lambda b: b.finish(FinishReason.CANCELED), MessageStatus.CANCELED),
            (lambda b: b.fail(Failure(ErrorCode.INTERNAL, "x")), MessageStatus.FAILED),
            (lambda b: b.fail(Failure(ErrorCode.CANCELED, "x")), MessageStatus.CANCELED),
            (lambda b: None, MessageStatus.FAILED),
        ],
    )
    def test_open_messages_end_with_the_fitting_status(
        self, finish: Callable[[Builder], None], status: MessageStatus
    ) -> None:
        builder = make()
        builder.flow(0, PartKind.TEXT, "x")
        finish(builder)
        builder.end()
        assert of(MessageEnded, verify(builder.take())) == [MessageEnded("msg1", status)]

    def test_no_word_of_an_end_is_a_truncated_stream(self) -> None:
        builder = make()
        builder.flow(0, PartKind.TEXT, "x")
        builder.close()
        last = builder.take()[-1]
        assert isinstance(last, RunFailed)
        assert last.error.code is ErrorCode.TRUNCATED_STREAM

    def test_a_failure_on_close_is_the_runs(self) -> None:
        builder = make()
        failure = Failure(ErrorCode.BACKEND_TIMEOUT, "slow")
        builder.close(failure)
        builder.close(Failure(ErrorCode.INTERNAL, "later"))
        assert verify(builder.take())[-1] == RunFailed(failure)

    def test_a_known_finish_wins_over_a_failure_after_it(self) -> None:
        builder = make()
        builder.finish(FinishReason.STOP)
        builder.close(Failure(ErrorCode.BACKEND_ERROR, "reset"))
        assert builder.take()[-1] == RunFinished(FinishReason.STOP)

    def test_a_failure_on_the_wire_wins_over_a_finish_before_it(self) -> None:
        builder = make()
        builder.finish(FinishReason.STOP)
        failure = Failure(ErrorCode.BACKEND_ERROR, "said so")
        builder.fail(failure, {"d": {}})
        assert builder.take()[-1] == RunFailed(failure, None, {"d": {}})

    def test_the_last_usage_is_told_once_before_the_end(self) -> None:
        builder = make()
        builder.usage(UsageReported(1, 1))
        builder.flow(0, PartKind.TEXT, "x")
        builder.finish(FinishReason.STOP)
        builder.usage(UsageReported(2, 3))
        builder.end()
        assert builder.take()[-2:] == [UsageReported(2, 3), RunFinished(FinishReason.STOP)]

    def test_other_events_pass(self) -> None:
        builder = make()
        builder.emit(Custom("x"))
        assert [type(e) for e in builder.take()] == [RunStarted, Custom]


_KEYS = st.integers(0, 2)
_KINDS = st.sampled_from(PartKind)
_PIECES = st.sampled_from(("", "a", "\ud83d", "\ude00", "é"))
_FACTS = st.one_of(
    st.tuples(st.just("message"), _KEYS),
    st.tuples(st.just("end_message"), _KEYS),
    st.tuples(st.just("open_part"), _KEYS, _KEYS, _KINDS),
    st.tuples(st.just("delta"), _KEYS, _PIECES),
    st.tuples(st.just("end_part"), _KEYS),
    st.tuples(st.just("flow"), _KEYS, _KINDS.filter(lambda k: k is not PartKind.TOOL_CALL), _PIECES),
    st.tuples(st.just("end_flow"), _KEYS),
    st.tuples(st.just("result"), st.just("c"), st.just([])),
    st.tuples(st.just("interrupt"), st.just(Interrupted("i"))),
    st.tuples(st.just("finish"), st.sampled_from((None, *FinishReason))),
    st.tuples(st.just("fail"), st.just(Failure(ErrorCode.INTERNAL, "x"))),
    st.tuples(st.just("take")),
)


@given(st.lists(_FACTS, max_size=25))
def test_no_order_of_facts_breaks_the_grammar(facts: list[tuple[Any, ...]]) -> None:
    builder = make()
    builder.join_halves()
    events: list[Event] = []
    for name, *args in facts:
        made = getattr(builder, name)(*args)
        if name == "take":
            events += made
    builder.close()
    events += builder.take()
    verify(events)
    for event in events:
        if isinstance(event, (TextDelta, ReasoningDelta, ArgsDelta)):
            event.text.encode()
