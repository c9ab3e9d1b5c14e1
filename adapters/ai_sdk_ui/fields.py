"""Fields beside `messages`, which the protocol does not define, but applications agree on; options select them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bridge.contract import Context
from bridge.dialects.ai_sdk_ui.wire import NAME, Wire
from bridge.model import Message, Request, Text, Tool
from bridge.toolkit import Node
from bridge.toolkit.fields import INTEGER, NUMBER, OBJECT, STRING, STRINGS, Fields, Row
from bridge.toolkit.tools import supported


def _read_tools(fields: Node, name: str) -> list[Tool] | None:
    """Tools by name, as assistant-ui has them, or the list of OpenAI's APIs."""
    if isinstance(fields.get(name), list):
        return [_function(node) for node in fields.objects(name)] or None
    tools = fields.object(name)
    return [_tool(each, tools.need_object(each)) for each in tools.value] or None if tools else None


def _function(node: Node) -> Tool:
    inner = node.object("function") or node
    return _tool(inner.need_string("name"), inner)


def _tool(name: str, node: Node) -> Tool:
    parameters = node.object("parameters")
    return Tool(name, node.string("description"), parameters.value if parameters else None)


def _objects(fields: Node, name: str) -> list[Wire]:
    return [entry.value for entry in fields.objects(name)]


def _said(value: Any) -> Any:
    return None if value in ({}, []) else value


FIELDS = Fields(
    NAME,
    Row("tools", _read_tools, "tools"),
    Row("temperature", NUMBER, "sampling.temperature"),
    Row("top_p", NUMBER, "sampling.top_p"),
    Row("max_tokens", INTEGER, "sampling.max_tokens"),
    Row("stop", STRINGS, "sampling.stop", _said),
    Row("seed", INTEGER, "sampling.seed"),
    Row("reasoning_effort", STRING, "reasoning_effort"),
    Row("user", STRING, "user_id"),
    Row("metadata", OBJECT, "metadata", _said),
    Row("context", _objects, "context", _said),
    Row("state", Node.get, "state", _said),
    Row("model", STRING, "model"),
    also={"system"},
    carries={"thread_id", "resume"},
)


def read_fields(body: Node, names: Collection[str], request: Request) -> Wire:
    """Set what the options name and the body has, and return the rest. Raises `RequestError` with the place."""
    if "system" in names and (system := body.string("system")):
        request.messages.insert(0, Message("system", [Text(system)], places=("system",)))
    return FIELDS.read(body, request, only=names)


def write_fields(request: Request, context: Context, names: Collection[str]) -> Wire:
    """Return the fields that the options name; others that the request sets are noted as lost."""
    tools = {tool.name: _write_tool(tool) for tool in supported(request, NAME, context.lost)}
    made = {"tools": tools or None, "model": context.model or request.model or None}
    return FIELDS.write(request, context.lost, made, only=names)


def _write_tool(tool: Tool) -> Wire:
    wire = {"description": tool.description, "parameters": tool.parameters or {"type": "object", "properties": {}}}
    return {k: v for k, v in wire.items() if v is not None}
