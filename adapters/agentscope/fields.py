"""The meaning of single fields of an event, where servers leave them out or write them in their own way."""

from __future__ import annotations

from typing import Any

from bridge.codec.jsontext import loads, loads_unpaired
from bridge.dialects.agentscope.errors import failure_of
from bridge.dialects.agentscope.messages import Message
from bridge.dialects.agentscope.spelling import message_type
from bridge.errors import Failure


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


def is_error(message: Message, event: dict[str, Any]) -> bool:
    """Return whether a message reports an error; one of type `error` may open before the error is known."""
    if message.kind == "error":
        return event.get("status") not in (None, "created", "in_progress") or event.get("code") is not None
    return event.get("status") == "failed" and (isinstance(event.get("error"), dict) or event.get("code") is not None)


def read_any(body: bytes) -> Any:
    """The JSON of a whole answer, half surrogates allowed; None when it is none."""
    for reader in (loads, loads_unpaired):
        try:
            return reader(body)
        except ValueError:
            pass
    return None
