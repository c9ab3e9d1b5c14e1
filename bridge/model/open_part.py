"""The builder's state of an open message and an open part."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from bridge.model import events as ev
from bridge.model.events import Event, FinishReason, PartKind
from bridge.model.parts import Extras

_TOOL_CALL = PartKind.TOOL_CALL  # read once: a member of an enumeration is slow to look up in Python 3.11
_Maker = Callable[[str, str, Extras | None], Event]
_MAKERS: dict[PartKind, _Maker] = {
    PartKind.TEXT: ev.TextDelta,
    PartKind.REFUSAL: ev.TextDelta,
    PartKind.REASONING: ev.ReasoningDelta,
    PartKind.TOOL_CALL: ev.ArgsDelta,
}


@dataclass(slots=True)
class OpenMessage:
    """A message that is or was open."""

    key: Hashable
    id: str
    choice: int
    parts: int = 0
    ended: bool = False
    reason: FinishReason | None = None
    open: dict[Hashable, None] | None = None
    """The keys of open parts, if it has had any: pieces that flow have none."""

    def opened(self, key: Hashable) -> None:
        """Note an open part."""
        if self.open is None:
            self.open = {}
        self.open[key] = None

    def closed(self, key: Hashable) -> None:
        """Note that a part is no longer open."""
        if self.open is not None:
            del self.open[key]


_NOTHING = r"(?:\{\s*\}|null|\"\")"
_PLACEHOLDER = re.compile(rf"\s*{_NOTHING}\s*")
_BEFORE = re.compile(rf"\s*(?:{_NOTHING}\s*)+(?=\{{)")
_LONGEST = 20


def is_placeholder(text: str) -> bool:
    """Return whether arguments are none: some servers send such a value before the real ones.

    It is the empty input with which a block of Claude begins, `null` or an empty string.
    """
    return len(text) <= _LONGEST and _PLACEHOLDER.fullmatch(text) is not None


def without_placeholder(arguments: str) -> str:
    """Return whole arguments without placeholders before them: nothing follows the end of a JSON value."""
    found = _BEFORE.match(arguments)
    return arguments if found is None else arguments[found.end() :]


class OpenPart:
    """A part that is or was open. `make` builds its deltas; it is swapped while the first arguments of a call are held
    back, as they may be a placeholder.

    `fresh` is true for a call that has no arguments so far, or placeholders only.
    """

    __slots__ = ("_held", "call_id", "ended", "fresh", "id", "kind", "make", "message")

    def __init__(self, id: str, kind: PartKind, message: OpenMessage, call_id: str | None = None) -> None:
        self.id = id
        self.kind = kind
        self.message = message
        self.call_id = call_id
        self.ended = False
        self.fresh = kind is _TOOL_CALL
        self.make: _Maker = self._first if self.fresh else _MAKERS[kind]
        self._held = ""

    def holds(self, text: str) -> bool:
        """Hold a placeholder back; the next piece shows whether it is all. For a `fresh` call."""
        if not is_placeholder(text):
            return False
        self._held = text
        self.make = self._second
        return True

    def _first(self, part_id: str, text: str, extras: Extras | None) -> Event:
        self.fresh = False
        self.make = _MAKERS[self.kind]
        return self.make(part_id, without_placeholder(text), extras)

    def _second(self, part_id: str, text: str, extras: Extras | None) -> Event:
        """A piece after a placeholder: an object takes its place, anything else but blanks continues it."""
        if not text.isspace():
            text = without_placeholder(self._held + text)
            self.fresh, self._held = False, ""
            self.make = _MAKERS[self.kind]
        return _MAKERS[self.kind](part_id, text, extras)

    def rest(self) -> Event | None:
        """The delta of what was held back, and is the end: a placeholder."""
        if not self._held:
            return None
        self.fresh, text, self._held = False, self._held, ""
        return _MAKERS[self.kind](self.id, text, None)
