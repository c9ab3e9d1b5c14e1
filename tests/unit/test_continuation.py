"""One answer made of two: wherever the first one broke, the client's stream is one, and says each word once."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from bridge.errors import ErrorCode, Failure
from bridge.model import (
    ContentAdded,
    Data,
    Event,
    Heartbeat,
    MessageEnded,
    MessageStarted,
    PartEnded,
    PartKind,
    PartStarted,
    ReasoningDelta,
    RunFinished,
    RunStarted,
    TextDelta,
    UsageReported,
    fold,
    verify,
)
from bridge.model.closing import OpenParts
from bridge.run.continuation import ContinuedText, StreamContinuation

HEAD = RunStarted("r")
BROKE = Failure(ErrorCode.TRUNCATED_STREAM, "it broke")


def message(name: str, *parts: list[Event]) -> list[Event]:
    return [MessageStarted(name), *itertools.chain(*parts), MessageEnded(name)]


def text(name: str, of: str, *pieces: str) -> list[Event]:
    return [PartStarted(name, of, PartKind.TEXT), *(TextDelta(name, p) for p in pieces), PartEnded(name)]


def thought(name: str, of: str, *pieces: str) -> list[Event]:
    return [PartStarted(name, of, PartKind.REASONING), *(ReasoningDelta(name, p) for p in pieces), PartEnded(name)]


def call(name: str, of: str) -> list[Event]:
    return [PartStarted(name, of, PartKind.TOOL_CALL, name, "f"), PartEnded(name)]


def run(*messages: list[Event]) -> list[Event]:
    return [HEAD, *itertools.chain(*messages), UsageReported(1, 2, 3), RunFinished()]


PLAIN = run(message("m", text("p", "m", "Once ", "upon ", "a time")))
OTHERS: dict[str, list[Event]] = {
    "the same": PLAIN,
    "in other pieces": run(message("x", text("y", "x", "On", "ce up", "on a ti", "me"))),
    "in one piece": run(message("x", text("y", "x", "Once upon a time"))),
    "thinking in it": run(message("m", thought("p", "m", "hm"), text("q", "m", "Once upon a time"))),
    "thinking before it": run(message("m", thought("p", "m", "hm")), message("n", text("p2", "n", "Once upon a time"))),
    "beginning twice": [
        *(HEAD, *message("e"), Heartbeat()),
        *(*message("m", text("p", "m", "Once upon a time")), RunFinished()),
    ],
    "with a call": run(message("m", text("p", "m", "Once upon a time")), message("n", call("c", "n"))),
    "with data": run(message("m", text("p", "m", "Once upon a time"), [ContentAdded("m", Data({"a": 1}))])),
}  # fmt: skip
FIRSTS = {name: OTHERS[name] for name in ("the same", "thinking in it", "thinking before it", "beginning twice")}


def joined(first: list[Event], cut: int, second: list[Event], size: int = 1) -> list[Event] | None:
    """What the client gets when the first one breaks behind `cut` events; None when nobody may go on."""
    continuation, opened = StreamContinuation(), OpenParts()
    before = first[:cut]
    continuation.observe(before)
    for event in before:
        continuation.record([event])
    opened.feed(before)
    kept = continuation.left_open(opened.fail(BROKE, HEAD))
    if not continuation.possible:
        return None
    continuation.begin()
    out = [*before, *kept]
    for at in range(0, len(second), size):
        continuation.observe(second[at : at + size])
        out += continuation.join(second[at : at + size])
    assert not continuation.differs, "it differs"
    return out


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", FIRSTS)
def test_every_cut_is_joined(name: str, other: str, size: int) -> None:
    first = FIRSTS[name]
    ends = [n for n, event in enumerate(first) if isinstance(event, PartEnded) and event.part_id in ("q", "p2")]
    over = ends[0] if ends else next(n for n, e in enumerate(first) if isinstance(e, PartEnded))
    for cut in range(1, len(first)):
        stream = joined(first, cut, OTHERS[other], size)
        # Once the first one has ended its text, what it would have said behind it is not known.
        assert (stream is None) is (cut > over), cut
        if stream is None:
            continue
        answer = fold(verify(stream))
        assert answer.text == "Once upon a time"
        assert answer.failure is None
        assert answer.usage is not None or other == "beginning twice"
        assert [c.name for c in answer.calls] == ["f"] * (other == "with a call")


@pytest.mark.parametrize(
    "second",
    [
        run(message("m", text("p", "m", "Twice upon"))),
        run(message("m", text("p", "m", "Once"))),
        run(message("m", call("c", "m"))),
        run(message("m", text("p", "m", "Once"), text("q", "m", " upon a time"))),
        run(),
    ],
    ids=["other words", "fewer words", "a call", "in two parts", "nothing"],
)
def test_what_does_not_begin_alike_is_not_joined(second: list[Event]) -> None:
    with pytest.raises(AssertionError, match="it differs"):
        joined(PLAIN, 5, second)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_without_a_word_anything_may_come(cut: int) -> None:
    for second in (run(message("m", call("c", "m"))), run(), run(message("n", thought("t", "n", "hm")))):
        stream = joined(PLAIN, cut, second)
        assert stream is not None
        assert fold(verify(stream)).failure is None


@pytest.mark.parametrize(
    "event",
    [
        PartStarted("p", "m", PartKind.TOOL_CALL, "c", "f"),
        PartStarted("p", "m", PartKind.REFUSAL),
        ContentAdded("m", Data({})),
        MessageStarted("m", choice=1),
    ],
)
def test_what_is_more_than_words(event: Any) -> None:
    continuation = StreamContinuation()
    continuation.observe([HEAD, event])
    assert not continuation.possible


@pytest.mark.parametrize("other", OTHERS)
def test_words_that_were_begun_stand_before_those_that_follow(other: str) -> None:
    begun = ContinuedText("So: ")
    stream = [new for event in OTHERS[other] for new in begun([event])]
    assert fold(verify(stream)).text == "So: Once upon a time"


def test_words_that_were_begun_are_kept_where_none_follow() -> None:
    for second in (run(), run(message("m", call("c", "m"))), run(message("m", [ContentAdded("m", Data({}))]))):
        begun = ContinuedText("So: ")
        stream = begun(second)
        assert fold(verify(stream)).text == "So: "
        assert begun(second) == second
