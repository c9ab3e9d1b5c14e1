"""Detects which of the two wire generations bytes belong to.

The generation `tool` has one tool for each node and a map of arguments, the generation `toolbox` a box of tools and one
JSON object as text. Agent sessions are the same in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from bridge.dialects.aip.proto import entry, fields, text_field
from bridge.dialects.aip.wire import ToolBoxInfo
from bridge.model.jsontext import dumps, loads

Generation = Literal["tool", "toolbox"]


def of_registration(data: bytes, fallback: Generation = "tool") -> Generation:
    """The generation of a tool node's registration. Raises `ValueError` for bytes that are no message."""
    found: dict[int, int | bytes] = dict(fields(data))
    if found.keys() & {7, 8, 9}:
        return "tool"
    box = found.get(6)
    if isinstance(box, bytes) and box[:1] == b"\x0a" and _is_box(data):
        return "toolbox"
    if box is None and 5 in found:
        return "toolbox" if _is_words(found[5]) else "tool"
    return fallback if box is None else "tool"


def _is_box(data: bytes) -> bool:
    try:
        ToolBoxInfo.from_bytes(data)
    except ValueError:
        return False
    return True


def _is_words(value: int | bytes) -> bool:
    try:
        return isinstance(value, bytes) and value.decode().isprintable()
    except ValueError:
        return False


def arguments_of(blobs: list[bytes]) -> dict[str, Any]:
    """Return the arguments of a tool call from the field number 5. Raises `ValueError` that describes other values."""
    if not blobs:
        return {}
    if all(blob[:1] in (b"\x0a", b"\x12") for blob in blobs):
        return dict(entry(blob) for blob in blobs)
    arguments = loads(blobs[-1])
    if not isinstance(arguments, dict):
        raise ValueError(f"arguments: expected a JSON object, got {type(arguments).__name__}")
    return arguments


def write_arguments(arguments: Mapping[str, Any], generation: Generation) -> list[bytes]:
    """The arguments as a node of this generation takes them; see `ToolRequest.arguments`."""
    if generation == "toolbox":
        return [dumps(dict(arguments))]
    return [text_field(1, key) + text_field(2, as_map_value(value)) for key, value in arguments.items()]


def as_map_value(value: Any) -> str:
    """Map values are strings: texts as they are, everything else as compact JSON."""
    return value if isinstance(value, str) else dumps(value).decode()
