"""Tools of Anthropic's own that the client runs: `bash`, the text editor, the computer and the memory.

Anthropic's models know their schemas, which therefore stand in no request. Backends of other dialects get them as
functions with these schemas. Shapes: the parameters in Anthropic's documentation of each tool.
"""

from __future__ import annotations

import re
from typing import Any

from bridge.dialects.anthropic_messages.wire import noted
from bridge.model import Tool
from bridge.toolkit.check import Node

Wire = dict[str, Any]
_KIND = re.compile(r"(bash|text_editor|computer|memory)_\d{8}", re.ASCII)
"""The types: the kind of tool and the date of its version."""
_TEXT, _PLACE = {"type": "string"}, {"type": "array", "items": {"type": "integer"}}


def _schema(required: list[str], **properties: Wire) -> Wire:
    return {"type": "object", "properties": properties, "required": required}


def _words(*words: str) -> Wire:
    return {"type": "string", "enum": list(words)}


_FILE: Wire = {
    "path": _TEXT, "view_range": _PLACE, "file_text": _TEXT, "old_str": _TEXT, "new_str": _TEXT,
    "insert_line": {"type": "integer"}, "insert_text": _TEXT,
}  # fmt: skip
_ACTIONS = (
    "screenshot", "left_click", "right_click", "middle_click", "double_click", "triple_click", "left_click_drag",
    "left_mouse_down", "left_mouse_up", "mouse_move", "scroll", "type", "key", "hold_key", "wait", "zoom",
    "cursor_position",
)  # fmt: skip

_TOOLS: dict[str, tuple[str, Wire]] = {
    "bash": (
        "Runs a command in a persistent bash session of the user's and returns its output. restart begins a new one.",
        _schema([], command=_TEXT, restart={"type": "boolean"}),
    ),
    "text_editor": (
        "Views, creates and edits the user's files.",
        _schema(["command", "path"], command=_words("view", "create", "str_replace", "insert"), **_FILE),
    ),
    "computer": (
        "Acts on the user's computer, and takes screenshots.",
        _schema(
            ["action"],
            action=_words(*_ACTIONS),
            coordinate=_PLACE,
            start_coordinate=_PLACE,
            text=_TEXT,
            duration={"type": "number"},
            scroll_direction=_words("up", "down", "left", "right"),
            scroll_amount={"type": "integer"},
            region=_PLACE,
        ),
    ),
    "memory": (
        "Reads and writes files in the directory /memories, which stays from one conversation to the next.",
        _schema(
            ["command"],
            command=_words("view", "create", "str_replace", "insert", "delete", "rename"),
            old_path=_TEXT,
            new_path=_TEXT,
            **_FILE,
        ),
    ),
}


def client_tool(node: Node) -> Tool | None:
    """The function for a tool that the client runs; None for any other."""
    found = _KIND.fullmatch(node.need_string("type"))
    if found is None:
        return None
    description, schema = _TOOLS[found[1]]
    if found[1] == "computer" and (width := node.get("display_width_px")):
        description = f"{description} The screen has {width} x {node.get('display_height_px')} pixels."
    return Tool(node.need_string("name"), description, schema, extras=noted(node.value))


def is_client_tool(fields: Wire) -> bool:
    """Return whether these are the fields of a tool that `client_tool` has read."""
    kind = fields.get("type")
    return isinstance(kind, str) and _KIND.fullmatch(kind) is not None
