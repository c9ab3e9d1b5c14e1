"""Puts tool calls one after another, and finds out which of their ends are real.

Clients do better when one call is finished before the next begins and no text slips in between (page, section 4), so
whatever comes while a call is open waits for its end. And a call that is open when a run fails must not get an end
(section 8), though the stream closes everything before it fails: the end of a call is therefore kept back until the
next event shows whether the call was over or only the run was.
"""

from __future__ import annotations

from collections import OrderedDict

from bridge.codec import Losses
from bridge.codec.order import FirstChoice
from bridge.model import events as ev
from bridge.model.events import Event, MessageStatus, PartKind

# These have no place among the words and calls of the answer.
_FREE: frozenset[type] = frozenset({
    ev.RunStarted, ev.MessageStarted, ev.MessageEnded, ev.UsageReported, ev.Heartbeat, ev.StateChanged,
    ev.StepStarted, ev.StepEnded, ev.Custom, ev.Interrupted,
})  # fmt: skip
_CALL = PartKind.TOOL_CALL
_BROKEN = (MessageStatus.FAILED, MessageStatus.CANCELED)


class Order:
    """Lets events of the first choice out with at most one call open; a `PartEnded` of a call only when it is real.

    While `busy` is false, nothing waits and nothing is left out: deltas of the `open` call, and all deltas when there
    is none, need not come by here.
    """

    def __init__(self, lost: Losses) -> None:
        self.busy = False
        self.open: str | None = None
        self._choice = FirstChoice(lost)
        self._calls: set[str] = set()
        self._ended: dict[str, Event] = {}
        self._waiting: OrderedDict[str | int, list[Event]] = OrderedDict()
        self._count = 0

    def at_once(self, event: Event) -> bool:
        """Whether the event goes out as it comes: with no call open all but the start of one, else only what is free.

        While it is not `busy`, such an event need not come by here. No `PartEnded` needs a look: with no call open
        none waits either, so it is of something else.
        """
        kind = type(event)
        if kind is ev.MessageStarted:
            return event.choice == 0  # type: ignore[union-attr]
        if self.open is not None:
            return kind in _FREE
        return kind is not ev.PartStarted or event.kind is not _CALL  # type: ignore[union-attr]

    def feed(self, event: Event) -> list[Event]:
        """What may go out now that this event came."""
        out: list[Event] = []
        if not self._choice.drops(event):
            if self._ended and not isinstance(event, ev.PartEnded):
                self._decide(_fails(event), out)
            self._place(event, out)
        self.busy = bool(self._ended or self._waiting) or self._choice.busy
        return out

    def _place(self, event: Event, out: list[Event]) -> None:
        match event:
            case ev.PartStarted(kind=PartKind.TOOL_CALL):
                self._calls.add(event.part_id)
                if self.open is None:
                    self.open = event.part_id
                    out.append(event)
                else:
                    self._waiting[event.part_id] = [event]
            case ev.ArgsDelta():
                self._waiting.get(event.part_id, out).append(event)
            case ev.PartEnded() if event.part_id in self._calls:
                self._ended[event.part_id] = event
            case _ if self.at_once(event):
                out.append(event)
            case _:
                self._count += 1
                self._waiting[self._count] = [event]

    def _decide(self, failed: bool, out: list[Event]) -> None:
        """Calls have ended: really, or because the run fails. Lets out what waited for that."""
        ended, self._ended = self._ended, {}
        for part_id, event in ended.items():
            self._calls.discard(part_id)
            kept = self._waiting.get(part_id)
            if not failed:
                (out if kept is None else kept).append(event)
            if kept is None:
                self.open = None
        while self._waiting and self.open is None:
            key, kept = self._waiting.popitem(last=False)
            out.extend(kept)
            if key in self._calls:
                self.open = str(key)


def _fails(event: Event) -> bool:
    """Whether the event shows that parts were ended by a failure and not by their wire."""
    return isinstance(event, ev.RunFailed) or (isinstance(event, ev.MessageEnded) and event.status in _BROKEN)
