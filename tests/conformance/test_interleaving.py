"""Texts that go on at the same time at a backend reach the client of every front one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from runpy import run_path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import Dialect, Feature, Support, registry
from bridge.model import (
    Answer,
    ArgsDelta,
    Data,
    Event,
    MessageEnded,
    MessageStarted,
    PartEnded,
    PartKind,
    PartStarted,
    ReasoningDelta,
    RunFinished,
    RunStarted,
    Text,
    TextDelta,
    ToolResulted,
    fold,
    verify,
)
from bridge.testing.outline import outline, project
from bridge.testing.wires import answers_whole, comparable, context, decode, encode, overlaps
from bridge.translation import AnswerDecoder, framing

_EXAMPLES = Path(__file__).parents[2] / "examples"
toy: Dialect = run_path(str(_EXAMPLES / "dialect_toy.py"))["dialect"]
FRONTS = [*(registry.get(name) for name in registry.served() if registry.get(name).called), toy]
WHOLE = [d for d in FRONTS if answers_whole(d)]
_MAKERS: dict[PartKind, Callable[[str, str], Event]] = {
    PartKind.TEXT: TextDelta,
    PartKind.REASONING: ReasoningDelta,
    PartKind.TOOL_CALL: ArgsDelta,
}
"""What clients of every front read; a refusal is text to some."""


@st.composite
def braids(draw: st.DrawFn) -> list[Event]:
    """Runs of up to three messages with up to six parts, whose pieces come in any order that the grammar allows."""
    messages: dict[str, list[list[Event]]] = {f"m{n}": [] for n in range(draw(st.integers(1, 3)))}
    for n in range(draw(st.integers(1, 6))):
        owner, kind = draw(st.sampled_from([*messages])), draw(st.sampled_from([*_MAKERS]))
        call = f"call{n}" if kind is PartKind.TOOL_CALL else None
        part: list[Event] = [PartStarted(f"p{n}", owner, kind, call, "f" if call else None)]
        pieces = ['{"n":', f"{n}}}"] if call else [f"<{n},", f"{n}>"]
        part += [_MAKERS[kind](f"p{n}", piece) for piece in pieces]
        messages[owner].append([*part, PartEnded(f"p{n}")])
    events: list[Event] = [RunStarted("run", "thread", "m", 1.0)]
    waiting = {name: sum(map(len, parts)) for name, parts in messages.items()}
    started: set[str] = set()
    while waiting:
        name = draw(st.sampled_from([*waiting]))
        if name not in started:
            started.add(name)
            events.append(MessageStarted(name))
        elif not waiting[name]:
            events.append(MessageEnded(name))
            del waiting[name]
        else:
            parts = [p for p in messages[name] if p]
            events.append(draw(st.sampled_from(parts)).pop(0))
            waiting[name] -= 1
    return [*events, RunFinished()]


def streamed(dialect: Dialect, events: list[Event]) -> Answer:
    """What a client reads that has the answer streamed, event by event."""
    encoder = dialect.encoder(context(dialect.front_options()))
    frames = [frame for event in events for frame in encoder.encode([event])]
    return fold(decode(dialect, [framing.of(dialect.framing).join(frames)]))


def whole(dialect: Dialect, events: list[Event]) -> Answer:
    """What a client reads that has the answer in one piece."""
    wire = dialect.assemble(events, context(dialect.front_options()))
    reading = AnswerDecoder(dialect, context(dialect.back_options()), wire.headers)
    return fold(reading.receive(wire.body) + reading.close())


def found(answer: Answer, events: list[Event], kind: PartKind) -> list[str]:
    """The texts of this kind that a client has, each whole, in the order in which it has them."""
    names = [e.part_id.removeprefix("p") for e in events if isinstance(e, PartStarted) and e.kind is kind]
    has = answer.reasoning if kind is PartKind.REASONING and answer.reasoning else answer.text
    return sorted((name for name in names if f"<{name},{name}>" in has), key=lambda name: has.index(f"<{name},"))


def begun(events: list[Event], kind: PartKind) -> list[str]:
    """The parts of this kind in the order in which they began."""
    return [e.part_id.removeprefix("p") for e in events if isinstance(e, PartStarted) and e.kind is kind]


@pytest.mark.parametrize("dialect", FRONTS, ids=lambda d: d.name)
@given(data=st.data())
def test_texts_are_whole_and_in_the_order_in_which_they_began(dialect: Dialect, data: st.DataObject) -> None:
    events = list(verify(data.draw(braids())))
    answer = streamed(dialect, events)
    assert found(answer, events, PartKind.TEXT) == begun(events, PartKind.TEXT)
    if dialect.capabilities.answer(Feature.REASONING) is Support.EXACT:
        assert found(answer, events, PartKind.REASONING) == begun(events, PartKind.REASONING)
    if dialect.capabilities.answer(Feature.TOOL_CALL) is Support.EXACT:
        calls = [
            (f"call{n}", json.dumps({"n": int(n)}, separators=(",", ":"))) for n in begun(events, PartKind.TOOL_CALL)
        ]
        assert [(c.call_id, c.arguments) for c in answer.calls] == calls


@pytest.mark.parametrize("dialect", FRONTS, ids=lambda d: d.name)
def test_texts_around_a_result_that_clients_do_not_see_are_two_texts(dialect: Dialect) -> None:
    card = dialect.capabilities
    events: list[Event] = [RunStarted("run", "thread", "m", 1.0), MessageStarted("m")]
    for name, text in (("1", "Let me look."), ("2", "It is 21.")):
        events += [PartStarted(name, "m", PartKind.TEXT), TextDelta(name, text), PartEnded(name)]
        if name == "1":
            call = PartStarted("c", "m", PartKind.TOOL_CALL, "c", "f"), ArgsDelta("c", "{}"), PartEnded("c")
            events += [*call, ToolResulted("c", [Text("21")])]
    events += [MessageEnded("m"), RunFinished()]
    hides = card.answer(Feature.TOOL_RESULT) is Support.DROP and card.answer(Feature.PART_BORDERS) is not Support.EXACT
    between = card.separator if hides else ""
    for answer in (streamed(dialect, events), *([whole(dialect, events)] if dialect in WHOLE else [])):
        assert answer.text == f"Let me look.{between}It is 21."


@pytest.mark.parametrize("dialect", WHOLE, ids=lambda d: d.name)
@given(data=st.data())
def test_a_streamed_answer_and_a_whole_one_say_the_same(dialect: Dialect, data: st.DataObject) -> None:
    events = data.draw(braids())
    one, other = streamed(dialect, events), whole(dialect, events)
    assert (one.text, one.reasoning, one.calls) == (other.text, other.reasoning, other.calls)


@pytest.mark.parametrize("dialect", [d for d in FRONTS if d.name != "aip"], ids=lambda d: d.name)
def test_the_text_that_began_first_is_not_kept_back(dialect: Dialect) -> None:
    """Only what belongs to later texts waits, and that until the first one is over. AIP has whole texts only."""
    encoder = dialect.encoder(context(dialect.front_options()))

    def told(*events: Event) -> bytes:
        return framing.of(dialect.framing).join(encoder.encode(events))

    told(RunStarted("run", "thread", "m", 1.0), MessageStarted("a"), PartStarted("1", "a", PartKind.TEXT))
    assert b"first" in told(TextDelta("1", "first"))
    assert b"second" not in told(MessageStarted("b"), PartStarted("2", "b", PartKind.TEXT), TextDelta("2", "second"))
    assert b"third" in told(TextDelta("1", "third"))
    assert b"second" in told(PartEnded("1"), MessageEnded("a"))
    assert b"fourth" in told(TextDelta("2", "fourth"))


def test_choices_go_side_by_side() -> None:
    """The alternatives of `n` have a text each: none waits for another one."""
    dialect = registry.get("openai-chat")
    encoder = dialect.encoder(context(dialect.front_options()))
    encoder.encode([RunStarted("run", None, "m", 1.0), MessageStarted("a"), MessageStarted("b", choice=1)])
    encoder.encode([PartStarted("1", "a", PartKind.TEXT), PartStarted("2", "b", PartKind.TEXT, choice=1)])
    for part in "1", "2":
        assert encoder.encode([TextDelta(part, "x")])


def test_what_waits_for_the_end_of_a_text_may_come_after_another_kind() -> None:
    """Chat has a field for texts and one for reasoning: a medium that is told as text waits, and reasoning does not."""
    dialect = registry.get("openai-chat")
    builder = context(dialect.front_options()).builder()
    builder.open_part("text", "m", PartKind.TEXT)
    builder.delta("text", "before ")
    builder.add("m", Data({"a": 1}))
    builder.open_part("thought", "m", PartKind.REASONING)
    builder.delta("thought", "hm")
    builder.end_part("thought")
    builder.end_part("text")
    builder.finish()
    builder.end()
    events = builder.take()
    read = outline(fold(decode(dialect, [encode(dialect, events)])))
    wanted = project(fold(events), dialect.capabilities)
    assert overlaps(events)
    assert comparable(read, by_kind=True) == comparable(wanted, by_kind=True)
    assert comparable(read) != comparable(wanted)
