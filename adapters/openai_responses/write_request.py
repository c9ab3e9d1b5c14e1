"""`Request` -> the body for a backend, which is asked to store nothing unless the client asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.contract import Context, Feature, WireRequest
from bridge.dialects.openai.api import metadata_of, set_cache, shared_fields, user_of
from bridge.dialects.openai_responses.declared import ADDITIONAL_TOOLS, CONFIGURES
from bridge.dialects.openai_responses.fields import FIELDS
from bridge.dialects.openai_responses.options import BackOptions
from bridge.dialects.openai_responses.stored import is_foreign, theirs
from bridge.dialects.openai_responses.tools import write_format, write_tool_choice, write_tools
from bridge.dialects.openai_responses.wire import ENCRYPTED, LOGPROBS, NAME, own
from bridge.dialects.openai_responses.write_messages import LOSSES, ItemWriter
from bridge.model import Message, Request, Text
from bridge.model.jsontext import dict_of, dumps
from bridge.toolkit.tools import supported


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
    LOSSES.note(request.messages, context.lost, as_text=options.unsupported_media == "text")
    tools, written = supported(request, NAME, context.lost), write_format(request.response_format)
    made = {
        "model": context.model or request.model or None,
        "instructions": instructions,
        "input": _input(ItemWriter(context, options).write(messages), context),
        "store": False,
        "tools": write_tools(tools, ours=ours) or None,
        "tool_choice": write_tool_choice(request.tool_choice) if tools else None,
        "parallel_tool_calls": request.parallel_tool_calls if tools else None,
        "text": {"format": written} if written else None,
        "reasoning.effort": request.reasoning_effort or None,
        "reasoning.generate_summary": None,
        "reasoning.summary": (request.reasoning_summary if ours or request.wants_reasoning else None) or None,
        "top_logprobs": request.logprobs or None,
        "user": user_of(request, context.lost),
    }
    if not ours:
        made["metadata"] = metadata_of(request, context.lost)
    body = FIELDS.write(request, context.lost, made)
    shared = shared_fields(request, NAME)
    if "verbosity" in shared:
        body["text"] = {**dict_of(body.get("text")), "verbosity": shared.pop("verbosity")}
    body.update(shared)
    set_cache(body, request, options.prompt_cache, context)
    extras = dict(request.extra(NAME))
    body["input"] = _with_tools(body["input"], extras.pop(ADDITIONAL_TOOLS, ()))
    for name in ("text", "reasoning"):
        if name in extras:
            body[name] = {**dict_of(body.get(name)), **dict_of(extras.pop(name))}
    if (said := extras.pop(CONFIGURES, None)) is not None:
        body = {name: value for name, value in body.items() if name in said or name not in ("reasoning", "text")} | said
    body.update(extras)
    if include := _include(request):
        given = list(extras.get("include") or ())
        body["include"] = [*given, *(word for word in include if word not in given)]
    return body


def _input(items: list[dict[str, Any]], context: Context) -> list[dict[str, Any]]:
    """The items that the backend may get, each with the id that it gave it."""
    kept = [theirs(item) for item in items if not is_foreign(item)]
    if len(kept) < len(items):
        context.lost.add(Feature.REASONING_HISTORY, "reasoning of backends of other dialects")
    return kept


def _include(request: Request) -> list[str]:
    """What the backend is to send beside the answer's text. Without the first, reasoning cannot be sent back to it."""
    wanted = ((ENCRYPTED, request.encrypted_reasoning), (LOGPROBS, request.logprobs is not None))
    return [word for word, is_wanted in wanted if is_wanted]


def _instructions(messages: list[Message], options: BackOptions, ours: bool) -> tuple[str | None, list[Message]]:
    """The first system message, where a client of this dialect said it as instructions or another dialect at all."""
    first = messages[0] if messages else None
    if first is None or first.role != "system" or not all(type(p) is Text and not p.extras for p in first.parts):
        return None, messages
    wanted = own(first.extras).get("instructions") if ours else options.instructions == "field" and not first.name
    if not wanted or (len(messages) == 1 and not ours):
        return None, messages
    return "\n".join(p.text for p in first.parts if isinstance(p, Text)), messages[1:]


def _with_tools(items: list[dict[str, Any]], declaring: Sequence[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    """The items with those that declare tools, each before as many items as in the client's input."""
    left, backwards = list(items), list[dict[str, Any]]()
    for after, item in reversed(declaring):
        while left and len(backwards) < after:
            backwards.append(left.pop())
        backwards.append(item)
    return left + backwards[::-1]
