"""Data beside the content: extras of events and parts, and the metadata of messages on the wire."""

from __future__ import annotations

from typing import Any, Final

from bridge.dialects.agentscope.spelling import text_of
from bridge.model import Reasoning

NAME: Final = "agentscope"
"""Under this name extras are kept, whichever written form they came in."""

_OWN_METADATA = frozenset(
    {"origin", "signature", "redacted", "is_error", "finish_reason", "interrupt", "choice_index", "model"}
)


def own(extras: dict[str, dict[str, Any]] | None) -> dict[str, Any]:
    """Return this dialect's extras of an event or a part."""
    return (extras or {}).get(NAME) or {}


def foreign_metadata(metadata: object) -> dict[str, Any]:
    """The metadata of a message without the keys that this codec reads and writes itself."""
    return {k: v for k, v in metadata.items() if k not in _OWN_METADATA} if isinstance(metadata, dict) else {}


def choice_of(metadata: dict[str, Any]) -> int:
    """Which of several answers a message belongs to."""
    choice = metadata.get("choice_index")
    return choice if type(choice) is int and choice > 0 else 0


def beside(metadata: object, usage: object) -> dict[str, Any]:
    """Extras that bring the metadata and the usage of one message to a frontend of the same dialect."""
    rest, counts = foreign_metadata(metadata), usage_of({"usage": usage})
    return {**({"metadata": rest} if rest else {}), **({"usage": counts} if counts else {})}


def usage_of(mine: dict[str, Any]) -> dict[str, Any] | None:
    """The usage of one message as a server of this dialect wrote it."""
    usage = mine.get("usage")
    return usage if isinstance(usage, dict) and usage else None


def reasoning_of(text: str, metadata: object) -> Reasoning:
    said = metadata if isinstance(metadata, dict) else {}
    return Reasoning(text, text_of(said.get("signature")) or None, text_of(said.get("redacted")) or None)


def reasoning_note(signature: str | None, redacted: str | None) -> dict[str, Any]:
    """Metadata that brings opaque thinking back to the model that made it."""
    note = {"signature": signature, "redacted": redacted}
    return {k: v for k, v in note.items() if v is not None}
