"""Characters that a backend cut in two: agents in Java and JavaScript count UTF-16 units, and so do their pieces."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from bridge.model.events import ArgsDelta, Delta, Event, PartEnded, ReasoningDelta, TextDelta
from bridge.model.surrogates import REPLACEMENT, begins_pair, repair, repaired


class Halves:
    """Passes events on. Half a character at the end of a piece waits for the next piece of its part.

    A half without its other half becomes U+FFFD, in pieces and in everything else.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, Delta] = {}

    def feed(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, (TextDelta, ReasoningDelta, ArgsDelta)):
                self._piece(event, out)
                continue
            if isinstance(event, PartEnded) and (held := self._held.pop(event.part_id, None)) is not None:
                out.append(replace(held, text=REPLACEMENT))
            out.append(_mended(event))
        return out

    def _piece(self, event: Delta, out: list[Event]) -> None:
        held = self._held.pop(event.part_id, None)
        text = event.text if held is None else held.text + event.text
        if begins_pair(text):
            self._held[event.part_id] = replace(event, text=text[-1], extras=None)
            text = text[:-1]
        if text or event.extras:
            out.append(replace(event, text=repair(text), extras=repaired(event.extras)))


def _mended(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _mended(getattr(value, field.name)) for field in fields(value)})
    return [_mended(item) for item in value] if isinstance(value, list) else repaired(value)
