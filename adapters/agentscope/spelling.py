"""Foreign spellings of this protocol, read as the Python form.

Inside this package every object has the names of the Python form. `forms.py` writes the other forms.
"""

from __future__ import annotations

from typing import Any

CONTENT_TYPES = frozenset({"text", "refusal", "data", "image", "audio", "video", "file"})

PLACE = frozenset({"sequence_number", "object", "status", "error", "type", "index", "delta", "msg_id"})
"""The fields that every content has; the others are its payload."""

CAMEL: dict[str, str] = {
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
_SNAKE = {camel: snake for snake, camel in CAMEL.items()}
# By-products of Java getters (capture `java_camelcase_text`): they repeat the content.
_NOISE = frozenset({"textContent", "imageContent"})
_FOREIGN = frozenset(_SNAKE) | _NOISE

_TYPES: dict[str, str] = {
    "mcp_tool_call": "mcp_call",
    "mcp_tool_call_output": "mcp_call_output",
    # The document writes roles where the software writes `message`; CHUNK stands in the Java enumeration.
    "assistant": "message",
    "user": "message",
    "system": "message",
    "chunk": "message",
    "": "message",
}
# What has no class in Java stands in a `data` content under its own type; only with these fields.
STAND_INS: dict[str, frozenset[str]] = {
    "image": frozenset({"file_id"}),
    "audio": frozenset({"data", "format", "file_id"}),
    "video": frozenset({"video_url", "file_id"}),
    "file": frozenset({"file_url", "file_id", "filename", "file_data"}),
}
# Seconds stay below this until the year 5138; milliseconds have been above it since 1973.
_MILLISECONDS = 10**11


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """The object with the Python form's field names; the very same object when it has them already."""
    if _FOREIGN.isdisjoint(value):
        return value
    named = {_SNAKE.get(key, key): item for key, item in value.items() if key not in _NOISE}
    return unwrapped(named) if named.get("type") == "data" else named


def unwrapped(content: dict[str, Any]) -> dict[str, Any]:
    """A `data` content of the camelCase form as what it stands for; any other content as it is."""
    data = content.get("data")
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(kind, str):
        return content
    fields = data.keys() - {"type"}
    if kind == "data" and fields == {"value"}:
        return {**content, "data": {"value": data["value"]}, "wrapped": True}
    if fields and fields <= STAND_INS.get(kind, frozenset()):
        return {**{k: v for k, v in content.items() if k != "data"}, **data}
    return content


def payload_of(content: dict[str, Any]) -> dict[str, Any]:
    """What a content says, without its place in the stream."""
    return {name: value for name, value in content.items() if name not in PLACE}


def message_type(value: object) -> str:
    """The type of a message in the Python form; an unknown type is only lower-cased."""
    name = value.lower() if isinstance(value, str) else ""
    return _TYPES.get(name, name)


def seconds(value: object) -> float | None:
    """A timestamp in Unix seconds, whichever unit it came in; None for what is no time."""
    number = number_of(value)
    if number is None or not 0 < number < 10**15:
        return None
    return number / 1000 if number > _MILLISECONDS else number


def number_of(value: object) -> float | None:
    """A number, also one that is written as a string of digits; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def text_of(value: object) -> str:
    """The value when it is a string, otherwise an empty one."""
    return value if isinstance(value, str) else ""
