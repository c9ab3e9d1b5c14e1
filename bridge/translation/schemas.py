"""JSON Schemas in the subset that an API takes.

OpenAI refuses a tool whose schema is no object with `properties`. Anthropic refuses `anyOf`, `oneOf` and `allOf` at the
root of `input_schema`, and takes for structured outputs only schemas whose objects are closed, without limits of
numbers and lengths (platform.claude.com, structured outputs, "JSON Schema limitations").
"""

from __future__ import annotations

from typing import Any

from bridge.contract.demands import SchemaDemands
from bridge.model.jsontext import dict_of

Json = dict[str, Any]

_DEEPEST = 100
_MOST = 5000
"""Schemas in one schema, with those in place of references, whose number can grow with a power of its size."""
_CHOICES = ("anyOf", "oneOf", "allOf")
_ROOT = frozenset({"$ref", *_CHOICES})
_MAPS = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
"""Keywords whose values are objects of schemas, by names that are the user's."""
_SINGLE = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})


def is_taken(schema: Json, demands: SchemaDemands) -> bool:
    """Return whether the root of a schema is as demanded, where nothing inside is demanded; a cheap look."""
    return (
        schema.get("type") == "object"
        and isinstance(schema.get("properties"), dict)
        and _ROOT.isdisjoint(schema)
        and not (demands.closed or demands.forbidden or demands.inlined or demands.most_min_items is not None)
    )


class SchemaWriter:
    """Brings one schema to `demands`. `dropped` holds the keywords that were left out, `looks` counts schemas and
    properties that were looked at.
    """

    def __init__(self, demands: SchemaDemands) -> None:
        self.dropped: dict[str, None] = {}
        self._demands = demands
        self.looks = 0
        self._known: set[str] = set()  # references that were followed

    def write(self, schema: Json) -> Json:
        """Return the schema as it is taken; the same object if that is so already."""
        demands = self._demands
        if demands.inlined:
            inlined = self._inlined(schema, schema, frozenset(), 0)
            schema = schema if inlined == schema else inlined
        if (demands.object_root or demands.plain_root) and "$ref" in schema:
            schema = self._followed(schema, schema)
        if demands.plain_root and not schema.keys().isdisjoint(_CHOICES):
            schema = self._plain(schema)
        if demands.object_root:
            schema = _as_object(schema, demands.root_properties)
        return self._walked(schema, 0) if demands.closed or demands.forbidden else schema

    # ------------------------------------------------------------------ the root

    def _plain(self, root: Json) -> Json:
        """Put the branches of the root's choices into the root: their properties add up, and of `anyOf` and `oneOf`
        only what every branch requires is required.
        """
        out = {name: value for name, value in root.items() if name not in _CHOICES}
        for name in _CHOICES:
            if name in root:
                self.dropped[name] = None
                branches = root[name] if isinstance(root[name], list) else []
                self._merge(out, [self._branch(root, b, 0) for b in branches], is_choice=name != "allOf")
        return out

    def _branch(self, root: Json, branch: Any, depth: int) -> Json:
        """Return a branch with its reference into the root followed and its own choices merged."""
        self.looks += 1
        if not isinstance(branch, dict) or depth > _DEEPEST:
            return {}
        branch = self._followed(root, branch)
        out = {name: value for name, value in branch.items() if name not in _CHOICES}
        for name in _CHOICES:
            if isinstance(branch.get(name), list):
                inner = [self._branch(root, each, depth + 1) for each in branch[name]]
                self._merge(out, inner, is_choice=name != "allOf")
        return out

    def _merge(self, out: Json, branches: list[Json], *, is_choice: bool) -> None:
        properties = dict(dict_of(out.get("properties")))
        required = dict.fromkeys(_words(out.get("required")))
        shared: set[str] | None = None
        for branch in branches:
            found = dict_of(branch.get("properties"))
            self.looks += len(found)
            for name, value in found.items():
                known = properties.get(name)
                if known is None or known == value:
                    properties[name] = value
                elif is_choice:
                    properties[name] = _either(known, value)
            wanted = _words(branch.get("required"))
            if is_choice:
                shared = set(wanted) if shared is None else shared & set(wanted)
            else:
                required.update(dict.fromkeys(wanted))
            if not isinstance(out.get("description"), str) and len(branches) == 1 and "description" in branch:
                out["description"] = branch["description"]
            for name in ("$defs", "definitions"):
                if isinstance(branch.get(name), dict):
                    out[name] = {**branch[name], **dict_of(out.get(name))}
        if shared:
            required.update((name, None) for name in properties if name in shared)
        if properties:
            out["properties"] = properties
        if required:
            out["required"] = list(required)
        if out.get("additionalProperties") is False and any("properties" in b for b in branches):
            return
        if branches and all(b.get("additionalProperties") is False for b in branches):
            out.setdefault("additionalProperties", False)

    def _followed(self, root: Json, schema: Json) -> Json:
        """Return a schema with what its references within the root lead to, each followed once; others are left out."""
        while "$ref" in schema:
            reference = schema["$ref"]
            rest = {name: value for name, value in schema.items() if name != "$ref"}
            if not isinstance(reference, str) or not reference.startswith("#/") or reference in self._known:
                return rest
            self._known.add(reference)
            schema = {**_target(root, reference), **rest}
        return schema

    def _inlined(self, root: Json, schema: Any, within: frozenset[str], depth: int) -> Any:
        """Return a schema without references: each is replaced by what it leads to, unless it leads to itself."""
        self.looks += 1
        if not isinstance(schema, dict) or depth > _DEEPEST or self.looks > _MOST:
            return schema
        reference = schema.get("$ref")
        if isinstance(reference, str):
            rest = {name: value for name, value in schema.items() if name != "$ref"}
            target = _target(root, reference) if reference not in within else {}
            if not target:
                self.dropped["$ref"] = None
            return self._inlined(root, {**target, **rest}, within | {reference}, depth + 1)
        out: Json = {}
        for name, value in schema.items():
            if name in ("$defs", "definitions") and schema is root:
                continue
            if name in _MAPS and isinstance(value, dict):
                out[name] = {key: self._inlined(root, each, within, depth + 1) for key, each in value.items()}
            elif name in _LISTS and isinstance(value, list):
                out[name] = [self._inlined(root, each, within, depth + 1) for each in value]
            elif name in _SINGLE:
                out[name] = self._inlined(root, value, within, depth + 1)
            else:
                out[name] = value
        return out

    # ------------------------------------------------------------------ every schema in it

    def _walked(self, schema: Any, depth: int) -> Any:
        self.looks += 1
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return schema
        out: Json = {}
        for name, value in schema.items():
            if self._is_refused(name, value):
                self.dropped[name] = None
            elif name in _MAPS and isinstance(value, dict):
                out[name] = {key: self._walked(each, depth + 1) for key, each in value.items()}
            elif name in _LISTS and isinstance(value, list):
                out[name] = [self._walked(each, depth + 1) for each in value]
            elif name in _SINGLE:
                out[name] = self._walked(value, depth + 1)
            else:
                out[name] = value
        if self._demands.closed and _is_object(out) and out.get("additionalProperties") is not False:
            if "additionalProperties" in out:
                self.dropped["additionalProperties"] = None
            out["additionalProperties"] = False
        return out

    def _is_refused(self, name: str, value: Any) -> bool:
        most = self._demands.most_min_items
        if name == "minItems" and most is not None:
            return not isinstance(value, int) or value > most
        return name in self._demands.forbidden


def _target(root: Json, reference: str) -> Json:
    """Return what a reference within the root leads to; an empty schema if that is nothing."""
    target: Any = root
    if not reference.startswith("#/"):
        return {}
    for step in reference.removeprefix("#/").split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        target = target.get(step) if isinstance(target, dict) else None
    return dict_of(target)


def _as_object(schema: Json, has_properties: bool) -> Json:
    """The schema of an object; with `has_properties`, it names its properties, if there are none as well."""
    if schema.get("type") != "object":
        schema = {"type": "object", **{name: value for name, value in schema.items() if name != "type"}}
    if isinstance(schema.get("properties"), dict) or not (has_properties or "properties" in schema):
        return schema
    return {"type": "object", "properties": {}, **{k: v for k, v in schema.items() if k not in ("type", "properties")}}


def _is_object(schema: Json) -> bool:
    kind = schema.get("type")
    if kind is None:
        return "properties" in schema
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


_MOST_EITHER = 32


def _either(known: Any, value: Any) -> Any:
    """Return the schema of a property that two branches declare differently."""
    choices = known["anyOf"] if isinstance(known, dict) and known.keys() == {"anyOf"} else [known]
    if not isinstance(choices, list) or value in choices or len(choices) >= _MOST_EITHER:
        return known
    return {"anyOf": [*choices, value]}


def _words(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
