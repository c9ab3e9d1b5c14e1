"""`forwardedProps` <-> the fields of a request that AG-UI has no place for, in OpenAI's spelling."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bridge.codec import Context, Feature
from bridge.codec.check import Node, wrong
from bridge.model import Request, ResponseFormat, Sampling, ToolChoice, ToolMode

_MODES = {str(mode): mode for mode in ToolMode}
_FORMATS = {"text": "text", "json_object": "json"}


def read_props(node: Node, allowed: Collection[str], request: Request) -> dict[str, Any]:
    """Sets what may be set and is there; returns the rest. Raises `RequestError` with the place."""
    props = Node({k: v for k, v in node.value.items() if k in allowed}, node.path)
    if not props.value:
        return node.value
    request.sampling = Sampling(
        temperature=props.number("temperature"),
        top_p=props.number("top_p"),
        max_tokens=props.integer("max_tokens"),
        stop=props.strings("stop"),
        seed=props.integer("seed"),
        n=props.integer("n", least=1),
        frequency_penalty=props.number("frequency_penalty"),
        presence_penalty=props.number("presence_penalty"),
    )
    request.model = props.string("model")
    request.user_id = props.string("user")
    request.reasoning_effort = props.string("reasoning_effort")
    request.parallel_tool_calls = props.boolean("parallel_tool_calls")
    request.tool_choice = _tool_choice(props)
    request.response_format = _response_format(props)
    return node.rest(props.value.keys())


def _tool_choice(node: Node) -> ToolChoice | None:
    value = node.get("tool_choice")
    if value is None or isinstance(value, str):
        word = node.one_of("tool_choice", _MODES)
        return ToolChoice(_MODES[word]) if word else None
    choice = node.need_object("tool_choice")
    choice.one_of("type", ("function",))
    return ToolChoice(ToolMode.REQUIRED, [choice.need_object("function").need_string("name")])


def _response_format(node: Node) -> ResponseFormat | None:
    form = node.object("response_format")
    if form is None:
        return None
    kind = form.need_string("type")
    if kind in _FORMATS:
        return ResponseFormat(_FORMATS[kind])
    if kind != "json_schema":
        wrong(form.at("type"), "one of json_object, json_schema, text", kind)
    schema = form.need_object("json_schema")
    inner = schema.object("schema")
    return ResponseFormat(
        kind,
        schema.string("name"),
        inner.value if inner else None,
        schema.boolean("strict"),
        schema.string("description"),
    )


def write_props(request: Request, context: Context, wanted: bool) -> dict[str, Any]:
    """Return the request's fields beside its messages; without `wanted` they are noted as lost."""
    sampling = {name: getattr(request.sampling, name) for name in Sampling.__dataclass_fields__}
    groups: dict[Feature, dict[str, Any]] = {
        Feature.SAMPLING: sampling,
        Feature.TOOL_CHOICE: {"tool_choice": _written_choice(request)},
        Feature.PARALLEL_TOOL_CALLS: {"parallel_tool_calls": request.parallel_tool_calls},
        Feature.RESPONSE_FORMAT: {"response_format": _written_format(request.response_format)},
        Feature.REASONING_EFFORT: {"reasoning_effort": request.reasoning_effort},
        Feature.USER_ID: {"user": request.user_id},
    }
    props: dict[str, Any] = {}
    if wanted and (model := context.model or request.model):
        props["model"] = model
    for feature, fields in groups.items():
        given = {k: v for k, v in fields.items() if v is not None}
        if wanted:
            props.update(given)
        elif given:
            context.lost.add(feature)
    return props


def _written_choice(request: Request) -> Any:
    choice = request.tool_choice
    if choice is None:
        return None
    if choice.mode is ToolMode.REQUIRED and len(choice.names) == 1:
        return {"type": "function", "function": {"name": choice.names[0]}}
    return str(choice.mode)


def _written_format(wanted: ResponseFormat | None) -> Any:
    if wanted is None:
        return None
    if wanted.kind != "json_schema":
        return {"type": "json_object" if wanted.kind == "json" else "text"}
    fields = {"name": wanted.name, "schema": wanted.schema, "strict": wanted.strict, "description": wanted.description}
    return {"type": "json_schema", "json_schema": {k: v for k, v in fields.items() if v is not None}}
