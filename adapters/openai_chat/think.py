"""Splits `<think>...</think>` out of a text that comes in pieces (option `think_tags: reasoning`)."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.model import PartKind

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkSplitter:
    """One per choice. A tag may be cut over pieces: what may still become one is kept back."""

    def __init__(self) -> None:
        self._inside = False
        self._held = ""

    def feed(self, text: str) -> Iterator[tuple[PartKind, str]]:
        """Return the pieces of text and reasoning that are certain by now, none of them empty."""
        text = self._held + text
        self._held = ""
        while True:
            tag = _CLOSE if self._inside else _OPEN
            before, found, after = text.partition(tag)
            if not found:
                break
            if before:
                yield self._kind, before
            self._inside = not self._inside
            text = after
        self._held = _tail_of(text, tag)
        text = text.removesuffix(self._held)
        if text:
            yield self._kind, text

    def close(self) -> Iterator[tuple[PartKind, str]]:
        """The text is over: half a tag was no tag."""
        if self._held:
            yield self._kind, self._held
            self._held = ""

    @property
    def _kind(self) -> PartKind:
        return PartKind.REASONING if self._inside else PartKind.TEXT


def _tail_of(text: str, tag: str) -> str:
    """The longest end of the text with which the tag begins."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-size:]):
            return text[-size:]
    return ""
