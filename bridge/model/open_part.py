"""The builder's state of an open message and an open part."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from bridge.model import events as ev
from bridge.model.events import Event, FinishReason, PartKind
from bridge.model.parts import Extras
from bridge.model.surrogates import REPLACEMENT, begins_pair, repair

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
    open: dict[Hashable, None] = field(default_factory=dict)


@dataclass(slots=True)
class OpenPart:
    """A part that is or was open. `make` builds its deltas; it is swapped while half a surrogate pair is held."""

    id: str
    kind: PartKind
    message: OpenMessage
    call_id: str | None = None
    ended: bool = False
    make: _Maker = field(init=False)
    _held: str = ""

    def __post_init__(self) -> None:
        self.make = _MAKERS[self.kind]

    def unpaired(self, text: str, extras: Extras | None) -> Event | None:
        """The delta of a piece that may hold lone surrogates: a half that ends it waits for the next piece.

        While a half is held, `make` is swapped, so that the ordinary path pays nothing for this.
        """
        text = self._held + text
        self._held, self.make = "", _MAKERS[self.kind]
        if begins_pair(text):
            self._held, text = text[-1], text[:-1]
            self.make = self._resumed
        return self._delta(text, extras) if text else None

    def rest(self) -> Event | None:
        """The delta of a half to which no other one came, which is no character."""
        if not self._held:
            return None
        self._held = ""
        return self._delta(REPLACEMENT, None)

    def _delta(self, text: str, extras: Extras | None) -> Event:
        return _MAKERS[self.kind](self.id, repair(text), extras)

    def _resumed(self, part_id: str, more: str, extras: Extras | None) -> Event:
        """The next piece, with the held half before it."""
        text = self._held + more
        self._held, self.make = "", _MAKERS[self.kind]
        return self.make(part_id, repair(text), extras)
