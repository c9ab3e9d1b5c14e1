"""Functions, the choice among tools and the shape of an answer, in the words of OpenAI's chat completions.

Other protocols have taken these objects over; the Responses API has the same fields one level higher.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from bridge.model import Extras, ResponseFormat, Tool, ToolChoice, ToolMode
from bridge.toolkit.check import Node, wrong
from bridge.toolkit.tools import FUNCTION

Wire = dict[str, Any]

MODES = {str(mode): mode for mode in ToolMode}
FUNCTION_FIELDS = frozenset({"name", "description", "parameters", "strict"})
SCHEMA, SCHEMA_FIELDS = "json_schema", frozenset({"name", "schema", "strict", "description"})
_FORMATS = {"text": "text", "json_object": "json"}
_FORMAT_WORDS = {kind: word for word, kind in _FORMATS.items()}
_ALLOWED = "allowed_tools"


# ------------------------------------------------------------------ tools


def read_function(node: Node, extras: Extras | None = None) -> Tool:
    """Return the tool that a function describes. Raises `RequestError`."""
    parameters = node.object("parameters")
    name, description = node.need_string("name"), node.string("description")
    return Tool(name, description, parameters.value if parameters else None, node.boolean("strict"), extras)


def is_flat(node: Node, kind: str) -> bool:
    """Return whether the fields of a tool stand beside its type, as in the Responses API: Cursor sends that, too."""
    return kind not in node.value and "name" in node.value


def write_function(tool: Tool) -> Wire:
    """Return the fields of a function that the tool has."""
    fields = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    return {"name": tool.name, **{name: value for name, value in fields.items() if value is not None}}


def read_choice(body: Node, kinds: Collection[str] = (FUNCTION,), hosted: Collection[str] = ()) -> ToolChoice | None:
    """Return `tool_choice`; None if it is absent. Raises `RequestError`.

    `kinds` are the types of tools that have a name, `hosted` those that the provider runs and that have none.
    """
    value = body.get("tool_choice")
    if value is None:
        return None
    if isinstance(value, str):
        return ToolChoice(MODES[body.need_one_of("tool_choice", MODES)])
    if not isinstance(value, dict):
        wrong(body.at("tool_choice"), "none, auto, required or an object", value)
    node = body.need_object("tool_choice")
    if node.string("type") != _ALLOWED:
        return ToolChoice(ToolMode.REQUIRED, [_chosen(node, kinds, hosted, "one of " + _listed({_ALLOWED, *kinds}))])
    inner = node.need_object(_ALLOWED)
    inner.need_array("tools")
    mode = inner.one_of("mode", ("auto", "required")) or "auto"
    expected = " or ".join(sorted(kinds))
    return ToolChoice(MODES[mode], [_chosen(tool, kinds, hosted, expected) for tool in inner.objects("tools")])


def _chosen(node: Node, kinds: Collection[str], hosted: Collection[str], expected: str) -> str:
    """The name of the tool that is meant; one that the provider runs has only its kind."""
    kind = node.string("type") or FUNCTION
    if kind in kinds:
        return node.need_string("name") if is_flat(node, kind) else node.need_object(kind).need_string("name")
    if kind not in hosted:
        wrong(node.at("type"), expected, kind)
    return kind


def _listed(words: Collection[str]) -> str:
    return ", ".join(sorted(words))


def _named(name: str) -> Wire:
    return {"type": FUNCTION, FUNCTION: {"name": name}}


def write_choice(choice: ToolChoice, named: Callable[[str], Wire] = _named) -> str | Wire:
    """Return `tool_choice`. `named` makes the reference to one tool; without it, every tool is a function."""
    if not choice.names or choice.mode is ToolMode.NONE:
        return str(choice.mode)
    if choice.mode is ToolMode.REQUIRED and len(choice.names) == 1:
        return named(choice.names[0])
    return {"type": _ALLOWED, _ALLOWED: {"mode": str(choice.mode), "tools": [named(name) for name in choice.names]}}


# ------------------------------------------------------------------ the shape of an answer


def read_format(node: Node) -> ResponseFormat | None:
    """Return the format that `response_format` names; None for another type than OpenAI's. Raises `RequestError`."""
    kind = node.need_string("type")
    if kind in _FORMATS:
        return ResponseFormat(_FORMATS[kind])
    return read_schema(node.need_object(SCHEMA)) if kind == SCHEMA else None


def read_schema(node: Node) -> ResponseFormat:
    """Return the format that a schema with its name describes. Raises `RequestError`."""
    inner = node.object("schema")
    name, strict, description = node.string("name"), node.boolean("strict"), node.string("description")
    return ResponseFormat(SCHEMA, name, inner.value if inner else None, strict, description)


def write_format(wanted: ResponseFormat) -> Wire:
    """Return `response_format`."""
    if wanted.kind != SCHEMA:
        return {"type": _FORMAT_WORDS.get(wanted.kind, "text")}
    return {"type": SCHEMA, SCHEMA: write_schema(wanted)}


def write_schema(wanted: ResponseFormat) -> Wire:
    """Return the fields of a schema. The API demands a name; dialects without one mean "whatever you call it"."""
    fields = {"schema": wanted.schema, "strict": wanted.strict, "description": wanted.description}
    return {"name": wanted.name or "answer", **{name: value for name, value in fields.items() if value is not None}}


# ------------------------------------------------------------------ rows of a table


def choice(body: Node, name: str) -> ToolChoice | None:
    """The choice among functions, as a row of `Fields` reads it."""
    return read_choice(body)


def shape(body: Node, name: str) -> ResponseFormat | None:
    """The shape of the answer, as a row of `Fields` reads it. Raises `RequestError` for another one than OpenAI's."""
    node = body.object(name)
    if node is None:
        return None
    wanted = read_format(node)
    if wanted is None:
        wrong(node.at("type"), "one of " + _listed({*_FORMATS, SCHEMA}), node.get("type"))
    return wanted
