"""Building blocks of the configuration's sections."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, WithJsonSchema, model_validator

from bridge.contract import Options
from bridge.engine.config.kinds import Positive, Whole
from bridge.engine.config.units import off_is_none

FreeOptions = Annotated[SerializeAsAny[Options], WithJsonSchema({"type": "object"})]


def or_off_word(schema: dict[str, Any]) -> None:
    _or_word(schema, {"enum": [False, "off"]})


def or_none_word(schema: dict[str, Any]) -> None:
    _or_word(schema, {"const": "none"})


def or_cloud_word(schema: dict[str, Any]) -> None:
    _or_word(schema, {"enum": ["gcp", "azure", "aws"]})


def _or_word(schema: dict[str, Any], word: dict[str, Any]) -> None:
    """Make the JSON Schema of a section also accept a word."""
    choices = schema.pop("anyOf", None) or [{"$ref": schema.pop("$ref")}]
    schema["anyOf"] = [*choices, word]


_Value = TypeVar("_Value")
OrOff = Annotated[_Value | None, BeforeValidator(off_is_none), Field(json_schema_extra=or_off_word)]
"""A value, or `off`, which is None."""


class Section(BaseModel):
    """A mapping of the configuration; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


class ConcurrencySection(Section):
    """Maximum numbers of concurrent and queued requests."""

    concurrent: Positive = Field(
        description="concurrent requests and stored runs, in all workers together"
        ". For: a route whose backend bears fewer requests than the server"
    )
    queue: Whole = Field(
        default=100,
        description="queued requests, and as many queued stored runs; further ones are refused"
        ". For: clients that rather wait than repeat a refused request; 0 for interactive ones",
    )


def dialect_options(value: Any, model: type[Options] | None) -> Options:
    """Return options as the dialect's own model, whose errors have paths below `options`."""
    if model is None:
        return Options()  # The dialect is unknown, which is an error already.
    given = value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
    return model.model_validate(given)
