"""Puts parts one after another, for wires that know only one open part at a time.

Backends may interleave the pieces of two tool calls; many clients then misread both. `Sequencer` lets the part
that began first go on and keeps back what belongs to later ones until their turn comes. Only the kinds it is
told to put in order wait; everything else passes at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from bridge.model import events as ev
from bridge.model.events import Event, PartKind

_DELTAS: frozenset[type] = frozenset({ev.TextDelta, ev.ReasoningDelta, ev.ArgsDelta})


class Sequencer:
    """`feed` returns the events with at most one open part among `kinds`.

    A `MessageEnded` waits for the parts of its message that still wait, a terminal event for all of them.
    """

    __slots__ = ("_held_ends", "_kinds", "_open", "_owner", "_waiting")

    def __init__(self, kinds: Iterable[PartKind]) -> None:
        self._kinds = frozenset(kinds)
        self._open: str | None = None
        # Not a dict: taking the first entry of one again and again walks over all those that are gone.
        self._waiting: OrderedDict[str, list[Event]] = OrderedDict()
        self._owner: dict[str, str] = {}
        self._held_ends: dict[str, Event] = {}

    def feed(self, events: list[Event]) -> list[Event]:
        """With nothing waiting, deltas alone pass untouched; so does all else while no part has to be put in order."""
        if not self._waiting and (_DELTAS.issuperset(map(type, events)) or self._is_free(events)):
            return events
        out: list[Event] = []
        for event in events:
            self._one(event, out)
        return out

    def _is_free(self, events: list[Event]) -> bool:
        """Whether none of the parts that are put in order is open, or begins."""
        if self._open is not None:
            return False
        begins, kinds = ev.PartStarted, self._kinds
        for event in events:  # noqa: SIM110 - a generator would cost as much again, in every run
            if type(event) is begins and event.kind in kinds:
                return False
        return True

    def _one(self, event: Event, out: list[Event]) -> None:
        match event:
            case ev.PartStarted() if event.kind in self._kinds:
                if self._open is None:
                    self._open = event.part_id
                    out.append(event)
                else:
                    self._waiting[event.part_id] = [event]
                    self._owner[event.part_id] = event.message_id
            case ev.TextDelta() | ev.ReasoningDelta() | ev.ArgsDelta():
                self._waiting.get(event.part_id, out).append(event)
            case ev.PartEnded():
                if event.part_id in self._waiting:
                    self._waiting[event.part_id].append(event)
                else:
                    out.append(event)
                    if event.part_id == self._open:
                        self._open = None
                        self._advance(out)
            case ev.MessageEnded() if event.message_id in self._owner.values():
                self._held_ends[event.message_id] = event
            case _:
                out.append(event)

    def _advance(self, out: list[Event]) -> None:
        """The open part is over: lets waiting parts out until one of them is unfinished."""
        while self._waiting and self._open is None:
            part_id, kept = self._waiting.popitem(last=False)
            owner = self._owner.pop(part_id)
            out.extend(kept)
            if not isinstance(kept[-1], ev.PartEnded):
                self._open = part_id
            elif owner in self._held_ends and owner not in self._owner.values():
                out.append(self._held_ends.pop(owner))
