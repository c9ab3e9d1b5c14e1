"""Data besides the content: extras of events and parts, and the metadata of messages."""

from __future__ import annotations

from typing import Any, Final

from bridge.model import Reasoning
from bridge.model.jsontext import text_of

NAME: Final = "agentscope"
"""The key of this dialect's extras, for all written forms."""

_OWN_METADATA = frozenset(
    {"origin", "signature", "redacted", "is_error", "finish_reason", "interrupt", "choice_index", "model"}
)


def own(extras: dict[str, dict[str, Any]] | None) -> dict[str, Any]:
    """Return this dialect's extras of an event or a part."""
    return (extras or {}).get(NAME) or {}


def foreign_metadata(metadata: object) -> dict[str, Any]:
    """Return the metadata of a message without the keys that this codec reads and writes itself."""
    return {k: v for k, v in metadata.items() if k not in _OWN_METADATA} if isinstance(metadata, dict) else {}


def choice_of(metadata: dict[str, Any]) -> int:
    """Return the index of the choice that a message belongs to."""
    choice = metadata.get("choice_index")
    return choice if type(choice) is int and choice > 0 else 0


def message_extras(metadata: object, usage: object) -> dict[str, Any]:
    """Return extras with the metadata and usage of a message, for frontends of the same dialect."""
    other_metadata, own_usage = foreign_metadata(metadata), usage_of({"usage": usage})
    return {**({"metadata": other_metadata} if other_metadata else {}), **({"usage": own_usage} if own_usage else {})}


def usage_of(own_extras: dict[str, Any]) -> dict[str, Any] | None:
    """Return the usage of one message as a server of this dialect sent it."""
    usage = own_extras.get("usage")
    return usage if isinstance(usage, dict) and usage else None


def reasoning_of(text: str, metadata: object) -> Reasoning:
    fields = metadata if isinstance(metadata, dict) else {}
    return Reasoning(text, text_of(fields.get("signature")) or None, text_of(fields.get("redacted")) or None)


def reasoning_metadata(signature: str | None, redacted: str | None) -> dict[str, Any]:
    """Return metadata with the signature and the redacted content of reasoning."""
    fields = {"signature": signature, "redacted": redacted}
    return {k: v for k, v in fields.items() if v is not None}
