"""Parts one after another: nothing lost, nothing doubled, never two open at once in one lane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import Feature, Losses
from bridge.model import (
    ArgsDelta,
    ContentAdded,
    Data,
    Event,
    Heartbeat,
    MessageEnded,
    MessageStarted,
    PartEnded,
    PartKind,
    PartStarted,
    RunFinished,
    RunStarted,
    TextDelta,
    verify,
)
from bridge.model import events as ev
from bridge.model.dump import dump
from bridge.toolkit.sequencer import Sequencer
from tests.strategies import answers, batches

FREE = frozenset({
    RunStarted, MessageStarted, MessageEnded, Heartbeat, ev.UsageReported, ev.StateChanged, ev.StepStarted,
    ev.StepEnded, ev.Custom, ev.Raw, ev.Interrupted, ev.ToolResulted, ContentAdded, RunFinished, ev.RunFailed,
})  # fmt: skip
HEAD, TAIL = RunStarted("r"), RunFinished()
A, B = MessageStarted("a"), MessageStarted("b")
END_A, END_B = MessageEnded("a"), MessageEnded("b")


def by_kind(event: Any) -> Hashable:
    return event.kind if isinstance(event, PartStarted) else PartKind.TEXT


def call(part: str, message: str) -> PartStarted:
    return PartStarted(part, message, PartKind.TOOL_CALL, f"call-{part}", "f")


def text(part: str, message: str) -> PartStarted:
    return PartStarted(part, message, PartKind.TEXT)


def of_part(events: list[Event], part_id: str) -> list[Event]:
    return [e for e in events if getattr(e, "part_id", None) == part_id]


@given(st.data(), st.booleans())
def test_generated_streams(data: st.DataObject, lanes: bool) -> None:
    events = data.draw(answers(max_actions=12))
    sequencer = Sequencer(None, FREE, lane=by_kind) if lanes else Sequencer(None, FREE)
    out = [event for batch in data.draw(batches(events)) for event in sequencer.feed(batch)]
    assert Counter(map(repr, map(dump, out))) == Counter(map(repr, map(dump, events))), "nothing lost or doubled"
    assert not sequencer.busy
    started = [e for e in events if isinstance(e, PartStarted)]
    for part in started:
        assert of_part(out, part.part_id) == of_part(events, part.part_id), "the order within a part stays"
    open_parts: dict[Hashable, str] = {}
    for event in out:
        if isinstance(event, PartStarted):
            lane = event.kind if lanes else None
            assert lane not in open_parts, "one part at a time"
            open_parts[lane] = event.part_id
        elif isinstance(event, PartEnded):
            open_parts = {lane: part for lane, part in open_parts.items() if part != event.part_id}
    for kind in PartKind:
        assert [p for p in out if isinstance(p, PartStarted) and p.kind is kind] == [
            p for p in started if p.kind is kind
        ]


@given(st.data())
def test_the_grammar_is_kept_where_messages_wait_too(data: st.DataObject) -> None:
    events = data.draw(answers(max_actions=12))
    verify(Sequencer(None, {RunStarted, Heartbeat}).feed(events))


@given(st.data())
def test_one_event_at_a_time_is_the_same(data: st.DataObject) -> None:
    events = data.draw(answers(max_actions=12))
    sequencer = Sequencer(Losses(), FREE)
    assert [ready for event in events for ready in sequencer.place(event)] == Sequencer(Losses(), FREE).feed(events)


def test_an_unfinished_part_becomes_the_open_one() -> None:
    sequencer = Sequencer(None, FREE)
    first, second, third = call("1", "a"), call("2", "a"), call("3", "a")
    assert sequencer.feed([HEAD, A, first, second, ArgsDelta("2", "x"), third, PartEnded("3")]) == [HEAD, A, first]
    assert sequencer.busy
    assert sequencer.feed([PartEnded("1")]) == [PartEnded("1"), second, ArgsDelta("2", "x")]
    assert sequencer.feed([ArgsDelta("2", "y")]) == [ArgsDelta("2", "y")]
    assert sequencer.feed([PartEnded("2"), END_A, TAIL]) == [PartEnded("2"), third, PartEnded("3"), END_A, TAIL]
    assert not sequencer.busy


def test_other_lanes_overtake() -> None:
    sequencer = Sequencer(None, FREE, lane=by_kind)
    passing = [text("t", "a"), TextDelta("t", "x"), Heartbeat()]
    assert sequencer.feed([HEAD, A, call("1", "a"), call("2", "a"), *passing])[3:] == passing
    assert sequencer.feed([text("u", "a"), PartEnded("t"), PartEnded("1"), PartEnded("2"), PartEnded("u")]) == [
        PartEnded("t"), text("u", "a"), PartEnded("1"), call("2", "a"), PartEnded("2"), PartEnded("u")
    ]  # fmt: skip


def test_a_whole_content_waits_for_the_text_that_is_open() -> None:
    sequencer = Sequencer(None, FREE - {ContentAdded})
    content = ContentAdded("a", Data(1))
    assert sequencer.feed([A, text("1", "a"), content, TextDelta("1", "x")]) == [A, text("1", "a"), TextDelta("1", "x")]
    assert sequencer.feed([PartEnded("1")]) == [PartEnded("1"), content]


def test_what_is_inline_waits_only_where_others_wait() -> None:
    sequencer = Sequencer(None, FREE - {ContentAdded}, {ContentAdded})
    content = ContentAdded("a", Data(1))
    assert sequencer.feed([A, text("1", "a"), content]) == [A, text("1", "a"), content]
    assert sequencer.feed([text("2", "a"), content]) == []
    assert sequencer.feed([PartEnded("1")]) == [PartEnded("1"), text("2", "a")]
    assert sequencer.feed([PartEnded("2")]) == [PartEnded("2"), content]


def test_what_is_inline_in_texts_waits_for_a_call() -> None:
    sequencer = Sequencer(None, FREE - {ContentAdded}, {ContentAdded}, {PartKind.TEXT})
    content = ContentAdded("a", Data(1))
    assert sequencer.feed([A, text("1", "a"), content, PartEnded("1"), call("2", "a"), content])[2:] == [
        content, PartEnded("1"), call("2", "a")
    ]  # fmt: skip
    assert sequencer.feed([PartEnded("2")]) == [PartEnded("2"), content]


def test_only_the_first_choice_is_kept_and_the_loss_noted() -> None:
    lost = Losses()
    sequencer = Sequencer(lost, FREE)
    other = MessageStarted("b", choice=1)
    begun = PartStarted("2", "b", PartKind.TEXT, choice=1)
    dropped = [other, begun, TextDelta("2", "y"), PartEnded("2"), MessageEnded("b", choice=1)]
    kept = [A, text("1", "a"), TextDelta("1", "x"), PartEnded("1"), END_A]
    assert sequencer.feed([e for pair in zip(kept, dropped, strict=True) for e in pair]) == kept
    assert Feature.CHOICES in lost.names
