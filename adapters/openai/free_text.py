"""Tools with free text as input (`custom`): functions with one argument, `input`, for dialects without such tools."""

from __future__ import annotations

from typing import Any

from bridge.model import Extras, Tool
from bridge.model.jsontext import dumps, read_json

INPUT = "input"
"""The argument of the function."""


def free_text_tool(name: str, description: str | None, grammar: dict[str, Any], extras: Extras | None) -> Tool:
    """Return the function for such a tool. `grammar`: its `syntax` and `definition`, if it has one. Other models get
    it as a description, which they may violate.
    """
    lines = [description or ""]
    if text := grammar.get("definition"):
        lines.append(f"The input has this grammar ({grammar.get('syntax') or 'lark'}):\n{text}")
    schema = {
        "type": "object",
        "properties": {INPUT: {"type": "string", "description": "The whole input, as plain text."}},
        "required": [INPUT],
        "additionalProperties": False,
    }
    return Tool(name, "\n\n".join(filter(None, lines)) or None, schema, extras=extras)


def arguments_of(text: str) -> str:
    """Return the arguments of a call whose input is this free text."""
    return dumps({INPUT: text}).decode()


def input_of(arguments: str) -> str:
    """Return the free text in a call's arguments: of a model that names it otherwise, the only member; of one that
    keeps to no schema, all it wrote (antirez/ds4#745: `{"patch": "*** Begin Patch ..."}`).
    """
    value = read_json(arguments.encode("utf-8", "replace"))
    if not isinstance(value, dict):
        return arguments
    text = value.get(INPUT, next(iter(value.values())) if len(value) == 1 else None)
    return text if isinstance(text, str) else arguments
