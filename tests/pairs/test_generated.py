"""Every dialect to every dialect on generated streams: what comes out is what the two cards say, and nothing less."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge import Translator
from bridge.codec import Dialect, Fate, Feature, outline, project, registry
from bridge.model import Event, FinishReason, PartKind, fold, unfold, verify
from tests.conformance.test_conformance import context, decode, encode
from tests.strategies import answers, splits

NAMES = registry.names()
pairs = pytest.mark.parametrize(("back", "front"), [(b, f) for b in NAMES for f in NAMES])


def told(events: list[Event], dialect: Dialect) -> dict[str, Any]:
    """What a client of this dialect is told, in words that do not depend on how parts are cut and placed."""
    out = project(fold(events), dialect.card)
    return {
        "text": "".join(i[1] for i in out.items if i[0] in ("text", "refusal")),
        "reasoning": "".join(i[1] for i in out.items if i[0] == "reasoning"),
        "calls": [i[1:4] for i in out.items if i[0] == "tool_call"],
        "usage": out.usage,
        "failed": out.error is not None,
    }


@pairs
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_stream_arrives_as_the_cards_say(back: str, front: str, data: st.DataObject) -> None:
    source, target = registry.get(back), registry.get(front)
    events = data.draw(
        answers(redacted=False, interrupts=False, raw=False, choices=False, results=False, media=(), data=False)
    )
    wire = encode(source, events)
    # The backend's dialect decides what it can say at all, the frontend's what its clients are told of that.
    said = decode(source, [wire])
    translator = Translator(back, front, run_id="run1", created_at=1_700_000_000.0)
    out = b"".join(translator.feed(piece) for piece in data.draw(splits(wire))) + translator.close()
    seen = verify(decode(target, [out]))
    came, expected = told(seen, target), told(unfold(fold(said)), target)
    if expected["failed"]:
        # Calls that are held back until it is known whose they are stay back when the run fails: nobody shall run them.
        assert came.pop("calls") in ([], expected.pop("calls"))
    assert came == expected
    lost = {str(f) for f in Feature if f in target.card.answers and target.card.answer(f) is not Fate.EXACT}
    assert set(translator.lost) <= lost | {"usage", "usage_details", "choices"}


@pairs
def test_a_failure_is_never_a_success(back: str, front: str) -> None:
    source = registry.get(back)
    builder = context(None).builder()
    builder.flow(0, PartKind.TEXT, "half an answer")
    builder.end()
    wire = encode(source, builder.take())
    for cut in (len(wire), len(wire) // 2):
        translator = Translator(back, front)
        out = translator.feed(wire[:cut]) + translator.close()
        assert fold(decode(registry.get(front), [out])).failure is not None


@pairs
def test_two_runs_in_one_process_do_not_touch_each_other(back: str, front: str) -> None:
    source = registry.get(back)
    wires = []
    for word in ("one", "two"):
        builder = context(None).builder()
        for _ in range(5):
            builder.flow(0, PartKind.TEXT, f"{word} ")
        builder.finish(FinishReason.STOP)
        builder.end()
        wires.append(encode(source, builder.take()))
    alone = []
    for wire in wires:
        translator = Translator(back, front, run_id="r")
        alone.append(translator.feed(wire) + translator.close())
    both = [Translator(back, front, run_id="r") for _ in wires]
    outs = [b"", b""]
    for at in range(0, max(map(len, wires)), 7):
        for n, translator in enumerate(both):
            outs[n] += translator.feed(wires[n][at : at + 7])
    assert [o + t.close() for o, t in zip(outs, both, strict=True)] == alone
    assert outline(fold(decode(registry.get(front), [alone[0]]))).items == [("text", "one one one one one ")]
