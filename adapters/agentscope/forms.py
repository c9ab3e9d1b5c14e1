"""The written forms, in one place: what a form differs in from the Python form is a row of a table.

All of this codec makes objects of the Python form; a `Form` brings them to the wire. So another variant is another
table and not another codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bridge.codec.jsontext import dumps
from bridge.dialects.agentscope.spelling import CAMEL, PLACE, STAND_INS, text_of

_COMMON = ("sequence_number", "object", "status", "error")
_MESSAGE = frozenset({*_COMMON, "id", "type", "role", "content", "code", "message", "usage"})
_CONTENT = frozenset({*_COMMON, "type", "index", "delta", "msg_id", "text", "data", "image_url"})


@dataclass(frozen=True)
class Form:
    """One written form. With the defaults it is the Python form, whose objects go out as they are.

    `fields`: names of fields. `types`, `statuses`: words for which it has another, or of which it has none.
    `constants`: message types are written in upper case. `exact`: its parsers know the documented fields and no
    others, so there is no metadata, and contents without a class of their own stand in `data`. `opening`: the status
    with which a message begins.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    statuses: Mapping[str, str] = field(default_factory=dict)
    constants: bool = False
    exact: bool = False
    opening: str = "in_progress"
    milliseconds: bool = False

    @property
    def head(self) -> bytes:
        """The beginning of every event, up to its number."""
        return b'{"%b":' % self.fields.get("sequence_number", "sequence_number").encode()

    def time(self, seconds: float) -> int:
        """A moment in the unit of this form. A whole millisecond that a float just misses is that millisecond."""
        return round(seconds * 1000) if self.milliseconds else int(seconds)

    def write(self, event: dict[str, Any]) -> bytes:
        """The payload of one event."""
        return safe(dumps(self.event(event)))

    def event(self, event: dict[str, Any]) -> dict[str, Any]:
        """An event of the Python form in this one."""
        if not self.fields:
            return event
        match event["object"]:
            case "content":
                return self.content(event)
            case "message":
                return self.message(event)
        output = [self.message(m) for m in event["output"] or []]
        return self.named({**event, "status": self._status(event), "error": self._error(event), "output": output})

    def message(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message, of a stream or of a request."""
        if not self.fields:
            return message
        kind = self.types.get(message["type"], message["type"])
        known = not self.exact or message.keys() <= _MESSAGE
        out = {**message} if known else {k: v for k, v in message.items() if k in _MESSAGE}
        if "status" in message:
            out["status"] = self.opening if message["status"] == "in_progress" else self._status(message)
        contents = [self.content(c) for c in message.get("content") or []]
        return self.named({**out, "type": kind.upper() if self.constants else kind, "content": contents})

    def content(self, content: dict[str, Any]) -> dict[str, Any]:
        """A content. Refusals are told as text; what has no class of its own, as data under its own type."""
        if not self.fields:
            return content
        if not self.exact:
            return self.named(content)
        kind = content["type"]
        if content.get("status") in self.statuses:
            content = {**content, "status": self._status(content)}
        place = {k: v for k, v in content.items() if k in PLACE}
        if kind in ("text", "refusal"):
            return self.named({**place, "type": "text", "text": text_of(content.get(kind))})
        if kind == "data" and "wrapped" in content:
            return self.named({**place, "data": {"type": kind, "value": content["data"]["value"]}})
        if kind == "data" or (kind == "image" and content.get("image_url") is not None):
            return self.named({k: v for k, v in content.items() if k in _CONTENT})
        known = STAND_INS.get(kind, content.keys() - PLACE)
        rest = {k: v for k, v in content.items() if k in known and v is not None}
        return self.named({**place, "type": "data", "data": {"type": kind, **rest}})

    def named(self, value: dict[str, Any]) -> dict[str, Any]:
        """The object with the names of this form; nothing inside its values is touched."""
        # Without a loop in Python, which was a twentieth of a short stream.
        return dict(zip(map(self.fields.get, value, value), value.values(), strict=True))

    def beside(self, data: dict[str, Any], note: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """`data` of a content and the metadata of its message, with a note where this form has a place for it."""
        return ({**data, **note}, {}) if self.exact else (data, note)

    def _error(self, value: dict[str, Any]) -> Any:
        error = value["error"]
        known = ("code", "message") if self.exact else error
        return {k: v for k, v in error.items() if k in known} if isinstance(error, dict) else error

    def _status(self, value: dict[str, Any]) -> Any:
        status = value["status"]
        return self.statuses.get(status, status) if isinstance(status, str) else status


def safe(payload: bytes) -> bytes:
    """Writes U+0085, U+2028 and U+2029 as escapes.

    The project's asynchronous client splits lines with `str.splitlines` and would lose the event. In
    valid UTF-8 these bytes cannot stand inside another character, and in JSON only inside strings.
    """
    if payload.isascii():
        return payload
    # Looking for one byte is a memory scan; most text has neither of these lead bytes (measured: 60 ns against 200).
    if 0xE2 in payload:
        payload = payload.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return payload.replace(b"\xc2\x85", b"\\u0085") if 0xC2 in payload else payload


PYTHON = Form()
"""snake_case, lower-case types, seconds: what `agentscope-runtime` itself sends."""

JAVA = Form(
    fields=CAMEL,
    # The enumeration names MCP calls otherwise and has no outputs of them; an output is paired by its call id.
    types={"mcp_call": "mcp_tool_call", "mcp_call_output": "plugin_call_output"},
    statuses={"incomplete": "failed", "queued": "created"},
    constants=True,
    exact=True,
    opening="created",
    milliseconds=True,
)
"""camelCase, upper-case types, milliseconds: the documented Java form."""
