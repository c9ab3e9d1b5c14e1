"""Ends a stream that its decoder did not end.

When the pipeline must end a run itself (a stage failed, a timeout passed, the server stops), it closes what the client
has open before the terminal event. `OpenParts` follows the stream and knows what that is.
"""

from __future__ import annotations

from bridge.errors import ErrorCode, Failure
from bridge.model import events as ev
from bridge.model.events import TERMINAL, Event, FinishReason, MessageStatus

PIECES: frozenset[type] = frozenset({ev.TextDelta, ev.ReasoningDelta, ev.ArgsDelta, ev.Heartbeat})
"""Events that open nothing and end nothing."""


class OpenParts:
    """The open messages and parts of a stream that was sent. Batches of deltas cost one set operation."""

    __slots__ = ("_messages", "_parts", "ended", "started")

    def __init__(self) -> None:
        self.started = False
        self.ended = False
        self._messages: dict[str, int] = {}  # with the choice of each
        self._parts: dict[str, None] = {}

    def feed(self, events: list[Event]) -> None:
        if PIECES.issuperset(map(type, events)):
            return
        if type(events[-1]) in TERMINAL:
            # Open parts matter only at the end, and most short answers are over with one batch.
            self.started = self.ended = True
            return
        self.started = _walk(events, self._parts, self._messages) or self.started

    def fail(self, failure: Failure, head: ev.RunStarted | None) -> list[Event]:
        """The events that end the run with this failure, to be fed in their turn; `head` is for a run without one."""
        if self.ended:
            return []
        end = ev.RunFailed(failure)
        begun = [] if self.started or head is None else [head]
        return [*begun, *_closers(self._parts, self._messages, _status(end)), end]

    def closers_after(self, events: list[Event], end: Event) -> list[Event]:
        """The events that close what is open once these, which hold no terminal event, were fed: as `end`, the terminal
        event, says how. Feeds nothing.
        """
        parts, messages = dict(self._parts), dict(self._messages)
        _walk(events, parts, messages)
        return _closers(parts, messages, _status(end))


def _walk(events: list[Event], parts: dict[str, None], messages: dict[str, int]) -> bool:
    """Notes what these events open and close; True when the run starts among them."""
    started = False
    for event in events:
        kind = type(event)  # compared by identity: a `match` of classes costs three times as much, in every run
        if kind is ev.PartStarted:
            parts[event.part_id] = None  # type: ignore[union-attr]
        elif kind is ev.PartEnded:
            parts.pop(event.part_id, None)  # type: ignore[union-attr]
        elif kind is ev.MessageStarted:
            messages[event.message_id] = event.choice  # type: ignore[union-attr,index]
        elif kind is ev.MessageEnded:
            messages.pop(event.message_id, None)  # type: ignore[union-attr,arg-type]
        elif kind is ev.RunStarted:
            started = True
    return started


def _status(end: Event) -> MessageStatus:
    """How what is open at the end of a run ends."""
    if isinstance(end, ev.RunFailed):
        return MessageStatus.CANCELED if end.error.code is ErrorCode.CANCELED else MessageStatus.FAILED
    canceled = isinstance(end, ev.RunFinished) and end.reason is FinishReason.CANCELED
    return MessageStatus.CANCELED if canceled else MessageStatus.COMPLETED


def _closers(parts: dict[str, None], messages: dict[str, int], status: MessageStatus) -> list[Event]:
    closed: list[Event] = [ev.PartEnded(part, status=status) for part in parts]
    return [*closed, *(ev.MessageEnded(message, status, choice=choice) for message, choice in messages.items())]
