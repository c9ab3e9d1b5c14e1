"""Request bodies -> `Request`, checked in the same walk.

Every wrong field is a `RequestError` that names its place. Unknown fields are kept, at top level and inside messages,
tools, calls and parts, so that a chat -> chat route loses none of them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from bridge.contract import Context, Feature, WireRequest, registry
from bridge.dialects.openai.api import COMMON
from bridge.dialects.openai.free_text import INPUT, arguments_of, free_text_tool
from bridge.dialects.openai.shapes import (
    FUNCTION_FIELDS,
    SCHEMA,
    SCHEMA_FIELDS,
    is_flat,
    read_choice,
    read_format,
    read_function,
)
from bridge.dialects.openai_chat.fields import FIELDS
from bridge.dialects.openai_chat.options import FrontOptions
from bridge.dialects.openai_chat.read_messages import read_messages, refuse_retired
from bridge.dialects.openai_chat.reasoning import WORDS, set_reasoning, translated
from bridge.dialects.openai_chat.wire import (
    CUSTOM,
    FLAT,
    FREE,
    NAME,
    NOTES,
    RESPONSES,
    free_text_tools,
    noted,
    noted_call,
    own,
)
from bridge.model import Request, ResponseFormat, Tool, ToolCall, ToolChoice
from bridge.model.jsontext import dict_of, read_body, read_json
from bridge.toolkit.caching import with_control
from bridge.toolkit.check import Node, model_in, need_json
from bridge.toolkit.fields import thread_in
from bridge.toolkit.tools import FUNCTION, check_choice

_RETIRED = {"functions": "tools", "function_call": "tool_choice"}
_TOOLING = frozenset({*_RETIRED, *_RETIRED.values()})
_NAMED = frozenset({FUNCTION, CUSTOM})
"""Types of tools that have a name."""
_FUNCTION_KEYS = FUNCTION_FIELDS | {"type"}
_LOGPROBS = ("logprobs", "top_logprobs")
_WANTED = WORDS | frozenset(_LOGPROBS)


def decode_request(wire: WireRequest, context: Context) -> Request:
    """The request of a client. Raises `RequestError`."""
    need_json(wire, status=415)
    body = Node(read_body(wire.body))
    if "input" in body.value and "messages" not in body.value:
        return _of_responses(wire, context)
    model = model_in(body, context.model)
    request = Request(read_messages(body), model=model, stream=False)
    extras = FIELDS.read(body, request)
    if extras.pop(NOTES, None) is not None:  # the name under which our own notes travel
        context.lost.add(Feature.EXTRAS, NOTES)
    if "stream_options" in extras:
        _note_usage(extras)
    request.thread_id = thread_in(request.metadata, wire)
    request.extras = {NAME: extras}
    request.shared = {name: value for name, value in extras.items() if name in COMMON} if extras else {}
    if "response_format" in body.value:
        request.response_format = _response_format(body, extras)
    if not _TOOLING.isdisjoint(body.value):
        for old, new in _RETIRED.items():
            if body.get(old) is not None:
                refuse_retired(old, new)
        request.tools = _tools(body)
        request.tool_choice = _tool_choice(body, request.tools or [])
        check_choice(request.tool_choice, request.tools or (), "tool_choice")
        if free := free_text_tools(request):
            _as_custom_calls(request, free)
    if body.get("max_completion_tokens") is not None:
        extras.setdefault(NOTES, {})["limit"] = "max_completion_tokens"
    if not _WANTED.isdisjoint(body.value):
        _set_wanted(request, body, extras, FrontOptions.of(context))
    return request


def _of_responses(wire: WireRequest, context: Context) -> Request:
    """The request of a body of the Responses API, which Cursor sends to this path. It reads chat completions."""
    responses = registry.get(RESPONSES)
    request = responses.decode_request(wire, replace(context, options=responses.front_options()))
    said = request.extra(RESPONSES)
    if isinstance(said.get("stream_options"), dict):
        extras = {"stream_options": said["stream_options"]}
        _note_usage(extras)
        rest = {name: value for name, value in said.items() if name != "stream_options"}
        request.extras = {RESPONSES: rest, NAME: extras}
    if free := free_text_tools(request):
        _as_custom_calls(request, free)
    return request


def _set_wanted(request: Request, body: Node, extras: dict[str, Any], options: FrontOptions) -> None:
    """What of the answer is asked for: reasoning and log probabilities. A chat backend gets the client's own words."""
    said = translated(extras) if set_reasoning(request, body) else {}
    returns = options.reasoning_field == "reasoning_details"
    request.encrypted_reasoning = returns and request.wants_reasoning
    if body.boolean("logprobs"):
        request.logprobs = body.integer("top_logprobs") or 0
        said.update((name, extras.pop(name)) for name in _LOGPROBS if name in extras)
    if said:
        derived = request.reasoning_effort is not None and body.get("reasoning_effort") is None
        extras[NOTES] = {**extras.get(NOTES, {}), "fields": said, "derived_effort": derived}


def _note_usage(extras: dict[str, Any]) -> None:
    """Move `include_usage` to the notes: our encoder obeys it, so it is not lost at backends without such a field."""
    options = dict(extras.get("stream_options") or {})
    if "include_usage" in options:
        extras[NOTES] = {"include_usage": options.pop("include_usage")}
        if options:
            extras["stream_options"] = options
        else:
            del extras["stream_options"]


def _response_format(body: Node, extras: dict[str, Any]) -> ResponseFormat | None:
    """Formats that only some servers know (`grammar`; a `schema` beside `json_object`) pass unchanged."""
    node = body.object("response_format")
    if node is None:
        return None
    wanted = read_format(node)
    inner = node.object(SCHEMA) if wanted is not None and wanted.kind == SCHEMA else None
    if wanted is None or node.rest({"type", SCHEMA} if inner else {"type"}) or (inner and inner.rest(SCHEMA_FIELDS)):
        extras["response_format"] = node.value
    return wanted


# ------------------------------------------------------------------ tools


def _tools(body: Node) -> list[Tool] | None:
    return None if body.get("tools") is None else [_tool(node) for node in body.objects("tools")]


def _tool(node: Node) -> Tool:
    """A function, a tool with free text as input, or any other kind (`web_search`), which is kept whole under a name
    for the others.
    """
    kind = node.string("type") or FUNCTION
    inner = node if is_flat(node, kind) else None
    if kind == FUNCTION:
        return _function(inner or node.need_object(FUNCTION), {} if inner else node.rest({"type", FUNCTION}))
    if kind == CUSTOM:
        return _free(inner or node.need_object(CUSTOM), node)
    said = dict_of(node.get(kind))
    name, description = said.get("name"), said.get("description")
    return Tool(
        name if isinstance(name, str) and name else kind,
        description if isinstance(description, str) else None,
        extras=noted({"whole": node.value}),
    )


def _function(node: Node, extras: dict[str, Any]) -> Tool:
    inner = node.rest(_FUNCTION_KEYS)
    beside = noted({**extras, **({FUNCTION: inner} if inner else {})})
    return read_function(node, with_control(beside, {**inner, **extras}))


def _free(node: Node, whole: Node) -> Tool:
    """A tool with free text as input; `whole` is the same, or holds it. The Responses API has no object `grammar`."""
    form = node.object("format")
    value, said = whole.value, FLAT if node is whole else True
    grammar = dict_of(form.get("grammar")) or form.rest({"type", "grammar"}) if form else {}
    if said == FLAT:
        fields = node.rest({"type"})
        if form and grammar:
            fields["format"] = {"type": "grammar", "grammar": grammar}
        value = {"type": CUSTOM, CUSTOM: fields}
    return free_text_tool(
        node.need_string("name"), node.string("description"), grammar, noted({"whole": value, FREE: said})
    )


def _as_custom_calls(request: Request, free: Collection[str]) -> None:
    """Read calls of tools with free text as input that came as functions, as Cursor sends them: the text stands where
    the arguments do.
    """
    for call in (part for message in request.messages for part in message.parts if isinstance(part, ToolCall)):
        if (
            call.name in free
            and not call.extras
            and not isinstance(read_json(call.arguments.encode("utf-8", "replace")), dict)
        ):
            call.extras = noted_call({"type": CUSTOM, INPUT: call.arguments})
            call.arguments = arguments_of(call.arguments)


def _tool_choice(body: Node, tools: list[Tool]) -> ToolChoice | None:
    value = body.get("tool_choice")
    if value is None:
        return None
    if isinstance(value, dict):
        body.need_object("tool_choice").need_string("type")
    return read_choice(body, _NAMED, {tool.name for tool in tools if own(tool.extras).get("whole")})
