"""Which messages go when a conversation grows over its bounds.

What goes, goes as a whole: turns from the oldest on, so that no tool call is parted from its result. The messages
of the system at the very beginning stay, and so does the newest turn. Only when that one alone is over the bounds
its oldest tool rounds go, and what the user asked stays.

A turn begins with what the client's side says (roles user, system, developer). Several of these in a row are one
turn when they were committed together, and turns of their own otherwise: failed runs leave questions without answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bridge.model.parts import LINKED, Message, ToolCall, ToolResult
from bridge.stores.base import Bounds

_ASKING = frozenset({"user", "system", "developer"})
_GUIDING = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class MessageSize:
    """The facts about one stored message that the bounds need. `commit` is the version that added it."""

    role: str
    size: int
    commit: int
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


def links(message: Message) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ids of the calls and of the results in a message."""
    if LINKED.isdisjoint(map(type, message.parts)):
        return (), ()
    return (
        tuple(p.call_id for p in message.parts if isinstance(p, ToolCall)),
        tuple(p.call_id for p in message.parts if isinstance(p, ToolResult)),
    )


def surplus(entries: Sequence[MessageSize], bounds: Bounds) -> list[int]:
    """The places of the messages that must go, ascending."""
    room = _Room(entries, bounds)
    if room.fits:
        return []
    lead = _lead(entries)
    starts = [n for n in range(lead, len(entries)) if n == lead or _begins(entries, n)]
    whole = _uncuttable(entries, starts[-1] if starts else lead)
    cut = _drop(room, lead, [n for n in starts if not whole[n]])
    dropped = list(range(lead, cut))
    if not room.fits and starts:
        first = starts[-1]
        while first < len(entries) and entries[first].role in _ASKING:
            first += 1
        # Unless it holds the result of an older call, which then keeps the older turns, too.
        if first < len(entries) and not whole[first]:
            rounds = (n for n in range(first + 1, len(entries)) if not whole[n] and entries[n].role == "assistant")
            dropped += range(first, _drop(room, first, rounds))
    return dropped


class _Room:
    """What is left of the messages, beside the bounds."""

    def __init__(self, entries: Sequence[MessageSize], bounds: Bounds) -> None:
        self._sizes = [entry.size for entry in entries]
        self._count = len(entries) - bounds.messages
        self._size = sum(self._sizes) - bounds.size

    @property
    def fits(self) -> bool:
        return self._count <= 0 and self._size <= 0

    def drop(self, first: int, end: int) -> None:
        self._count -= end - first
        self._size -= sum(self._sizes[first:end])


def _drop(room: _Room, first: int, cuts: Iterable[int]) -> int:
    """Drops from `first` on up to the first cut after which the rest fits, else up to the last one; says which."""
    for cut in cuts:
        if room.fits:
            break
        room.drop(first, cut)
        first = cut
    return first


def _lead(entries: Sequence[MessageSize]) -> int:
    """Return the number of system messages at the beginning. Only the first commit can add them."""
    for index, entry in enumerate(entries):
        if entry.role not in _GUIDING or entry.commit != entries[0].commit:
            return index
    return len(entries)


def _begins(entries: Sequence[MessageSize], index: int) -> bool:
    entry, before = entries[index], entries[index - 1]
    return entry.role in _ASKING and not (before.role in _ASKING and before.commit == entry.commit)


def _uncuttable(entries: Sequence[MessageSize], last_turn: int) -> list[bool]:
    """For each place whether a cut before it would part a call from its result.

    A call of the last turn may still get its result; an open one of an older turn will not.
    """
    called: dict[str, int] = {}
    unanswered: dict[str, int] = {}
    borders = [0] * (len(entries) + 2)  # how many spans begin (+) and end (-) to hold together before each place

    def together(first: int, last: int) -> None:
        borders[first + 1] += 1
        borders[last + 1] -= 1

    for index, entry in enumerate(entries):
        for call_id in entry.results:
            unanswered.pop(call_id, None)
            together(called.get(call_id, index), index)
        for call_id in entry.calls:
            called[call_id] = unanswered[call_id] = index
    for index in unanswered.values():
        if index >= last_turn:
            together(index, len(entries))
    return [depth > 0 for depth in accumulate(borders[: len(entries)])]
