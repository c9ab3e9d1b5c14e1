"""Values of single fields of an event, which servers omit or write in different ways."""

from __future__ import annotations

from typing import Any

from bridge.dialects.agentscope.errors import error_object, failure_of, has_error
from bridge.dialects.agentscope.normalization import message_type
from bridge.errors import ErrorCode, Failure
from bridge.model import FinishReason, MessageStatus
from bridge.model.jsontext import loads, loads_unpaired
from bridge.toolkit import words
from bridge.toolkit.redact import masked
from bridge.toolkit.words import Meaning, meaning_of

ENDS: dict[str, MessageStatus] = {
    "completed": MessageStatus.COMPLETED,
    "incomplete": MessageStatus.INCOMPLETE,
    "failed": MessageStatus.FAILED,
    "rejected": MessageStatus.FAILED,
    "canceled": MessageStatus.CANCELED,
}
"""The statuses with which a response, a message or a content ends."""

REASONS: dict[str, FinishReason] = {
    "rejected": FinishReason.CONTENT_FILTER,
    "canceled": FinishReason.CANCELED,
    "incomplete": FinishReason.LENGTH,
}
"""The finish reasons implied by a status."""

_OPEN = frozenset({"created", "queued", "in_progress", "unknown", ""})
_STATUSES: dict[Meaning | None, str] = {
    FinishReason.STOP: "completed",
    **{reason: status for status, reason in REASONS.items()},
}


def cut_by(word: object) -> FinishReason | Failure | None:
    """Return the end that the word in a message's metadata or code says, if it is not a normal one."""
    end = words.end_of(word, answered=True)
    return None if end in (FinishReason.STOP, FinishReason.TOOL_CALLS) else end


def object_of(event: dict[str, Any]) -> str:
    """Return the `object` of an event; inferred if the field is missing (rule 2)."""
    object_type = event.get("object")
    if isinstance(object_type, str) and object_type:
        return object_type
    if "output" in event or "created_at" in event:
        return "response"
    if "msg_id" in event or "delta" in event:
        return "content"
    wire_id = event.get("id")
    if "role" in event or (isinstance(wire_id, str) and wire_id.startswith("msg_")):
        return "message"
    return "error" if event.get("error") is not None else ""


def bare_failure(event: dict[str, Any]) -> Failure:
    """Return the failure of a bare error: `{"error": "<text>"}`, from a bridge also with `code` and `message`."""
    error = event.get("error")
    if not isinstance(error, dict) and ("code" in event or "message" in event):
        error = {"code": event.get("code"), "message": event.get("message") or error}
    return failure_of(error)


def kind_of(event: dict[str, Any]) -> str:
    """Return the type of a message; current Java sends results as approval answers."""
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
    """Return the status of a final event; empty for any other. An unknown one is what it resembles."""
    status = event.get("status")
    if not isinstance(status, str) or status in _OPEN:
        return ""
    if status in ENDS:
        return status
    meaning = meaning_of(status)
    return "failed" if isinstance(meaning, ErrorCode) else _STATUSES.get(meaning, "")


def end_of(event: dict[str, Any]) -> Failure | FinishReason | None:
    """Return the end of a message or content other than completion: a failure or finish reason, else None."""
    status, error, code = status_of(event), event.get("error"), event.get("code")
    if has_error(error):
        return failure_of(error, status=status)
    if status in ("", "completed"):
        return None
    if (reason := words.reason_of(code)) in (FinishReason.LENGTH, FinishReason.CONTENT_FILTER):
        return reason
    return failure_of(event, status=status) if code is not None else REASONS.get(status) or failure_of(None)


def end_fields(event: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an end other than completion, for frontends of the same dialect."""
    if end_of(event) is None:
        return {}
    status = status_of(event)
    fields: dict[str, Any] = {"status": "failed" if status in ("", "completed") else status}
    if has_error(event.get("error")):
        failure = failure_of(event["error"], status=status)
        fields["error"] = error_object(failure, failure.backend_code, status)
    texts = {name: event.get(name) for name in ("code", "message")}
    return {**fields, **{name: masked(str(text)) for name, text in texts.items() if isinstance(text, (str, int))}}


def read_json_unpaired(body: bytes) -> Any:
    """Return the parsed JSON of a body, in which unpaired surrogates are allowed; None if invalid."""
    for reader in (loads, loads_unpaired):
        try:
            return reader(body)
        except ValueError:
            pass
    return None
