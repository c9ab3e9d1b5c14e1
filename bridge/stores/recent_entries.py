"""A cache of the entries that this process wrote last, so that its own readers need not query the engine for them.

They are durable: an entry is added after the engine has confirmed the write. The entries of a run are consecutive:
`before` is the number of the entry before the first one (0 for none). Only readers within that range are served, so
that they miss nothing; others query the engine. Numbers are not reused, so that a reader with a number reads the same
run, not a later one with its id; a reader at the beginning may have to query (`since`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bridge.stores.run_records import LogEntry, fitting

_Name = TypeVar("_Name", bound=Hashable)

MOST_ENTRIES = 32
"""Entries cached for one run, about as many as a reader gets at a time."""
MOST_CHARACTERS = 8 * 1024 * 1024
"""Characters cached for all runs; beyond it, the run that was written least recently is dropped."""
_SMALL = 512
"""The size of an entry beside its text."""


@dataclass(slots=True)
class _Tail:
    before: int
    entries: deque[LogEntry] = field(default_factory=deque)
    size: int = 0

    @property
    def last(self) -> int:
        return self.entries[-1].number if self.entries else self.before


class Tails(Generic[_Name]):
    """The cached entries of all runs that this process writes, by name."""

    def __init__(self, entries: int = MOST_ENTRIES, characters: int = MOST_CHARACTERS) -> None:
        self._most_entries = entries
        self._most = characters
        self._tails: OrderedDict[_Name, _Tail] = OrderedDict()
        self._size = 0

    def add(self, name: _Name, before: int, entries: Sequence[LogEntry]) -> None:
        """Add what was written after the entry `before`."""
        tail = self._tails.get(name)
        if tail is None or tail.last != before:
            self.forget(name)
            tail = self._tails[name] = _Tail(before)
        self._tails.move_to_end(name)
        for entry in entries:
            tail.entries.append(entry)
            self._resize(tail, _SMALL + len(entry.body))
        while len(tail.entries) > self._most_entries:
            gone = tail.entries.popleft()
            tail.before = gone.number
            self._resize(tail, -_SMALL - len(gone.body))
        while self._size > self._most:
            self.forget(next(iter(self._tails)))

    def _resize(self, tail: _Tail, by: int) -> None:
        tail.size += by
        self._size += by

    def since(self, name: _Name, after: int) -> list[LogEntry] | None:
        """Return the entries after number `after`; None if the reader has to query the engine.

        With `after` 0, the caller must have queried already, and called `forget` if there was nothing: the cached
        entries could be of a deleted run with this id.
        """
        tail = self._tails.get(name)
        if tail is None or not tail.before <= after <= tail.last:
            return None
        found: list[LogEntry] = []
        for entry in reversed(tail.entries):
            if entry.number <= after:
                break
            found.append(entry)
        found.reverse()
        return fitting(found)

    def forget(self, name: _Name) -> None:
        tail = self._tails.pop(name, None)
        if tail is not None:
            self._size -= tail.size

    def clear(self) -> None:
        self._tails.clear()
        self._size = 0
