"""Halves of characters: JSON text may carry a lone surrogate, UTF-8 may not."""

from __future__ import annotations

REPLACEMENT = "\ufffd"


def repair(text: str) -> str:
    """Return the text as valid Unicode: surrogate pairs are combined, and unpaired surrogates become U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def begins_pair(text: str) -> bool:
    """Return whether the text ends in a high surrogate, whose low surrogate may be in the next piece."""
    return "\ud800" <= text[-1:] <= "\udbff"
