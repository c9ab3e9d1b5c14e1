"""What registrations say of arguments, as JSON Schema; the recorded ones among it."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.dialects.aip.described import schema_of, schema_of_literal, typed
from bridge.dialects.aip.wire import ToolBoxInfo, ToolInfo

from .test_gateway import recorded

INT = {"type": "integer"}


@pytest.mark.parametrize(
    ("text", "parameter", "needed"),
    [
        ("<class 'int'>", INT, True),
        ("<class 'int'>: the first number", {**INT, "description": "the first number"}, True),
        ("<class 'int'>: n (default: 2)", {**INT, "description": "n (default: 2)"}, False),
        ("<class 'int'> (default: 2)", {**INT, "description": "(default: 2)"}, False),
        ("int", INT, True),
        ("float", {"type": "number"}, True),
        ("bool - whether", {"type": "boolean", "description": "whether"}, True),
        ("str", {"type": "string"}, True),
        ("typing.Any", {"type": "string"}, True),
        ("list[int]", {"type": "array"}, True),
        ("dict[str, list[int]]: more", {"type": "object", "description": "more"}, True),
        ("int | None", INT, False),
        ("typing.Optional[int]: n", {**INT, "description": "n"}, False),
        ("typing.Optional[list[int]]", {"type": "array"}, False),
        ("the first number", {"type": "string", "description": "the first number"}, True),
        ("interval in days", {"type": "string", "description": "interval in days"}, True),
        ("<class 'package.Thing'>", {"type": "string", "description": "<class 'package.Thing'>"}, True),
        ("optional name", {"type": "string", "description": "optional name"}, False),
        ("", {"type": "string"}, True),
        # A schema, as Python prints it or as JSON.
        ("{'type': 'integer'}", INT, True),
        (" {'type': 'number', 'description': 'how much'} ", {"type": "number", "description": "how much"}, True),
        ('{"type": "boolean", "description": null}', {"type": "boolean"}, True),
        ("{'type': 'integer', 'default': 2}", {**INT, "default": 2}, False),
        ("{'type': 'integer', 'required': False}", INT, False),
        ("{'type': 'integer', 'required': True, 'default': 1}", {**INT, "default": 1}, True),
        ("{'type': 'integer', 'optional': True}", INT, False),
        (
            "{'type': 'array', 'items': {'type': 'integer'}, 'description': 'a default one'}",
            {"type": "array", "items": INT, "description": "a default one"},
            True,
        ),
        ("{'enum': ['a', 'b'], 'title': 'T'}", {"enum": ["a", "b"], "title": "T"}, True),
        ("{'description': 'words'}", {"type": "string", "description": "words"}, True),
        ("{'type': 'int'}", INT, True),
        ("{'type': \"<class 'float'>\", 'description': 'n'}", {"type": "number", "description": "n"}, True),
        ("{'type': ['integer', 'null']}", {"type": ["integer", "null"]}, False),
        ("{'anyOf': [{'type': 'integer'}, {'type': 'null'}]}", {"anyOf": [INT, {"type": "null"}]}, True),
        # What no model would take is left out, for one tool must not spoil the requests of all.
        ("{'type': 'integer', 'enum': 'a', 'description': 1, 'items': 2, '$ref': 'x', 'anyOf': [1]}", INT, True),
        ("{'type': 'array', 'items': {'type': 'thing'}}", {"type": "array", "items": {}}, True),
        ("{'type': 'thing'}", {"type": "string", "description": "{'type': 'thing'}"}, True),
        ("{'type': ['integer', 'thing']}", {"type": "string", "description": "{'type': ['integer', 'thing']}"}, True),
        ("{'x': 1}", {"type": "string", "description": "{'x': 1}"}, True),
        ("{'type': b'integer'}", {"type": "string", "description": "{'type': b'integer'}"}, True),
        (
            "{'type': 'string', 'enum': {1, 2}}",
            {"type": "string", "description": "{'type': 'string', 'enum': {1, 2}}"},
            True,
        ),
        ("{'type': 'string', 'x': 1e999}", {"type": "string", "description": "{'type': 'string', 'x': 1e999}"}, True),
        ("{'type': __import__('os')}", {"type": "string", "description": "{'type': __import__('os')}"}, True),
    ],
)
def test_a_parameter(text: str, parameter: dict[str, Any], needed: bool) -> None:
    schema = schema_of({"x": text})
    assert schema["properties"]["x"] == parameter
    assert schema.get("required", []) == (["x"] if needed else [])


@pytest.mark.parametrize(
    ("text", "json_type", "needed"),
    [
        ("x" + " " * 100_000 + "y", "string", True),
        ("Optional[" * 100_000, "string", False),
        ("typing.Optional[" + "[" * 100_000 + "]" * 100_001 + "int", "string", False),
        ("Optional[" + " " * 100_000 + "int]", "integer", False),
        ("int" + "[" * 100_000, "string", True),
        ("list[" + "]" * 100_000, "array", True),
        ("int" + " " * 100_000 + "x", "string", True),
        ("int |" + " " * 100_000 + "None: n", "integer", False),
        ("int |" + " " * 100_000, "string", True),
        ("<class '" + "a." * 100_000, "string", True),
        ("<class 'int'>: " + "many words " * 10_000 + "(default: 1)", "integer", False),
        ("{'type': " * 100_000, "string", True),
        ("{'type': 'integer', 'x': " + "[" * 4_000, "string", True),
        ("{'type': 'integer', 'x': " + "-" * 8_000 + "1}", "string", True),
        ("{'type': 'integer', 'x': " + "9" * 8_000 + "}", "string", True),
        ("{'type': 'integer', 'description': '" + "x" * 100_000 + "'}", "string", True),
    ],
)
def test_no_text_is_too_long_or_too_odd(text: str, json_type: str, needed: bool) -> None:
    """A node that registers must not stop a gateway: with patterns that go back and forth these take minutes or hours.

    And a type is found, and that it may be left out, whatever is said of it.
    """
    schema = schema_of({"x": text})
    assert schema["properties"]["x"]["type"] == json_type
    assert schema.get("required", []) == (["x"] if needed else [])


def test_a_long_description_is_kept_whole() -> None:
    words = "many words " * 10_000 + "(default: 1)"
    schema = schema_of({"x": f"<class 'int'>: {words}"})
    assert schema == {"type": "object", "properties": {"x": {**INT, "description": words}}}


def test_recorded_registrations() -> None:
    tool = ToolInfo.from_bytes(recorded("register_tool", "ToolInfo"))
    box = ToolBoxInfo.from_bytes(recorded("toolbox_register", "ToolBoxInfo"))
    # A map has no order, a literal has.
    required = {"required": sorted(schema_of(tool.arguments)["required"])}
    for schema in ({**schema_of(tool.arguments), **required}, schema_of_literal(box.tools[0].arguments)):
        assert schema == {"type": "object", "properties": {"a": INT, "b": INT}, "required": ["a", "b"]}


@pytest.mark.parametrize("text", ["not a literal", "[1]", "__import__('os')", "{", "(" * 10_000, "{'a': " * 70_000])
def test_what_cannot_be_read_is_any_object(text: str) -> None:
    assert schema_of_literal(text) == {"type": "object"}


def test_a_schema_in_a_box_keeps_its_types() -> None:
    text = repr({"a": {"type": "integer", "description": "first"}, "b": "<class 'float'>", "c": str({"type": "array"})})
    assert schema_of_literal(text) == {
        "type": "object",
        "properties": {"a": {**INT, "description": "first"}, "b": {"type": "number"}, "c": {"type": "array"}},
        "required": ["a", "b", "c"],
    }


def test_a_whole_schema_in_a_box() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}, "required": ["a"]}
    assert schema_of_literal(repr(schema)) == schema


def test_no_arguments_and_odd_ones() -> None:
    assert schema_of_literal("  ") == {"type": "object", "properties": {}}
    assert schema_of_literal("{1: 2}")["properties"] == {"1": {"type": "string", "description": "2"}}


def test_texts_become_what_they_were() -> None:
    described = {"n": "int", "f": "list", "s": "str", "bad": "int", "m": "{'type': 'integer'}"}
    said = {"n": "3", "f": "[1]", "s": "3", "bad": "x", "free": "4", "done": 5, "m": "6"}
    assert typed(said, described) == {"n": 3, "f": [1], "s": "3", "bad": "x", "free": "4", "done": 5, "m": 6}
