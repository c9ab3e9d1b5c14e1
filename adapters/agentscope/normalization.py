"""Normalization of the written forms to the Python form.

This package handles objects with the names of the Python form only. `forms.py` writes the other forms.
"""

from __future__ import annotations

from typing import Any

from bridge.toolkit.check import Spelling

CONTENT_TYPES = frozenset({"text", "refusal", "data", "image", "audio", "video", "file"})

ENVELOPE_FIELDS = frozenset({"sequence_number", "object", "status", "error", "type", "index", "delta", "msg_id"})
"""The fields that every content has; the others are its payload."""

CAMEL_CASE: dict[str, str] = {
    "sequence_number": "sequenceNumber",
    "created_at": "createdAt",
    "completed_at": "completedAt",
    "session_id": "sessionId",
    "user_id": "userId",
    "response_id": "responseId",
    "msg_id": "msgId",
    "image_url": "imageUrl",
    "video_url": "videoUrl",
    "file_url": "fileUrl",
    "file_id": "fileId",
    "file_data": "fileData",
    "file_name": "fileName",
    "top_p": "topP",
    "max_tokens": "maxTokens",
    "frequency_penalty": "frequencyPenalty",
    "presence_penalty": "presencePenalty",
}
# By-products of Java getters (capture `java_camelcase_text`), which repeat the content.
_REDUNDANT_FIELDS = frozenset({"textContent", "imageContent"})
SPELLING = Spelling({camel: snake for snake, camel in CAMEL_CASE.items()}, _REDUNDANT_FIELDS)

_TYPES: dict[str, str] = {
    "mcp_tool_call": "mcp_call",
    "mcp_tool_call_output": "mcp_call_output",
    # The documentation has roles where the software sends `message`; CHUNK is in the Java enumeration.
    "assistant": "message",
    "user": "message",
    "system": "message",
    "chunk": "message",
    "": "message",
}
# Types without a class in Java are sent as `data` contents with these fields.
JAVA_DATA_FIELDS: dict[str, frozenset[str]] = {
    "image": frozenset({"file_id"}),
    "audio": frozenset({"data", "format", "file_id"}),
    "video": frozenset({"video_url", "file_id"}),
    "file": frozenset({"file_url", "file_id", "filename", "file_data"}),
}
# Seconds stay below this until the year 5138; milliseconds have been above it since 1973.
_MIN_MILLISECONDS = 10**11


def normalized(value: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the Python form's field names; the same object if it has them already."""
    renamed = SPELLING(value)
    return unwrap_data(renamed) if renamed is not value and renamed.get("type") == "data" else renamed


def unwrap_data(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content wrapped in a `data` content of the camelCase form; other contents unchanged."""
    data = content.get("data")
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(kind, str):
        return content
    fields = data.keys() - {"type"}
    if kind == "data" and fields == {"value"}:
        return {**content, "data": {"value": data["value"]}, "wrapped": True}
    if fields and fields <= JAVA_DATA_FIELDS.get(kind, frozenset()):
        return {**{k: v for k, v in content.items() if k != "data"}, **data}
    return content


def payload_of(content: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a content without those that every content has."""
    return {name: value for name, value in content.items() if name not in ENVELOPE_FIELDS}


def message_type(value: object) -> str:
    """Return the type of a message in the Python form; unknown types are only lower-cased."""
    name = value.lower() if isinstance(value, str) else ""
    return _TYPES.get(name, name)


def seconds(value: object) -> float | None:
    """Return a timestamp in Unix seconds, from seconds or milliseconds; None if invalid."""
    number = number_of(value)
    if number is None or not 0 < number < 10**15:
        return None
    return number / 1000 if number > _MIN_MILLISECONDS else number


def number_of(value: object) -> float | None:
    """Return a number, also from a string of digits; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
