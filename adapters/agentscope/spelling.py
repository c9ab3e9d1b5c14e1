"""How the variants of this protocol spell the same things, in one place (protocol page, sections 1, 14, 17).

Inside this room every object has the names of the Python form. `plain` brings an object of any variant to them;
`Spelling` is what a writer differs in, so that another variant is another row and not another codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bridge.codec.jsontext import dumps

_CAMEL: dict[str, str] = {
    "sequenceNumber": "sequence_number",
    "createdAt": "created_at",
    "completedAt": "completed_at",
    "sessionId": "session_id",
    "userId": "user_id",
    "responseId": "response_id",
    "msgId": "msg_id",
    "imageUrl": "image_url",
    "videoUrl": "video_url",
    "fileUrl": "file_url",
    "fileId": "file_id",
    "fileData": "file_data",
    "fileName": "file_name",
    "topP": "top_p",
    "maxTokens": "max_tokens",
    "frequencyPenalty": "frequency_penalty",
    "presencePenalty": "presence_penalty",
}
# By-products of Java getters (capture `java_camelcase_text`): they repeat the content.
_NOISE = frozenset({"textContent", "imageContent"})
_FOREIGN = frozenset(_CAMEL) | _NOISE

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
# Seconds stay below this until the year 5138; milliseconds have been above it since 1973.
_MILLISECONDS = 10**11


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """The object with the Python form's field names; the very same object when it has them already."""
    if _FOREIGN.isdisjoint(value):
        return value
    return {_CAMEL.get(key, key): item for key, item in value.items() if key not in _NOISE}


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


@dataclass(frozen=True)
class Spelling:
    """What one written form differs in: names of fields, and the object that ends up on the wire."""

    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def head(self) -> bytes:
        """How every event begins, up to its number."""
        return b'{"%b":' % self.fields.get("sequence_number", "sequence_number").encode()

    def write(self, event: dict[str, Any]) -> bytes:
        """The payload of one event."""
        return safe(dumps(event))


def safe(payload: bytes) -> bytes:
    """Writes U+0085, U+2028 and U+2029 as escapes.

    The project's asynchronous client splits lines with `str.splitlines` and would lose the event (section 11). In
    valid UTF-8 these bytes cannot stand inside another character, and in JSON only inside strings.
    """
    if payload.isascii():
        return payload
    # Looking for one byte is a memory scan; most text has neither of these lead bytes (measured: 60 ns against 200).
    if 0xE2 in payload:
        payload = payload.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return payload.replace(b"\xc2\x85", b"\\u0085") if 0xC2 in payload else payload


PYTHON = Spelling()
"""snake_case, lower-case types, seconds: what `agentscope-runtime` itself sends."""
