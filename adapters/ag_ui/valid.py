"""What the parsers of official clients accept in fields that pass unread: one invalid field and they refuse the whole
run.

Measured with the clients 0.0.47 to 1.0: null in an optional field is invalid, and so is a type that differs from the
schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.dialects.ag_ui.parts import tolerant_parts, write_part
from bridge.dialects.ag_ui.read_messages import ROLES
from bridge.dialects.ag_ui.wire import camel
from bridge.model import result_text
from bridge.model.jsontext import arguments_text

_Wire = dict[str, Any]
_Fields = Mapping[str, type]

# ------------------------------------------------------------------ events

_COMMON: _Fields = {"timestamp": int, "metadata": dict, "subagentRunId": str}
# What must be there, and what may be: of the events that this codec passes on as they came.
_EVENTS: dict[str, tuple[_Fields, _Fields]] = {
    "RAW": ({"event": object}, {"source": str}),
    "ACTIVITY_SNAPSHOT": ({"messageId": str, "activityType": str, "content": dict}, {"replace": bool}),
    "ACTIVITY_DELTA": ({"messageId": str, "activityType": str, "patch": list}, {}),
    "REASONING_ENCRYPTED_VALUE": ({"subtype": str, "entityId": str, "encryptedValue": str}, {}),
    "SUBAGENT_STARTED": (
        {"subagentRunId": str, "name": str},
        {"description": str, "parentSubagentRunId": str, "parentToolCallId": str, "parentMessageId": str},
    ),
    "SUBAGENT_FINISHED": ({"subagentRunId": str}, {"outcome": dict}),
    "SUBAGENT_ERROR": ({"subagentRunId": str, "message": str}, {"code": str}),
}
# Events that are never passed on as they came: they have an order of their own.
_ORDERED = ("RUN_", "STEP_", "TEXT_", "TOOL_", "REASONING_", "THINKING_", "STATE_", "MESSAGES_", "CUSTOM")
_LARGEST = 2**53 - 1
"""The largest integer that JavaScript represents exactly; the Python client refuses larger ones."""
# Where null is a value and not an absent field.
_ANY_VALUE = frozenset({"event", "value", "snapshot", "rawEvent", "result"})


def event_of(value: _Wire) -> _Wire | None:
    """The event without what clients would refuse of it; None when nothing is left of it that they would take."""
    event = {k: v for k, v in value.items() if v is not None or k in _ANY_VALUE}
    fields = _EVENTS.get(event["type"])
    if fields is None:
        return None if event["type"].startswith(_ORDERED) else event
    needed, others = fields
    if not all(name in event and isinstance(event[name], kind) for name, kind in needed.items()):
        return None
    if not _says_known_words(event):
        return None
    wrong = [k for k, kind in {**_COMMON, **others}.items() if k in event and not _is(event[k], kind)]
    if not _is_outcome(event.get("outcome", _DONE)):
        wrong.append("outcome")
    return {k: v for k, v in event.items() if k not in wrong}


def _is(value: Any, kind: type) -> bool:
    if kind is int:
        return type(value) is int and abs(value) <= _LARGEST
    return isinstance(value, kind)


_DONE: _Wire = {"type": "success"}


def _is_outcome(value: Any) -> bool:
    """Return whether a subagent may end like this."""
    if not isinstance(value, dict) or value.get("type") not in ("success", "suspended"):
        return False
    names = value.get("interruptIds", [])
    return isinstance(names, list) and all(isinstance(n, str) for n in names)


def _says_known_words(event: _Wire) -> bool:
    match event["type"]:
        case "ACTIVITY_DELTA":
            return is_patch(event["patch"])
        case "REASONING_ENCRYPTED_VALUE":
            return event["subtype"] in ("message", "tool-call")
        case _:
            return True


# ------------------------------------------------------------------ JSON Patch

_OPERATIONS: dict[str, str] = {
    "add": "value",
    "replace": "value",
    "test": "value",
    "remove": "path",
    "move": "from",
    "copy": "from",
}


def is_patch(value: Any) -> bool:
    """Return whether this is a JSON Patch (RFC 6902)."""
    return isinstance(value, list) and all(map(_is_operation, value))


def _is_operation(value: Any) -> bool:
    if not isinstance(value, dict) or not _is_pointer(value.get("path")):
        return False
    needed = _OPERATIONS.get(value["op"]) if isinstance(value.get("op"), str) else None
    if needed == "from":
        return _is_pointer(value.get("from"))
    return needed is not None and needed in value


def _is_pointer(value: Any) -> bool:
    """A JSON pointer (RFC 6901)."""
    if not isinstance(value, str) or (value and not value.startswith("/")):
        return False
    return all(piece[:1] in ("0", "1") for piece in value.split("~")[1:])


# ------------------------------------------------------------------ messages

_MESSAGE: _Fields = {
    "name": str, "metadata": dict, "encryptedValue": str, "error": str, "subagentRunId": str, "toolCalls": list,
}  # fmt: skip


def message_of(value: Any, new: bool) -> _Wire | None:
    """A message of a snapshot without nulls and what else clients would refuse; None when it is no message.

    `new`: for clients of 1.0. Older ones know `binary` parts in users' messages and no other media.
    """
    if not isinstance(value, dict):
        return None
    wire: _Wire = {k: v for k, v in camel(value).items() if v is not None and isinstance(v, _MESSAGE.get(k, object))}
    role = wire.get("role")
    if not isinstance(wire.get("id"), str) or role not in ROLES or not _has_content(wire, role):
        return None
    listed = wire.get("toolCalls")
    if isinstance(listed, list):
        calls: list[_Wire | None] = [_call_of(call) for call in listed]
        if None in calls:
            return None
        wire["toolCalls"] = calls
    if isinstance(wire.get("content"), list):
        parts = tolerant_parts(wire["content"])
        is_result = role == "tool" and not new
        wire["content"] = result_text(parts) if is_result else [write_part(p, new) for p in parts]
    return wire


def _has_content(wire: _Wire, role: str) -> bool:
    content = wire.get("content")
    if role == "activity":
        return isinstance(content, dict) and isinstance(wire.get("activityType"), str)
    if role == "tool" and not isinstance(wire.get("toolCallId"), str):
        return False
    if role == "assistant":
        return content is None or isinstance(content, str)
    return isinstance(content, str) or (role in ("user", "tool") and isinstance(content, list))


def _call_of(value: Any) -> _Wire | None:
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        return None
    function = value.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return None
    rest = {k: v for k, v in camel(value).items() if v is not None and isinstance(v, _MESSAGE.get(k, object))}
    call = {"name": function["name"], "arguments": arguments_text(function.get("arguments"))}
    return {**rest, "type": "function", "function": call}
