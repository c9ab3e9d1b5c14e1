"""The grammar: each rule has a stream that breaks it and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ErrorCode, Failure
from bridge.model import (
    ArgsDelta,
    ContentAdded,
    Custom,
    Data,
    Event,
    FinishReason,
    GrammarError,
    Heartbeat,
    Interrupted,
    MessageEnded,
    MessageStarted,
    PartEnded,
    PartKind,
    PartStarted,
    ReasoningDelta,
    RunFailed,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolResulted,
    UsageReported,
    Verifier,
    verify,
)
from tests.strategies import answers, batches

HEAD = RunStarted("r")
MESSAGE = MessageStarted("m")
TEXT = PartStarted("p", "m", PartKind.TEXT)
CALL = PartStarted("p", "m", PartKind.TOOL_CALL, "c", "f")
END = [PartEnded("p"), MessageEnded("m"), RunFinished()]

BROKEN: dict[str, tuple[list[Event], int, str]] = {
    "no head": ([MESSAGE], 0, "the first event must be RunStarted"),
    "no head after a heartbeat": ([Heartbeat(), MESSAGE], 1, "the first event must be RunStarted"),
    "terminal without head": ([RunFinished()], 0, "the first event must be RunStarted"),
    "two heads": ([HEAD, HEAD], 1, "RunStarted may come only once"),
    "after the end": ([HEAD, RunFinished(), Custom("x")], 2, "nothing may follow the terminal event"),
    "heartbeat after the end": ([HEAD, RunFinished(), Heartbeat()], 2, "nothing may follow the terminal event"),
    "two ends": ([HEAD, RunFinished(), RunFinished()], 2, "nothing may follow the terminal event"),
    "message id twice": ([HEAD, MESSAGE, MessageEnded("m"), MESSAGE], 3, "this message id was used before"),
    "part without message": ([HEAD, TEXT], 1, "the message is not open"),
    "part after its message": ([HEAD, MESSAGE, MessageEnded("m"), TEXT], 3, "the message is not open"),
    "part id twice": ([HEAD, MESSAGE, TEXT, PartEnded("p"), TEXT], 4, "this part id was used before"),
    "call without id": (
        [HEAD, MESSAGE, PartStarted("p", "m", PartKind.TOOL_CALL, None, "f")], 2, "a tool call needs a call id"
    ),
    "call with empty id": (
        [HEAD, MESSAGE, PartStarted("p", "m", PartKind.TOOL_CALL, "", "f")], 2, "a tool call needs a call id"
    ),
    "call without name": (
        [HEAD, MESSAGE, PartStarted("p", "m", PartKind.TOOL_CALL, "c", None)], 2, "a tool call needs a call id"
    ),
    "delta without part": ([HEAD, MESSAGE, TextDelta("p", "x")], 2, "the delta names no open part"),
    "delta after its part": ([HEAD, MESSAGE, TEXT, PartEnded("p"), TextDelta("p", "x")], 4, "the delta names no open"),
    "reasoning in text": ([HEAD, MESSAGE, TEXT, ReasoningDelta("p", "x")], 3, "does not fit a part of kind text"),
    "arguments in text": ([HEAD, MESSAGE, TEXT, ArgsDelta("p", "x")], 3, "does not fit a part of kind text"),
    "text in a call": ([HEAD, MESSAGE, CALL, TextDelta("p", "x")], 3, "does not fit a part of kind tool_call"),
    "part ends twice": ([HEAD, MESSAGE, TEXT, PartEnded("p"), PartEnded("p")], 4, "the part is not open"),
    "content without message": ([HEAD, ContentAdded("m", Data(1))], 1, "the message is not open"),
    "message ends twice": ([HEAD, MESSAGE, MessageEnded("m"), MessageEnded("m")], 3, "the message is not open"),
    "message before its part": ([HEAD, MESSAGE, TEXT, MessageEnded("m")], 3, "a part of the message is still open"),
    "open message at the end": ([HEAD, MESSAGE, RunFinished()], 2, "still open: parts [], messages ['m']"),
    "open part at the end": ([HEAD, MESSAGE, TEXT, RunFinished()], 3, "still open: parts ['p'], messages ['m']"),
    "open message at a failure": (
        [HEAD, MESSAGE, RunFailed(Failure(ErrorCode.INTERNAL, "x"))], 2, "still open: parts [], messages ['m']"
    ),
    "part of another choice": (
        [HEAD, MESSAGE, PartStarted("p", "m", PartKind.TEXT, choice=1)], 2, "the message is of choice 0"
    ),
    "content of another choice": (
        [HEAD, MessageStarted("m", choice=2), ContentAdded("m", Data(1))], 2, "the message is of choice 2"
    ),
    "end of another choice": ([HEAD, MESSAGE, MessageEnded("m", choice=1)], 2, "the message is of choice 0"),
    "interrupted without interrupt": ([HEAD, RunFinished(FinishReason.INTERRUPTED)], 1, "needs an Interrupted before"),
}  # fmt: skip


@pytest.mark.parametrize(("events", "position", "rule"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_named(events: list[Event], position: int, rule: str) -> None:
    Verifier().feed(events[:position])
    with pytest.raises(GrammarError) as caught:
        verify(events)
    assert str(caught.value).startswith(f"event {position} ({type(events[position]).__name__}(")
    assert rule in str(caught.value)


def test_a_stream_must_end() -> None:
    with pytest.raises(GrammarError, match="the stream of 2 events has no terminal event"):
        verify([HEAD, UsageReported(1)])
    with pytest.raises(GrammarError, match="no terminal event"):
        verify([])


@pytest.mark.parametrize(
    "events",
    [
        [HEAD, RunFinished()],
        [Heartbeat(), HEAD, Heartbeat(), RunFinished()],
        [HEAD, MESSAGE, TEXT, TextDelta("p", ""), *END],
        [HEAD, MESSAGE, PartStarted("p", "m", PartKind.REFUSAL), TextDelta("p", "x"), *END],
        [HEAD, MESSAGE, PartStarted("p", "m", PartKind.TOOL_CALL, "c", ""), ArgsDelta("p", "x"), *END],
        [HEAD, MESSAGE, PartStarted("p", "m", PartKind.REASONING), ReasoningDelta("p", "x"), *END],
        [HEAD, MESSAGE, MessageStarted("n"), TEXT, PartStarted("q", "n", PartKind.TEXT), TextDelta("p", "x"),
         PartEnded("q"), MessageEnded("n"), *END],
        [HEAD, ToolResulted("c", []), RunFinished()],
        [HEAD, Interrupted("i"), RunFinished(FinishReason.INTERRUPTED)],
        [HEAD, Interrupted("i"), RunFinished(FinishReason.STOP)],
    ],
)  # fmt: skip
def test_good_streams(events: list[Event]) -> None:
    assert verify(events) == events


@given(st.data())
def test_batches_do_not_matter(data: st.DataObject) -> None:
    events = data.draw(answers())
    verifier = Verifier()
    for batch in data.draw(batches(events)):
        assert verifier.feed(batch) is batch
    verifier.close()


@given(st.data())
def test_no_part_of_a_stream_is_a_stream(data: st.DataObject) -> None:
    events = data.draw(answers(heartbeats=False))
    kept = data.draw(st.integers(0, len(events) - 1))
    with pytest.raises(GrammarError):
        verify(events[:kept])
    with pytest.raises(GrammarError):
        verify(events[kept + 1 :])
