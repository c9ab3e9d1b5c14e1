"""A translation alone: its facts, its limits, and an encoder that breaks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bridge.contract import Context, FrameLike, registry
from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Event,
    MessageEnded,
    MessageStarted,
    PartEnded,
    PartKind,
    PartStarted,
    RunFailed,
    RunFinished,
    RunStarted,
    TextDelta,
    UsageReported,
    verify,
)
from bridge.model.events import FinishReason
from bridge.toolkit import Encoder
from bridge.translation import AnswerDecoder, Reader, Stage, Translation, Writer

HEAD = RunStarted("r")
OPEN: list[Event] = [RunStarted("r"), MessageStarted("m"), PartStarted("p", "m", PartKind.TEXT), TextDelta("p", "Hi")]
CLOSED: list[Event] = [PartEnded("p"), MessageEnded("m"), UsageReported(1, 2), RunFinished(FinishReason.STOP)]


def copy(events: list[Event]) -> list[Event]:
    return list(events)


def test_the_facts_of_a_run() -> None:
    reader = Reader(lambda: HEAD, clock=lambda: 7.0)
    assert (reader.ended, reader.has_content) == (False, False)
    assert reader.head() == [HEAD]
    assert reader.take(copy(OPEN)) == OPEN[1:], "the head is out"
    assert (reader.ended, reader.has_content) == (False, True)
    end = [*CLOSED[:-1], RunFinished(FinishReason.STOP)]
    seen = reader.take(end)
    assert (reader.ended, reader.finish_reason, reader.failure) == (True, "stop", None)
    assert reader.usage is not None
    assert reader.usage.output == 2
    assert isinstance(seen[-1], RunFinished)
    assert seen[-1].ended_at == 7.0
    assert reader.take(copy(OPEN)) == [], "nothing follows the terminal event"
    assert reader.close() == []
    assert reader.fail(Failure(ErrorCode.INTERNAL, "late")) == []


@pytest.mark.parametrize("cut", range(len(OPEN) + 1))
def test_an_answer_that_stops_anywhere_ends_well(cut: int) -> None:
    reader = Reader(lambda: HEAD)
    events = reader.take(copy(OPEN[:cut])) + reader.close()
    verify(events)
    assert isinstance(events[-1], RunFailed)
    assert events[-1].error.code is ErrorCode.TRUNCATED_STREAM


def test_stages_that_pass_deltas_are_not_called_with_them() -> None:
    class Resting(Stage):
        passes_deltas = True
        asked = 0

        def __call__(self, events: list[Event]) -> list[Event]:
            self.asked += 1
            return events

    resting = Resting()
    reader = Reader(lambda: HEAD, [resting])
    reader.take(copy(OPEN))
    reader.take([TextDelta("p", "more")])
    assert resting.asked == 1


class BrokenWriter(Writer):
    """Its encoder fails at a word, once."""

    def frames(self, events: Sequence[Event]) -> list[FrameLike]:
        if any(isinstance(event, TextDelta) and event.text == "bad" for event in events):
            raise ZeroDivisionError("a bug in an encoder")
        return super().frames(events)


def test_an_encoder_that_breaks_ends_the_stream_with_a_failure() -> None:
    dialect = registry.get("ag-ui")
    translation = Translation(Reader(lambda: HEAD), BrokenWriter(dialect, Context("r")))
    out = translation.write(translation.reader.take(copy(OPEN)))
    out += translation.write(translation.reader.take([TextDelta("p", "bad")]))
    out += translation.write(translation.reader.take(copy(CLOSED)))
    assert translation.reader.failure is not None
    assert translation.reader.failure.code is ErrorCode.INTERNAL
    decoder = AnswerDecoder(dialect, Context("r2"))
    events = verify(decoder.receive(out) + decoder.close())
    assert isinstance(events[-1], RunFailed)


def test_a_flood_of_white_space_before_an_answer_is_read_once() -> None:
    """What has not shown yet what it is must not be joined again with every read."""
    looked: list[int] = []
    decoder = AnswerDecoder(registry.get("openai-chat"), Context("r"))

    class Framing:
        CONTENT_TYPE = "text/event-stream"

        def is_stream(self, start: bytes) -> bool | None:
            looked.append(len(start))
            return None

    decoder._framing = Framing()  # type: ignore[assignment]
    for _ in range(1000):
        assert decoder.receive(b"   ") == []
    assert sum(looked) < 10_000


def test_encoders_are_made_once() -> None:
    made: list[Encoder] = []
    dialect = registry.get("openai-chat")

    class Counting(type(dialect)):  # type: ignore[misc]
        def encoder(self, context: Context) -> Encoder:
            made.append(super().encoder(context))
            return made[-1]

    translation = Translation(Reader(lambda: HEAD), Writer(Counting(), Context("r")))
    translation.write(translation.reader.take(copy(OPEN)))
    translation.heartbeat()
    translation.close()
    assert len(made) == 1
