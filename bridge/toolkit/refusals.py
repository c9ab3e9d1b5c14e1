"""Explanations of refusals that a protocol tells beside its answer: `stop_details.explanation` of Messages, and
`finishMessage` and `blockReasonMessage` of Gemini. For other dialects an explanation is a refusal like those of models.
"""

from __future__ import annotations

from collections.abc import Hashable

from bridge.model import Builder, Extras, PartKind
from bridge.model.surrogates import repair

_BESIDE = "explanation"
_LONGEST = 2**14
_PIECES = 256


class Said:
    """The end of the text of a message, of bounded length: an explanation that repeats it tells nothing new.

    Such explanations come from bridges, whose clients get the refusal of a model as a text and beside it.
    """

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def append(self, piece: str) -> None:
        """Add a piece of the text."""
        self._pieces.append(piece)
        if len(self._pieces) > _PIECES:
            self._pieces = ["".join(self._pieces)[-_LONGEST:]]

    def holds(self, text: str) -> bool:
        """Return whether the message said this already; of a long text the end counts."""
        return repair(text[-_LONGEST:]) in repair("".join(self._pieces))


def add_explanation(builder: Builder, message: Hashable, text: str, dialect: str, said: Said) -> None:
    """Add the refusal that `text` is, unless the message `said` it; clients of `dialect` get it beside the answer."""
    if said.holds(text):
        return
    said.append(text)
    key = _BESIDE, message
    builder.open_part(key, message, PartKind.REFUSAL, extras={dialect: {_BESIDE: True}})
    builder.delta(key, text)
    builder.end_part(key)


def is_beside(extras: Extras | None, dialect: str) -> bool:
    """Return whether a refusal is an explanation that `dialect` tells beside its answer."""
    return bool((extras or {}).get(dialect, {}).get(_BESIDE))
