"""Shapes that official clients insist on where the bridge passes on what somebody else wrote (sections 2 and 3).

One value that is not of its shape, or a null where a field should be absent, ends the client's whole run. So nulls are
taken out here, and what does not fit is left out. Whatever the encoder makes itself is right by its making and is not
looked at again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adapters.ag_ui.messages import tolerant_parts
from bridge.model import result_text

_Wire = dict[str, Any]
_Check = Callable[[Any], bool]
_Shape = dict[str, _Check]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _any(value: Any) -> bool:
    return True


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _time(value: Any) -> bool:
    """Milliseconds as an integer that JavaScript holds."""
    return type(value) is int and abs(value) < 2**53


def _one_of(*words: str) -> _Check:
    return lambda value: value in words


def _list_of(fits: _Check) -> _Check:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _fits(value: Any, needed: _Shape, optional: _Shape) -> bool:
    if not isinstance(value, dict) or not all(k in value and fits(value[k]) for k, fits in needed.items()):
        return False
    return all(k not in value or fits(value[k]) for k, fits in optional.items())


def _bare(value: Any) -> Any:
    """An object without its nulls; anything else as it is."""
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


# ------------------------------------------------------------------ JSON Patch (RFC 6902) and its pointers (RFC 6901)

_OPERATIONS: dict[str, str] = {
    "add": "value",
    "replace": "value",
    "test": "value",
    "remove": "path",
    "move": "from",
    "copy": "from",
}


def _operation(value: Any) -> bool:
    if not isinstance(value, dict) or not _pointer(value.get("path")):
        return False
    needed = _OPERATIONS.get(value["op"]) if isinstance(value.get("op"), str) else None
    if needed == "from":
        return _pointer(value.get("from"))
    return needed is not None and needed in value


def _pointer(value: Any) -> bool:
    if not isinstance(value, str) or (value and not value.startswith("/")):
        return False
    return all(piece[:1] in ("0", "1") for piece in value.split("~")[1:])


is_patch = _list_of(_operation)

# ------------------------------------------------------------------ messages and their parts

_OF_PARTS: _Shape = {"id": _text, "metadata": _object}
_OF_SOURCES: _Shape = {"mimeType": _text, "provider": _text}
_OF_MESSAGES: _Shape = {"name": _text, "metadata": _object, "encryptedValue": _text, "subagentRunId": _text}


def _part(value: Any) -> bool:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return _fits(value, {"text": _text}, _OF_PARTS)
    if kind == "binary":  # of 0.x; clients of 1.0 rewrite it
        return _fits(value, {"mimeType": _text}, {"id": _text, "url": _text, "data": _text, "filename": _text})
    return kind in ("image", "audio", "video", "document") and _fits(value, {"source": _source}, _OF_PARTS)


def _source(value: Any) -> bool:
    kind = value.get("type") if isinstance(value, dict) else None
    needed: _Shape = {"value": _text, "mimeType": _text} if kind == "data" else {"value": _text}
    return kind in ("data", "url", "file") and _fits(value, needed, _OF_SOURCES)


def _call(value: Any) -> bool:
    return _fits(value, {"id": _text, "type": _one_of("function"), "function": _function}, _OF_MESSAGES)


def _function(value: Any) -> bool:
    return _fits(value, {"name": _text, "arguments": _text}, {})


def _said(value: Any) -> bool:
    return isinstance(value, str) or _parts(value)


_parts = _list_of(_part)
_ROLES: dict[str, tuple[_Shape, _Shape]] = {
    "developer": ({"content": _text}, {}),
    "system": ({"content": _text}, {}),
    "user": ({"content": _said}, {}),
    "assistant": ({}, {"content": _text, "toolCalls": _list_of(_call)}),
    "tool": ({"content": _said, "toolCallId": _text}, {"error": _text}),
    "reasoning": ({"content": _text}, {}),
    "activity": ({"content": _object, "activityType": _text}, {}),
}


def fitting_parts(value: Any) -> list[Any] | None:
    """The content parts without nulls; None when one of them would be refused."""
    if not isinstance(value, list):
        return None
    parts = [_bare(part) for part in value]
    parts = [{**p, "source": _bare(p["source"])} if isinstance(p, dict) and "source" in p else p for p in parts]
    return parts if _parts(parts) else None


def fitting_messages(value: Any, new: bool) -> list[_Wire] | None:
    """The messages without nulls; None when one of them would be refused. `new`: by a client of 1.0."""
    if not isinstance(value, list):
        return None
    messages = [wire for wire in (_message(v, new) for v in value) if wire is not None]
    return messages if len(messages) == len(value) else None


def _message(value: Any, new: bool) -> _Wire | None:
    wire: _Wire | None = _bare(value)
    role = wire.get("role") if isinstance(wire, dict) else None
    if wire is None or not isinstance(role, str) or role not in _ROLES:
        return None
    if isinstance(wire.get("content"), list):
        parts = fitting_parts(wire["content"])
        # Results in parts are new in 1.0.
        told = result_text(tolerant_parts(parts)) if role == "tool" and not new and parts is not None else parts
        wire["content"] = told
    if isinstance(wire.get("toolCalls"), list):
        wire["toolCalls"] = [_bare(call) for call in wire["toolCalls"]]
    needed, optional = _ROLES[role]
    return wire if _fits(wire, {"id": _text, **needed}, {**_OF_MESSAGES, **optional}) else None


# ------------------------------------------------------------------ events that only AG-UI knows

_SUBAGENT: _Shape = {"subagentRunId": _text}
_ACTIVITY: _Shape = {"messageId": _text, "activityType": _text}
_NEEDED: dict[str, _Shape] = {
    "ACTIVITY_SNAPSHOT": {**_ACTIVITY, "content": _object},
    "ACTIVITY_DELTA": {**_ACTIVITY, "patch": is_patch},
    "REASONING_ENCRYPTED_VALUE": {
        "subtype": _one_of("tool-call", "message"),
        "entityId": _text,
        "encryptedValue": _text,
    },
    "SUBAGENT_STARTED": {**_SUBAGENT, "name": _text},
    "SUBAGENT_FINISHED": _SUBAGENT,
    "SUBAGENT_ERROR": {**_SUBAGENT, "message": _text},
    "RAW": {"event": _any},
}
_OPTIONAL: _Shape = {
    "timestamp": _time,
    "metadata": _object,
    "subagentRunId": _text,
    "source": _text,
    "replace": _flag,
    "description": _text,
    "parentSubagentRunId": _text,
    "parentToolCallId": _text,
    "parentMessageId": _text,
    "code": _text,
}
# Events of these have a form of their own in the model; as foreign matter they would upset the order of the stream.
_OURS = ("RUN_", "STEP_", "TEXT_", "TOOL_", "REASONING_", "THINKING_", "STATE_", "MESSAGES_", "CUSTOM")


def fitting(event: _Wire) -> _Wire | None:
    """The event without what a client would refuse; None when nothing is left that it would take.

    A type that nobody knows passes: clients of 1.0 drop it with a warning.
    """
    needed = _NEEDED.get(event["type"])
    if needed is None:
        return None if event["type"].startswith(_OURS) else event
    if not _fits(event, needed, {}):
        return None
    kept = {k: v for k, v in event.items() if k in needed or k not in _OPTIONAL or _OPTIONAL[k](v)}
    if event["type"] == "SUBAGENT_FINISHED" and not _outcome(event.get("outcome")):
        kept.pop("outcome", None)
    if event["type"] == "REASONING_ENCRYPTED_VALUE":
        # Whose it is the client knows by what it belongs to, and it refuses a contradiction.
        kept.pop("subagentRunId", None)
    return kept


def _outcome(value: Any) -> bool:
    """How a subagent ended."""
    return _fits(value, {"type": _one_of("success", "suspended")}, {"interruptIds": _list_of(_text)})
