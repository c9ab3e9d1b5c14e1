"""Stages: what changes the events of an answer between backend and client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from bridge.model import Event

StageFunction = Callable[[list[Event]], list[Event]]
"""What a stage may be, too: a function of a batch, which is called with every batch."""


class Stage:
    """Changes one batch of events after the other, on their way to the client. One stage serves one answer.

    Most batches of a stream hold nothing but deltas and heartbeats. A stage that does not change those sets
    `passes_deltas`: they then go by without a call, and the bridge may write them without waking a task.
    """

    passes_deltas: bool = False
    """True while batches of nothing but deltas and heartbeats go by unchanged. It may change with each call."""
    observes: ClassVar[bool] = False
    """True for a stage that wants to see the deltas that go by: it has a `passed` of its own."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.observes = cls.passed is not Stage.passed

    def __call__(self, events: list[Event]) -> list[Event]:
        """Return the events that take the place of these. Raising ends the run with a failure."""
        raise NotImplementedError

    def passed(self, deltas: list[Event]) -> None:
        """See deltas that went by. By default nothing is done, and this is not called."""


class _Function(Stage):
    """A function as a stage."""

    def __init__(self, function: StageFunction) -> None:
        self._function = function

    def __call__(self, events: list[Event]) -> list[Event]:
        return self._function(events)


def as_stage(function: StageFunction) -> Stage:
    """Return a function as a stage, and a stage as it is."""
    return function if isinstance(function, Stage) else _Function(function)
