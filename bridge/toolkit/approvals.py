"""The forms in which frameworks ask people: which question a call or a data part is, and the form of its answer.

A question becomes an interrupt whose payload has a `message`, the call that waits, and a `responseSchema`: the answers
of all clients are put into that form (docs/dialects/ag-ui.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bridge.model import ToolCall
from bridge.model.jsontext import arguments_of, dict_of, loads, text_of
from bridge.model.parts import Extras

Wire = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question: reason and payload of its interrupt, and the call that waits for the answer, if it is known."""

    reason: str
    payload: Wire
    call: ToolCall | None = None


def _adk_confirmation(arguments: Wire, extras: Extras | None) -> Asked | None:
    """The call of google-adk for tools that a person must confirm."""
    original, confirmation = dict_of(arguments.get("originalFunctionCall")), dict_of(arguments.get("toolConfirmation"))
    name, hint = text_of(original.get("name")), text_of(confirmation.get("hint"))
    if not name:
        return None
    call = ToolCall(text_of(original.get("id")), name, arguments_of(original.get("args") or {}), extras=extras)
    message = {"message": hint} if hint.strip() else {}
    return Asked("confirmation", {**message, "responseSchema": _ADK_ANSWER}, call)


_ADK_ANSWER: Wire = {
    "type": "object",
    "properties": {"confirmed": {"type": "boolean"}, "payload": {}, "hint": {"type": "string"}},
    "required": ["confirmed"],
    "additionalProperties": False,
}
"""google.adk.tools.tool_confirmation.ToolConfirmation, which forbids other fields (google/adk-go#852)."""


def _adk_input(arguments: Wire, extras: Extras | None) -> Asked | None:
    """The call of google-adk for a question (google/adk-python#3393)."""
    message, schema = text_of(arguments.get("message")), arguments.get("responseSchema")
    payload = arguments.get("payload")
    shown = {"message": message} if message.strip() else {} if payload is None else {"payload": payload}
    return Asked("input_required", {**shown, **({"responseSchema": schema} if isinstance(schema, dict) else {})})


CALLS: dict[str, Callable[[Wire, Extras | None], Asked | None]] = {
    "adk_request_confirmation": _adk_confirmation,
    "adk_request_input": _adk_input,
}
"""Tools of frameworks whose call is a question to a person, by name."""


def question_in(call: ToolCall) -> Asked | None:
    """Return the question that this call is; None for any other call."""
    form = CALLS.get(call.name)
    if form is None:
        return None
    try:
        arguments = loads(call.arguments.encode("utf-8", "replace") or b"{}")
    except ValueError:
        return None
    return form(dict_of(arguments), call.extras)


_APPROVED: Wire = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
"""What Mastra resumes a tool with that needs an approval (mastra-ai/mastra#12878)."""


def mastra_question(kind: str, data: Any, part_id: Any) -> tuple[str, Asked] | None:
    """Return the call id and the question of a data part of Mastra's `handleChatStream`; None for any other part."""
    if kind not in ("tool-call-approval", "tool-call-suspended"):
        return None
    fields = dict_of(data)
    call_id = text_of(fields.get("toolCallId")) or text_of(part_id)
    if not call_id:
        return None
    payload = {name: fields[name] for name in ("toolName", "args", "suspendPayload") if fields.get(name) is not None}
    schema = _schema(fields.get("resumeSchema")) or (_APPROVED if kind == "tool-call-approval" else None)
    return call_id, Asked("tool_call", {**payload, **({"responseSchema": schema} if schema else {})})


def _schema(value: Any) -> Wire | None:
    """Return a JSON Schema that may come as text; None for an empty one."""
    if isinstance(value, str):
        try:
            value = loads(value.encode("utf-8", "replace"))
        except ValueError:
            return None
    return value if isinstance(value, dict) and value else None
