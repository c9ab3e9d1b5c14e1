"""The JSON Schema of the configuration (draft 2020-12), for editors and for the reference in the documentation."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from bridge.contract import registry
from bridge.engine.config.kinds import BUILT_IN, dialect_of
from bridge.engine.config.schema.backends import BackendSection
from bridge.engine.config.schema.routes import RouteSection
from bridge.engine.config.schema.whole import Config

_VARIABLE = {"type": "string", "pattern": r"\$\{"}
# YAML 1.2, which editors use, has no booleans `on` and `off`.
_SWITCH = {"type": "string", "pattern": r"^(on|off|yes|no)$|\$\{"}
_ROLES: tuple[tuple[str, type[BaseModel]], ...] = (("front", RouteSection), ("back", BackendSection))


class _Generator(GenerateJsonSchema):
    """Also allows `${NAME}` for numbers and booleans; omits titles, which only repeat the key."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        return {"anyOf": [super().int_schema(schema), _VARIABLE]}

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return {"anyOf": [super().float_schema(schema), _VARIABLE]}

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        return {"anyOf": [super().bool_schema(schema), _SWITCH]}


def json_schema() -> dict[str, Any]:
    """Return the schema as JSON data.

    The schemas of each dialect's `options` are `$defs["front:<dialect>"]` and `$defs["back:<dialect>"]`, selected by
    the value of `dialect`. A dialect that cannot be loaded has none.
    """
    options: dict[str, type[BaseModel]] = {}
    for name in registry.names():
        if (dialect := dialect_of(name)) is not None:
            options |= {f"front:{name}": dialect.front_options} if dialect.served else {}
            options |= {f"back:{name}": dialect.back_options} if dialect.called else {}
    models: dict[type[BaseModel], None] = dict.fromkeys([Config, *options.values()])
    refs, schema = models_json_schema(
        [(model, "validation") for model in models],
        by_alias=True,
        title="dialect-bridge configuration",
        ref_template="#/$defs/{model}",
        schema_generator=_Generator,
    )
    definitions = schema["$defs"]
    for name, model in options.items():
        definitions[name] = refs[model, "validation"]
    for role, owner in _ROLES:
        _apply(definitions[owner.__name__], role, options)
    return {"$schema": _Generator.schema_dialect, **schema, **refs[Config, "validation"]}


def _apply(definition: dict[str, Any], role: str, options: dict[str, type[BaseModel]]) -> None:
    """List the dialects in `dialect`, and make the schema of `options` depend on it."""
    names = [name.partition(":")[2] for name in options if name.startswith(f"{role}:")]
    dialect = definition["properties"]["dialect"]
    known = [*names, *(BUILT_IN if role == "back" else ())]
    dialect["anyOf"] = [{"enum": known}, _VARIABLE]
    definition["allOf"] = [
        {
            "if": {"properties": {"dialect": {"const": name}}, "required": ["dialect"]},
            "then": {"properties": {"options": {"$ref": f"#/$defs/{role}:{name}"}}},
        }
        for name in names
    ]
    if not names:
        del definition["allOf"]
