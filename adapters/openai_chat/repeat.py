"""Chunks of text that differ from the last one in nothing but the text: most of what a backend sends.

A chunk repeats a few hundred bytes around a few that are new. Where the bytes before and after the text are those of
a chunk that was read in full, what they mean is known, and only the text between them is parsed (measured: a third of
the time). The text must be one JSON string by itself, or the chunk is read in full as any other.
"""

from __future__ import annotations

import re
from typing import Any

from bridge.codec.jsontext import dumps, loads

_CONTENT = re.compile(rb'"content":\s*("(?:[^"\\]|\\.)*+")')
_PROBE = "\x00?"
_LONGEST = 4000
_CHANCES = 4
"""How often in a row something learned may prove useless: some servers put random padding into each chunk."""


class Repeat:
    """The bytes `before` and `after` the text of the last plain chunk, and the choice that the text belongs to."""

    __slots__ = ("_chances", "_met", "after", "before", "index", "start", "stop", "used")

    def __init__(self) -> None:
        self._chances = _CHANCES
        self._met = False
        self.before = self.after = b"\n"  # nothing was learned yet
        self.start, self.stop = 0, 0  # where the text is in such a chunk
        self.index = -1
        self.used = False

    def learn(self, data: bytes, chunk: dict[str, Any]) -> None:
        """Takes note of a chunk that was read in full and whose last choice held nothing but a text."""
        if not self._met:
            self._met = True  # short answers have one such chunk, and nothing is gained with it
            return
        if not self._chances or len(data) > _LONGEST or chunk.get("usage"):
            return
        choice, *others = chunk["choices"]
        if others:
            return
        delta, index = choice.get("delta"), choice.get("index")
        if type(delta) is not dict or type(index) is not int:
            return
        found = _CONTENT.search(data)
        if found is None:
            return
        self._chances = _CHANCES if self.used else self._chances - 1
        self.used = False
        before, after = data[: found.start(1)], data[found.end(1) :]
        # Is it this text that was found, or another `content`? With something else in its place it must be seen.
        probed = {**chunk, "choices": [{**choice, "delta": {**delta, "content": _PROBE}}]}
        if loads(before + dumps(_PROBE) + after) == probed:
            self.before, self.after, self.index = before, after, index
            self.start, self.stop = len(before), -len(after)
