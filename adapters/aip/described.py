"""What registrations say of a tool's arguments <-> JSON Schema (page, sections 4 and 10).

The text of a parameter is a type as Python prints it, a description, or both: `<class 'int'>`, `the first number`,
`<class 'int'>: the first number`. One that may be left out says so: `(default: 1)`.
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
_TEXT = re.compile(
    r"\s*(?:<class '(?P<cls>[\w.]+)'>|(?:typing\.)?(?P<word>[A-Za-z]+)(?:\[[^:]*\])?)(?P<none>\s*\|\s*None)?"
    r"\s*(?:$|[:,;(-]\s*)(?P<rest>.*)",
    re.DOTALL,
)
_OPTIONAL = re.compile(r"\s*(?:typing\.)?Optional\[(?P<inner>[^\]]*(?:\[[^\]]*\])?)\]")
_MAY_MISS = re.compile(r"\b(?:default|optional)\b", re.IGNORECASE)
_LONGEST_TEXT = 500
"""Characters of a parameter's text in which a type is looked for: anybody may register it, and patterns are slow."""
_LONGEST = 65536
"""Characters of described arguments that are read as a Python literal; nobody describes a tool with more."""


def parameter(text: str) -> dict[str, Any]:
    """The schema of one parameter; what names no type, or is far too long to, is a description of a text."""
    if len(text) > _LONGEST_TEXT:
        return {"type": "string", "description": text}
    plain = _OPTIONAL.sub(lambda found: found["inner"], text, count=1)
    found = _TEXT.fullmatch(plain)
    word = (found["cls"] or found["word"] or "").rpartition(".")[2].lower() if found else ""
    if found is None or word not in _TYPES:
        return {"type": "string", **({"description": text.strip()} if text.strip() else {})}
    rest = (found["rest"] or "").strip()
    if rest.endswith(")") and "(" not in rest:
        rest = f"({rest}"
    return {"type": _TYPES[word], **({"description": rest} if rest else {})}


def may_miss(text: str) -> bool:
    """Whether a call need not name the parameter."""
    text = text[:_LONGEST_TEXT]
    return bool(_OPTIONAL.match(text) or _MAY_MISS.search(text) or "| None" in text)


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
