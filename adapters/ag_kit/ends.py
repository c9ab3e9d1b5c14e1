"""Tells the ends of tool calls that are over from those of calls that were cut off.

A call that is open when a run fails must not get an end, though the stream closes everything before
it fails. The end of a call is therefore kept back until the next event shows whether the call was over or the run was.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.model import events as ev
from bridge.model.events import Event, MessageStatus, PartKind

_DELTAS: frozenset[type] = frozenset({ev.TextDelta, ev.ReasoningDelta, ev.ArgsDelta})
_BROKEN = (MessageStatus.FAILED, MessageStatus.CANCELED)


class CallEnds:
    """Passes events on, the ends of calls one event later. `broken` has the part ids of calls that were cut off."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self._calls: set[str] = set()
        self._ended: list[Event] = []

    def feed(self, events: Sequence[Event]) -> Sequence[Event]:
        if not self._ended:
            for event in events:  # cheaper than a set of the types, of which there is mostly one
                if type(event) not in _DELTAS:
                    break
            else:
                return events
        out: list[Event] = []
        for event in events:
            if isinstance(event, ev.PartEnded) and (self._ended or event.part_id in self._calls):
                self._ended.append(event)
                continue
            if self._ended:
                self._decide(event)
                out += self._ended
                self._ended = []
            if isinstance(event, ev.PartStarted) and event.kind is PartKind.TOOL_CALL:
                self._calls.add(event.part_id)
            out.append(event)
        return out

    def _decide(self, after: Event) -> None:
        """Calls have ended, and this event comes after their ends."""
        ended = {event.part_id for event in self._ended if isinstance(event, ev.PartEnded)}
        if isinstance(after, ev.RunFailed) or (isinstance(after, ev.MessageEnded) and after.status in _BROKEN):
            self.broken |= ended & self._calls
        self._calls -= ended
