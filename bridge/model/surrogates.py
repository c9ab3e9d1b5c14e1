"""Halves of characters: JSON text may carry a lone surrogate, UTF-8 may not."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

REPLACEMENT = "\ufffd"


def repair(text: str) -> str:
    """Return the text as valid Unicode: surrogate pairs are combined, and unpaired surrogates become U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def repaired(value: Any, pieces: Collection[str] = ()) -> Any:
    """A JSON value with each of its strings repaired, except the members named in `pieces`."""
    if type(value) is str:
        return value if value.isascii() else repair(value)
    if isinstance(value, list):
        return [repaired(v, pieces) for v in value]
    if isinstance(value, dict):
        return {repair(k): v if k in pieces and isinstance(v, str) else repaired(v, pieces) for k, v in value.items()}
    return value


def begins_pair(text: str) -> bool:
    """Return whether the text ends in a high surrogate, whose low surrogate may be in the next piece."""
    return "\ud800" <= text[-1:] <= "\udbff"
