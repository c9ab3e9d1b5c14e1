"""Which messages are removed when a conversation exceeds its bounds.

Whole turns are removed, oldest first, so that no tool call is separated from its result. System messages at the very
beginning stay, and so does the newest turn. Only if that turn alone exceeds the bounds, its oldest tool rounds are
removed, but not the user's question.

A turn begins with messages of the client (roles user, system, developer). Several of these in a row are one turn if
they were committed together, and separate turns otherwise: failed runs leave questions without answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bridge.model.parts import LINKED, Message, ToolCall, ToolResult
from bridge.stores.conversation_store import Bounds

_ASKING = frozenset({"user", "system", "developer"})
_GUIDING = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class MessageSize:
    """What the bounds depend on, for one stored message. `commit` is the version that added it."""

    role: str
    size: int
    commit: int
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


def links(message: Message) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids of the calls and of the results in a message."""
    if LINKED.isdisjoint(map(type, message.parts)):
        return (), ()
    return (
        tuple(p.call_id for p in message.parts if isinstance(p, ToolCall)),
        tuple(p.call_id for p in message.parts if isinstance(p, ToolResult)),
    )


def surplus(entries: Sequence[MessageSize], bounds: Bounds) -> list[int]:
    """Return the positions of the messages to remove, ascending."""
    excess = _Excess(entries, bounds)
    if excess.fits:
        return []
    lead = _system_count(entries)
    starts = [n for n in range(lead, len(entries)) if n == lead or _begins(entries, n)]
    whole = _uncuttable(entries, starts[-1] if starts else lead)
    cut = _drop(excess, lead, [n for n in starts if not whole[n]])
    dropped = list(range(lead, cut))
    if not excess.fits and starts:
        first = starts[-1]
        while first < len(entries) and entries[first].role in _ASKING:
            first += 1
        # Unless it holds the result of an older call, which then keeps the older turns, too.
        if first < len(entries) and not whole[first]:
            rounds = (n for n in range(first + 1, len(entries)) if not whole[n] and entries[n].role == "assistant")
            dropped += range(first, _drop(excess, first, rounds))
    return dropped


class _Excess:
    """Number and size of the messages beyond the bounds."""

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


def _drop(excess: _Excess, first: int, cuts: Iterable[int]) -> int:
    """Drop messages from `first` up to the first cut after which the rest fits, or else up to the last. Return it."""
    for cut in cuts:
        if excess.fits:
            break
        excess.drop(first, cut)
        first = cut
    return first


def _system_count(entries: Sequence[MessageSize]) -> int:
    """Return the number of system messages at the beginning. Only the first commit can add them."""
    for index, entry in enumerate(entries):
        if entry.role not in _GUIDING or entry.commit != entries[0].commit:
            return index
    return len(entries)


def _begins(entries: Sequence[MessageSize], index: int) -> bool:
    entry, before = entries[index], entries[index - 1]
    return entry.role in _ASKING and not (before.role in _ASKING and before.commit == entry.commit)


def _uncuttable(entries: Sequence[MessageSize], last_turn: int) -> list[bool]:
    """Return for each position whether a cut before it would separate a call from its result.

    A call of the last turn may still get its result; an open call of an older turn will not.
    """
    called: dict[str, int] = {}
    unanswered: dict[str, int] = {}
    borders = [0] * (
        len(entries) + 2
    )  # spans of messages to keep together: those that begin (+) and end (-) before each position

    def keep_together(first: int, last: int) -> None:
        borders[first + 1] += 1
        borders[last + 1] -= 1

    for index, entry in enumerate(entries):
        for call_id in entry.results:
            unanswered.pop(call_id, None)
            keep_together(called.get(call_id, index), index)
        for call_id in entry.calls:
            called[call_id] = unanswered[call_id] = index
    for index in unanswered.values():
        if index >= last_turn:
            keep_together(index, len(entries))
    return [depth > 0 for depth in accumulate(borders[: len(entries)])]
