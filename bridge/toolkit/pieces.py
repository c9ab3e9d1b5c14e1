"""A text that comes in pieces, of which a reader asks the length and the beginning while it still grows."""

from __future__ import annotations


class Pieces(list[str]):
    """The pieces of a text. Each question costs what came since the last one, not the whole text."""

    __slots__ = ("_counted", "_size")

    def __init__(self, *pieces: str) -> None:
        super().__init__(pieces)
        self._counted = self._size = 0

    @property
    def size(self) -> int:
        """The characters of the text."""
        if self._counted < len(self):
            self._size += sum(map(len, self[self._counted :]))
            self._counted = len(self)
        return self._size

    @property
    def text(self) -> str:
        """The whole text, joined once until more comes. Costs its length if more came."""
        if len(self) > 1:
            self[:] = ["".join(self)]
            self._counted, self._size = 1, len(self[0])
        return self[0] if self else ""

    def begins(self, text: str) -> bool:
        """Return whether `text` begins with this text; a shorter text is not looked at."""
        return self.size <= len(text) and text.startswith(self.text)
