"""A tool's arguments: the texts of registrations and JSON Schema, both ways.

The text of a parameter is a type as Python prints it, a description, or both: `<class 'int'>`, `the first number`,
`<class 'int'>: the first number`. An optional one ends in `(default: 1)`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from bridge.codec.jsontext import loads

_TYPES = {
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "str": "string",
    "bytes": "string",
    "any": "string",
    "list": "array",
    "tuple": "array",
    "set": "array",
    "dict": "object",
}
_TYPE = re.compile(r"<class '(?P<cls>[\w.]+)'>|(?:typing\.)?(?P<word>[A-Za-z]+)")
_OPTIONAL = re.compile(r"(?:typing\.)?Optional\[")
_MAY_MISS = re.compile(r"\b(?:default|optional)\b|\|\s*None\b", re.IGNORECASE)
_BEHIND_A_TYPE = ":,;(-"
_LONGEST = 8192
"""Characters of described arguments that are read as a Python literal at most."""


# Anybody may register any text: each of these goes over it a fixed number of times, however odd and long it is.


def parameter(text: str) -> dict[str, Any]:
    """The schema of one parameter; what names no type is a description of a text."""
    text = text.strip()
    found = _typed_text(_without_optional(text))
    if found is None:
        return {"type": "string", **({"description": text} if text else {})}
    json_type, rest = found
    return {"type": json_type, **({"description": rest} if rest else {})}


def _typed_text(text: str) -> tuple[str, str] | None:
    """The JSON type that the text begins with, and what follows; None where it begins with none."""
    found = _TYPE.match(text)
    word = (found["cls"] or found["word"]).rpartition(".")[2].lower() if found else ""
    if found is None or word not in _TYPES:
        return None
    rest = text[found.end() :]
    if found["word"] and rest.startswith("["):
        inside = rest.partition(":")[0].rpartition("]")[0]
        if not inside:
            return None
        rest = rest[len(inside) + 1 :]
    rest = rest.lstrip()
    if rest.startswith("|"):
        other = rest[1:].lstrip()
        if not other.startswith("None"):
            return None
        rest = other.removeprefix("None").lstrip()
    if rest and rest[0] not in _BEHIND_A_TYPE:
        return None
    # `(default: 1)` stays in its brackets.
    return _TYPES[word], rest if rest.startswith("(") and rest.endswith(")") else rest[1:].strip()


def _without_optional(text: str) -> str:
    """`Optional[int]: n` as `int: n`."""
    found = _OPTIONAL.match(text)
    if found is None:
        return text
    depth = 1
    for place in range(found.end(), len(text)):
        depth += {"[": 1, "]": -1}.get(text[place], 0)
        if depth == 0:
            return text[found.end() : place].strip() + text[place + 1 :]
    return text


def may_miss(text: str) -> bool:
    """Return whether a call may leave the parameter out."""
    return bool(_OPTIONAL.match(text.lstrip()) or _MAY_MISS.search(text))


def schema_of(arguments: Mapping[str, str]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    needed = [name for name, text in arguments.items() if not may_miss(text)]
    schema: dict[str, Any] = {"type": "object", "properties": {n: parameter(t) for n, t in arguments.items()}}
    return {**schema, "required": needed} if needed else schema


def schema_of_literal(text: str) -> dict[str, Any]:
    """The same of the Python dict literal that tools of a box have; of anything unreadable any object."""
    if not text.strip():
        return schema_of({})
    try:
        said = ast.literal_eval(text.strip()) if len(text) <= _LONGEST else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        said = None
    if not isinstance(said, dict):
        return {"type": "object"}
    return schema_of({str(name): value if isinstance(value, str) else repr(value) for name, value in said.items()})


_NAMES = {"integer": "int", "number": "float", "boolean": "bool", "string": "str", "array": "list", "object": "dict"}


def texts_of(schema: Mapping[str, Any] | None) -> dict[str, str]:
    """The other way round: each parameter of a JSON Schema as a text that says its type, and whether it may miss."""
    known = schema or {}
    properties, needed = known.get("properties"), known.get("required")
    found = properties if isinstance(properties, dict) else {}
    return {name: _text_of(each, name in (needed or ())) for name, each in found.items()}


def _text_of(schema: Any, needed: bool) -> str:
    said = schema if isinstance(schema, dict) else {}
    json_type = said.get("type")
    name = _NAMES.get(json_type) if isinstance(json_type, str) else None
    words = [str(said.get("description") or "").strip(), *([] if needed else ["(optional)"])]
    text = " ".join(word for word in words if word)
    what = f"<class '{name or 'str'}'>"
    return f"{what}: {text}" if text else what


def typed(arguments: Mapping[str, Any], described: Mapping[str, str]) -> dict[str, Any]:
    """Arguments that came as text (a map holds nothing else) as what their parameters say that they are."""
    return {name: _typed(value, described.get(name, "")) for name, value in arguments.items()}


def _typed(value: Any, text: str) -> Any:
    wanted = parameter(text)["type"]
    if wanted == "string" or not isinstance(value, str):
        return value
    try:
        return loads(value)
    except ValueError:
        return value
