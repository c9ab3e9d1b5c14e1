"""Explanations of refusals that a protocol tells beside its answer: `stop_details.explanation` of Messages, and
`finishMessage` and `blockReasonMessage` of Gemini. For other dialects an explanation is a refusal like those of models.
"""

from __future__ import annotations

from collections.abc import Hashable

from bridge.model import Builder, Extras, PartKind

_BESIDE = "explanation"


def add_explanation(builder: Builder, message: Hashable, text: str, dialect: str) -> None:
    """Add the refusal that `text` is; clients of `dialect` get it beside the answer."""
    key = _BESIDE, message
    builder.open_part(key, message, PartKind.REFUSAL, extras={dialect: {_BESIDE: True}})
    builder.delta(key, text)
    builder.end_part(key)


def is_beside(extras: Extras | None, dialect: str) -> bool:
    """Return whether a refusal is an explanation that `dialect` tells beside its answer."""
    return bool((extras or {}).get(dialect, {}).get(_BESIDE))
