"""The meaning of single fields of an event, where servers leave them out or write them in their own way."""

from __future__ import annotations

from typing import Any

from bridge.codec.jsontext import loads, loads_unpaired
from bridge.codec.redact import masked
from bridge.dialects.agentscope.errors import error_object, failure_of, has_error
from bridge.dialects.agentscope.spelling import message_type
from bridge.errors import Failure
from bridge.model import FinishReason, MessageStatus

ENDS: dict[str, MessageStatus] = {
    "completed": MessageStatus.COMPLETED,
    "incomplete": MessageStatus.INCOMPLETE,
    "failed": MessageStatus.FAILED,
    "rejected": MessageStatus.FAILED,
    "canceled": MessageStatus.CANCELED,
}
"""The statuses with which a response, a message or a content is over."""

REASONS: dict[str, FinishReason] = {
    "rejected": FinishReason.CONTENT_FILTER,
    "canceled": FinishReason.CANCELED,
    "incomplete": FinishReason.LENGTH,
}
"""The reasons that a status tells."""

FINISHES: dict[str, FinishReason] = {
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}
"""The reasons that stand in a message's metadata, or in its code."""


def object_of(event: dict[str, Any]) -> str:
    """Which object an event is; inferred where the field is missing (rule 2)."""
    said = event.get("object")
    if isinstance(said, str) and said:
        return said
    if "output" in event or "created_at" in event:
        return "response"
    if "msg_id" in event or "delta" in event:
        return "content"
    wire_id = event.get("id")
    if "role" in event or (isinstance(wire_id, str) and wire_id.startswith("msg_")):
        return "message"
    return "error" if event.get("error") is not None else ""


def bare_failure(event: dict[str, Any]) -> Failure:
    """A bare error: `{"error": "<text>"}`, with `code` and `message` beside it where a bridge wrote it."""
    error = event.get("error")
    if not isinstance(error, dict) and ("code" in event or "message" in event):
        error = {"code": event.get("code"), "message": event.get("message") or error}
    return failure_of(error)


def kind_of(event: dict[str, Any]) -> str:
    """The type of a message; current Java sends results as approval answers."""
    kind = message_type(event.get("type"))
    if kind != "mcp_approval_response":
        return kind
    contents = event.get("content")
    first = contents[0] if isinstance(contents, list) and contents else None
    data = first.get("data") if isinstance(first, dict) else None
    if event.get("role") == "tool" or (isinstance(data, dict) and "output" in data):
        return "mcp_call_output"
    return kind


def role_of(event: dict[str, Any]) -> str:
    role = event.get("role")
    return role if role in ("user", "system") else "assistant"


def status_of(event: dict[str, Any]) -> str:
    """The status of a final event; empty for any other."""
    status = event.get("status")
    return status if isinstance(status, str) and status in ENDS else ""


def end_of(event: dict[str, Any]) -> Failure | FinishReason | None:
    """Return what a message or a content says of its own end: an error, another reason than completion, or nothing."""
    status, error, code = status_of(event), event.get("error"), event.get("code")
    if has_error(error):
        return failure_of(error, status=status)
    if status in ("", "completed"):
        return None
    if isinstance(code, str) and code in FINISHES:
        return FINISHES[code]
    return failure_of(event, status=status) if code is not None else REASONS.get(status) or failure_of(None)


def said_of_end(event: dict[str, Any]) -> dict[str, Any]:
    """Return the fields by which a message or a content tells its end, for frontends of the same dialect."""
    if end_of(event) is None:
        return {}
    status = status_of(event)
    said: dict[str, Any] = {"status": "failed" if status in ("", "completed") else status}
    if has_error(event.get("error")):
        failure = failure_of(event["error"], status=status)
        said["error"] = error_object(failure, failure.backend_code, status)
    words = {name: event.get(name) for name in ("code", "message")}
    return {**said, **{name: masked(str(w)) for name, w in words.items() if isinstance(w, (str, int))}}


def read_any(body: bytes) -> Any:
    """The JSON of a whole answer, half surrogates allowed; None when it is none."""
    for reader in (loads, loads_unpaired):
        try:
            return reader(body)
        except ValueError:
            pass
    return None
