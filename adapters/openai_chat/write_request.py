"""`Request` -> the body for a backend."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bridge.contract import Context, Losses, WireRequest
from bridge.dialects.openai.api import metadata_of, set_cache, shared_fields, user_of
from bridge.dialects.openai.shapes import write_choice, write_format, write_function
from bridge.dialects.openai_chat.fields import FIELDS
from bridge.dialects.openai_chat.options import BackOptions
from bridge.dialects.openai_chat.wire import NAME, NOTES, own
from bridge.dialects.openai_chat.write_messages import LOSSES, MessageWriter
from bridge.model import Request, Tool, refuse_resume
from bridge.model.jsontext import dumps
from bridge.toolkit.caching import control_of
from bridge.toolkit.tools import FUNCTION, supported


def encode_request(request: Request, context: Context, options: BackOptions) -> WireRequest:
    """Return the request body. Raises `Unsupported` for a medium or an answer that the wire cannot carry."""
    refuse_resume(request)
    extras = dict(request.extra(NAME))
    notes = extras.pop(NOTES, {})
    media = options.unsupported_media
    writer, history = MessageWriter(context, options, request.messages), options.reasoning_history
    LOSSES[media].note(request.messages, context.lost, as_text=media == "text", sends=writer.sends, history=history)
    made = {
        "model": context.model or request.model or None,
        "messages": writer.write(),
        **_tools(request, options, context.lost),
        _other_limit(notes, options): None,
    }
    if request.response_format is not None:
        made["response_format"] = write_format(request.response_format)
    if request.logprobs is not None:
        made.update(logprobs=True, top_logprobs=request.logprobs or None)
    if notes.get("derived_effort"):
        made["reasoning_effort"] = None
    if request.user_id is not None:
        made["user"] = user_of(request, context.lost)
    if NAME not in (request.extras or {}):
        made["metadata"] = metadata_of(request, context.lost)
    body = FIELDS.write(request, context.lost, made)
    extras = {**notes.get("fields", {}), **extras}
    stream_options = extras.pop("stream_options", None)
    if request.stream and options.include_usage:
        given = stream_options if isinstance(stream_options, dict) else {}
        body["stream_options"] = {**given, "include_usage": True}
    if request.shared:
        body.update(shared_fields(request, NAME))
    set_cache(body, request, options.prompt_cache, context)
    body.update(extras)
    accept = "text/event-stream" if request.stream else "application/json"
    headers = {"content-type": "application/json", "accept": accept}
    return WireRequest("POST", "/chat/completions", headers, body=dumps(body))


def _other_limit(notes: Mapping[str, Any], options: BackOptions) -> str:
    """The field that does not limit the answer: the limit is spelled as the option says, else as the client did."""
    limit = options.max_tokens_field if "max_tokens_field" in options.model_fields_set else notes.get("limit")
    return "max_tokens" if (limit or options.max_tokens_field) == "max_completion_tokens" else "max_completion_tokens"


# ------------------------------------------------------------------ tools


def _tools(request: Request, options: BackOptions, lost: Losses) -> dict[str, Any]:
    """The tools and what is said about them. OpenAI refuses an empty list, and the others without any tool."""
    tools = supported(request, NAME, lost) if request.tools else []
    if not tools:
        return {"tools": None, "tool_choice": None, "parallel_tool_calls": None}
    made: dict[str, Any] = {"tools": [_tool(tool, options) for tool in tools]}
    if request.tool_choice is not None:
        offered = {tool.name: tool for tool in reversed(tools)}  # of several with one name the first counts
        made["tool_choice"] = write_choice(request.tool_choice, partial(_named, offered))
    return made


def _tool(tool: Tool, options: BackOptions) -> dict[str, Any]:
    extras = dict(own(tool.extras))
    if "whole" in extras:
        return dict(extras["whole"])
    function = {**write_function(tool), **extras.pop(FUNCTION, {})}
    mark = control_of(tool.extras) if options.prompt_cache == "marks" else {}
    return {"type": FUNCTION, FUNCTION: function, **mark, **extras}


def _named(offered: Mapping[str, Tool], name: str) -> dict[str, Any]:
    """The reference to one tool, which differs by its kind."""
    whole = own(offered[name].extras).get("whole") if name in offered else None
    kind = whole["type"] if isinstance(whole, dict) else FUNCTION
    return {"type": kind, kind: {"name": name}} if kind in (FUNCTION, "custom") else {"type": kind}
