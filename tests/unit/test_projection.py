"""`Projection`: each rule of a card by itself, and any events in any order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Feature, Losses, Support, entries
from bridge.model import Data, FileRef, FinishReason, Inline, Media, MediaKind, Origin, PartKind, StateOp, Text, Url
from bridge.model import events as ev
from bridge.toolkit import Projection
from tests.wire_scenes import SCENES
from tests.wire_scenes import events as events_of

EXACT = Capabilities(entries(ANSWER_FEATURES), entries(REQUEST_FEATURES), citations=True, logprobs=True)
PICTURE = Media(MediaKind.IMAGE, Url("https://x.test/a.png"))


def card(support: Support, *features: Feature, **more: Any) -> Capabilities:
    """A card that carries all but these features, which it carries so."""
    named: Any = {str(support.name).lower(): dict.fromkeys(features, "why")}
    return Capabilities(entries(ANSWER_FEATURES, **named), entries(REQUEST_FEATURES), **more)


def seen(events: Sequence[ev.Event], given: Capabilities, **more: Any) -> tuple[list[ev.Event], dict[str, str]]:
    """What is left of these events, and what is named as lost."""
    lost = Losses()
    projection = Projection(given, lost, **more)
    out = [each for event in events for each in projection.feed(event)]
    assert not projection.watched, "a part that has ended is watched"
    return out, lost.details


def part(kind: PartKind, *pieces: str, name: str = "p", message: str = "m", **more: Any) -> list[ev.Event]:
    made: Any = {PartKind.REASONING: ev.ReasoningDelta, PartKind.TOOL_CALL: ev.ArgsDelta}.get(kind, ev.TextDelta)
    ended = {key: more.pop(key) for key in ("signature", "redacted") if key in more}
    deltas = [made(name, piece) for piece in pieces]
    return [ev.PartStarted(name, message, kind, **more), *deltas, ev.PartEnded(name, **ended)]


def texts(events: Sequence[ev.Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, ev.TextDelta)]


ASIDE: list[tuple[Feature, ev.Event, str]] = [
    (Feature.TOOL_RESULT, ev.ToolResulted("c", [Text("12")]), ""),
    (Feature.STATE, ev.StateChanged(StateOp.SNAPSHOT, {}), ""),
    (Feature.STEP, ev.StepStarted("s"), ""),
    (Feature.STEP, ev.StepEnded("s"), ""),
    (Feature.CUSTOM, ev.Custom("mine", 1), "mine"),
    (Feature.RAW, ev.Raw("other", {"type": "x"}), "other x"),
    (Feature.USAGE, ev.UsageReported(1, 2), ""),
    (Feature.DATA, ev.ContentAdded("m", Data(1)), "dropped"),
    (Feature.INTERRUPT, ev.Interrupted("i", "why"), ""),
]


@pytest.mark.parametrize(("feature", "event", "detail"), ASIDE, ids=lambda each: str(each)[:24])
def test_what_is_dropped_is_named(feature: Feature, event: ev.Event, detail: str) -> None:
    assert seen([event], card(Support.DROP, feature)) == ([], {str(feature): detail})
    assert seen([event], EXACT) == ([event], {})
    kept, lost = seen([event], card(Support.DROP, feature), keeps=(feature,))
    assert (kept, lost) == ([event], {})


@pytest.mark.parametrize("kind", [PartKind.REASONING, PartKind.TOOL_CALL, PartKind.REFUSAL])
def test_dropped_parts_leave_nothing(kind: PartKind) -> None:
    feature = Feature(str(kind))
    assert seen(part(kind, "a", "b"), card(Support.DROP, feature)) == ([], {str(feature): ""})


def test_a_signature_is_lost_with_its_reasoning_and_without() -> None:
    signed = part(PartKind.REASONING, "hm", signature="s")
    assert seen(signed, card(Support.DROP, Feature.REASONING)) == ([], {"reasoning": "", "reasoning_signature": ""})
    out, lost = seen(signed, card(Support.DROP, Feature.REASONING_SIGNATURE))
    assert (out[-1], lost) == (ev.PartEnded("p"), {"reasoning_signature": ""})
    assert signed[-1] == ev.PartEnded("p", signature="s"), "events of others are not changed"


def test_opaque_values_that_a_wire_with_one_does_not_carry() -> None:
    both = part(PartKind.REASONING, "hm", signature="s", redacted="r")
    assert seen(both, EXACT.changed(opaque_values="one")) == (both, {"reasoning_signature": "one of two opaque values"})
    out, lost = seen(both, EXACT.changed(opaque_values="signature"))
    assert (out[-1], lost) == (ev.PartEnded("p", signature="s"), {"reasoning_signature": ""})
    for alone in ({"signature": "s"}, {"redacted": "r"}):
        events = part(PartKind.REASONING, "hm", **alone)
        assert seen(events, EXACT.changed(opaque_values="one")) == (events, {})


def test_the_id_of_a_file_in_place_of_a_url_is_named() -> None:
    events = [ev.ContentAdded("m", Media(MediaKind.FILE, FileRef("f1"))), ev.ContentAdded("m", PICTURE)]
    assert seen(events, EXACT.changed(file_ids=False)) == (events, {"file": "the file id in place of a URL"})
    assert seen(events, EXACT) == (events, {})


def test_refusals_media_and_data_become_text() -> None:
    given = card(Support.TEXT, Feature.REFUSAL, Feature.IMAGE, Feature.DATA)
    events = [*part(PartKind.REFUSAL, "No."), ev.ContentAdded("m", PICTURE), ev.ContentAdded("m", Data({"a": 1}))]
    out, lost = seen(events, given)
    assert {event.kind for event in out if isinstance(event, ev.PartStarted)} == {PartKind.TEXT}
    assert texts(out) == ["No.", "![image](https://x.test/a.png)", '{"a":1}']
    assert lost == dict.fromkeys(("refusal", "image", "data"), "sent as text")


def test_media_that_are_not_inline_become_text_where_only_those_are_carried() -> None:
    inline = ev.ContentAdded("m", Media(MediaKind.IMAGE, Inline("iVBORw0KGgo=")))
    out, lost = seen([inline, ev.ContentAdded("m", PICTURE)], card(Support.DROP, inline_media_only=True))
    assert (out[0], texts(out), lost) == (inline, ["![image](https://x.test/a.png)"], {"image": "sent as text"})


def test_what_came_from_the_same_dialect_in_a_form_of_its_own_is_passed_on() -> None:
    own = ev.ContentAdded("m", Media(MediaKind.IMAGE, Url("u"), extras={"here": {"whole": {}}}))
    assert seen([own], card(Support.TEXT, Feature.IMAGE), dialect="here") == ([own], {})
    raw = ev.Raw("here", {})
    assert seen([raw], card(Support.DROP, Feature.RAW), dialect="here") == ([raw], {})


def test_one_audio_at_most() -> None:
    audio = ev.ContentAdded("m", Media(MediaKind.AUDIO, Url("https://x.test/a.wav")))
    out, lost = seen([audio, audio], card(Support.DROP, audio_last=True))
    assert (out[0], len(texts(out)), lost) == (audio, 1, {"audio": "sent as text"})


def test_the_origin_and_the_model() -> None:
    given = card(Support.DROP, Feature.TOOL_ORIGIN, Feature.MODEL)
    out, lost = seen([ev.RunStarted("r", model="m"), *part(PartKind.TOOL_CALL, "{}", origin=Origin.MCP)], given)
    assert isinstance(out[0], ev.RunStarted)
    assert isinstance(out[1], ev.PartStarted)
    assert (out[0].model, out[1].origin, lost) == (None, Origin.FUNCTION, {"model": "", "tool_origin": ""})


def test_texts_of_two_messages_are_separated_and_those_of_one_are_not() -> None:
    given = card(Support.DROP, Feature.PART_BORDERS, separator="|")
    events = [
        *part(PartKind.TEXT, "", "a", name="1"),
        *part(PartKind.TEXT, "b", name="2"),
        *part(PartKind.TEXT, name="3", message="n"),
        *part(PartKind.TEXT, "c", "d", name="4", message="o"),
        ev.ToolResulted("c", []),
        *part(PartKind.TEXT, "e", name="5", message="p"),
    ]
    out, lost = seen(events, given)
    assert (texts(out), lost) == (["", "a", "b", "|c", "d", "e"], {"part_borders": ""})
    assert texts(seen(events, EXACT)[0]) == ["", "a", "b", "c", "d", "e"]


def test_a_result_that_is_left_out_separates_the_texts_of_one_message() -> None:
    given = card(Support.DROP, Feature.PART_BORDERS, Feature.TOOL_RESULT, separator="|")
    first, result = part(PartKind.TEXT, "a", name="1"), ev.ToolResulted("c", [])
    second, third = part(PartKind.TEXT, "b", "c", name="2"), part(PartKind.TEXT, "d", name="3")
    assert texts(seen([result, *first, result, result, *second, *third], given)[0]) == ["a", "|b", "c", "d"]
    shown = card(Support.DROP, Feature.PART_BORDERS, separator="|")
    assert texts(seen([*first, result, *second], shown)[0]) == ["a", "b", "c"]


def test_refusals_that_become_text_may_stay_marked() -> None:
    given = card(Support.TEXT, Feature.REFUSAL).changed(drop={Feature.PART_BORDERS: "why"}, separator="|")
    beside = part(PartKind.REFUSAL, "Why.", name="3", message="n", extras={"here": {"explanation": True}})
    events = [*part(PartKind.TEXT, "a", name="1"), *part(PartKind.REFUSAL, "No.", name="2", message="n"), *beside]
    out, lost = seen(events, given, dialect="here", marks_refusals=True)
    kinds = [event.kind for event in out if isinstance(event, ev.PartStarted)]
    assert kinds == [PartKind.TEXT, PartKind.REFUSAL, PartKind.REFUSAL]
    assert (texts(out), lost) == (["a", "|No.", "Why."], {"refusal": "sent as text", "part_borders": ""})


def test_media_without_a_form_are_what_the_card_says() -> None:
    for given, wanted, loss in (
        (card(Support.TEXT, Feature.IMAGE), ["![image](https://x.test/a.png)"], "sent as text"),
        (card(Support.DROP, Feature.IMAGE), [], "dropped"),
        (EXACT, ["![image](https://x.test/a.png)"], "sent as text"),
        (EXACT.changed(other_media=Support.DROP), [], "dropped"),
    ):
        lost = Losses()
        projection = Projection(given, lost, keeps=(Feature.IMAGE,))
        event = ev.ContentAdded("m", PICTURE)
        assert list(projection.feed(event)) == [event]
        assert (texts(list(projection.without_form(event))), lost.details) == (wanted, {"image": loss})


def test_each_choice_has_its_own_separators() -> None:
    given = card(Support.DROP, Feature.PART_BORDERS, separator="|")
    events = [
        ev.MessageStarted("m"),
        ev.MessageStarted("n", choice=1),
        *part(PartKind.TEXT, "a", name="1"),
        *part(PartKind.TEXT, "b", name="2", message="n", choice=1),
        *part(PartKind.TEXT, "c", name="3"),
    ]
    assert texts(seen(events, given)[0]) == ["a", "b", "c"]


def test_questions_come_last_unless_a_call_tells_them() -> None:
    given = card(Support.TEXT, Feature.INTERRUPT)
    asked = [ev.Interrupted("1", "first?"), ev.Interrupted("2", "second?", call_id="c")]
    events = [*asked, *part(PartKind.TOOL_CALL, "{}", call_id="c", name="p"), ev.RunFinished(FinishReason.INTERRUPTED)]
    out, lost = seen(events, given)
    assert len(texts(out)) == 1
    assert "first?" in texts(out)[0]
    assert (type(out[-1]), lost) == (ev.RunFinished, {"interrupt": "sent as text"})
    canceled, _ = seen([*asked, ev.RunFinished(FinishReason.CANCELED)], given)
    assert texts(canceled) == []


def test_ends_that_are_dropped_or_refused() -> None:
    end = ev.RunFinished(FinishReason.LENGTH)
    assert seen([end], card(Support.DROP, Feature.FINISH_LENGTH)) == ([end], {"finish_length": ""})
    out, lost = seen([ev.RunFinished(FinishReason.CANCELED, 5.0)], card(Support.REFUSE, Feature.FINISH_CANCELED))
    assert isinstance(out[0], ev.RunFailed)
    assert (out[0].error.code, out[0].ended_at, lost) == ("canceled", 5.0, {"finish_canceled": "sent as an error"})


@pytest.mark.parametrize("seed", range(20))
def test_any_card_takes_any_answer(seed: int) -> None:
    """Every recorded kind of answer through cards made at random: nothing raises, and an exact card changes nothing."""
    chosen = random.Random(seed)
    supports = [Support.EXACT, Support.TEXT, Support.DROP, Support.REFUSE]
    groups: dict[str, dict[Feature, str]] = {"text": {}, "drop": {}, "refuse": {}}
    for feature in ANSWER_FEATURES:
        support = chosen.choice(supports)
        if support is not Support.EXACT:
            groups[support.name.lower()][feature] = "why"
    some: Any = groups
    given = Capabilities(entries(ANSWER_FEATURES, **some), entries(REQUEST_FEATURES), separator="\n\n")
    for scene in SCENES.values():
        events = events_of(scene)
        out, _ = seen(events, given)
        assert type(out[-1]) in ev.TERMINAL
        assert seen(events, EXACT) == (list(events), {})
