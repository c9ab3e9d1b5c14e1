"""Parts one after another: nothing lost, nothing doubled, never two open at once."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model import (
    ArgsDelta,
    Event,
    Heartbeat,
    MessageEnded,
    MessageStarted,
    PartEnded,
    PartKind,
    PartStarted,
    RunFinished,
    RunStarted,
    Sequencer,
    TextDelta,
    fold,
    verify,
)
from bridge.model.dump import dump
from tests.strategies import answers, batches

KINDS = st.sets(st.sampled_from(PartKind))
_OF_A_PART = (PartStarted, PartEnded, TextDelta, ArgsDelta)


def through(sequencer: Sequencer, batches: list[list[Event]]) -> list[Event]:
    return [event for batch in batches for event in sequencer.feed(batch)]


def of_part(events: list[Event], part_id: str) -> list[Event]:
    return [e for e in events if getattr(e, "part_id", None) == part_id]


@given(st.data())
def test_generated_streams(data: st.DataObject) -> None:
    events, kinds = data.draw(answers(max_actions=12)), data.draw(KINDS)
    out = through(Sequencer(kinds), data.draw(batches(events)))
    verify(out)
    assert Counter(map(repr, map(dump, out))) == Counter(map(repr, map(dump, events))), "nothing lost or doubled"
    kind_of = {e.part_id: e.kind for e in events if isinstance(e, PartStarted)}
    for part_id in kind_of:
        assert of_part(out, part_id) == of_part(events, part_id), "the order within a part stays"
    open_parts: set[str] = set()
    for event in out:
        if isinstance(event, PartStarted) and event.kind in kinds:
            assert not open_parts, "one part at a time"
            open_parts.add(event.part_id)
        elif isinstance(event, PartEnded):
            open_parts.discard(event.part_id)
    ordered = [p for p in kind_of if kind_of[p] in kinds]
    assert [e.part_id for e in out if isinstance(e, PartStarted) and e.kind in kinds] == ordered
    assert fold(out).calls == fold(events).calls or PartKind.TOOL_CALL not in kinds


@given(st.data())
def test_kinds_that_need_no_order_pass_untouched(data: st.DataObject) -> None:
    events = data.draw(answers())
    assert through(Sequencer(()), data.draw(batches(events))) == events


@given(st.data())
def test_batches_do_not_matter(data: st.DataObject) -> None:
    events, kinds = data.draw(answers(max_actions=12)), data.draw(KINDS)
    assert through(Sequencer(kinds), data.draw(batches(events))) == Sequencer(kinds).feed(events)


HEAD, TAIL = RunStarted("r"), RunFinished()
A, B = MessageStarted("a"), MessageStarted("b")
END_A, END_B = MessageEnded("a"), MessageEnded("b")


def call(part: str, message: str) -> PartStarted:
    return PartStarted(part, message, PartKind.TOOL_CALL, f"call-{part}", "f")


def test_a_message_end_waits_for_its_waiting_parts() -> None:
    sequencer = Sequencer([PartKind.TOOL_CALL])
    first, second = call("1", "a"), call("2", "b")
    begun = [HEAD, A, first, B, second, ArgsDelta("2", "x"), PartEnded("2"), END_B]
    assert sequencer.feed(begun) == [HEAD, A, first, B]
    assert sequencer.feed([PartEnded("1"), END_A, TAIL]) == [
        PartEnded("1"), second, ArgsDelta("2", "x"), PartEnded("2"), END_B, END_A, TAIL
    ]  # fmt: skip


def test_a_message_end_waits_for_the_last_of_its_parts() -> None:
    sequencer = Sequencer([PartKind.TOOL_CALL])
    first, second, third = call("1", "a"), call("2", "b"), call("3", "b")
    sequencer.feed([HEAD, A, first, B, second, third, PartEnded("2"), PartEnded("3"), END_B])
    assert sequencer.feed([PartEnded("1")]) == [PartEnded("1"), second, PartEnded("2"), third, PartEnded("3"), END_B]


def test_an_unfinished_part_becomes_the_open_one() -> None:
    sequencer = Sequencer([PartKind.TOOL_CALL])
    first, second, third = call("1", "a"), call("2", "a"), call("3", "a")
    assert sequencer.feed([HEAD, A, first, second, ArgsDelta("2", "x"), third, PartEnded("3")]) == [HEAD, A, first]
    assert sequencer.feed([PartEnded("1")]) == [PartEnded("1"), second, ArgsDelta("2", "x")]
    assert sequencer.feed([ArgsDelta("2", "y")]) == [ArgsDelta("2", "y")]
    assert sequencer.feed([PartEnded("2"), END_A, TAIL]) == [PartEnded("2"), third, PartEnded("3"), END_A, TAIL]


def test_other_kinds_overtake() -> None:
    sequencer = Sequencer([PartKind.TOOL_CALL])
    text = PartStarted("t", "a", PartKind.TEXT)
    passing = [text, TextDelta("t", "x"), Heartbeat()]
    assert sequencer.feed([HEAD, A, call("1", "a"), call("2", "a"), *passing])[3:] == passing


@pytest.mark.parametrize("waiting", [False, True])
def test_deltas_alone_pass_as_the_same_list_when_nothing_waits(waiting: bool) -> None:
    sequencer = Sequencer([PartKind.TOOL_CALL])
    sequencer.feed([HEAD, A, call("1", "a")])
    if waiting:
        sequencer.feed([call("2", "a")])
    batch: list[Event] = [ArgsDelta("1", "x"), ArgsDelta("1", "y")]
    out = sequencer.feed(batch)
    assert out == batch
    assert (out is batch) is not waiting
