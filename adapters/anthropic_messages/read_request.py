"""Request bodies -> `Request`, checked in the same walk.

Every wrong field is a `RequestError` that names its place. Unknown fields are kept, at top level and inside messages,
blocks and tools (`cache_control` is one of them), so that a route with this dialect on both sides loses none.
"""

from __future__ import annotations

from typing import Any

from bridge.contract import Context, Feature, WireRequest
from bridge.dialects.anthropic_messages.client_tools import client_tool
from bridge.dialects.anthropic_messages.errors import ERROR_CODE
from bridge.dialects.anthropic_messages.fields import FIELDS
from bridge.dialects.anthropic_messages.options import FrontOptions
from bridge.dialects.anthropic_messages.read_messages import ASIDES, DECLARED, REMOVAL, MessageReader, read_system
from bridge.dialects.anthropic_messages.wire import NAME, NOTES, given, noted
from bridge.errors import ErrorCode, RequestError
from bridge.model import Request, ResponseFormat, Tool, ToolChoice, ToolMode
from bridge.toolkit.check import Node, body_of, model_in, wrong
from bridge.toolkit.fields import thread_in
from bridge.toolkit.thinking import THINKING_FIELDS, set_thinking
from bridge.toolkit.tools import check_choice

_TRANSLATED = {
    "thinking": THINKING_FIELDS,
    "output_config": frozenset({"effort", "format"}),
    "output_format": frozenset({"type", "schema", "name"}),
}
"""Objects that our model has in other words, if they have no other fields than these. `output_format` is the name of
`output_config.format` in the beta structured-outputs-2025-11-13.
"""


def decode_request(wire: WireRequest, context: Context, *, counting: bool = False) -> Request:
    """The request of a client. Raises `RequestError`. `counting`: it asks for the count of its tokens only."""
    body = body_of(wire)
    model = model_in(body, context.model)
    if body.get("max_tokens") is None and not counting:
        wrong("max_tokens", "a whole number", None, missing=True)
    if not body.need_array("messages"):
        wrong("messages", "at least one message", [])
    if not context.untouched:
        _check_thread(body)
    reader = MessageReader()
    notes: dict[str, Any] = {}
    messages = [*read_system(body, notes), *reader.read_all(body)]
    request = Request(messages, model=model, stream=False)
    extras = given(FIELDS.read(body, request))
    if extras.pop("thread", None) is not None:
        context.lost.add(Feature.EXTRAS, "thread: no conversation is held")
    metadata = body.object("metadata") or Node({}, "metadata")
    config = body.object("output_config")
    request.metadata, request.user_id = metadata.rest({"user_id"}), metadata.string("user_id")
    request.thread_id = thread_in(request.metadata, wire)
    request.tools = _tools(body)
    if reader.changes:
        notes[DECLARED] = body.get("tools")
        request.tools = _changed(request.tools or [], reader.changes) or None
    request.tool_choice, request.parallel_tool_calls = _tool_choice(body)
    if not body.get("mcp_servers"):
        check_choice(request.tool_choice, request.tools or (), "tool_choice")
    if reader.asides:
        extras[ASIDES] = reader.asides
    if said := {name: extras.pop(name) for name, known in _TRANSLATED.items() if _is_translated(extras, name, known)}:
        notes["fields"] = said
    if notes:
        extras[NOTES] = notes
    request.response_format = _response_format(body, config)
    request.reasoning_effort = config.string("effort") if config else None
    request.extras = {NAME: extras}
    if thinking := body.object("thinking"):
        set_thinking(request, thinking, budgets=FrontOptions.of(context).thinking_effort)
    return request


def _check_thread(body: Node) -> None:
    """Refuse to continue a thread (beta message-threads-2026-08-12), whose client sends new messages alone.

    To hold one is best effort. None is held here, which clients learn by this error; then they send all messages.
    """
    thread = body.object("thread")
    if thread is not None and thread.one_of("type", ("create", "continue")) == "continue":
        raise RequestError(
            "thread: this server holds no conversations; send all messages, with the type create or without a thread.",
            code=ErrorCode.NOT_FOUND,
            param="thread",
            details={ERROR_CODE: "thread_not_found"},
        )


def _is_translated(extras: dict[str, Any], name: str, known: frozenset[str]) -> bool:
    value = extras.get(name)
    return isinstance(value, dict) and known.issuperset(given(value))


def _response_format(body: Node, config: Node | None) -> ResponseFormat | None:
    """`output_config.format`, or `output_format`."""
    wanted = (config.object("format") if config else None) or body.object("output_format")
    if wanted is None or wanted.need_string("type") != "json_schema":
        return None
    return ResponseFormat("json_schema", schema=wanted.need_object("schema").value)


# ------------------------------------------------------------------ tools


def _tools(body: Node) -> list[Tool] | None:
    """The tools with a schema, and those with a type of their own: `bash_...` and others that the client runs, and
    those that Anthropic runs (`web_search_...`). The latter stay out for other backends, unless the model must use one.
    """
    return None if body.get("tools") is None else [_tool(node) for node in body.objects("tools")]


def _changed(tools: list[Tool], changes: list[Node]) -> list[Tool]:
    """The tools after all that the conversation adds and removes. Tools of MCP servers are not known here."""
    known = {tool.name: tool for tool in tools}
    removed: dict[str, Tool] = {}
    for change in changes:
        node = change.need_object("tool")
        kind = node.need_string("type")
        if kind == "tool_definition":
            tool = _tool(node.need_object("definition"))
            known[tool.name] = tool
        elif kind == "tool_reference" and change.get("type") == REMOVAL:
            name = node.need_string("name")
            if (tool_removed := known.pop(name, None)) is not None:
                removed[name] = tool_removed
        elif kind == "tool_reference" and (name := node.need_string("name")) in removed:
            known[name] = removed.pop(name)
    return list(known.values())


def _tool(node: Node) -> Tool:
    kind = node.string("type")
    if kind not in (None, "custom"):
        if (tool := client_tool(node)) is not None:
            return tool
        return Tool(node.string("name") or kind, extras=noted(node.value), kind=kind, optional=True)
    rest = given(node.rest({"name", "description", "input_schema", "strict"}))
    name, schema = node.need_string("name"), node.need_object("input_schema").value
    return Tool(name, node.string("description"), schema, node.boolean("strict"), noted(rest))


_MODES = {"auto": ToolMode.AUTO, "any": ToolMode.REQUIRED, "tool": ToolMode.REQUIRED, "none": ToolMode.NONE}


def _tool_choice(body: Node) -> tuple[ToolChoice | None, bool | None]:
    """The choice, and whether calls may be parallel, where the client said so."""
    node = body.object("tool_choice")
    if node is None:
        return None, None
    node.need_string("type")
    kind = node.one_of("type", _MODES) or "auto"
    alone = node.boolean("disable_parallel_tool_use")
    names = [node.need_string("name")] if kind == "tool" else []
    return ToolChoice(_MODES[kind], names), None if alone is None else not alone
