"""The response object: its echo of the request, and its form at each stage."""

from __future__ import annotations

from typing import Any

from bridge.contract import Context
from bridge.dialects.openai_responses.stored import facts
from bridge.dialects.openai_responses.tools import echoed_format, echoed_tools, write_tool_choice, write_tools
from bridge.dialects.openai_responses.wire import NAME, own
from bridge.model import SHARED, Request, RunStarted, Text, ToolChoice, ToolMode
from bridge.model.jsontext import dict_of

_AUTO = ToolChoice(ToolMode.AUTO)
_DEFAULTS: dict[str, Any] = {
    "frequency_penalty": 0.0,
    "max_tool_calls": None,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "service_tier": "default",
    "top_logprobs": 0,
    "truncation": "disabled",
}
"""Top-level fields of requests that have no place in the model and that answers repeat; without them, the API's
defaults.
"""
_TIERS = ("auto", "default", "flex", "scale", "priority")
"""The service tiers of OpenAI; servers of other providers have other values, which strict clients reject."""
_OBJECTS = frozenset({"text", "reasoning"})
"""Fields of a response that hold an object."""
QUEUED = ("response.created", "response.queued")
"""The events of a response in the background that come before its run."""

OURS = frozenset(
    {"id", "object", "created_at", "model", "status", "output", "usage", "error", "incomplete_details", "completed_at"}
)
"""Fields of which the bridge has its own facts; all others of a backend's response are passed on as they came."""


def new_response(started: RunStarted, context: Context, status: str = "in_progress") -> dict[str, Any]:
    """The object at the start of a run, with every field that strict clients miss when it is not there."""
    notes = own(started.extras)
    # The id of a stored response must be unique; of others it is the backend's, so that its operators find the answer.
    known = None if context.stored_responses is not None and context.stored_responses.wanted else notes.get("id")
    requested = context.request.model if context.request else None
    response = {
        "id": known if isinstance(known, str) and known else f"resp_{started.run_id}",
        "object": "response",
        # In the background it was there before the backend knew of it.
        "created_at": int(context.created_at if is_background(context) else started.created_at),
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": started.model or context.model or requested or "",
        "output": [],
        **_echo(context.request or Request([])),
        "usage": None,
        "completed_at": None,
    }
    tier = (started.extras or {}).get(SHARED, {}).get("service_tier")
    if tier in _TIERS:
        response["service_tier"] = tier
    return {**overlaid(response, dict_of(notes.get("response"))), **facts(context.stored_responses)}


def overlaid(response: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """The response with the fields of a backend's own.

    One that the backend left null keeps its value, since clients require a number or an object there; so do the fields
    that it left out of an object.
    """
    said = {name: value for name, value in theirs.items() if value is not None or name not in response}
    for name in _OBJECTS & said.keys():
        said[name] = {**dict_of(response.get(name)), **dict_of(said[name])}
    return {**response, **said, "tools": echoed_tools(said.get("tools", response["tools"]))}


def is_background(context: Context) -> bool:
    """True if the run continues without the client."""
    return context.stored_responses is not None and context.stored_responses.background


def _echo(request: Request) -> dict[str, Any]:
    """Return the client's values, or the API's defaults."""
    extras = request.extra(NAME)
    sampling, parallel = request.sampling, request.parallel_tool_calls
    text = {"format": echoed_format(request.response_format), **dict_of(extras.get("text"))}
    return {
        "instructions": _instructions(request),
        "max_output_tokens": sampling.max_tokens,
        "metadata": request.metadata,
        "parallel_tool_calls": True if parallel is None else parallel,
        "reasoning": {
            "effort": request.reasoning_effort,
            "summary": request.reasoning_summary,
            **dict_of(extras.get("reasoning")),
        },
        "store": extras.get("store") is True,
        "temperature": 1.0 if sampling.temperature is None else sampling.temperature,
        "text": text,
        "tool_choice": extras.get("tool_choice") or write_tool_choice(request.tool_choice or _AUTO),
        "tools": write_tools(request.tools or [], ours=True),
        "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
        "user": request.user_id,
        **{name: default if extras.get(name) is None else extras[name] for name, default in _DEFAULTS.items()},
        **({"top_logprobs": request.logprobs} if request.logprobs else {}),
    }


def _instructions(request: Request) -> str | None:
    first = request.messages[0] if request.messages else None
    if first is None or not own(first.extras).get("instructions"):
        return None
    return "".join(part.text for part in first.parts if isinstance(part, Text))
