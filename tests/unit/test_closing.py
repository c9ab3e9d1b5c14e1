"""Wherever a run is cut off, it ends well."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import ErrorCode, Failure
from bridge.model import (
    Event,
    Heartbeat,
    MessageEnded,
    MessageStarted,
    MessageStatus,
    PartEnded,
    PartKind,
    PartStarted,
    RunFailed,
    RunStarted,
    TextDelta,
    verify,
)
from bridge.model.closing import OpenParts
from bridge.model.events import TERMINAL
from tests.strategies import answers, batches

HEAD = RunStarted("run-1")
FAILURE = Failure(ErrorCode.RUN_TIMEOUT, "too long")


@given(st.data())
def test_any_beginning_of_a_stream_ends_well(data: st.DataObject) -> None:
    events = data.draw(answers(max_actions=12))
    kept = events[: data.draw(st.integers(0, len(events)))]
    parts = OpenParts()
    for batch in data.draw(batches(kept)):
        parts.feed(batch)
    tail = parts.fail(FAILURE, HEAD)
    verify(kept + tail)
    parts.feed(tail)
    assert parts.started
    assert parts.ended
    if kept and type(kept[-1]) in TERMINAL:
        assert tail == []
    else:
        assert tail[-1] == RunFailed(FAILURE)
    assert parts.fail(FAILURE, HEAD) == [], "a run ends once"


def test_the_head_comes_first_when_nothing_went_out() -> None:
    parts = OpenParts()
    parts.feed([Heartbeat()])
    assert not parts.started
    assert parts.fail(FAILURE, HEAD) == [HEAD, RunFailed(FAILURE)]


@pytest.mark.parametrize(
    ("code", "status"),
    [(ErrorCode.CANCELED, MessageStatus.CANCELED), (ErrorCode.BACKEND_ERROR, MessageStatus.FAILED)],
)
def test_what_is_open_ends_in_the_order_in_which_it_began(code: ErrorCode, status: MessageStatus) -> None:
    begun: list[Event] = [
        HEAD,
        MessageStarted("a"),
        MessageStarted("b"),
        PartStarted("1", "b", PartKind.TEXT),
        PartStarted("2", "a", PartKind.TEXT),
        PartStarted("3", "a", PartKind.TEXT),
        PartEnded("2"),
        TextDelta("3", "x"),
    ]
    parts = OpenParts()
    parts.feed(begun)
    assert not parts.ended
    failure = Failure(code, "x")
    assert parts.fail(failure, HEAD) == [
        PartEnded("1", status=status), PartEnded("3", status=status),
        MessageEnded("a", status), MessageEnded("b", status), RunFailed(failure)
    ]  # fmt: skip
