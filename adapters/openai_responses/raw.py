"""Indexes of items that only this dialect knows (`web_search_call` and its like)."""

from __future__ import annotations

from typing import Any


class RawItems:
    """Items that clients have seen: by id, else by the index that the backend gave them."""

    def __init__(self) -> None:
        self._by_id: dict[str, int] = {}
        self._by_theirs: dict[int, int] = {}

    def note(self, item_id: Any, theirs: Any, index: int) -> None:
        """`theirs`: the backend's index, if it sent one."""
        if isinstance(item_id, str):
            self._by_id[item_id] = index
        if isinstance(theirs, int):
            self._by_theirs[theirs] = index

    def index_of(self, item_id: Any, theirs: Any = None) -> int | None:
        """Return the index of the item on this wire, None if it is unknown."""
        if isinstance(item_id, str) and item_id in self._by_id:
            return self._by_id[item_id]
        return self._by_theirs.get(theirs) if isinstance(theirs, int) else None
