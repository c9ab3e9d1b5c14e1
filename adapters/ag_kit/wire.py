"""Constants and helpers shared by both directions."""

from __future__ import annotations

from typing import Any

from bridge.codec.jsontext import dumps
from bridge.model import Extras

NAME = "ag-kit"
DONE = b"[DONE]"

EMPTY_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
"""The parameters of a tool without any."""


def own(extras: Extras | None) -> dict[str, Any]:
    """Return this dialect's extras of a request, a message or a tool; an empty dict if there are none."""
    return extras.get(NAME) or {} if extras else {}


def request_notes(extras: Extras | None) -> dict[str, Any]:
    """Return the notes on a request: its `generation` and, if generated for it, its `conversation` id."""
    return own(extras).get("notes") or {}


def noted(fields: dict[str, Any]) -> Extras | None:
    """Return `extras` with the unknown fields of an object, for routes with this dialect on both sides."""
    return {NAME: {"fields": fields}} if fields else None


def unknown_fields(extras: Extras | None) -> dict[str, Any]:
    """Return the unknown fields stored by `noted`."""
    fields = own(extras).get("fields")
    return fields if isinstance(fields, dict) else {}


def write(event: dict[str, Any]) -> bytes:
    """Return the payload of one event: compact JSON on one line."""
    return safe(dumps(event))


def safe(payload: bytes) -> bytes:
    """Return the payload with U+0085, U+2028 and U+2029 escaped.

    The reference leaves them unescaped, and readers that split at all Unicode line breaks then lose the event. In valid
    UTF-8 these bytes encode nothing else, and in JSON they occur inside strings only.
    """
    if payload.isascii():
        return payload
    if 0xE2 in payload:
        payload = payload.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return payload.replace(b"\xc2\x85", b"\\u0085") if 0xC2 in payload else payload
