"""Events as lines: each on one, indented by what it belongs to, and short whatever it holds."""

from __future__ import annotations

from hypothesis import given

from bridge import (
    ContentAdded,
    ErrorCode,
    Event,
    Failure,
    Inline,
    Media,
    MediaKind,
    MessageStarted,
    PartKind,
    PartStarted,
    RunFailed,
    RunStarted,
    Text,
    TextDelta,
    ToolResulted,
    pretty,
)
from tests.strategies import answers


def test_a_stream_reads_from_the_top_down() -> None:
    events: list[Event] = [
        RunStarted("run-1", model="m"),
        MessageStarted("m-1"),
        PartStarted("p-1", "m-1", PartKind.TEXT),
        TextDelta("p-1", "two\nlines"),
        ToolResulted("c-1", [Text("ok")], is_error=True),
        RunFailed(Failure(ErrorCode.OVERLOADED, "busy")),
    ]
    assert pretty(events).splitlines() == [
        "RunStarted 'run-1' model='m'",
        "  MessageStarted 'm-1'",
        "    PartStarted 'p-1' 'm-1' text",
        "      TextDelta 'p-1' 'two\\nlines'",
        "  ToolResulted 'c-1' [(Text 'ok')] is_error=True",
        "RunFailed (Failure overloaded 'busy')",
    ]
    assert pretty(events[0]) == "RunStarted 'run-1' model='m'"


def test_a_picture_does_not_fill_the_screen() -> None:
    line = pretty(ContentAdded("m-1", Media(MediaKind.IMAGE, Inline("A" * 5_000_000))))
    assert len(line) < 200
    assert "5000002 characters" in line


@given(answers())
def test_every_event_has_a_line(events: list[Event]) -> None:
    assert [line.split()[0] for line in pretty(events).split("\n")] == [type(e).__name__ for e in events]
