"""No event changes after it was emitted, and what a run leaves open is closed as the run ends."""

from __future__ import annotations

from copy import deepcopy

import pytest

from bridge.contract import Context, Losses, registry
from bridge.dialects.openai_responses.compaction import Compaction
from bridge.errors import ErrorCode, Failure
from bridge.model import Event, FinishReason, MessageStatus, PartKind
from bridge.model import events as ev
from bridge.run.attempt import _ShowThread
from bridge.translation import Reader, Stage
from bridge.translation.stage import as_stage

OPEN = [
    ev.MessageStarted("m1"),
    ev.PartStarted("p1", "m1", PartKind.TOOL_CALL, "c1", "f"),
    ev.ArgsDelta("p1", "{}"),
]


class WithoutEnds(Stage):
    """A stage that swallows the ends of parts and messages, and of the run."""

    def __init__(self, *, run: bool) -> None:
        self._left_out = (ev.PartEnded, ev.MessageEnded, *((ev.RunFinished, ev.RunFailed) if run else ()))

    def __call__(self, events: list[Event]) -> list[Event]:
        return [event for event in events if not isinstance(event, self._left_out)]


def read(end: Event, *, swallow_run: bool) -> list[Event]:
    reader = Reader(lambda: ev.RunStarted("run1"), [WithoutEnds(run=swallow_run)], clock=lambda: 7.0)
    events = [ev.RunStarted("run1"), *OPEN, ev.PartEnded("p1"), ev.MessageEnded("m1"), end]
    before = deepcopy(events)
    out = reader.take(events)
    assert events == before, "the backend's events changed"
    return out


@pytest.mark.parametrize("swallow_run", [False, True])
@pytest.mark.parametrize(
    ("end", "status"),
    [
        (ev.RunFinished(), MessageStatus.COMPLETED),
        (ev.RunFinished(FinishReason.LENGTH), MessageStatus.COMPLETED),
        (ev.RunFinished(FinishReason.CANCELED), MessageStatus.CANCELED),
        (ev.RunFailed(Failure(ErrorCode.BACKEND_ERROR, "broke")), MessageStatus.FAILED),
        (ev.RunFailed(Failure(ErrorCode.CANCELED, "stopped")), MessageStatus.CANCELED),
    ],
)
def test_what_is_open_is_closed_as_the_run_ends(end: Event, status: MessageStatus, swallow_run: bool) -> None:
    out = read(end, swallow_run=swallow_run)
    part, message = (next(e for e in out if isinstance(e, kind)) for kind in (ev.PartEnded, ev.MessageEnded))
    assert (part.status, message.status) == (status, status)
    assert type(out[-1]) is type(end)
    assert out[-1].ended_at == 7.0


@pytest.mark.parametrize("taken", [5, 6])
def test_a_stage_that_changes_the_list_itself_leaves_nothing_open(taken: int) -> None:
    """An answer in one batch, in which a heartbeat takes the place of an end."""

    def spoil(events: list[Event]) -> list[Event]:
        events[taken - 1] = ev.Heartbeat()
        return events

    reader = Reader(lambda: ev.RunStarted("run1"), [as_stage(spoil)])
    out = reader.take([ev.RunStarted("run1"), *OPEN, ev.PartEnded("p1"), ev.MessageEnded("m1"), ev.RunFinished()])
    kinds = [type(event) for event in out]
    assert (kinds.count(ev.PartEnded), kinds.count(ev.MessageEnded), kinds[-1]) == (1, 1, ev.RunFinished)


def test_an_answer_in_one_batch_that_stages_leave_alone_is_passed_on_as_it_is() -> None:
    events = [ev.RunStarted("run1"), *OPEN, ev.PartEnded("p1"), ev.MessageEnded("m1"), ev.RunFinished()]
    assert Reader(lambda: ev.RunStarted("run1"), [as_stage(lambda batch: batch)]).take(events) is events


def test_the_clients_thread_is_named_in_a_copy() -> None:
    begun = ev.RunStarted("run1", "theirs")
    [shown] = _ShowThread("ours")([begun])
    assert (begun.thread_id, shown.thread_id) == ("theirs", "ours")


def test_a_compaction_ends_the_run_in_a_copy() -> None:
    end = ev.RunFinished(FinishReason.TOOL_CALLS)
    text = [ev.PartStarted("p", "m", PartKind.TEXT), ev.TextDelta("p", "what was said"), end]
    out = Compaction(lambda kind: kind)(text)
    assert (end.reason, out[-1].reason) == (FinishReason.TOOL_CALLS, FinishReason.STOP)


@pytest.mark.parametrize("dialect", [name for name in registry.called() if registry.get(name).served])
def test_encoders_change_no_event(dialect: str) -> None:
    spoken = registry.get(dialect)
    context = Context("run1", "thread1", 1.0, spoken.front_options(), "m", None, Losses())
    ends = [ev.PartEnded("p1", extras={dialect: {"x": 1}}), ev.MessageEnded("m1")]
    begun, end = ev.RunStarted("run1", extras={dialect: {"id": "i"}}), ev.RunFinished(FinishReason.TOOL_CALLS)
    events = [begun, *OPEN, *ends, end]
    before = deepcopy(events)
    encoder = spoken.encoder(context)
    encoder.encode(events)
    assert events == before
