"""Request bodies -> `Request`, checked in the same walk.

Every wrong field is a `RequestError` that names its place. Unknown fields are kept, at top level and inside messages,
tools, calls and parts, so that a chat -> chat route loses none of them.
"""

from __future__ import annotations

from typing import Any

from bridge.codec import Context, Feature, WireRequest
from bridge.codec.caching import with_control
from bridge.codec.check import Node, model_in, wrong
from bridge.codec.jsontext import need_json, read_body
from bridge.codec.openai import COMMON, SHARED
from bridge.codec.tools import check_choice
from bridge.dialects.openai_chat.messages import MessageReader
from bridge.dialects.openai_chat.options import FrontOptions
from bridge.dialects.openai_chat.reasoning import FIELDS, set_reasoning, translated
from bridge.dialects.openai_chat.wire import NAME, NOTES, noted, own
from bridge.model import HistoryMode, Request, ResponseFormat, Sampling, Tool, ToolChoice, ToolMode

# Fields with a place in our model; all others travel in `Request.extras`.
KNOWN = frozenset(
    {
        "model",
        "messages",
        "stream",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "functions",
        "function_call",
        "response_format",
        "reasoning_effort",
        "user",
        "metadata",
        "temperature",
        "top_p",
        "n",
        "seed",
        "stop",
        "presence_penalty",
        "frequency_penalty",
        "max_tokens",
        "max_completion_tokens",
    }
)
_TOOLING = frozenset({"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"})
_SAMPLING = frozenset(
    {
        "max_completion_tokens",
        "max_tokens",
        "temperature",
        "top_p",
        "stop",
        "seed",
        "n",
        "frequency_penalty",
        "presence_penalty",
    }
)
_LOGPROBS = ("logprobs", "top_logprobs")
_WANTED = FIELDS | frozenset(_LOGPROBS)
_TYPED = frozenset({"stream_options", "logprobs", "store", "top_logprobs", "logit_bias"}) | SHARED


def decode_request(wire: WireRequest, context: Context) -> Request:
    """The request of a client. Raises `RequestError`."""
    need_json(wire, status=415)
    body = Node(read_body(wire.body))
    model = model_in(body, context.model)
    nodes = body.need_array("messages")
    if not nodes:
        wrong("messages", "at least one message", nodes)
    reader = MessageReader(context.make_id)
    extras = body.rest(KNOWN)
    if extras.pop(NOTES, None) is not None:  # the name under which our own notes travel
        context.lost.add(Feature.EXTRAS, NOTES)
    metadata = body.object("metadata")
    if not _TYPED.isdisjoint(body.value):
        _check_extras(body)
        _note_usage(extras)
    request = Request(
        messages=[reader.read(node) for node in body.objects("messages")],
        model=model,
        thread_id=_thread_id(metadata, wire),
        user_id=body.string("user"),
        stream=body.boolean("stream") or False,
        history=HistoryMode.FULL,
        response_format=_response_format(body, extras) if "response_format" in body.value else None,
        reasoning_effort=body.string("reasoning_effort"),
        metadata=dict(metadata.value) if metadata else {},
        extras={NAME: extras},
        shared={name: value for name, value in extras.items() if name in COMMON} if extras else {},
    )
    if not _TOOLING.isdisjoint(body.value):
        request.tools = _tools(body)
        request.tool_choice = _tool_choice(body, request.tools or [])
        path = "function_call" if body.get("tool_choice") is None else "tool_choice"
        check_choice(request.tool_choice, request.tools or (), path)
        request.parallel_tool_calls = body.boolean("parallel_tool_calls")
    if not _SAMPLING.isdisjoint(body.value):
        if body.get("max_completion_tokens") is not None:
            extras.setdefault(NOTES, {})["limit"] = "max_completion_tokens"
        request.sampling = _sampling(body)
    if not _WANTED.isdisjoint(body.value):
        _set_wanted(request, body, extras, FrontOptions.of(context))
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


def _check_extras(body: Node) -> None:
    """Fields that travel as extras, by their types in the API. Our own encoder reads `stream_options`."""
    options = body.object("stream_options")
    if options is not None:
        options.boolean("include_usage")
    for name in ("logprobs", "store"):
        body.boolean(name)
    body.integer("top_logprobs")
    body.object("logit_bias")
    for name in SHARED:
        body.string(name)


def _note_usage(extras: dict[str, Any]) -> None:
    """Move `include_usage` to the notes: our encoder obeys it, so it is not lost at backends without such a field."""
    options = dict(extras.get("stream_options") or {})
    if "include_usage" in options:
        extras[NOTES] = {"include_usage": options.pop("include_usage")}
        if options:
            extras["stream_options"] = options
        else:
            del extras["stream_options"]


def _thread_id(metadata: Node | None, wire: WireRequest) -> str | None:
    """The wire has no threads; clients that have them put one into the metadata or a header."""
    if metadata is not None:
        for name in ("session_id", "thread_id"):
            value = metadata.get(name)
            if isinstance(value, str) and value:
                return value
    return wire.headers.get("x-session-id") or None


def _sampling(body: Node) -> Sampling:
    longest = body.integer("max_completion_tokens")
    older = body.integer("max_tokens")
    return Sampling(
        temperature=body.number("temperature"),
        top_p=body.number("top_p"),
        max_tokens=older if longest is None else longest,
        stop=body.strings("stop"),
        seed=body.integer("seed"),
        n=body.integer("n", least=1),
        frequency_penalty=body.number("frequency_penalty"),
        presence_penalty=body.number("presence_penalty"),
    )


def _response_format(body: Node, extras: dict[str, Any]) -> ResponseFormat | None:
    """Formats that only some servers know (`grammar`; a `schema` beside `json_object`) pass unchanged."""
    node = body.object("response_format")
    if node is None:
        return None
    kind = node.need_string("type")
    if kind == "json_schema":
        schema = node.need_object("json_schema")
        inner = schema.object("schema")
        if node.rest({"type", kind}) or schema.rest({"name", "schema", "strict", "description"}):
            extras["response_format"] = node.value
        return ResponseFormat(
            "json_schema",
            schema.string("name"),
            inner.value if inner else None,
            schema.boolean("strict"),
            schema.string("description"),
        )
    known = kind in ("text", "json_object")
    if not known or node.rest({"type"}):
        extras["response_format"] = node.value
    return ResponseFormat("json" if kind == "json_object" else "text") if known else None


# ------------------------------------------------------------------ tools


def _tools(body: Node) -> list[Tool] | None:
    tools = None if body.get("tools") is None else [_tool(node) for node in body.objects("tools")]
    if body.get("functions") is None:
        return tools
    return [*(tools or []), *(_function(node, {}) for node in body.objects("functions"))]


def _tool(node: Node) -> Tool:
    """A function, or any other kind (`custom`, `web_search`), which is kept whole under a name for the others."""
    kind = node.string("type") or "function"
    if kind == "function":
        return _function(node.need_object("function"), node.rest({"type", "function"}))
    inner = node.get(kind)
    inner = inner if isinstance(inner, dict) else {}
    name, description = inner.get("name"), inner.get("description")
    return Tool(
        name if isinstance(name, str) and name else kind,
        description if isinstance(description, str) else None,
        extras=noted({"whole": node.value}),
    )


def _function(node: Node, extras: dict[str, Any]) -> Tool:
    parameters = node.object("parameters")
    inner = node.rest({"name", "description", "parameters", "strict"})
    return Tool(
        node.need_string("name"),
        node.string("description"),
        parameters.value if parameters else None,
        node.boolean("strict"),
        with_control(noted({**extras, **({"function": inner} if inner else {})}), {**inner, **extras}),
    )


_MODES = {str(mode): mode for mode in ToolMode}


def _tool_choice(body: Node, tools: list[Tool]) -> ToolChoice | None:
    value = body.get("tool_choice")
    if value is None:
        return _function_choice(body)
    if isinstance(value, str):
        return ToolChoice(_MODES[body.one_of("tool_choice", _MODES) or "auto"])
    if not isinstance(value, dict):
        wrong("tool_choice", "none, auto, required or an object", value)
    node = Node(value, "tool_choice")
    if node.need_string("type") == "allowed_tools":
        return _allowed(node, tools)
    return ToolChoice(ToolMode.REQUIRED, [_chosen(node, tools, "one of allowed_tools, custom, function")])


def _allowed(node: Node, tools: list[Tool]) -> ToolChoice:
    inner = node.need_object("allowed_tools")
    inner.need_array("tools")
    mode = inner.one_of("mode", ("auto", "required")) or "auto"
    return ToolChoice(_MODES[mode], [_chosen(tool, tools, "custom or function") for tool in inner.objects("tools")])


def _chosen(node: Node, tools: list[Tool], expected: str) -> str:
    """The name of the tool that is meant; one of another kind (`web_search`) has only its kind."""
    kind = node.string("type") or "function"
    if kind in ("function", "custom"):
        return node.need_object(kind).need_string("name")
    if not any(own(tool.extras).get("whole") and tool.name == kind for tool in tools):
        wrong(node.at("type"), expected, kind)
    return kind


def _function_choice(body: Node) -> ToolChoice | None:
    """The old field: `none`, `auto`, or `{"name"}`."""
    value = body.get("function_call")
    if value is None:
        return None
    if isinstance(value, str):
        return ToolChoice(_MODES[body.one_of("function_call", ("none", "auto")) or "auto"])
    return ToolChoice(ToolMode.REQUIRED, [body.need_object("function_call").need_string("name")])
