"""What an answer amounts to, and what a card leaves of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, entries
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Answer,
    Custom,
    Data,
    Ending,
    Event,
    FileRef,
    FinishReason,
    Inline,
    Interrupted,
    Media,
    MediaKind,
    Message,
    Origin,
    Part,
    Raw,
    Reasoning,
    Refusal,
    StateChanged,
    StateOp,
    StepEnded,
    StepStarted,
    Text,
    ToolCall,
    ToolResult,
    Url,
    UsageReported,
    as_text,
    fold,
    result_text,
    unfold,
)
from bridge.testing.outline import Outline, outline, project
from tests.strategies import answers

EXACT = Capabilities(entries(ANSWER_FEATURES), entries(REQUEST_FEATURES))
IMAGE = Media(MediaKind.IMAGE, Url("https://example.test/a.png"))
AUDIO = Media(MediaKind.AUDIO, Inline("QUJD"), "audio/wav", "a.wav")
VIDEO = Media(MediaKind.VIDEO, Url("https://example.test/v.mp4"))
FILE = Media(MediaKind.FILE, FileRef("file-1"))
CALL = ToolCall("c", "f", '{"a":1}', Origin.MCP)
RESULT = ToolResult("c", [Text("fine"), Data({"x": 1})])

# A part of each kind: its feature, its item, and how it is told in words.
PARTS: list[tuple[Part, Feature, tuple[Any, ...], str]] = [
    (Text("a"), Feature.TEXT, ("text", "a"), "a"),
    (Refusal("no"), Feature.REFUSAL, ("refusal", "no"), "no"),
    (Reasoning("hm", "sig"), Feature.REASONING, ("reasoning", "hm", "sig"), "hm"),
    (CALL, Feature.TOOL_CALL, ("tool_call", "c", "f", '{"a":1}', "mcp"), 'f({"a":1})'),
    (RESULT, Feature.TOOL_RESULT, ("tool_result", "c", 'fine{"x":1}'), 'fine{"x":1}'),
    (IMAGE, Feature.IMAGE, ("media", "image", "https://example.test/a.png"), "![image](https://example.test/a.png)"),
    (AUDIO, Feature.AUDIO, ("media", "audio", "data:audio/wav;base64,QUJD"), "[a.wav: audio/wav, 3 bytes]"),
    (VIDEO, Feature.VIDEO, ("media", "video", "https://example.test/v.mp4"), "[video](https://example.test/v.mp4)"),
    (FILE, Feature.FILE, ("media", "file", "file-1"), "[file: file-1]"),
    (Data({"a": [1]}), Feature.DATA, ("data", {"a": [1]}), '{"a":[1]}'),
]
_WORDS = (FinishReason.LENGTH, FinishReason.CONTENT_FILTER, FinishReason.CANCELED, FinishReason.INTERRUPTED)
PLAIN = [p for p in PARTS if p[1] is not Feature.TEXT]


def capabilities(**groups: list[Feature]) -> Capabilities:
    return Capabilities(
        entries(ANSWER_FEATURES, **{support: dict.fromkeys(features, "x") for support, features in groups.items()}),  # type: ignore[arg-type]
        entries(REQUEST_FEATURES),
    )


def said(*parts: Part, **facts: Any) -> Answer:
    """An answer with these parts in one message, finished."""
    return Answer("r", messages=[Message("assistant", list(parts), "m")], **{"reason": FinishReason.STOP, **facts})


class TestOutline:
    @pytest.mark.parametrize(("part", "_feature", "item", "_words"), PARTS)
    def test_parts(self, part: Part, _feature: Feature, item: tuple[Any, ...], _words: str) -> None:
        assert outline(said(part)) == Outline([item], reason="stop")

    def test_texts_next_to_each_other_are_one(self) -> None:
        parts = [Text("a"), Text(""), Text("b"), Refusal("c"), Refusal("d"), Text("e"), IMAGE, Text("f")]
        assert outline(said(*parts)).items == [
            ("text", "ab"), ("refusal", "cd"), ("text", "e"), ("media", "image", IMAGE.source.url), ("text", "f")  # type: ignore[union-attr]
        ]  # fmt: skip

    def test_message_borders_mean_nothing(self) -> None:
        one = said(Text("a"), Text("b"))
        two = Answer("r", messages=[Message("assistant", [Text(t)], t) for t in "ab"], reason=FinishReason.STOP)
        assert outline(one) == outline(two)

    def test_reasoning_with_a_signature_stays_apart(self) -> None:
        parts = [Reasoning("a"), Reasoning("b", "s"), Reasoning("c", "t"), Reasoning("", "u"), Reasoning("")]
        assert outline(said(*parts)).items == [
            ("reasoning", "ab", "s"), ("reasoning", "c", "t"), ("reasoning", "", "u")
        ]  # fmt: skip

    def test_empty_arguments_are_an_empty_object(self) -> None:
        assert outline(said(ToolCall("c", "f", ""))).items == [("tool_call", "c", "f", "{}", "function")]

    def test_one_choice(self) -> None:
        answer = Answer(
            "r",
            messages=[Message("assistant", [Text("a")], "a"), Message("assistant", [Text("b")], "b")],
            endings={"a": Ending(0), "b": Ending(1)},
            reason=FinishReason.STOP,
        )
        for choice, text in ((0, "a"), (1, "b")):
            assert outline(answer, choice).items == [("text", text)]
            assert project(answer, EXACT, choice).items == [("text", text)]

    def test_all_else(self) -> None:
        events: list[Event] = [
            StateChanged(StateOp.SNAPSHOT, {"a": 1}), StepStarted("s"), StepEnded("s"), Custom("x", 1), Raw("d", 2)
        ]  # fmt: skip
        answer = Answer(
            usage=UsageReported(1, 2, 3, 4, 5),
            failure=Failure(ErrorCode.OVERLOADED, "x"),
            interrupts=[Interrupted("i", "why", {"p": 1})],
            events=events,
        )
        assert outline(answer) == Outline(
            usage=(1, 2),
            details=(4, 5),
            error="overloaded",
            interrupts=[("i", "why", {"p": 1})],
            others=[
                ("state", "snapshot", {"a": 1}),
                ("step", "StepStarted", "s"),
                ("step", "StepEnded", "s"),
                ("custom", "x", 1),
                ("raw", "d", 2),
            ],
        )

    @given(answers())
    def test_unfolding_changes_nothing(self, events: list[Event]) -> None:
        answer = fold(events)
        assert outline(fold(unfold(answer))) == outline(answer)


class TestProject:
    @given(answers())
    def test_a_card_without_losses_leaves_all(self, events: list[Event]) -> None:
        answer = fold(events)
        for choice in answer.choices or [0]:
            assert project(answer, EXACT, choice) == outline(answer, choice)

    @pytest.mark.parametrize("support", ["drop", "refuse", "custom"])
    @pytest.mark.parametrize(("part", "feature", "_item", "_words"), PARTS)
    def test_a_part_goes_away(
        self, part: Part, feature: Feature, _item: tuple[Any, ...], _words: str, support: str
    ) -> None:
        assert project(said(part), capabilities(**{support: [feature]})).items == []

    @pytest.mark.parametrize(("part", "feature", "_item", "words"), PLAIN)
    def test_a_part_becomes_text(self, part: Part, feature: Feature, _item: tuple[Any, ...], words: str) -> None:
        assert as_text(part) == words
        assert project(said(Text("<"), part, Text(">")), capabilities(text=[feature])).items == [("text", f"<{words}>")]

    @pytest.mark.parametrize(("one", "other"), list(itertools.permutations(range(len(PARTS)), 2)))
    def test_a_card_touches_no_other_part(self, one: int, other: int) -> None:
        lost, kept = PARTS[one], PARTS[other]
        assert project(said(lost[0], kept[0]), capabilities(drop=[lost[1]])).items == [kept[2]]

    def test_fields_of_parts(self) -> None:
        answer = said(Reasoning("a", "s"), Reasoning("b", "t"), CALL)
        assert project(answer, capabilities(drop=[Feature.REASONING_SIGNATURE, Feature.TOOL_ORIGIN])).items == [
            ("reasoning", "ab", None), ("tool_call", "c", "f", '{"a":1}', "function")
        ]  # fmt: skip

    def test_usage(self) -> None:
        answer = said(usage=UsageReported(1, 2, 3, 4, 5))
        whole, counts, none = EXACT, capabilities(drop=[Feature.USAGE_DETAILS]), capabilities(drop=[Feature.USAGE])
        seen = [(o.usage, o.details) for o in (project(answer, c) for c in (whole, counts, none))]
        assert seen == [((1, 2), (4, 5)), ((1, 2), None), (None, None)]

    @pytest.mark.parametrize(
        ("reason", "feature"),
        [
            (FinishReason.LENGTH, Feature.FINISH_LENGTH),
            (FinishReason.CONTENT_FILTER, Feature.FINISH_CONTENT_FILTER),
            (FinishReason.CANCELED, Feature.FINISH_CANCELED),
            (FinishReason.INTERRUPTED, Feature.INTERRUPT),
        ],
    )
    def test_finish_words(self, reason: FinishReason, feature: Feature) -> None:
        lossy = capabilities(drop=[feature])
        assert project(said(reason=reason), EXACT).reason == reason
        assert project(said(reason=reason), lossy).reason == "stop"
        assert project(said(CALL, reason=reason), lossy).reason == "tool_calls"
        assert project(said(CALL, RESULT, reason=reason), lossy).reason == "stop"
        for other in set(_WORDS) - {reason}:
            assert project(said(reason=other), lossy).reason == other
        refused = project(said(reason=reason), capabilities(refuse=[feature]))
        assert (refused.reason, refused.error) == (None, reason)

    @pytest.mark.parametrize("said_so", [FinishReason.STOP, FinishReason.TOOL_CALLS])
    def test_plain_finish_words_fit_what_is_left(self, said_so: FinishReason) -> None:
        assert project(said(CALL, reason=said_so), EXACT).reason == "tool_calls"
        assert project(said(CALL, RESULT, reason=said_so), EXACT).reason == "stop"
        assert project(said(CALL, reason=said_so), capabilities(drop=[Feature.TOOL_CALL])).reason == "stop"
        assert (
            project(said(CALL, RESULT, reason=said_so), capabilities(drop=[Feature.TOOL_RESULT])).reason == "tool_calls"
        )

    def test_an_interrupt_outlives_a_lost_finish_word(self) -> None:
        answer = said(interrupts=[Interrupted("i")], reason=FinishReason.LENGTH)
        assert project(answer, capabilities(drop=[Feature.FINISH_LENGTH])).reason == "interrupted"
        assert project(answer, capabilities(drop=[Feature.FINISH_LENGTH, Feature.INTERRUPT])).reason == "stop"

    def test_a_run_ends_as_its_first_choice(self) -> None:
        answer = Answer(
            "r",
            messages=[Message("assistant", [Text("a")], "a"), Message("assistant", [CALL], "b")],
            endings={"a": Ending(0), "b": Ending(1)},
            reason=FinishReason.STOP,
        )
        assert project(answer, EXACT, 1).reason == "stop"

    def test_a_failure_frame_without_room_for_usage(self) -> None:
        failed = Answer(usage=UsageReported(1, 2), failure=Failure(ErrorCode.INTERNAL, "x"))
        silent = Capabilities(entries(ANSWER_FEATURES), entries(REQUEST_FEATURES), usage_on_failure=False)
        assert project(failed, EXACT).usage == (1, 2)
        assert project(failed, silent).usage is None
        assert project(said(usage=UsageReported(1, 2)), silent).usage == (1, 2)

    def test_interrupts(self) -> None:
        answer = said(interrupts=[Interrupted("i")], reason=FinishReason.INTERRUPTED)
        assert project(answer, EXACT).interrupts == [("i", None, None)]
        assert project(answer, capabilities(drop=[Feature.INTERRUPT])).interrupts == []

    @pytest.mark.parametrize(
        ("event", "feature", "item"),
        [
            (StateChanged(StateOp.PATCH, []), Feature.STATE, ("state", "patch", [])),
            (StepStarted("s"), Feature.STEP, ("step", "StepStarted", "s")),
            (StepEnded("s"), Feature.STEP, ("step", "StepEnded", "s")),
            (Custom("x"), Feature.CUSTOM, ("custom", "x", None)),
            (Raw("d", 1), Feature.RAW, ("raw", "d", 1)),
        ],
    )
    def test_other_events(self, event: Event, feature: Feature, item: tuple[Any, ...]) -> None:
        answer = said(events=[event])
        assert project(answer, EXACT).others == [item]
        assert project(answer, capabilities(drop=[feature])).others == []
        rest = [f for f in ANSWER_FEATURES if f is not feature]
        assert project(answer, capabilities(drop=rest)).others == [item]


def test_a_results_text_joins_its_parts() -> None:
    assert result_text([Text("a"), IMAGE, Data(None)]) == "a![image](https://example.test/a.png)null"
