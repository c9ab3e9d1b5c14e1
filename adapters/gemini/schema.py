"""Google's schema dialect, a subset of OpenAPI 3.0 with types in upper case, to JSON Schema and back.

Everything can be expressed in JSON Schema. In the other direction, what the subset does not have is replaced by an
equivalent if there is one (`$ref` is inlined, `const` becomes an enum, a list of types `anyOf`), and left out
otherwise.
"""

from __future__ import annotations

from typing import Any

from bridge.toolkit.check import Spelling

Json = dict[str, Any]

_NUMBERS = frozenset(
    {"minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength", "minimum", "maximum"}
)
_DROPPED = frozenset({"propertyOrdering", "example", "nullable", "type"})
_PLAIN = _NUMBERS | {"format", "title", "description", "nullable", "required", "pattern", "default"}
"""Keywords that mean the same in both, and whose values are no schemas."""
_NULL = {"type": "null"}
_MOST = 5000
"""Schemas in one schema, references put in place included: their number can grow with a power of its size."""
_DEEPEST = 100
_CAMEL = Spelling()


def json_schema(schema: Json) -> Json:
    """The JSON Schema that a schema of Google's means."""
    out: Json = {}
    words = _CAMEL(schema)
    kind = words.get("type")
    if isinstance(kind, str) and kind.upper() != "TYPE_UNSPECIFIED":
        out["type"] = kind.lower()
    elif isinstance(kind, list):
        out["type"] = kind
    for name, value in words.items():
        if name == "properties" and isinstance(value, dict):
            out[name] = {key: json_schema(each) if isinstance(each, dict) else each for key, each in value.items()}
        elif name in ("items", "additionalProperties") and isinstance(value, dict):
            out[name] = json_schema(value)
        elif name == "anyOf" and isinstance(value, list):
            out[name] = [json_schema(each) if isinstance(each, dict) else each for each in value]
        elif name in _NUMBERS and isinstance(value, str):
            out[name] = _number(value)
        elif name not in _DROPPED:
            out[name] = value
    return _nullable(out) if words.get("nullable") is True else out


def _number(value: str) -> Any:
    """64-bit integers are strings in this JSON."""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else value


def _nullable(schema: Json) -> Json:
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    elif isinstance(schema.get("anyOf"), list):
        schema["anyOf"] = [*schema["anyOf"], _NULL]
    if isinstance(schema.get("enum"), list):
        schema["enum"] = [*schema["enum"], None]
    return schema


class Reducer:
    """Writes a JSON Schema in Google's dialect. `dropped` holds the keywords that were left out."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._count = 0
        self._depth = 0
        self._open: set[str] = set()
        self.dropped: set[str] = set()

    def reduced(self) -> Json:
        """The whole schema."""
        return self._schema(self._root)

    def _schema(self, schema: Any) -> Json:
        self._count += 1
        if not isinstance(schema, dict) or self._count > _MOST or self._depth > _DEEPEST:
            if schema is not True:
                self.dropped.add("a schema that is too large" if isinstance(schema, dict) else "false")
            return {}
        self._depth += 1
        written = self._written(schema)
        self._depth -= 1
        return written

    def _written(self, schema: Json) -> Json:
        if isinstance(reference := schema.get("$ref"), str):
            return self._referred(reference, schema)
        out: Json = {name: schema[name] for name in schema if name in _PLAIN}
        self._types(schema, out)
        for name in ("anyOf", "oneOf"):
            if isinstance(schema.get(name), list):
                self._choices(schema[name], out)
        if isinstance(schema.get("allOf"), list):
            _join(out, [self._schema(each) for each in schema["allOf"]])
        if isinstance(schema.get("properties"), dict):
            properties = {key: self._schema(each) for key, each in schema["properties"].items()}
            out["properties"] = {**out.get("properties", {}), **properties}
        if isinstance(schema.get("items"), dict):
            out["items"] = self._schema(schema["items"])
        self._values(schema, out)
        self.dropped |= schema.keys() - _PLAIN - _READ
        return out

    def _referred(self, reference: str, schema: Json) -> Json:
        """What a reference within the schema leads to; one that leads to itself has no form in this dialect."""
        target: Any = self._root
        for step in reference.removeprefix("#").strip("/").split("/") if reference.startswith("#/") else ["?"]:
            step = step.replace("~1", "/").replace("~0", "~")
            target = target.get(step) if isinstance(target, dict) else None
        if not isinstance(target, dict) or reference in self._open:
            self.dropped.add("$ref")
            return {"type": "OBJECT"}
        self._open.add(reference)
        found = self._schema(target)
        self._open.discard(reference)
        return {**found, **{name: schema[name] for name in ("description", "title", "default") if name in schema}}

    def _types(self, schema: Json, out: Json) -> None:
        kind = schema.get("type")
        kinds = [each for each in (kind if isinstance(kind, list) else [kind]) if isinstance(each, str)]
        if len(kinds) > 1 and "null" in kinds:
            out["nullable"] = True
            kinds.remove("null")
        if len(kinds) == 1:
            out["type"] = kinds[0].upper()
        elif kinds:
            out["anyOf"] = [{"type": each.upper()} for each in kinds]

    def _choices(self, choices: list[Any], out: Json) -> None:
        others = [each for each in choices if each != _NULL]
        if len(others) < len(choices):
            out["nullable"] = True
        written = [self._schema(each) for each in others]
        if len(written) == 1:
            _join(out, [written[0]])
        elif written:
            out["anyOf"] = written

    def _values(self, schema: Json, out: Json) -> None:
        """`enum` and `const`; the dialect's enums hold strings only."""
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if not isinstance(values, list):
            return
        if None in values:
            out["nullable"] = True
        words = [value for value in values if value is not None]
        if words and all(isinstance(value, str) for value in words):
            out["enum"] = words
            out.setdefault("type", "STRING")
        elif words:
            self.dropped.add("enum")


_READ = frozenset(
    {"type", "properties", "items", "anyOf", "oneOf", "allOf", "enum", "const", "$ref", "$defs", "definitions"}
    | {"$schema", "$id", "$comment", "examples"}
)


def _join(out: Json, schemas: list[Json]) -> None:
    """Combine all: properties and required fields add up."""
    properties: Json = dict(out.get("properties", {}))
    required: dict[Any, None] = dict.fromkeys(out.get("required", ()))
    for schema in schemas:
        for name, value in schema.items():
            if name == "properties":
                properties.update(value)
            elif name == "required" and isinstance(value, list):
                required.update(dict.fromkeys(value))
            else:
                out.setdefault(name, value)
    if properties:
        out["properties"] = properties
    if required:
        out["required"] = list(required)
