"""Puts what happens at the same time one after another, in the order in which it began.

Many wires know one open part at a time, and many clients misread two. What belongs to a part that began later waits
until the open one is over. `bridge.model.Sequencer` does that for parts alone; here whole contents, results and message
ends keep their place between them too, so that a picture never slips in front of the text that announced it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from bridge.codec.card import Feature
from bridge.codec.context import Losses
from bridge.model import events as ev
from bridge.model.events import Event

T = TypeVar("T")

DELTAS: frozenset[type] = frozenset({ev.TextDelta, ev.ReasoningDelta, ev.ArgsDelta})
_BORDERS: frozenset[type] = frozenset({ev.MessageStarted, ev.PartStarted, ev.PartEnded})
"""By these it is known what is open and what is left out."""


class FirstChoice:
    """Leaves out what belongs to a choice above 0, for wires that have one answer."""

    def __init__(self, lost: Losses) -> None:
        self._lost = lost
        self._dropped: set[str] = set()

    @property
    def busy(self) -> bool:
        """Whether anything was left out so far: only then do deltas need a look."""
        return bool(self._dropped)

    def drops(self, event: Event) -> bool:
        if isinstance(event, ev.MessageStarted) and event.choice > 0:
            self._dropped.add(event.message_id)
            self._lost.add(Feature.CHOICES)
            return True
        if not self._dropped:
            return False
        match event:
            case ev.PartStarted() if event.message_id in self._dropped:
                self._dropped.add(event.part_id)
                return True
            case ev.TextDelta() | ev.ReasoningDelta() | ev.ArgsDelta() | ev.PartEnded():
                return event.part_id in self._dropped
            case ev.ContentAdded() | ev.MessageEnded():
                return event.message_id in self._dropped
            case _:
                return False


class Order:
    """Lets events out with at most one part open, and only those of the first choice.

    `free`: events without a place in the answer, which never wait. `inline`: whole things that may stand between the
    pieces of an open part, as long as no other part waits. While `busy` is false, nothing waits and nothing is left
    out: deltas need not come by here.
    """

    def __init__(self, lost: Losses, free: Collection[type], inline: Collection[type] = ()) -> None:
        self.busy = False
        self._choice = FirstChoice(lost)
        self._free = frozenset(free)
        self._inline = frozenset(inline)
        self._open: str | None = None
        # Not a dict: taking the first entry of one again and again walks over all those that are gone.
        self._waiting: OrderedDict[str | int, list[Event]] = OrderedDict()
        self._count = 0

    def feed(self, event: Event) -> list[Event]:
        """What may go out now that this event came."""
        out: list[Event] = []
        if not self._choice.drops(event):
            if not self._waiting and self._at_once(event):
                out.append(event)
            else:
                self._place(event, out)
        self.busy = bool(self._waiting) or self._choice.busy
        return out

    def tell(self, events: Iterable[Event], encoder: T, handlers: Mapping[type, Callable[[T, Any], None]]) -> None:
        """Calls `handlers[type(event)](encoder, event)` for each event when its turn has come.

        The handlers are functions of a class, not methods bound to each encoder: those would tie every encoder to
        itself, and all that a stream said would stay in memory until the cycle collector comes by.
        """
        for event in events:
            kind = type(event)
            if not self.busy and (kind in DELTAS or self._at_once(event)):
                handlers[kind](encoder, event)
                continue
            for placed in self.feed(event):
                handlers[type(placed)](encoder, placed)

    def _at_once(self, event: Event) -> bool:
        """While nothing waits: whether the event goes out as it comes. Notes which part is open from now on."""
        kind = type(event)
        if kind not in _BORDERS:
            return self._open is None or kind in DELTAS or self._passes(kind)
        if kind is ev.PartStarted:
            if self._open is not None:
                return False
            self._open = event.part_id  # type: ignore[union-attr]
        elif kind is ev.PartEnded:
            if event.part_id == self._open:  # type: ignore[union-attr]
                self._open = None
        else:
            return event.choice == 0 and self._passes(kind)  # type: ignore[union-attr]
        return True

    def _place(self, event: Event, out: list[Event]) -> None:
        """An event that came while a part is open for which it has to wait, or others do."""
        match event:
            case ev.PartStarted():
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
        return self._open is None or kind in self._free or (kind in self._inline and not self._waiting)

    def _advance(self, out: list[Event]) -> None:
        """The open part is over: lets out what waits until a part comes that is unfinished."""
        while self._waiting and self._open is None:
            key, kept = self._waiting.popitem(last=False)
            out.extend(kept)
            if isinstance(key, str) and not isinstance(kept[-1], ev.PartEnded):
                self._open = key
