"""Objects that add up, as the deltas of chat completions do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bridge.toolkit.pieces import Pieces


class Added:
    """Deltas added up, as clients do: strings and lists grow, objects merge, the rest is replaced.

    What grows is changed in place, so that each delta costs its own size; the deltas themselves are not changed.
    """

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = dict(values or {})

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def plain(self) -> dict[str, Any]:
        """The sum as JSON."""
        if _GROWN.isdisjoint(map(type, self._values.values())):
            return dict(self._values)
        return {key: _plain(value) for key, value in self._values.items()}

    def put(self, key: str, value: Any) -> None:
        """Replace a field."""
        self._values[key] = value

    def extend(self, key: str, entries: list[Any]) -> None:
        """Add entries to a list, each as a new one."""
        known = self._values.get(key)
        listed = self._values[key] = known if isinstance(known, _Entries) else _Entries(known or ())
        for entry in entries:
            listed.add(entry, separate=True)

    def add(self, delta: dict[str, Any]) -> None:
        values = self._values
        for key, value in delta.items():
            known = values.get(key)
            if known is None:
                values[key] = value
            elif isinstance(known, (dict, Added)) and isinstance(value, dict):
                inner = values[key] = known if isinstance(known, Added) else Added(known)
                inner.add(value)
            elif isinstance(known, Pieces) and isinstance(value, str):
                known.append(value)
            elif isinstance(known, str) and isinstance(value, str):
                values[key] = Pieces(known, value)
            elif isinstance(known, (list, _Entries)) and not isinstance(known, Pieces) and isinstance(value, list):
                listed = values[key] = known if isinstance(known, _Entries) else _Entries(known)
                for entry in value:
                    listed.add(entry)
            else:
                values[key] = value


class _Entries:
    """A list of a sum. An entry with an `index` continues the first one with that index (`reasoning_details`)."""

    __slots__ = ("_places", "entries")

    def __init__(self, entries: Iterable[Any]) -> None:
        self.entries: list[Any] = []
        self._places: dict[int, int] = {}
        for entry in entries:
            self.add(entry, separate=True)

    def add(self, entry: Any, *, separate: bool = False) -> None:
        index = entry.get("index") if isinstance(entry, dict) else None
        place = self._places.get(index) if type(index) is int and not separate else None
        if place is None:
            if type(index) is int:
                self._places.setdefault(index, len(self.entries))
            self.entries.append(entry)
            return
        known = self.entries[place]
        continued = self.entries[place] = known if isinstance(known, Added) else Added(known)
        for key, value in entry.items():
            if key in ("index", "type"):  # the helper of the SDK does not add these two either
                continued.put(key, value)
        continued.add({key: value for key, value in entry.items() if key not in ("index", "type")})


_GROWN: frozenset[type] = frozenset({Added, Pieces, _Entries})


def _plain(value: Any) -> Any:
    if isinstance(value, Added):
        return value.plain()
    if isinstance(value, Pieces):
        return value.text
    return [_plain(entry) for entry in value.entries] if isinstance(value, _Entries) else value
