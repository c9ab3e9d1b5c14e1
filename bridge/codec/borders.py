"""`TextBorders`: the separator between the texts of messages where a wire, or a field, has a single text."""

from __future__ import annotations

from bridge.codec.capabilities import Feature
from bridge.codec.context import Losses


class TextBorders:
    """One for each text that a client puts together."""

    __slots__ = ("_last", "_lost", "_separator")

    def __init__(self, separator: str, lost: Losses) -> None:
        self._separator = separator
        self._lost = lost
        self._last: str | None = None

    def before(self, message_id: str) -> str:
        """Return what precedes the next nonempty text: the separator if the text belongs to another message."""
        last, self._last = self._last, message_id
        if last is None:
            return ""
        self._lost.add(Feature.PART_BORDERS)
        return self._separator if last != message_id else ""
