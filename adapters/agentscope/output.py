"""The output of one answer: numbered events, the open message, and the list of messages for the terminal event.

One message is open at a time, until the next one opens or the run ends: its status, the finish reason and the usage are
not known before.
"""

from __future__ import annotations

from typing import Any

from bridge.contract import Feature, FrameLike, Losses
from bridge.dialects.agentscope.fields import end_fields
from bridge.dialects.agentscope.forms import Form
from bridge.dialects.agentscope.normalization import payload_of
from bridge.dialects.agentscope.objects import WireMessage, WireResponse, content_object
from bridge.toolkit.template import HOLE, NUMBER, Template

# Features lost by messages without metadata.
_METADATA_FEATURES = {
    "origin": Feature.TOOL_ORIGIN,
    "signature": Feature.REASONING_SIGNATURE,
    "redacted": Feature.REASONING_SIGNATURE,
}


class Output:
    """Events are numbered from 0 without gaps; `frames` are those of the batch that is being encoded."""

    def __init__(self, form: Form, lost: Losses) -> None:
        self.form = form
        self.frames: list[FrameLike] = []
        self.number = 0
        self.response = WireResponse("", 0, "")
        self.message: WireMessage | None = None
        self._lost = lost
        self._messages: list[dict[str, Any]] = []
        self._ids: set[str] = set()
        self._last_suffixes: dict[str, int] = {}

    def next_number(self) -> int:
        number = self.number
        self.number = number + 1
        return number

    def write(self, event: dict[str, Any]) -> None:
        self.frames.append(self.form.write(event))

    # ------------------------------------------------------------------ messages

    def open(self, owner: str, kind: str, role: str, metadata: dict[str, Any] | None = None) -> WireMessage:
        """Close the open message and open a new one."""
        self.close()
        message = self.message = WireMessage(self._new_id(owner), kind, role, owner)
        if kind == "reasoning" and self.form.types.get(kind):
            self._lost.add(Feature.REASONING, "as text")
        self.add_metadata(metadata or {})
        self.write(message.opening(self.next_number()))
        return message

    def close(self) -> None:
        message = self.message
        if message is not None:
            closed = message.closing(self.next_number())
            self._messages.append(closed)
            self.write(closed)
            self.message = None

    def add_metadata(self, metadata: dict[str, Any]) -> None:
        """Add metadata to the open message; records a loss if the form has no metadata."""
        assert self.message is not None
        self.message.metadata.update(metadata)
        if self.form.exact:
            for name in metadata.keys() & _METADATA_FEATURES.keys():
                self._lost.add(_METADATA_FEATURES[name])

    def _new_id(self, owner: str) -> str:
        """Return a unique id: that of the owner, or `<id>-<n>` for its further messages."""
        message_id, n = owner, self._last_suffixes.get(owner, 0)
        while message_id in self._ids:
            n += 1
            message_id = f"{owner}-{n}"
        self._ids.add(message_id)
        self._last_suffixes[owner] = n  # so that many calls of one message take linear time
        return message_id

    # ------------------------------------------------------------------ contents

    def content(self, kind: str, index: int, delta: bool, payload: dict[str, Any]) -> None:
        """Write an event of a content in progress of the open message."""
        assert self.message is not None
        self.write(content_object(self.next_number(), "in_progress", kind, index, delta, self.message.id, payload))

    def end_content(self, kind: str, payload: dict[str, Any], end: dict[str, Any]) -> None:
        """Write the last event of the next content. `end`: its status, if not `completed`, and its error."""
        message = self.message
        assert message is not None
        status, error, index = end.get("status", "completed"), end.get("error"), len(message.contents)
        content = content_object(self.next_number(), status, kind, index, False, message.id, payload, error)
        message.contents.append(content)
        self.write(content)

    def complete_content(self, kind: str, payload: dict[str, Any], end: dict[str, Any]) -> None:
        """Write a whole content: first as a delta, since the web frontend overwrites the previous content otherwise."""
        assert self.message is not None
        self.content(kind, len(self.message.contents), True, payload)
        self.end_content(kind, payload, end)

    def text_template(self, kind: str) -> Template:
        """Return the delta of the open message's next text."""
        assert self.message is not None
        index = len(self.message.contents)
        event = content_object(NUMBER, "in_progress", kind, index, True, self.message.id, {kind: ""})
        name = "text" if self.form.exact else kind
        return Template({**self.form.event(event), name: HOLE}, one_line=True)

    def copy_content(self, content: dict[str, Any]) -> None:
        """Write a content of another server's stream."""
        kind = content.get("type")
        self.end_content(kind if isinstance(kind, str) else "data", payload_of(content), end_fields(content))

    def has_message(self, owner: str) -> bool:
        """Return whether a message of this owner was opened."""
        return owner in self._ids

    # ------------------------------------------------------------------ the response

    def begin(self, response_id: str, created_at: float, session_id: str) -> None:
        self.response = WireResponse(response_id, self.form.time(created_at), session_id)
        self.write(self.response.event(self.next_number(), "created"))
        self.write(self.response.event(self.next_number(), "in_progress"))

    def end(
        self, status: str, *, usage: dict[str, Any] | None, ended_at: float | None, error: dict[str, Any] | None = None
    ) -> None:
        """Write the terminal event with all messages. `ended_at`: Unix seconds, or None if not completed."""
        self.close()
        output = self._messages if self._messages or error is None else None
        done = None if ended_at is None else self.form.time(ended_at)
        response = self.response
        self.write(
            response.event(self.next_number(), status, output=output, usage=usage, completed_at=done, error=error)
        )
