"""`Request` -> the body for a backend."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from bridge.codec import Context, Feature, WireRequest
from bridge.codec.caching import control_of
from bridge.codec.jsontext import dumps
from bridge.codec.openai import SHARED, fits_metadata, set_cache, shared_fields, user_of
from bridge.codec.tools import supported
from bridge.dialects.openai_chat.history import MessageWriter
from bridge.dialects.openai_chat.options import BackOptions
from bridge.dialects.openai_chat.wire import NAME, NOTES, own
from bridge.errors import Unsupported
from bridge.model import Request, ResponseFormat, Sampling, Tool, ToolChoice, ToolMode

_SAMPLING = ("temperature", "top_p", "n", "seed", "stop", "presence_penalty", "frequency_penalty")
_sampling_of = attrgetter(*_SAMPLING, "max_tokens")
_UNSAID = _sampling_of(Sampling())


def encode_request(request: Request, context: Context, options: BackOptions) -> WireRequest:
    """Return the request body. Raises `Unsupported` for a medium or an answer that the wire cannot carry."""
    if request.resume:
        place = request.resume[0].place
        raise Unsupported(f"{place}: this backend has no interrupts to answer.", param=place)
    extras = dict(request.extra(NAME))
    body: dict[str, Any] = {
        **({"model": model} if (model := context.model or request.model) else {}),
        "messages": MessageWriter(context, options).write(request.messages),
        "stream": request.stream,
    }
    _set(body, request, options, context)
    if request.metadata:
        _set_metadata(body, request, context)
    extras = {**extras.pop(NOTES, {}).get("fields", {}), **extras}
    stream_options = extras.pop("stream_options", None)
    if request.stream and options.include_usage:
        given = stream_options if isinstance(stream_options, dict) else {}
        body["stream_options"] = {**given, "include_usage": True}
    if request.shared:
        body.update(shared_fields(request, NAME))
    _record_losses(request, context)
    set_cache(body, request, options.prompt_cache, context)
    body.update(extras)
    accept = "text/event-stream" if request.stream else "application/json"
    headers = {"content-type": "application/json", "accept": accept}
    return WireRequest("POST", "/chat/completions", headers, body=dumps(body))


def _set(body: dict[str, Any], request: Request, options: BackOptions, context: Context) -> None:
    """The fields that the request says something about; nothing is invented for the others."""
    sampling = _sampling_of(request.sampling)
    if sampling != _UNSAID:
        fields = zip((*_SAMPLING, _limit(request, options)), sampling, strict=True)
        body.update({name: value for name, value in fields if value is not None})
    # An empty list is refused by OpenAI, and so are the two fields about tools without any.
    if request.tools and (tools := supported(request, NAME, context.lost)):
        body["tools"] = [_tool(t, options) for t in tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _tool_choice(request.tool_choice, tools)
        if request.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.parallel_tool_calls
    if request.response_format is not None:
        body["response_format"] = _response_format(request.response_format)
    if request.logprobs is not None:
        body.update(logprobs=True, **({"top_logprobs": request.logprobs} if request.logprobs else {}))
    if request.reasoning_effort is not None and not request.extra(NAME).get(NOTES, {}).get("derived_effort"):
        body["reasoning_effort"] = request.reasoning_effort
    if request.user_id is not None and (user := user_of(request, context.lost)) is not None:
        body["user"] = user


def _limit(request: Request, options: BackOptions) -> str:
    """The field that limits the answer: as the option says, else as a client of this dialect spelled it."""
    spelled: str | None = request.extra(NAME).get(NOTES, {}).get("limit")
    return options.max_tokens_field if spelled is None or "max_tokens_field" in options.model_fields_set else spelled


def _set_metadata(body: dict[str, Any], request: Request, context: Context) -> None:
    """OpenAI takes 16 pairs of strings and refuses anything else, so what another dialect calls metadata stays here."""
    metadata = request.metadata
    if fits_metadata(metadata) or NAME in (request.extras or {}):
        body["metadata"] = metadata
    else:
        context.lost.add(Feature.METADATA, "at most 16 string pairs can be sent")


def _record_losses(request: Request, context: Context) -> None:
    if request.context:
        context.lost.add(Feature.CONTEXT)
    if request.state:
        context.lost.add(Feature.STATE)
    if request.thread_id is not None and request.thread_id not in request.metadata.values():
        context.lost.add(Feature.THREAD_ID)
    if request.extras and request.has_fields_of_others(NAME, SHARED):
        context.lost.add(Feature.EXTRAS, "fields of other dialects")


# ------------------------------------------------------------------ tools


def _tool(tool: Tool, options: BackOptions) -> dict[str, Any]:
    extras = dict(own(tool.extras))
    if "whole" in extras:
        return dict(extras["whole"])
    function: dict[str, Any] = {"name": tool.name}
    for name in ("description", "parameters", "strict"):
        value = getattr(tool, name)
        if value is not None:
            function[name] = value
    function.update(extras.pop("function", {}))
    mark = control_of(tool.extras) if options.prompt_cache == "marks" else {}
    return {"type": "function", "function": function, **mark, **extras}


def _named(name: str, offered: Mapping[str, Tool]) -> dict[str, Any]:
    """The reference to one tool, which differs by its kind."""
    whole = own(offered[name].extras).get("whole") if name in offered else None
    kind = whole["type"] if isinstance(whole, dict) else "function"
    return {"type": kind, kind: {"name": name}} if kind in ("function", "custom") else {"type": kind}


def _tool_choice(choice: ToolChoice, tools: list[Tool]) -> str | dict[str, Any]:
    if not choice.names or choice.mode is ToolMode.NONE:
        return str(choice.mode)
    offered = {tool.name: tool for tool in reversed(tools)}  # of several with one name the first counts
    if choice.mode is ToolMode.REQUIRED and len(choice.names) == 1:
        return _named(choice.names[0], offered)
    allowed = {"mode": str(choice.mode), "tools": [_named(name, offered) for name in choice.names]}
    return {"type": "allowed_tools", "allowed_tools": allowed}


def _response_format(wanted: ResponseFormat) -> dict[str, Any]:
    if wanted.kind != "json_schema":
        return {"type": "json_object" if wanted.kind == "json" else "text"}
    # The wire requires a name; dialects without one mean "whatever you call it"
    schema: dict[str, Any] = {"name": wanted.name or "answer"}
    for name in ("schema", "strict", "description"):
        value = getattr(wanted, name)
        if value is not None:
            schema[name] = value
    return {"type": "json_schema", "json_schema": schema}
