"""Puts parts that are open at the same time one after another.

Backends may interleave the pieces of two texts or of two tool calls. Many wires have one open part at a time, and many
clients misread two. The part that began first continues; events of later parts wait until the first one has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any

from bridge.contract.capabilities import Feature
from bridge.contract.context import Losses
from bridge.model import events as ev
from bridge.model.events import TERMINAL, Event, PartKind

DELTAS: frozenset[type] = frozenset({ev.TextDelta, ev.ReasoningDelta, ev.ArgsDelta})


class FirstChoice:
    """Leaves out what belongs to a choice above 0, for wires that have one answer."""

    def __init__(self, lost: Losses) -> None:
        self.busy = False
        """True if anything was left out so far: only then do deltas need a check."""
        self._lost = lost
        self._dropped: set[str] = set()  # the parts

    def drops(self, event: Event) -> bool:
        match event:
            case ev.MessageStarted() if event.choice:
                self.busy = True
                self._lost.add(Feature.CHOICES)
                return True
            case ev.PartStarted() if event.choice:
                self._dropped.add(event.part_id)
                return True
            case ev.TextDelta() | ev.ReasoningDelta() | ev.ArgsDelta() | ev.PartEnded():
                return event.part_id in self._dropped
            case ev.ContentAdded() | ev.MessageEnded():
                return event.choice > 0
            case _:
                return False


class ChoicesInTurn:
    """Holds events of choices above 0 until the end of the run, for wires with one message at a time."""

    def __init__(self) -> None:
        self._parts: dict[str, int] = {}
        self._held: dict[int, list[Event]] = {}

    @property
    def several(self) -> bool:
        """True if there is more than one choice so far."""
        return bool(self._held)

    def feed(self, events: Sequence[Event]) -> Sequence[Event]:
        """Add these events and return those that can be sent now."""
        if not self._held:
            for event in events:
                if type(event) is ev.MessageStarted and event.choice:
                    break
            else:
                return events
        out: list[Event] = []
        for event in events:
            choice = self._place(event)
            if choice:
                self._held[choice].append(event)
                continue
            if type(event) in TERMINAL:
                out += [later for number in sorted(self._held) for later in self._held[number]]
            out.append(event)
        return out

    def _place(self, event: Event) -> int:
        match event:
            case ev.MessageStarted(choice=choice) if choice:
                self._held.setdefault(choice, [])
                return choice
            case ev.PartStarted(choice=choice) if choice:
                self._parts[event.part_id] = choice
                return choice
            case ev.TextDelta() | ev.ReasoningDelta() | ev.ArgsDelta() | ev.PartEnded():
                return self._parts.get(event.part_id, 0)
            case ev.ContentAdded(choice=choice) | ev.MessageEnded(choice=choice):
                return choice
            case _:
                return 0


Lane = Callable[[Any], Hashable]


def one_lane(event: Any) -> Hashable:
    return None


class Sequencer:
    """Passes events on with at most one part open in each lane.

    Arguments:
        lost: Where the loss of all choices but the first is noted; None to keep all choices.
        free: Types of events that never wait, since the wire does not place them between its parts: usually all but
            those of parts, `ContentAdded`, `ToolResulted` and the end of the run.
        inline: Types of events that may stand between the pieces of an open part unless something waits for its end.
        within: The kinds of open parts for which `inline` counts.
        lane: Returns the lane of a `PartStarted` event, and of any other event that is neither free nor of a part.
            Parts of different lanes do not wait for each other. By default, there is one lane.

    While `busy` is false, nothing waits and nothing is left out.
    """

    __slots__ = ("_choice", "_free", "_held", "_inline", "_lane", "_lanes", "_open", "_waiting", "_within", "busy")

    def __init__(
        self,
        lost: Losses | None,
        free: Collection[type],
        inline: Collection[type] = (),
        within: Collection[PartKind] = frozenset(PartKind),
        lane: Lane = one_lane,
    ) -> None:
        self.busy = False
        self._choice = FirstChoice(lost) if lost is not None else None
        self._free = free
        self._inline = inline
        self._within = within
        self._lane = lane
        # Of each lane the open part, and what waits for its end: parts with their events, and single events; the lane
        # of each open part.
        self._open: dict[Hashable, ev.PartStarted] = {}
        self._lanes: dict[str, Hashable] = {}
        self._waiting: dict[Hashable, deque[list[Event]]] = {}
        self._held: dict[str, list[Event]] = {}

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """Add these events and return those that can be sent now."""
        out: list[Event] = []
        for event in events:
            self._feed(event, out)
        return out

    def place(self, event: Event) -> Sequence[Event]:
        """Add one event and return those that can be sent now."""
        if self.at_once(event):
            return (event,)
        out: list[Event] = []
        self._feed(event, out)
        return out

    def _feed(self, event: Event, out: list[Event]) -> None:
        choice = self._choice
        if choice is None or not choice.drops(event):
            self._place(event, out)
        self.busy = bool(self._waiting) or (choice is not None and choice.busy)

    def at_once(self, event: Event) -> bool:
        """Return whether the event can be sent now, and nothing else; if so, it is added. Otherwise `place` it."""
        if self.busy:
            return False
        kind = type(event)
        if kind is ev.PartStarted:
            lane = self._lane(event)
            if lane in self._open:
                return False
            self._open[lane] = event  # type: ignore[assignment]
            self._lanes[event.part_id] = lane  # type: ignore[union-attr]
            return True
        if kind is ev.PartEnded:
            if event.part_id in self._lanes:  # type: ignore[union-attr]
                del self._open[self._lanes.pop(event.part_id)]  # type: ignore[union-attr]
            return True
        if kind is ev.MessageStarted and event.choice and self._choice is not None:  # type: ignore[union-attr]
            return False
        return not self._open or kind in DELTAS or kind in self._free or self._passes(event)

    def _place(self, event: Event, out: list[Event]) -> None:
        """An event that came while it has to wait for a part, or others do."""
        match event:
            case ev.PartStarted():
                lane = self._lane(event)
                if lane in self._open:
                    held = self._held[event.part_id] = [event]
                    self._waiting.setdefault(lane, deque()).append(held)
                else:
                    self._open[lane] = event
                    self._lanes[event.part_id] = lane
                    out.append(event)
            case ev.TextDelta() | ev.ReasoningDelta() | ev.ArgsDelta():
                self._held.get(event.part_id, out).append(event)
            case ev.PartEnded():
                self._held.get(event.part_id, out).append(event)
                self._close(event.part_id, out)
            case _ if self._passes(event):
                out.append(event)
            case _:
                self._waiting.setdefault(self._lane(event), deque()).append([event])

    def _passes(self, event: Event) -> bool:
        """Return whether an event outside of any part can be passed on at once."""
        kind = type(event)
        if kind in self._free or not self._open:
            return True
        lane = self._lane(event)
        part = self._open.get(lane)
        return part is None or (kind in self._inline and part.kind in self._within and lane not in self._waiting)

    def _close(self, part_id: str, out: list[Event]) -> None:
        """A part is over: if it was the open one of its lane, let out what waits for that."""
        if part_id not in self._lanes:
            return
        lane = self._lanes.pop(part_id)
        del self._open[lane]
        if lane in self._waiting:
            self._advance(lane, self._waiting[lane], out)

    def _advance(self, lane: Hashable, waiting: deque[list[Event]], out: list[Event]) -> None:
        """Let out what waits in a lane until a part comes that is unfinished."""
        while waiting and lane not in self._open:
            held = waiting.popleft()
            out += held
            first = held[0]
            if isinstance(first, ev.PartStarted):
                del self._held[first.part_id]
                if not isinstance(held[-1], ev.PartEnded):
                    self._open[lane] = first
                    self._lanes[first.part_id] = lane
        if not waiting:
            del self._waiting[lane]
