"""Constants and helpers shared by both directions."""

from __future__ import annotations

from typing import Any

from bridge.model import Extras
from bridge.model.jsontext import dumps, escape_line_breaks

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
    return escape_line_breaks(dumps(event))
