"""Fields beside `messages`, which the protocol does not define, but applications agree on; options select them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from bridge.codec import Context, Feature, Node
from bridge.codec.tools import supported
from bridge.dialects.ai_sdk_ui.wire import NAME, Wire
from bridge.model import Message, Request, Text, Tool

_SAMPLING: dict[str, Callable[[Node, str], Any]] = {
    "temperature": Node.number,
    "top_p": Node.number,
    "max_tokens": Node.integer,
    "stop": Node.strings,
    "seed": Node.integer,
}
_FEATURES = {
    "tools": Feature.TOOLS,
    **dict.fromkeys(_SAMPLING, Feature.SAMPLING),
    "reasoning_effort": Feature.REASONING_EFFORT,
    "user": Feature.USER_ID,
    "metadata": Feature.METADATA,
    "context": Feature.CONTEXT,
    "state": Feature.STATE,
    "model": Feature.MODEL,
}


def read_fields(body: Node, names: Collection[str], request: Request) -> None:
    """Set what the options name and the body has. Raises `RequestError` with the place."""
    fields = Node({k: v for k, v in body.value.items() if k in names})
    for name, read in _SAMPLING.items():
        setattr(request.sampling, name, read(fields, name))
    if system := fields.string("system"):
        request.messages.insert(0, Message("system", [Text(system)], places=("system",)))
    request.tools = _read_tools(fields)
    request.model = fields.string("model")
    request.reasoning_effort = fields.string("reasoning_effort")
    request.user_id = fields.string("user")
    if metadata := fields.object("metadata"):
        request.metadata = metadata.value
    request.context = [entry.value for entry in fields.objects("context")]
    request.state = fields.get("state")


def _read_tools(fields: Node) -> list[Tool] | None:
    """Tools by name, as assistant-ui has them, or the list of OpenAI's APIs."""
    value = fields.get("tools")
    if isinstance(value, list):
        return [_function(node) for node in fields.objects("tools")] or None
    tools = fields.object("tools")
    if tools is None:
        return None
    return [_tool(name, tools.need_object(name)) for name in tools.value] or None


def _function(node: Node) -> Tool:
    inner = node.object("function") or node
    return _tool(inner.need_string("name"), inner)


def _tool(name: str, node: Node) -> Tool:
    parameters = node.object("parameters")
    return Tool(name, node.string("description"), parameters.value if parameters else None)


def write_fields(request: Request, context: Context, names: Collection[str]) -> Wire:
    """Return the fields that the options name; others that the request sets are noted as lost."""
    values: Wire = {
        "tools": {t.name: _write_tool(t) for t in supported(request, NAME, context.lost)},
        **{name: getattr(request.sampling, name) for name in _SAMPLING},
        "reasoning_effort": request.reasoning_effort,
        "user": request.user_id,
        "metadata": request.metadata,
        "context": request.context,
        "state": request.state,
        "model": request.model,
    }
    given = {k: v for k, v in values.items() if v not in (None, {}, [])}
    for name in given.keys() - set(names):
        context.lost.add(_FEATURES[name])
    if "model" in names and (model := context.model or request.model):
        given["model"] = model
    sampling = request.sampling
    if any(v is not None for v in (sampling.n, sampling.frequency_penalty, sampling.presence_penalty)):
        context.lost.add(Feature.SAMPLING)
    for feature, value in (
        (Feature.TOOL_CHOICE, request.tool_choice),
        (Feature.PARALLEL_TOOL_CALLS, request.parallel_tool_calls),
        (Feature.RESPONSE_FORMAT, request.response_format),
    ):
        if value is not None:
            context.lost.add(feature)
    return {k: v for k, v in given.items() if k in names}


def _write_tool(tool: Tool) -> Wire:
    wire = {"description": tool.description, "parameters": tool.parameters or {"type": "object", "properties": {}}}
    return {k: v for k, v in wire.items() if v is not None}
