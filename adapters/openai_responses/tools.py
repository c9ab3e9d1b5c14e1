"""Tools, tool choice and text format: read from requests, and written into requests and response objects."""

from __future__ import annotations

from typing import Any

from bridge.dialects.openai import shapes as chat
from bridge.dialects.openai.shapes import FUNCTION_FIELDS, MODES, SCHEMA, read_function, read_schema, write_schema
from bridge.dialects.openai_responses.client_tools import client_tool, is_run_by_client
from bridge.dialects.openai_responses.declared import free, members
from bridge.dialects.openai_responses.wire import noted, own
from bridge.model import ResponseFormat, Tool, ToolChoice, ToolMode
from bridge.model.jsontext import dicts_of
from bridge.toolkit.check import Node, wrong
from bridge.toolkit.tools import FUNCTION

_FUNCTION_KEYS = FUNCTION_FIELDS | {"type"}


# ------------------------------------------------------------------ read


def read_tools(body: Node, *, optional: bool) -> list[Tool] | None:
    """Return the tools of a list, None if there is none. `optional`: whether those run by the provider may be
    left out.
    """
    if body.get("tools") is None:
        return None
    return [tool for node in body.objects("tools") for tool in _tools(node, optional)]


def _tools(node: Node, optional: bool) -> list[Tool]:
    """Functions, tools with free text as input, those in namespaces and OpenAI's own that clients run; other kinds
    (`web_search`, `mcp`) exist only in this dialect.
    """
    match kind := node.need_string("type"):
        case "function":
            return [_function(node)]
        case "custom":
            return [free(node)]
        case _ if is_run_by_client(node.value):
            return [client_tool(node)]
        case "namespace" if inside := read_tools(node, optional=optional):
            return members(node, inside)
    name, description = node.get("name"), node.get("description")
    return [
        Tool(
            name if isinstance(name, str) and name else kind,
            description if isinstance(description, str) else None,
            extras=noted(whole=node.value),
            kind=kind,
            optional=optional,
        )
    ]


def _function(node: Node) -> Tool:
    return read_function(node, noted(item=node.rest(_FUNCTION_KEYS)))


def read_tool_choice(body: Node, extras: dict[str, Any]) -> ToolChoice | None:
    """Tools that the model does not know (`mcp`, hosted tools) also pass unchanged."""
    value = body.get("tool_choice")
    if value is None:
        return None
    if isinstance(value, str):
        return ToolChoice(MODES[body.one_of("tool_choice", MODES) or "auto"])
    if not isinstance(value, dict):
        wrong("tool_choice", "none, auto, required or an object", value)
    node = Node(value, "tool_choice")
    kind = node.need_string("type")
    if kind == FUNCTION:
        return ToolChoice(ToolMode.REQUIRED, [node.need_string("name")])
    extras["tool_choice"] = value
    if kind != "allowed_tools":
        return ToolChoice(ToolMode.REQUIRED, [node.string("name") or kind])
    mode = node.one_of("mode", ("auto", "required")) or "auto"
    node.need_array("tools")
    names = [tool.string("name") or tool.need_string("type") for tool in node.objects("tools")]
    return ToolChoice(MODES[mode], names)


def read_text(body: Node, extras: dict[str, Any]) -> ResponseFormat | None:
    """`text`: the format; everything else of it (`verbosity`) travels on."""
    text = body.object("text")
    if text is None:
        return None
    text.string("verbosity")
    node = text.object("format")
    kind = node.need_string("type") if node else "text"
    known = kind in ("text", "json_object", SCHEMA)
    more = text.rest({"format"} if known else set())
    if more:
        extras["text"] = more
    if node is None or not known:
        return None
    if kind != SCHEMA:
        return chat.read_format(node)
    node.need_string("name")
    node.need_object("schema")
    return read_schema(node)


# ------------------------------------------------------------------ written


def write_tools(tools: list[Tool], *, ours: bool) -> list[dict[str, Any]]:
    """The tools of the wire, without those that another one of them, or an item of the input, holds."""
    return [_wire_of(tool, ours) for tool in tools if not own(tool.extras).get("within")]


def _wire_of(tool: Tool, ours: bool) -> dict[str, Any]:
    """Return a tool of the wire. With `ours`, a client of this dialect sent it, and absent fields stay absent.

    Functions are strict by default here; in other dialects it is the other way round.
    """
    notes = own(tool.extras)
    if "whole" in notes:
        return dict(notes["whole"])
    wire: dict[str, Any] = {"type": FUNCTION, "name": tool.name}
    if tool.description is not None:
        wire["description"] = tool.description
    if tool.parameters is not None or not ours:
        wire["parameters"] = {"type": "object", "properties": {}} if tool.parameters is None else tool.parameters
    if tool.strict is not None or not ours:
        wire["strict"] = bool(tool.strict)
    return {**wire, **notes.get("item", {})}


def echoed_tools(tools: Any) -> list[dict[str, Any]]:
    """The tools of a response: its functions have every field, with the API's defaults. What is no list holds none."""
    return [_echoed(tool) if tool.get("type") == FUNCTION else tool for tool in dicts_of(tools)]


def _echoed(function: dict[str, Any]) -> dict[str, Any]:
    said = {name: value for name, value in function.items() if value is not None}
    return {**function, "description": None, "parameters": None, "strict": True, **said}


def write_tool_choice(choice: ToolChoice | None) -> str | dict[str, Any] | None:
    if choice is None:
        return None
    if not choice.names or choice.mode is ToolMode.NONE:
        return str(choice.mode)
    if choice.mode is ToolMode.REQUIRED and len(choice.names) == 1:
        return {"type": FUNCTION, "name": choice.names[0]}
    named = [{"type": FUNCTION, "name": name} for name in choice.names]
    return {"type": "allowed_tools", "mode": str(choice.mode), "tools": named}


def echoed_format(wanted: ResponseFormat | None) -> dict[str, Any]:
    """The text format of a response, with every field that it has there."""
    out = write_format(wanted) or {"type": "text"}
    return {"description": None, "strict": False, **out} if out["type"] == SCHEMA else out


def write_format(wanted: ResponseFormat | None) -> dict[str, Any] | None:
    """Return `text.format`; the schema is mandatory here."""
    if wanted is None:
        return None
    if wanted.kind != SCHEMA:
        return chat.write_format(wanted)
    fields = write_schema(wanted)
    return {"type": SCHEMA, "name": fields["name"], "schema": {}, **fields}
