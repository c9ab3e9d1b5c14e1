"""Objects that add up, as the deltas of chat completions do."""

from __future__ import annotations

from typing import Any


def merge(total: dict[str, Any], delta: dict[str, Any]) -> None:
    """Adds a delta to what came before, as clients do: strings and lists grow, objects merge, the rest is replaced."""
    for key, value in delta.items():
        known: Any = total.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            total[key] = dict(known)
            merge(total[key], value)
        elif isinstance(known, list) and isinstance(value, list):
            total[key] = list(known)
            for entry in value:
                _merge_entry(total[key], entry)
        else:
            total[key] = known + value if isinstance(known, str) and isinstance(value, str) else value


def _merge_entry(entries: list[Any], entry: Any) -> None:
    """An entry with an `index` continues the one with that index (`reasoning_details`), any other is a new one."""
    index = entry.get("index") if isinstance(entry, dict) else None
    for position, known in enumerate(entries if type(index) is int else ()):
        if isinstance(known, dict) and known.get("index") == index:
            # The helper of the SDK does not add these two either
            entries[position] = {**known, **{k: entry[k] for k in ("index", "type") if k in entry}}
            merge(entries[position], {k: v for k, v in entry.items() if k not in ("index", "type")})
            return
    entries.append(entry)
