"""Recorded streams of real servers become what a reader of them ends up with, whichever way they are cut."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from bridge.dialects.langgraph import dialect
from bridge.errors import ErrorCode
from bridge.model import Inline, Media, RunFailed, StateChanged, Text, fold, result_text, verify
from bridge.model import events as ev
from bridge.model.jsontext import loads
from bridge.testing.wires import decode
from tests.recorded import CAPTURES, body

FOLDER = CAPTURES / "langgraph"
CASES: dict[str, Any] = {case["name"]: case for case in json.loads((FOLDER / "index.json").read_text())["captures"]}
STREAMS = [name for name, case in CASES.items() if case["expect"] is not None]


def wire(name: str) -> bytes:
    return body(FOLDER / f"{name}.response.http")


def test_there_are_streams() -> None:
    assert len(STREAMS) > 25


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_says_what_was_seen_of_it(name: str) -> None:
    """What the recording's index has was found by another reader than ours, which asked for the run's status, too."""
    expect, events = CASES[name]["expect"], verify(decode(dialect, [wire(name)]))
    answer = fold(events)
    texts = ["".join(p.text for p in m.parts if isinstance(p, Text)) for m in answer.messages]
    assert "\n\n".join(filter(None, texts)) == expect["text"]
    assert answer.reasoning == expect["reasoning"]
    assert [{"call_id": c.call_id, "name": c.name, "arguments": loads(c.arguments)} for c in answer.calls] == expect[
        "tool_calls"
    ]
    results = [{"call_id": r.call_id, "value": result_text(r.parts), "is_error": r.is_error} for r in answer.results]
    assert results == expect["tool_results"]
    media = [p for p in answer.media if isinstance(p, Media)]
    kinds = [{"kind": str(p.kind), "mime": p.mime, "source": "inline"} for p in media if isinstance(p.source, Inline)]
    assert kinds == expect["media"]
    assert [e.value for e in answer.events if isinstance(e, ev.Custom)] == expect["custom"]
    states = [e.value for e in answer.events if isinstance(e, StateChanged)]
    assert (states[-1] if states else None) == expect["state"]
    assert [{"id": i.interrupt_id, "value": i.payload} for i in answer.interrupts] == expect["interrupts"]
    usage = expect["usage"]
    if answer.usage is None:
        assert usage is None
    else:
        told = (
            answer.usage.input,
            answer.usage.output,
            answer.usage.total,
            answer.usage.cached,
            answer.usage.reasoning,
        )
        assert told == tuple(usage[key] for key in ("input", "output", "total", "cached", "reasoning"))
    if name == "cancelled":
        assert answer.failure is not None
        assert answer.failure.code is ErrorCode.TRUNCATED_STREAM, "only the run says that it was canceled"
    elif expect["error"]:
        assert answer.failure is not None
        assert answer.failure.code == expect["error"]
        assert expect.get("message_holds", "") in answer.failure.message
    else:
        assert answer.failure is None
        assert answer.reason == expect["finish_reason"]


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_becomes_the_same_events_wherever_it_is_cut(name: str) -> None:
    data = wire(name)
    whole = verify(decode(dialect, [data]))
    chance = random.Random(len(data))
    for _ in range(2):
        cuts = sorted(chance.sample(range(len(data) + 1), 20))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert decode(dialect, pieces) == whole


@pytest.mark.parametrize("name", [name for name in STREAMS if CASES[name]["expect"]["error"] is None])
def test_a_stream_that_is_cut_within_a_step_is_no_complete_answer(name: str) -> None:
    data = wire(name)
    events = data.replace(b"\r\n", b"\n").split(b"\n\n")
    for place, event in enumerate(events):
        if event.startswith(b"event: messages"):
            cut = b"\n\n".join(events[: place + 1]) + b"\n\n"
            assert isinstance(verify(decode(dialect, [cut]))[-1], RunFailed)
