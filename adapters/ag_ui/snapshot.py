"""Reads the answer of an agent that does not stream: the new messages of its last MESSAGES_SNAPSHOT."""

from __future__ import annotations

from typing import Any

from bridge.dialects.ag_ui.parts import reasoning_part, tolerant_parts
from bridge.dialects.ag_ui.wire import camel, noted
from bridge.model import Builder, Request, Text, ToolCall, ToolResult, as_text
from bridge.model.jsontext import arguments_text, text_of

_Wire = dict[str, Any]


def answer_from(
    messages: list[Any], builder: Builder, request: Request | None, called: set[str], thought: bool
) -> None:
    """Add what follows the last message that the client knows, except what was streamed.

    `called`: the calls that were; `thought`: reasoning was. AG-UI clients have all of it from the snapshot itself, and
    the events are marked for them.
    """
    known = _Known(request, called)
    wires = [camel(m) if isinstance(m, dict) else {} for m in messages]
    first = max((index + 1 for index, wire in enumerate(wires) if known.holds(wire)), default=0)
    for index, wire in enumerate(wires[first:]):
        role = wire.get("role")
        if role == "assistant" or (role == "reasoning" and not thought):
            _spoken(("snapshot", index), wire, builder, known)
        elif role == "tool" and builder.is_unanswered(call_id := text_of(wire.get("toolCallId"))):
            parts = tolerant_parts(wire.get("content"))
            builder.result(call_id, parts, message_id=_id(wire), extras=noted({"snapshot": True}))


def _spoken(key: tuple[str, int], wire: _Wire, builder: Builder, known: _Known) -> None:
    text = "".join(as_text(p) for p in tolerant_parts(wire.get("content")))
    calls = [c for c in wire.get("toolCalls") or () if isinstance(c, dict)] if _is_list(wire, "toolCalls") else []
    fresh = [c for c in map(_call, calls) if c.call_id not in known.calls]
    secret = text_of(wire.get("encryptedValue")) if wire["role"] == "reasoning" else ""
    if not text and not fresh and not secret:
        return
    builder.message(key, message_id=_id(wire), extras=noted({"snapshot": True}))
    if wire["role"] == "reasoning":
        builder.add(key, reasoning_part(text, secret))
    elif text:
        builder.add(key, Text(text))
    for call in fresh:
        builder.add(key, call)
    builder.end_message(key)


def _call(wire: _Wire) -> ToolCall:
    function = wire.get("function")
    function = function if isinstance(function, dict) else {}
    return ToolCall(text_of(wire.get("id")), text_of(function.get("name")), arguments_text(function.get("arguments")))


def _id(wire: _Wire) -> str | None:
    return text_of(wire.get("id")) or None


def _is_list(wire: _Wire, name: str) -> bool:
    return isinstance(wire.get(name), list)


class _Known:
    """The client's messages: by id, and where a backend gave ids of its own, by role and calls."""

    def __init__(self, request: Request | None, called: set[str]) -> None:
        messages = request.messages if request else []
        parts = [p for m in messages for p in m.parts]
        self._ids = {m.id for m in messages if m.id}
        self._results = {p.call_id for p in parts if isinstance(p, ToolResult)}
        self.calls = called | {p.call_id for p in parts if isinstance(p, ToolCall)}

    def holds(self, wire: _Wire) -> bool:
        role, name = wire.get("role"), wire.get("id")
        if role in ("user", "system", "developer") or (isinstance(name, str) and name in self._ids):
            return True
        return role == "tool" and text_of(wire.get("toolCallId")) in self._results
