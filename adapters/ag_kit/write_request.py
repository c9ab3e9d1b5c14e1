"""Request -> generation 1's body."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from bridge.contract import Context, WireRequest
from bridge.dialects.ag_kit.options import BackOptions
from bridge.dialects.ag_kit.read_request import FIELDS
from bridge.dialects.ag_kit.wire import EMPTY_SCHEMA, NAME, own, request_notes, unknown_fields
from bridge.dialects.ag_kit.write_messages import LOSSES, MessageWriter
from bridge.errors import Unsupported
from bridge.model import Request, Resume, Tool, ToolMode, json_text
from bridge.model.jsontext import dumps
from bridge.toolkit.tools import supported

HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}


def encode_request(request: Request, context: Context) -> WireRequest:
    """Encode a request. Records losses; raises `Unsupported` for what must not be left out."""
    options = BackOptions.of(context)
    check_supported(request)
    LOSSES.note(request.messages, context.lost, as_text=options.unsupported_media == "text")
    no_tools = request.tool_choice is not None and request.tool_choice.mode is ToolMode.NONE
    made = {
        "conversationId": conversation_of(request, context),
        "messages": MessageWriter(context, options).write(request),
        # None keeps the conversation's earlier list, an empty list offers none.
        "tools": None if no_tools or request.tools is None else _tools(request, context),
        "resume": _resume(request.resume[0]) if request.resume else None,
    }
    fields = FIELDS.write(request, context.lost, made, carries={"tool_choice"} if no_tools else ())
    body = {**unknown_fields(request.extras), **fields}
    return WireRequest("POST", path_of(options), dict(HEADERS), body=dumps(body))


def path_of(options: BackOptions) -> str:
    """Return the path below the base URL, which for a hosted agent contains its id."""
    return options.path if options.bot_id is None else f"/v1/aibot/bots/{quote(options.bot_id, safe='')}/send-message"


def conversation_of(request: Request, context: Context) -> str:
    """Return the conversation's id. An empty id is valid in AG-Kit; in other dialects it means none."""
    thread = context.thread_id if context.thread_id is not None else request.thread_id
    if thread or (thread == "" and request_notes(request.extras).get("generation") == 1):
        return thread
    return context.run_id


def check_supported(request: Request) -> None:
    """Raise `Unsupported` for what the protocol does not support and must not be left out."""
    n = request.sampling.n
    if n is not None and n > 1:
        raise Unsupported(f"n: this backend gives one answer, but {n} were requested.", param="n")
    if len(request.resume) > 1:
        place = request.resume[1].place
        raise Unsupported(f"{place}: this backend accepts the answer to one interrupt at a time.", param=place)


def _tools(request: Request, context: Context) -> list[dict[str, Any]]:
    return [_tool(t) for t in supported(request, NAME, context.lost, strict=False)]


def _tool(tool: Tool) -> dict[str, Any]:
    schema = EMPTY_SCHEMA if tool.parameters is None else tool.parameters
    return {
        **unknown_fields(tool.extras),
        "name": tool.name,
        "description": tool.description or "",
        "parameters": json_text(schema),
    }


def _resume(answer: Resume) -> dict[str, Any]:
    """Return the answer to an interrupt. The payload is sent as a string, which every server accepts."""
    payload = payload_of(answer)
    text = payload if isinstance(payload, str) else json_text(payload)
    return {"interruptId": answer.interrupt_id, "payload": text}


def payload_of(answer: Resume) -> Any:
    """Return the payload, any JSON value. A cancelled interrupt without one must not look like consent."""
    if (original := own(answer.extras).get("payload")) is not None:
        return original
    return "cancelled" if answer.payload is None and answer.decision == "cancelled" else answer.payload
