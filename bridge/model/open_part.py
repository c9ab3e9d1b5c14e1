"""The builder's state of an open message and an open part."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from bridge.model import events as ev
from bridge.model.events import Event, FinishReason, PartKind
from bridge.model.parts import Extras

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


PLACEHOLDER = "{}"
"""The arguments that some servers send before the real ones: the empty input with which a block of Claude begins."""


def without_placeholder(arguments: str) -> str:
    """Return whole arguments without a placeholder before them."""
    rest = arguments[len(PLACEHOLDER) :].lstrip() if arguments.startswith(PLACEHOLDER) else ""
    return rest if rest.startswith("{") else arguments


@dataclass(slots=True)
class OpenPart:
    """A part that is or was open. `make` builds its deltas; it is swapped while the first arguments of a call are held
    back, as they may be a placeholder.

    `fresh` is true for a call without arguments so far, `said_nothing` as well while there is only a placeholder.
    """

    id: str
    kind: PartKind
    message: OpenMessage
    call_id: str | None = None
    ended: bool = False
    fresh: bool = False
    make: _Maker = field(init=False)
    _placeholder: bool = False

    def __post_init__(self) -> None:
        self.fresh = self.kind is PartKind.TOOL_CALL
        self.make = self._first if self.fresh else _MAKERS[self.kind]

    @property
    def said_nothing(self) -> bool:
        return self.fresh or self._placeholder

    def hold_placeholder(self) -> None:
        """The first arguments are `{}`: the next piece shows whether they are all."""
        self.fresh, self._placeholder = False, True
        self.make = self._second

    def _first(self, part_id: str, text: str, extras: Extras | None) -> Event:
        self.fresh = False
        self.make = _MAKERS[self.kind]
        return self.make(part_id, without_placeholder(text), extras)

    def _second(self, part_id: str, text: str, extras: Extras | None) -> Event:
        """A piece after `{}`, which takes its place unless it is blank."""
        if not text.isspace():
            self._placeholder = False
            self.make = _MAKERS[self.kind]
        return _MAKERS[self.kind](part_id, text, extras)

    def rest(self) -> Event | None:
        """The delta of what was held back, and is the end: the arguments `{}`."""
        if not self._placeholder:
            return None
        self._placeholder = False
        return _MAKERS[self.kind](self.id, PLACEHOLDER, None)
