"""Words and small readers that both directions of the wire share."""

from __future__ import annotations

from typing import Any

from bridge.codec.jsontext import dumps
from bridge.model import Extras

NAME = "ag-kit"
DONE = b"[DONE]"

EMPTY_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
"""The parameters of a tool that describes none."""


def own(extras: Extras | None) -> dict[str, Any]:
    """Return this dialect's extras of a request, a message or a tool; an empty dict if there are none."""
    return extras.get(NAME) or {} if extras else {}


def notes(extras: Extras | None) -> dict[str, Any]:
    """How a client's request came: its `generation`, and the id of a `conversation` that was made for it."""
    return own(extras).get("notes") or {}


def noted(fields: dict[str, Any]) -> Extras | None:
    """`extras` with the unknown fields of an object, for routes with this dialect on both sides."""
    return {NAME: {"fields": fields}} if fields else None


def unknown(extras: Extras | None) -> dict[str, Any]:
    """The unknown fields that `noted` kept."""
    fields = own(extras).get("fields")
    return fields if isinstance(fields, dict) else {}


def write(event: dict[str, Any]) -> bytes:
    """The payload of one event: compact JSON in one line."""
    return safe(dumps(event))


def safe(payload: bytes) -> bytes:
    """Writes U+0085, U+2028 and U+2029 as escapes.

    The reference leaves them raw, and readers that split "all line breaks" then lose the event; escapes are equally
    legal. In valid UTF-8 these bytes stand for nothing else, and in JSON only inside strings.
    """
    if payload.isascii():
        return payload
    if 0xE2 in payload:
        payload = payload.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return payload.replace(b"\xc2\x85", b"\\u0085") if 0xC2 in payload else payload
