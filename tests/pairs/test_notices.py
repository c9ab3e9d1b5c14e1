"""An event that a dialect does not know, in a good stream, is no error, whatever fields it has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Frame, FrameLike, Framing, registry
from bridge.model import PartKind, Raw, RunFailed, TextDelta, fold
from bridge.model import events as ev
from bridge.testing.wires import context, encode
from bridge.translation import framing
from bridge.translation.framing.arrays import END
from tests.cases import all_cases

NAME = {"type": "x_notice", "object": "x_notice", "event": "x_notice"}
FIELDS: tuple[dict[str, Any], ...] = (
    {"detail": "cached"},
    {"message": "searching", "code": "search"},
    {"message": "searching", "code": 7, "status": "running"},
    {"error": None, "detail": "none"},
    {"error": {}, "message": "none"},
    {"detail": [{"msg": "cached"}]},
)
DIALECTS = [
    name
    for name in registry.served()
    if registry.get(name).called and registry.get(name).framing is not Framing.MESSAGES
]


def answer() -> list[ev.Event]:
    return [
        ev.RunStarted("run1", "thread1", "m", 1_700_000_000.0),
        ev.MessageStarted("m1"),
        ev.PartStarted("p1", "m1", PartKind.TEXT),
        TextDelta("p1", "Hello "),
        TextDelta("p1", "world"),
        ev.PartEnded("p1"),
        ev.MessageEnded("m1"),
        ev.RunFinished(ended_at=1_700_000_000.0),
    ]


def events_with(dialect: str, notice: dict[str, Any], place: int) -> list[ev.Event]:
    """What the answer means with this event before its last `place` frames."""
    spoken = registry.get(dialect)
    splitter = framing.of(spoken.framing).Splitter()
    wire = encode(spoken, answer())
    frames: list[FrameLike] = [frame for frame in (*splitter.feed(wire), *splitter.close()) if frame is not END]
    data = json.dumps(notice).encode()
    named = any(isinstance(frame, Frame) and frame.event for frame in frames)
    frames.insert(len(frames) - place, Frame(data, "x_notice") if named else data)
    decoder = spoken.decoder(context(spoken.back_options()))
    return [*decoder.feed(frames), *decoder.close()]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_notice_in_a_good_stream_ends_nothing(dialect: str) -> None:
    with all_cases() as case:
        for fields in FIELDS:
            for place in (2, 3):
                with case((fields, place)):
                    events = events_with(dialect, {**NAME, **fields}, place)
                    assert not [event for event in events if isinstance(event, RunFailed)]
                    assert fold(events).text == "Hello world"


@pytest.mark.parametrize("dialect", ["anthropic-messages", "openai-chat", "openai-responses"])
def test_a_notice_travels_to_clients_of_its_dialect(dialect: str) -> None:
    """The fields that it has beside its name, which some wires write in a frame of their own."""
    for fields in FIELDS[:3]:
        events = events_with(dialect, {**NAME, **fields}, 3)
        assert [event for event in events if isinstance(event, Raw)]
        written = encode(registry.get(dialect), events)
        assert all(json.dumps(value).encode() in written for value in fields.values())


@pytest.mark.parametrize("dialect", ["anthropic-messages", "openai-chat", "openai-responses"])
@pytest.mark.parametrize(
    "error", [{"type": "error", "error": {"message": "broke"}}, {"object": "x", "error": {"message": "broke"}}]
)
def test_an_error_in_a_stream_stays_one(dialect: str, error: dict[str, Any]) -> None:
    assert isinstance(events_with(dialect, error, 3)[-1], RunFailed)
