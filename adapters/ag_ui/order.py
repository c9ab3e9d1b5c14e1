"""Puts what happens at the same time one after another, in the order in which it began (section 5).

Old clients know one open message or call. What belongs to a part that began later waits until the open one is over,
and whole things keep their place in between, so nothing overtakes what announced it. Clients of 1.0 take state, steps,
results and the like while a part is open; for older ones these wait too.
"""

from __future__ import annotations

from bridge.codec import Feature, Losses
from bridge.model import events as ev
from bridge.model.events import Event

DELTAS: frozenset[type] = frozenset({ev.TextDelta, ev.ReasoningDelta, ev.ArgsDelta})
# These write nothing in the middle of a stream.
_FREE: frozenset[type] = frozenset(
    {ev.RunStarted, ev.MessageStarted, ev.MessageEnded, ev.UsageReported, ev.Heartbeat, ev.Interrupted}
)
_INLINE: frozenset[type] = frozenset(
    {ev.StateChanged, ev.StepStarted, ev.StepEnded, ev.Custom, ev.Raw, ev.ToolResulted}
)


class Order:
    """Lets events out with at most one part open, and only those of the first choice.

    While `busy` is false, nothing waits and nothing is left out: deltas need not come by here. `inline`: whole things
    may stand between the pieces of an open part.
    """

    def __init__(self, lost: Losses, inline: bool) -> None:
        self.busy = False
        self._lost = lost
        self._inline = _INLINE if inline else frozenset()
        self._open: str | None = None
        self._waiting: dict[str | int, list[Event]] = {}
        self._count = 0
        self._dropped: set[str] = set()

    def feed(self, event: Event) -> list[Event]:
        """What may go out now that this event came."""
        out: list[Event] = []
        if not self._drops(event):
            self._place(event, out)
        self.busy = bool(self._waiting or self._dropped)
        return out

    def _place(self, event: Event, out: list[Event]) -> None:
        match event:
            case ev.PartStarted():
                if self._open is None:
                    self._open = event.part_id
                    out.append(event)
                else:
                    self._waiting[event.part_id] = [event]
            case ev.TextDelta() | ev.ReasoningDelta() | ev.ArgsDelta():
                self._waiting.get(event.part_id, out).append(event)
            case ev.PartEnded():
                self._waiting.get(event.part_id, out).append(event)
                if event.part_id == self._open:
                    self._open = None
                    self._advance(out)
            case _ if self._passes(type(event)):
                out.append(event)
            case _:
                self._count += 1
                self._waiting[self._count] = [event]

    def _passes(self, kind: type) -> bool:
        return self._open is None or kind in _FREE or (kind in self._inline and not self._waiting)

    def _advance(self, out: list[Event]) -> None:
        """The open part is over: lets out what waits until a part comes that is unfinished."""
        while self._waiting and self._open is None:
            key, kept = next(iter(self._waiting.items()))
            del self._waiting[key]
            out.extend(kept)
            if isinstance(key, str) and not isinstance(kept[-1], ev.PartEnded):
                self._open = key

    def _drops(self, event: Event) -> bool:
        """Whether the event belongs to a choice above 0, which this wire cannot tell."""
        match event:
            case ev.MessageStarted() if event.choice > 0:
                self._dropped.add(event.message_id)
                self._lost.add(Feature.CHOICES)
                return True
            case ev.PartStarted() if event.message_id in self._dropped:
                self._dropped.add(event.part_id)
                return True
            case ev.TextDelta() | ev.ReasoningDelta() | ev.ArgsDelta() | ev.PartEnded():
                return event.part_id in self._dropped
            case ev.ContentAdded() | ev.MessageEnded():
                return event.message_id in self._dropped
            case _:
                return False
