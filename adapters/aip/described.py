"""A tool's arguments: the texts of registrations and JSON Schema, both ways.

The text of a parameter is a type as Python prints it, a description, or both: `<class 'int'>`, `the first number`,
`<class 'int'>: the first number`. An optional one ends in `(default: 1)`. Or it is a JSON Schema, as JSON or as Python
prints a dict: `{'type': 'integer', 'description': 'the first number'}`.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from bridge.model.jsontext import loads

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
_JSON_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
_TYPE = re.compile(r"<class '(?P<cls>[\w.]+)'>|(?:typing\.)?(?P<word>[A-Za-z]+)")
_OPTIONAL = re.compile(r"(?:typing\.)?Optional\[")
_MAY_MISS = re.compile(r"\b(?:default|optional)\b|\|\s*None\b", re.IGNORECASE)
_BEHIND_A_TYPE = ":,;(-"
_LONGEST = 8192
"""Characters of described arguments that are read as a Python literal at most."""


# Anyone may register any text: each of these scans it a fixed number of times, however odd and long it is.


def parameter(text: str) -> dict[str, Any]:
    """The schema of one parameter; what names no type is a description of a text."""
    return _described(text)[0]


def _described(text: Any, room: int = _LONGEST) -> tuple[dict[str, Any], bool]:
    """Return the schema of one parameter, and whether it is optional. `room`: the longest literal that is read."""
    declared = text if isinstance(text, dict) else _literal(text, room) if isinstance(text, str) else None
    schema = _schema(declared) if declared else None
    if declared and schema:
        return schema, _dict_may_miss(declared)
    text = (text if isinstance(text, str) else repr(text)).strip()
    found = _typed_text(_without_optional(text))
    json_type, rest = found if found is not None else ("string", text)
    return {"type": json_type, **({"description": rest} if rest else {})}, may_miss(text)


def _literal(text: str, room: int) -> dict[str, Any] | None:
    """The dict that a text is, as JSON or as Python prints it; None for anything else, and what JSON cannot hold."""
    text = text.strip()
    if len(text) > room or text[:1] != "{" or text[-1:] != "}":
        return None
    try:
        return loads(text)  # type: ignore[no-any-return]
    except ValueError:
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in foreign text
            declared = ast.literal_eval(text)
        return loads(json.dumps(declared, allow_nan=False)) if isinstance(declared, dict) else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_KEYWORDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("title", "description", "format", "pattern"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"), _is_number),
    "enum": lambda value: isinstance(value, list) and bool(value),
    "required": lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    "default": lambda value: True,
    "const": lambda value: True,
}
"""What is taken over of a schema beside its types and the schemas in it, if it is of this form."""


def _schema(declared: dict[str, Any], depth: int = 8) -> dict[str, Any]:
    """Return the JSON Schema in a dict; empty if it is none. Types may have their names in Python.

    Anything that models could refuse is left out, and what is nested deeper.
    """
    schema: dict[str, Any] = {}
    if "type" in declared:
        json_type = _json_type(declared["type"])
        if json_type is None:
            return {}
        schema["type"] = json_type
    schema |= {name: value for name, value in declared.items() if name in _KEYWORDS and _KEYWORDS[name](value)}
    if depth:
        for name in ("anyOf", "oneOf", "allOf"):
            inner = [_schema(each, depth - 1) for each in _list_of(declared.get(name)) if isinstance(each, dict)]
            schema |= {name: inner} if inner and all(inner) else {}
        if isinstance(declared.get("items"), dict):
            schema["items"] = _schema(declared["items"], depth - 1)
        if isinstance(declared.get("properties"), dict):
            schema["properties"] = {name: _inner(each, depth - 1) for name, each in declared["properties"].items()}
    if schema.keys() == {"description"}:
        schema = {"type": "string", **schema}
    return schema


def _inner(declared: Any, depth: int) -> dict[str, Any]:
    return _schema(declared, depth) if isinstance(declared, dict) else {}


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _json_type(declared: Any) -> str | list[str] | None:
    """The type or types that a schema names; None for what is no type."""
    if isinstance(declared, list):
        types = [_json_type(each) for each in declared]
        return [t for t in types if isinstance(t, str)] if types and all(isinstance(t, str) for t in types) else None
    if not isinstance(declared, str):
        return None
    found = declared if declared in _JSON_TYPES else _typed_text(declared)
    return found[0] if isinstance(found, tuple) else found


def _dict_may_miss(declared: Mapping[str, Any]) -> bool:
    if isinstance(declared.get("required"), bool):
        return not declared["required"]
    nullable = isinstance(declared.get("type"), list) and "null" in declared["type"]
    return "default" in declared or declared.get("optional") is True or nullable


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


def schema_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments: texts, or schemas as dicts."""
    room = _LONGEST
    needed, properties = [], {}
    for name, text in arguments.items():
        properties[name], may_be_left_out = _described(text, room)
        if isinstance(text, str) and text.lstrip()[:1] == "{":
            room -= len(text)
        if not may_be_left_out:
            needed.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": needed} if needed else schema


def schema_of_literal(text: str) -> dict[str, Any]:
    """The same of the Python dict literal that tools of a box have, or of a whole schema as one; of anything unreadable
    any object.
    """
    if not text.strip():
        return schema_of({})
    declared = _literal(text, _LONGEST)
    if declared is None:
        return {"type": "object"}
    whole = declared.get("type") == "object" and isinstance(declared.get("properties"), dict)
    return _schema(declared) if whole else schema_of(declared)


_NAMES = {"integer": "int", "number": "float", "boolean": "bool", "string": "str", "array": "list", "object": "dict"}


def texts_of(schema: Mapping[str, Any] | None) -> dict[str, str]:
    """Return each parameter of a JSON Schema as a text with its type, and whether it is optional."""
    known = schema or {}
    properties, needed = known.get("properties"), known.get("required")
    found = properties if isinstance(properties, dict) else {}
    return {name: _text_of(each, name in (needed or ())) for name, each in found.items()}


def _text_of(schema: Any, needed: bool) -> str:
    declared = schema if isinstance(schema, dict) else {}
    json_type = declared.get("type")
    name = _NAMES.get(json_type) if isinstance(json_type, str) else None
    words = [str(declared.get("description") or "").strip(), *([] if needed else ["(optional)"])]
    text = " ".join(word for word in words if word)
    what = f"<class '{name or 'str'}'>"
    return f"{what}: {text}" if text else what


def typed(arguments: Mapping[str, Any], described: Mapping[str, str]) -> dict[str, Any]:
    """Return arguments that came as text (a map holds nothing else) with the types of their parameters."""
    return {name: _typed(value, described.get(name, "")) for name, value in arguments.items()}


def _typed(value: Any, text: str) -> Any:
    wanted = parameter(text).get("type")
    if wanted in (None, "string") or not isinstance(value, str):
        return value
    try:
        return loads(value)
    except ValueError:
        return value
