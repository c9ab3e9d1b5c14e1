"""`Request` -> the body of `/api/chat` for a backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bridge.contract import Context, Feature, WireRequest, json_request
from bridge.dialects.ollama.capabilities import CAPABILITIES
from bridge.dialects.ollama.fields import BODY, effort_of, write_think
from bridge.dialects.ollama.options import BackOptions
from bridge.dialects.ollama.wire import NAME, NOTES, PICTURES, Wire, is_picture
from bridge.dialects.openai.shapes import write_function
from bridge.model import (
    Inline,
    Media,
    MediaKind,
    Part,
    Reasoning,
    Request,
    ToolCall,
    ToolMode,
    ToolResult,
    as_text,
    refuse_resume,
)
from bridge.model.error_paths import unsupported
from bridge.model.jsontext import dumps, input_of
from bridge.model.media_types import type_of_base64
from bridge.toolkit import MessageLosses
from bridge.toolkit.tools import supported


def encode_request(request: Request, context: Context) -> WireRequest:
    """Return the request for a backend. Raises `Unsupported` with the place of what it cannot be asked."""
    return json_request("/api/chat", dumps(_body(request, context, BackOptions.of(context))))


def _body(request: Request, context: Context, options: BackOptions) -> Wire:
    refuse_resume(request)
    lost = context.lost
    _LOSSES.note(request.messages, lost)
    if any(isinstance(p, Reasoning) and (p.signature or p.redacted) for m in request.messages for p in m.parts):
        lost.add(Feature.REASONING_HISTORY, "its signature")
    extras = dict(request.extra(NAME))
    notes = extras.pop(NOTES, None) or {}
    no_tools = request.tool_choice is not None and request.tool_choice.mode is ToolMode.NONE
    tools = [] if no_tools else supported(request, NAME, lost)
    effort = request.reasoning_effort
    think = None if effort is None else write_think(effort)
    if "think" in notes and effort_of(notes["think"]) == effort:
        think = notes["think"]
    if effort is not None and think is None:
        lost.add(Feature.REASONING_EFFORT, effort)
    made = {
        "model": context.model or request.model or "",
        "messages": _messages(request),
        "tools": [{"type": "function", "function": write_function(tool)} for tool in tools] or None,
        "think": think,
        "options.num_ctx": options.num_ctx,
        "options": extras.pop("options", None),
        "keep_alive": options.keep_alive,
        "truncate": options.truncate,
    }
    return {**BODY.write(request, lost, made, carries={"tool_choice"} if no_tools else ()), **extras}


def _takes(part: Part, role: str) -> bool:
    return isinstance(part, Media) and part.kind is MediaKind.IMAGE and isinstance(part.source, Inline)


_LOSSES = MessageLosses(CAPABILITIES, takes=_takes, marks_errors=False)


def _messages(request: Request) -> list[Wire]:
    """Return the conversation. Each result is a message, with the name of its tool for servers without ids."""
    names: dict[str, str] = {}
    out: list[Wire] = []
    for message in request.messages:
        others: list[Part] = []
        results: list[Wire] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                name = names.get(part.call_id) or part.name
                result = {**_message("tool", part.parts, request), "tool_call_id": part.call_id}
                results.append({**result, "tool_name": name} if name else result)
                continue
            if isinstance(part, ToolCall):
                names[part.call_id] = part.name
            others.append(part)
        out += results
        if others or not results:
            out.append(_message("system" if message.role == "developer" else message.role, others, request))
    return out


def _message(role: str, parts: Sequence[Part], request: Request) -> Wire:
    texts: list[str] = []
    thinking: list[str] = []
    fields: dict[str, Any] = {}
    for part in parts:
        match part:
            case Reasoning():
                thinking.append(part.text)
            case ToolCall():
                call = {"id": part.call_id, "function": {"name": part.name, "arguments": input_of(part.arguments)}}
                fields.setdefault("tool_calls", []).append(call)
            case Media(kind=MediaKind.IMAGE, source=Inline(base64=data)):
                if not is_picture(type_of_base64(data)):
                    # The wire has no type: servers look at the bytes, and break off with 500 if they know none.
                    raise unsupported(request.messages, part, f"expected {PICTURES}, as its first bytes tell.")
                fields.setdefault("images", []).append(data)
            case _:
                texts.append(as_text(part))
    if said := "".join(thinking):
        fields["thinking"] = said
    return {"role": role, "content": "\n".join(texts), **fields}
