"""Request -> generation 1's body: what is asked of a backend."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from bridge.codec import Context, Feature, WireRequest
from bridge.codec.jsontext import dumps
from bridge.codec.tools import supported
from bridge.dialects.ag_kit.history import Writer
from bridge.dialects.ag_kit.options import BackOptions, back
from bridge.dialects.ag_kit.wire import EMPTY_SCHEMA, NAME, notes, own, unknown
from bridge.errors import Unsupported
from bridge.model import Request, Resume, Tool, ToolMode, json_text

HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}


def encode_request(request: Request, context: Context) -> WireRequest:
    """Record as lost what the body has no place for, and refuse what would change the answer's meaning."""
    options = back(context)
    refuse(request)
    record_losses(request, context)
    body: dict[str, Any] = {
        **unknown(request.extras),
        "conversationId": conversation_of(request, context),
        "messages": Writer(context, options).write(request),
    }
    tools = _tools(request, context)
    if tools is not None:
        body["tools"] = tools
    if request.resume:
        body["resume"] = _resume(request.resume[0])
    return WireRequest("POST", path_of(options), dict(HEADERS), body=dumps(body))


def path_of(options: BackOptions) -> str:
    """The path below the base URL: a hosted agent has one of its own."""
    return options.path if options.bot_id is None else f"/v1/aibot/bots/{quote(options.bot_id, safe='')}/send-message"


def conversation_of(request: Request, context: Context) -> str:
    """The conversation's id. An empty one is a conversation to AG-Kit, and "none" to everybody else."""
    thread = context.thread_id if context.thread_id is not None else request.thread_id
    if thread or (thread == "" and notes(request.extras).get("generation") == 1):
        return thread
    return context.run_id


def refuse(request: Request) -> None:
    """Raises `Unsupported` for what cannot be asked and must not be left out."""
    n = request.sampling.n
    if n is not None and n > 1:
        raise Unsupported(f"n: this backend gives one answer, but {n} were requested.", param="n")
    if len(request.resume) > 1:
        place = request.resume[1].place
        raise Unsupported(f"{place}: this backend accepts the answer to one interrupt at a time.", param=place)


def record_losses(request: Request, context: Context) -> None:
    """Notes what has no field on this wire."""
    choice, sampling = request.tool_choice, request.sampling
    said = [name for name in sampling.__slots__ if getattr(sampling, name) is not None and name != "n"]
    if said:
        context.lost.add(Feature.SAMPLING, ", ".join(said))
    losses = {
        Feature.TOOL_CHOICE: choice is not None and (choice.mode is ToolMode.REQUIRED or bool(choice.names)),
        Feature.PARALLEL_TOOL_CALLS: request.parallel_tool_calls is not None,
        Feature.RESPONSE_FORMAT: request.response_format is not None and request.response_format.kind != "text",
        Feature.REASONING_EFFORT: request.reasoning_effort is not None,
        Feature.MODEL: bool(request.model),
        Feature.USER_ID: request.user_id is not None,
        Feature.METADATA: bool(request.metadata),
        Feature.CONTEXT: bool(request.context),
        Feature.STATE: request.state not in (None, {}),
    }
    for feature, lost in losses.items():
        if lost:
            context.lost.add(feature)


def _tools(request: Request, context: Context) -> list[dict[str, Any]] | None:
    """Absent, empty and filled lists mean three things: keep the last list, offer none, offer these."""
    if request.tools is None or (request.tool_choice is not None and request.tool_choice.mode is ToolMode.NONE):
        return None
    return [_tool(t) for t in supported(request, NAME, context.lost)]


def _tool(tool: Tool) -> dict[str, Any]:
    schema = EMPTY_SCHEMA if tool.parameters is None else tool.parameters
    return {
        **unknown(tool.extras),
        "name": tool.name,
        "description": tool.description or "",
        "parameters": json_text(schema),
    }


def _resume(answer: Resume) -> dict[str, Any]:
    """The payload is text, as it is or JSON: not every server takes more."""
    payload = payload_of(answer)
    text = payload if isinstance(payload, str) else json_text(payload)
    return {"interruptId": answer.interrupt_id, "payload": text}


def payload_of(answer: Resume) -> Any:
    """The payload, any JSON. A cancelled interrupt without one must not look like a consent."""
    if (sent := own(answer.extras).get("payload")) is not None:
        return sent
    return "cancelled" if answer.payload is None and answer.decision == "cancelled" else answer.payload
