"""Stream <-> finished messages, and back without loss."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Answer,
    ArgsDelta,
    ContentAdded,
    Custom,
    Data,
    Ending,
    Event,
    FinishReason,
    Folder,
    Heartbeat,
    Interrupted,
    Media,
    MediaKind,
    Message,
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
    StepEnded,
    StepStarted,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolResulted,
    Url,
    UsageReported,
    fold,
    unfold,
    verify,
)
from tests.strategies import answers, batches

PICTURE = Media(MediaKind.IMAGE, Url("https://example.test/a.png"))


@given(answers(roles=("assistant", "user", "tool")))
def test_unfolding_and_folding_again_changes_nothing(events: list[Event]) -> None:
    answer = fold(events)
    assert fold(verify(unfold(answer))) == answer


def test_a_result_inside_a_message_keeps_its_place() -> None:
    def text(name: str) -> list[Event]:
        return [PartStarted(name, "m", PartKind.TEXT), TextDelta(name, name), PartEnded(name)]

    first, second, third = (ToolResulted(name, []) for name in ("1", "2", "3"))
    inside = [first, *text("a"), second, third, *text("b"), *text("c")]
    events = unfold(fold([RunStarted("r"), MessageStarted("m"), *inside, MessageEnded("m"), RunFinished()]))
    told = [
        (e.call_id if isinstance(e, ToolResulted) else e.text)
        for e in events
        if isinstance(e, (ToolResulted, TextDelta))
    ]
    assert told == ["1", "a", "2", "3", "b", "c"]


@given(st.data())
def test_batches_do_not_matter(data: st.DataObject) -> None:
    events = data.draw(answers())
    folder = Folder()
    for batch in data.draw(batches(events)):
        folder.feed(batch)
    assert folder.answer == fold(events)


def test_everything_finds_its_place() -> None:
    events: list[Event] = [
        RunStarted("r", "t", "model", 3.0, {"a": 1}, {"d": {"head": 1}}),
        MessageStarted("m", "assistant", "bot", 0, {"d": {"begin": 1}}),
        PartStarted("p0", "m", PartKind.REASONING, extras={"d": {"x": 1}}),
        PartStarted("p1", "m", PartKind.TOOL_CALL, "c", "f", Origin.MCP, "srv"),
        ReasoningDelta("p0", "h"),
        ArgsDelta("p1", "{"),
        ContentAdded("m", PICTURE),
        ReasoningDelta("p0", "m"),
        ArgsDelta("p1", "}"),
        PartEnded("p1"),
        PartEnded("p0", "sig", "red", {"e": {"y": 2}}),
        Heartbeat(),
        ToolResulted("c", [Text("ok")], "f", True, "tool-message", {"d": {}}),
        StepStarted("s"),
        PartStarted("p2", "m", PartKind.TEXT),
        TextDelta("p2", "do"),
        TextDelta("p2", "ne"),
        PartEnded("p2"),
        StepEnded("s"),
        PartStarted("p3", "m", PartKind.REFUSAL),
        TextDelta("p3", "no"),
        PartEnded("p3"),
        MessageEnded("m", MessageStatus.INCOMPLETE, FinishReason.LENGTH, {"e": {"end": 1}}),
        Interrupted("i", "approval"),
        UsageReported(1, 1),
        UsageReported(2, 3),
        RunFinished(FinishReason.LENGTH, 9.0, {"d": {"tail": 1}}),
    ]
    answer = fold(verify(events))
    reasoning = Reasoning("hm", "sig", "red", {"d": {"x": 1}, "e": {"y": 2}})
    call = ToolCall("c", "f", "{}", Origin.MCP, "srv")
    result = ToolResult("c", [Text("ok")], "f", True, {"d": {}})
    assert answer == Answer(
        run_id="r",
        thread_id="t",
        model="model",
        created_at=3.0,
        ended_at=9.0,
        messages=[
            Message(
                "assistant",
                [reasoning, call, PICTURE, Text("done"), Refusal("no")],
                "m",
                "bot",
                extras={"d": {"begin": 1}, "e": {"end": 1}},
            ),
            Message("tool", [result], "tool-message", "f"),
        ],
        endings={"m": Ending(0, MessageStatus.INCOMPLETE, FinishReason.LENGTH)},
        usage=UsageReported(2, 3),
        reason=FinishReason.LENGTH,
        interrupts=[Interrupted("i", "approval")],
        events=[StepStarted("s"), StepEnded("s")],
        metadata={"a": 1},
        extras={"d": {"head": 1}},
        end_extras={"d": {"tail": 1}},
    )
    assert answer.text == "done"
    assert answer.reasoning == "hm"
    assert answer.refusal == "no"
    assert answer.calls == [call]
    assert answer.results == [result]
    assert answer.media == [PICTURE]


def test_a_failed_run_keeps_what_came_before() -> None:
    failure = Failure(ErrorCode.BACKEND_ERROR, "x")
    answer = fold([RunStarted("r"), Custom("a", 1), RunFailed(failure, 4.0, {"d": {}})])
    assert answer == Answer("r", failure=failure, ended_at=4.0, end_extras={"d": {}}, events=[Custom("a", 1)])
    assert unfold(answer)[-1] == RunFailed(failure, 4.0, {"d": {}})


def test_an_unfinished_part_keeps_its_place() -> None:
    answer = fold([RunStarted("r"), MessageStarted("m"), PartStarted("p", "m", PartKind.TEXT), TextDelta("p", "x")])
    assert answer.parts() == [Text("")]


def test_choices_stay_apart() -> None:
    answer = fold(
        [
            RunStarted("r"),
            MessageStarted("a", choice=1),
            MessageStarted("b"),
            ContentAdded("a", Data(1), choice=1),
            ContentAdded("b", Data(2)),
            MessageEnded("a", choice=1),
            MessageEnded("b"),
            RunFinished(),
        ]
    )
    assert answer.choices == [0, 1]
    assert answer.parts(1) == [Data(1)]
    assert answer.parts() == [Data(2)]
    assert answer.parts(2) == []


def test_an_answer_made_by_hand_becomes_a_stream() -> None:
    """Ids that nobody gave are made, and a result that stands in a message of the assistant is told."""
    parts = [Text("a"), ToolCall("c", "f", ""), ToolResult("c", [Text("r")]), Refusal(""), PICTURE]
    answer = Answer("r", messages=[Message("assistant", list(parts)), Message("user", [Text("b")])])
    events = verify(unfold(answer))
    again = fold(events)
    assert again.reason is FinishReason.STOP
    assert [m.id for m in again.messages if m.role != "tool"] == ["r-0", "r-1"]
    assert again.calls == [ToolCall("c", "f", "")]
    assert again.results == [ToolResult("c", [Text("r")])]
    assert not any(isinstance(e, (TextDelta, ArgsDelta)) and not e.text for e in events)
