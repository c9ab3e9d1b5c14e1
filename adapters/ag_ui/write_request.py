"""`Request` -> RunAgentInput for a backend. All seven fields of 0.x are always there."""

from __future__ import annotations

from typing import Any

from bridge.contract import Context, WireRequest
from bridge.dialects.ag_ui.options import BackOptions
from bridge.dialects.ag_ui.props import PROPS
from bridge.dialects.ag_ui.reports import metadata_of, unnamed_event
from bridge.dialects.ag_ui.wire import NAME, UNNAMED, own
from bridge.dialects.ag_ui.write_messages import LOSSES, MessageWriter
from bridge.model import Request, Resume, Tool
from bridge.model.jsontext import dumps
from bridge.toolkit.tools import supported

# Whoever takes `*/*` may be answered in protobuf by the TypeScript encoder.
HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}
_NOT_SENT = frozenset({"forwardedProps", "protocolVersion", "messages", "resume"})


def encode_request(request: Request, context: Context, options: BackOptions) -> WireRequest:
    """Return the request body; nothing is refused."""
    extras = request.extra(NAME)
    history = options.reasoning_history
    LOSSES.note(request.messages, context.lost, sends=lambda *_: history, history=history)
    body: dict[str, Any] = {
        "threadId": context.thread_id or request.thread_id or context.run_id,
        "runId": request.run_id or context.run_id,
        "state": {} if request.state is None else request.state,
        "messages": MessageWriter(context, options).write(request),
        "tools": [_tool(tool, options) for tool in supported(request, NAME, context.lost, strict=False)],
        "context": [_entry(entry) for entry in request.context],
        "forwardedProps": _props(request, context, options),
    }
    if options.protocol_version is not None:
        body["protocolVersion"] = options.protocol_version
    if request.parent_run_id:
        body["parentRunId"] = request.parent_run_id
    if request.resume:
        more = extras.get("resume")
        body["resume"] = [_answer(r, more if isinstance(more, dict) else {}) for r in request.resume]
    body.update((k, v) for k, v in extras.items() if k not in _NOT_SENT and k not in body)
    return WireRequest("POST", "", dict(HEADERS), body=dumps(body))


def _props(request: Request, context: Context, options: BackOptions) -> Any:
    """Return the fields of an AG-UI client; those that a route read go back to where they stood."""
    rest = request.extra(NAME).get("forwardedProps")
    from_here = NAME in (request.extras or {})
    wanted = None if options.forward_props or from_here else ()
    props = PROPS.write(
        request, context.lost, {"model": context.model or request.model or None}, only=wanted, carries=("model",)
    )
    if from_here and not options.forward_props and request.model is None:
        props.pop("model", None)
    if rest is not None and not isinstance(rest, dict):
        return rest
    props.update(rest or {})
    for answer in request.resume:
        if _is_unnamed(answer):
            command, asked = props.get("command"), unnamed_event(answer.interrupt_id)
            props["command"] = {
                "resume": _unnamed_payload(answer),
                **({"interruptEvent": asked} if asked else {}),
                **(command if isinstance(command, dict) else {}),
            }
    return props


def _is_unnamed(answer: Resume) -> bool:
    return answer.interrupt_id.startswith(UNNAMED)


def _unnamed_payload(answer: Resume) -> Any:
    """Agents that give no id know no cancellation either: that is a no to them."""
    return answer.agrees if answer.payload is None else answer.payload


def _tool(tool: Tool, options: BackOptions) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": tool.name, "description": tool.description or ""}
    if tool.parameters is not None:
        wire["parameters"] = tool.parameters
    elif options.protocol_version is None:
        wire["parameters"] = {"type": "object", "properties": {}}  # agents of 0.x require it
    return {**wire, **own(tool.extras)}


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "description": str(entry.get("description") or ""), "value": str(entry.get("value") or "")}


def _answer(answer: Resume, more: dict[str, Any]) -> dict[str, Any]:
    wire: dict[str, Any] = {"interruptId": answer.interrupt_id, "status": answer.decision}
    if _is_unnamed(answer):
        wire |= {"status": "resolved", "payload": _unnamed_payload(answer)}
    elif answer.payload is not None:
        wire["payload"] = answer.payload
    if metadata := metadata_of(answer):
        wire["metadata"] = metadata
    rest = more.get(answer.interrupt_id)
    return {**wire, **(rest if isinstance(rest, dict) else {})}
