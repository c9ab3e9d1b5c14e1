"""`Request` -> the body for a backend, which is asked to store nothing unless the client asked for it."""

from __future__ import annotations

from typing import Any

from bridge.codec import Context, Feature, WireRequest
from bridge.codec.jsontext import dict_of, dumps
from bridge.codec.openai import SHARED, fits_metadata, set_cache, shared_fields, user_of
from bridge.codec.tools import supported
from bridge.dialects.openai_responses.declared import ADDITIONAL_TOOLS
from bridge.dialects.openai_responses.history import ItemWriter
from bridge.dialects.openai_responses.options import BackOptions
from bridge.dialects.openai_responses.stored import theirs
from bridge.dialects.openai_responses.tools import write_format, write_tool_choice, write_tools
from bridge.dialects.openai_responses.wire import NAME, own
from bridge.model import Message, Request, Text

_HELD = ("context", "state", "resume")
_NO_FIELD = ("stop", "seed", "n", "frequency_penalty", "presence_penalty")


def encode_request(request: Request, context: Context) -> WireRequest:
    """Return the request body. Raises `Unsupported` for a medium or a tool that the wire cannot carry."""
    body = body_of(request, context)
    accept = "text/event-stream" if request.stream else "application/json"
    return WireRequest("POST", "/responses", {"content-type": "application/json", "accept": accept}, body=dumps(body))


def body_of(request: Request, context: Context) -> dict[str, Any]:
    """The fields of the request."""
    options = BackOptions.of(context)
    ours = NAME in (request.extras or {})
    instructions, messages = _instructions(request.messages, options, ours)
    body: dict[str, Any] = {"model": context.model or request.model} if context.model or request.model else {}
    if instructions is not None:
        body["instructions"] = instructions
    body["input"] = [theirs(item) for item in ItemWriter(context, options).write(messages)]
    body["stream"] = request.stream
    body["store"] = False
    _set(body, request, ours, context)
    _set_metadata(body, request, context)
    _record_losses(request, context)
    shared = shared_fields(request, NAME)
    if "verbosity" in shared:
        body["text"] = {**dict_of(body.get("text")), "verbosity": shared.pop("verbosity")}
    body.update(shared)
    set_cache(body, request, options.prompt_cache, context)
    extras = dict(request.extra(NAME))
    for after, item in reversed(extras.pop(ADDITIONAL_TOOLS, ())):
        body["input"].insert(max(len(body["input"]) - after, 0), item)
    for name in ("text", "reasoning"):
        if name in extras:
            body[name] = {**dict_of(body.get(name)), **dict_of(extras.pop(name))}
    body.update(extras)
    return body


def _instructions(messages: list[Message], options: BackOptions, ours: bool) -> tuple[str | None, list[Message]]:
    """The first system message, where a client of this dialect said it as instructions or another dialect at all."""
    first = messages[0] if messages else None
    if first is None or first.role != "system" or not all(type(p) is Text and not p.extras for p in first.parts):
        return None, messages
    wanted = own(first.extras).get("instructions") if ours else options.instructions == "field" and not first.name
    if not wanted or (len(messages) == 1 and not ours):
        return None, messages
    return "\n".join(p.text for p in first.parts if isinstance(p, Text)), messages[1:]


def _set(body: dict[str, Any], request: Request, ours: bool, context: Context) -> None:
    """The fields that the request says something about; nothing is invented for the others."""
    sampling, tools = request.sampling, supported(request, NAME, context.lost)
    written = write_format(request.response_format)
    fields = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_output_tokens": sampling.max_tokens,
        "tools": write_tools(tools, ours=ours) or None,
        "tool_choice": write_tool_choice(request.tool_choice) if tools else None,
        "parallel_tool_calls": request.parallel_tool_calls if tools else None,
        "text": {"format": written} if written else None,
        "reasoning": {"effort": request.reasoning_effort} if request.reasoning_effort else None,
        "user": user_of(request, context.lost),
    }
    body.update((name, value) for name, value in fields.items() if value is not None)


def _set_metadata(body: dict[str, Any], request: Request, context: Context) -> None:
    """OpenAI refuses anything but a few strings, so what another dialect calls metadata stays here."""
    if not request.metadata:
        return
    if fits_metadata(request.metadata) or NAME in (request.extras or {}):
        body["metadata"] = request.metadata
    else:
        context.lost.add(Feature.METADATA, "at most 16 string pairs can be sent")


def _record_losses(request: Request, context: Context) -> None:
    for name in _HELD:
        if getattr(request, name):
            context.lost.add(Feature(name))
    if unsaid := [name for name in _NO_FIELD if getattr(request.sampling, name) is not None]:
        context.lost.add(Feature.SAMPLING, ", ".join(unsaid))
    if request.thread_id is not None and request.thread_id not in request.metadata.values():
        context.lost.add(Feature.THREAD_ID)
    if request.has_fields_of_others(NAME, SHARED):
        context.lost.add(Feature.EXTRAS, "fields of other dialects")
