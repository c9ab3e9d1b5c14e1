"""What few clients can show of an answer is carried to every client, or named as lost: streamed and whole.

Citations of web pages, log probabilities, refusals and cached tokens.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Context, Frame, Losses, registry
from bridge.model import (
    Event,
    FinishReason,
    MessageEnded,
    MessageStarted,
    MessageStatus,
    PartEnded,
    PartKind,
    PartStarted,
    RunFinished,
    RunStarted,
    TextDelta,
    UsageReported,
)
from bridge.testing.wires import answers_whole
from bridge.toolkit.citations import with_citations
from bridge.toolkit.logprobs import shared_logprobs

FRONTS = [name for name in registry.called() if registry.get(name).served]
WHOLE = [name for name in FRONTS if answers_whole(registry.get(name))]
PAGE = "https://pages.example/paris"
TEXT = "Paris is large."


def answer(kind: PartKind = PartKind.TEXT, **facts: Any) -> list[Event]:
    return [
        RunStarted("r", "t", "m", 1.0),
        MessageStarted("m"),
        PartStarted("p", "m", kind),
        TextDelta("p", TEXT, facts.get("piece")),
        PartEnded("p", extras=facts.get("end")),
        MessageEnded("m", MessageStatus.COMPLETED, FinishReason.STOP),
        *([facts["usage"]] if "usage" in facts else []),
        RunFinished(FinishReason.STOP, 2.0),
    ]


CITED = answer(end=with_citations(None, [{"type": "url_citation", "url": PAGE, "title": "Paris"}]))
JUDGED = answer(piece=shared_logprobs([{"token": TEXT, "logprob": -0.4375, "bytes": None, "top_logprobs": []}]))
REFUSED = answer(PartKind.REFUSAL)
CACHED = answer(usage=UsageReported(9001, 5, 9006, cached=7654))
FACTS: dict[str, tuple[list[Event], str, str]] = {
    "citation": (CITED, PAGE, "raw"),
    "log probability": (JUDGED, "-0.4375", "raw"),
    "refusal": (REFUSED, TEXT, "refusal"),
    "cached tokens": (CACHED, "7654", "usage_details"),
}
"""What it is: the answer, what a client that gets it can find, and the name of its loss."""


def streamed(front: str, events: list[Event]) -> tuple[str, list[str]]:
    lost = Losses()
    encoder = registry.get(front).encoder(context(front, lost))
    frames = [frame for event in events for frame in encoder.encode([event])]
    return "".join(map(text_of_frame, frames)), list(lost.names)


def whole(front: str, events: list[Event]) -> tuple[str, list[str]]:
    lost = Losses()
    return registry.get(front).assemble(events, context(front, lost)).body.decode(), list(lost.names)


def context(front: str, lost: Losses) -> Context:
    return Context("r", "t", 1.0, registry.get(front).front_options(), "m", None, lost)


def text_of_frame(frame: Any) -> str:
    data = frame.data if isinstance(frame, Frame) else frame
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else json.dumps(str(data))


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("front", FRONTS)
def test_it_is_carried_or_named_in_a_stream(front: str, fact: str) -> None:
    events, sign, loss = FACTS[fact]
    shown, lost = streamed(front, events)
    assert (sign in shown) != (loss in lost) or (fact == "refusal" and loss in lost), (shown, lost)


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("front", WHOLE)
def test_it_is_carried_or_named_in_a_whole_answer(front: str, fact: str) -> None:
    events, sign, loss = FACTS[fact]
    shown, lost = whole(front, events)
    assert (sign in shown) != (loss in lost) or (fact == "refusal" and loss in lost), (shown, lost)


def test_a_page_that_is_cited_twice_is_one_source_of_the_ai_sdk() -> None:
    cited = [*CITED[:5], PartStarted("q", "m", PartKind.TEXT), TextDelta("q", "x"), CITED[4], *CITED[5:]]
    cited[7] = PartEnded("q", extras=CITED[4].extras)
    shown, _ = streamed("ai-sdk-ui", cited)
    assert shown.count('"source-url"') == 1
    assert {"type": "source-url", "sourceId": "source-1", "url": PAGE, "title": "Paris"} in [
        json.loads(frame) for frame in frames_of("ai-sdk-ui", cited) if frame.startswith("{")
    ]


def frames_of(front: str, events: list[Event]) -> list[str]:
    encoder = registry.get(front).encoder(context(front, Losses()))
    return [text_of_frame(frame) for frame in encoder.encode(events)]
