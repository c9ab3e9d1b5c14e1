"""Finds the tool calls that a limit cut off in the middle of their arguments.

Backends end such a call like any other. Only later does the finish reason show that the answer reached its length limit
or that a filter stopped it. Clients run complete calls, so the end of a call has to wait until the reason is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bridge.model import events as ev
from bridge.model.events import Event, FinishReason, MessageStatus, PartKind
from bridge.model.jsontext import loads

CUT: dict[FinishReason, str] = {
    FinishReason.LENGTH: "The answer was cut at its length limit.",
    FinishReason.CONTENT_FILTER: "The answer was stopped by a content filter.",
}
"""Finish reason for which an answer may be cut in the middle of a call -> the message for the client."""

CUT_CALL = "The answer was cut in the middle of a tool call."
"""The message where the run has no such reason."""


class CutCalls:
    """Passes events on. The end of a call that was cut off has the status INCOMPLETE.

    The end of a call whose arguments are not valid JSON is sent with the first event that shows why it ended; events in
    between wait. Nothing waits after the end of the run.
    """

    def __init__(self) -> None:
        self._arguments: dict[str, list[str]] = {}
        self._invalid: set[str] = set()
        self._waiting: list[Event] = []

    def feed(self, events: Sequence[Event]) -> Sequence[Event]:
        """Add these events and return those that can be sent now."""
        if not (self._waiting or self._arguments or ev.PartStarted in map(type, events)):
            return events
        out: list[Event] = []
        for event in events:
            match event:
                case ev.Heartbeat():
                    out.append(event)
                    continue
                case ev.PartStarted(kind=PartKind.TOOL_CALL):
                    self._arguments[event.part_id] = []
                case ev.ArgsDelta():
                    self._arguments[event.part_id].append(event.text)
                case ev.PartEnded():
                    pieces = self._arguments.pop(event.part_id, None)
                    if pieces is not None and not is_json("".join(pieces)):
                        self._invalid.add(event.part_id)
            if self._invalid and _is_undecided(event):
                self._waiting.append(event)
                continue
            if self._waiting:
                out += map(self._ended, self._waiting) if _is_cut(event) else self._waiting
                self._waiting = []
                self._invalid.clear()
            out.append(event)
        return out

    def _ended(self, event: Event) -> Event:
        """The event, now that the run was cut."""
        if isinstance(event, ev.PartEnded) and event.part_id in self._invalid:
            return replace(event, status=MessageStatus.INCOMPLETE)
        return event


def _is_undecided(event: Event) -> bool:
    """Return whether it is still unknown after this event why a call has ended."""
    if isinstance(event, ev.MessageEnded):
        return event.status is MessageStatus.COMPLETED and event.reason not in CUT
    return isinstance(event, (ev.PartEnded, ev.UsageReported))


def _is_cut(event: Event) -> bool:
    if isinstance(event, ev.MessageEnded):
        return True
    return isinstance(event, ev.RunFailed) or (isinstance(event, ev.RunFinished) and event.reason in CUT)


def is_json(text: str) -> bool:
    """Return whether this text, arguments of a call for instance, is valid JSON."""
    try:
        loads(text)
    except ValueError:
        return False
    return True
