"""Is this stream of events well formed?

The rules (docs/architecture.md, "The event model"): `RunStarted` first; exactly one terminal event, last; a part is
inside an open message and a delta names an open part of its kind; what is inside a message has its choice; before a
terminal event everything is closed; `RunFinished(interrupted)` follows at least one `Interrupted`. Several messages and
several parts may be open at once.
`Heartbeat` may occur anywhere before the terminal event.
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.model import events as ev
from bridge.model.events import Event, FinishReason, PartKind

_DELTA_KINDS: dict[type, frozenset[PartKind]] = {
    ev.TextDelta: frozenset({PartKind.TEXT, PartKind.REFUSAL}),
    ev.ReasoningDelta: frozenset({PartKind.REASONING}),
    ev.ArgsDelta: frozenset({PartKind.TOOL_CALL}),
}


class GrammarError(ValueError):
    """The stream breaks a rule; the message names the rule, the event and its position."""


class Verifier:
    """Walks along a stream; `feed` passes the events through and raises `GrammarError` at the first wrong one."""

    def __init__(self) -> None:
        self._position = 0
        self._started = False
        self._ended = False
        self._messages: dict[str, int] = {}  # the open ones, with their choices
        self._seen_messages: set[str] = set()
        self._parts: dict[str, tuple[PartKind, str]] = {}
        self._seen_parts: set[str] = set()
        self._interrupted = False

    def feed(self, events: list[Event]) -> list[Event]:
        for event in events:
            self._check(event)
            self._position += 1
        return events

    def close(self) -> None:
        """The input is over: a terminal event must have come."""
        if not self._ended:
            raise GrammarError(f"the stream of {self._position} events has no terminal event")

    def _fail(self, event: Event, rule: str) -> None:
        raise GrammarError(f"event {self._position} ({event!r:.200}): {rule}")

    def _check(self, event: Event) -> None:
        if self._ended:
            self._fail(event, "nothing may follow the terminal event")
        if isinstance(event, ev.Heartbeat):
            return
        if not self._started:
            if not isinstance(event, ev.RunStarted):
                self._fail(event, "the first event must be RunStarted")
            self._started = True
            return
        match event:
            case ev.RunStarted():
                self._fail(event, "RunStarted may come only once")
            case ev.MessageStarted():
                if event.message_id in self._seen_messages:
                    self._fail(event, "this message id was used before")
                self._messages[event.message_id] = event.choice
                self._seen_messages.add(event.message_id)
            case ev.PartStarted():
                self._start_part(event)
            case ev.TextDelta() | ev.ReasoningDelta() | ev.ArgsDelta():
                open_part = self._parts.get(event.part_id)
                if open_part is None:
                    self._fail(event, "the delta names no open part")
                elif open_part[0] not in _DELTA_KINDS[type(event)]:
                    self._fail(event, f"the delta does not fit a part of kind {open_part[0]}")
            case ev.PartEnded():
                if self._parts.pop(event.part_id, None) is None:
                    self._fail(event, "the part is not open")
            case ev.ContentAdded():
                self._check_message(event)
            case ev.MessageEnded():
                self._check_message(event)
                if any(m == event.message_id for _, m in self._parts.values()):
                    self._fail(event, "a part of the message is still open")
                del self._messages[event.message_id]
            case ev.Interrupted():
                self._interrupted = True
            case ev.RunFinished() | ev.RunFailed():
                self._end(event)
            case _:
                pass

    def _check_message(self, event: ev.PartStarted | ev.ContentAdded | ev.MessageEnded) -> None:
        choice = self._messages.get(event.message_id)
        if choice is None:
            self._fail(event, "the message is not open")
        if event.choice != choice:
            self._fail(event, f"the message is of choice {choice}")

    def _start_part(self, event: ev.PartStarted) -> None:
        self._check_message(event)
        if event.part_id in self._seen_parts:
            self._fail(event, "this part id was used before")
        if event.kind is PartKind.TOOL_CALL and not (event.call_id and event.name is not None):
            self._fail(event, "a tool call needs a call id and a name")
        self._parts[event.part_id] = (event.kind, event.message_id)
        self._seen_parts.add(event.part_id)

    def _end(self, event: ev.RunFinished | ev.RunFailed) -> None:
        if self._parts or self._messages:
            self._fail(event, f"still open: parts {sorted(self._parts)}, messages {sorted(self._messages)}")
        if isinstance(event, ev.RunFinished) and event.reason is FinishReason.INTERRUPTED and not self._interrupted:
            self._fail(event, "a run that ends interrupted needs an Interrupted before")
        self._ended = True


def verify(events: Iterable[Event]) -> list[Event]:
    """The events as a list when they are one well-formed stream. Raises `GrammarError` otherwise."""
    verifier = Verifier()
    result = verifier.feed(list(events))
    verifier.close()
    return result
