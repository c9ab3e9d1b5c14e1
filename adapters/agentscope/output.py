"""The output of one answer: numbered events, the open message, and the list that the end repeats.

One message is open at a time, until the next one opens or the run ends: only then are its status, the finish reason and
the usage known.
"""

from __future__ import annotations

from typing import Any

from bridge.codec import Feature, FrameLike, Losses
from bridge.dialects.agentscope.fields import said_of_end
from bridge.dialects.agentscope.forms import Form
from bridge.dialects.agentscope.objects import WireMessage, WireResponse, content_object
from bridge.dialects.agentscope.spelling import payload_of

# What a message without metadata cannot say.
_NOTED = {
    "origin": Feature.TOOL_ORIGIN,
    "signature": Feature.REASONING_SIGNATURE,
    "redacted": Feature.REASONING_SIGNATURE,
}


class Output:
    """Events are numbered from 0 without gaps; `frames` are those of the batch that is being encoded."""

    def __init__(self, form: Form, lost: Losses) -> None:
        self.form = form
        self.head = form.head
        self.frames: list[FrameLike] = []
        self.number = 0
        self.response = WireResponse("", 0, "")
        self.message: WireMessage | None = None
        self._lost = lost
        self._messages: list[dict[str, Any]] = []
        self._ids: set[str] = set()
        self._last: dict[str, int] = {}

    def next(self) -> int:
        number = self.number
        self.number = number + 1
        return number

    def write(self, event: dict[str, Any]) -> None:
        self.frames.append(self.form.write(event))

    # ------------------------------------------------------------------ messages

    def open(self, owner: str, kind: str, role: str, note: dict[str, Any] | None = None) -> WireMessage:
        """Opens a message of its own, after closing the one that was open."""
        self.close()
        message = self.message = WireMessage(self._new_id(owner), kind, role, owner)
        if kind == "reasoning" and self.form.types.get(kind):
            self._lost.add(Feature.REASONING, "as text")
        self.note(note or {})
        self.write(message.opening(self.next()))
        return message

    def close(self) -> None:
        message = self.message
        if message is not None:
            closed = message.closing(self.next())
            self._messages.append(closed)
            self.write(closed)
            self.message = None

    def note(self, note: dict[str, Any]) -> None:
        """Metadata of the open message; where the form has none, what that loses is recorded."""
        assert self.message is not None
        self.message.metadata.update(note)
        if self.form.exact:
            for name in note.keys() & _NOTED.keys():
                self._lost.add(_NOTED[name])

    def _new_id(self, wanted: str) -> str:
        """The id itself for the first message, `<id>-<n>` for those that have to be added to it."""
        chosen, n = wanted, self._last.get(wanted, 0)
        while chosen in self._ids:
            n += 1
            chosen = f"{wanted}-{n}"
        self._ids.add(chosen)
        self._last[wanted] = n  # a thousand calls of one message must not each try all before it
        return chosen

    # ------------------------------------------------------------------ contents

    def content(self, kind: str, index: int, delta: bool, payload: dict[str, Any]) -> None:
        """A content event of the open message, which is not the content's last."""
        assert self.message is not None
        self.write(content_object(self.next(), "in_progress", kind, index, delta, self.message.id, payload))

    def end_content(self, kind: str, payload: dict[str, Any], end: dict[str, Any]) -> None:
        """The last event of the next content. `end`: its status, if that is not `completed`, and its error."""
        message = self.message
        assert message is not None
        status, error, index = end.get("status", "completed"), end.get("error"), len(message.contents)
        content = content_object(self.next(), status, kind, index, False, message.id, payload, error)
        message.contents.append(content)
        self.write(content)

    def whole(self, kind: str, payload: dict[str, Any], end: dict[str, Any]) -> None:
        """A content at once: first as a delta, since the frontend lays anything else over the content before it."""
        assert self.message is not None
        self.content(kind, len(self.message.contents), True, payload)
        self.end_content(kind, payload, end)

    def text_prefix(self, kind: str) -> bytes:
        """Return the bytes that all deltas of the open message's next text have between their number and their text.

        `{"sequence_number":0` before it and `""}` after it are what changes from delta to delta.
        """
        assert self.message is not None
        index = len(self.message.contents)
        event = content_object(0, "in_progress", kind, index, True, self.message.id, {kind: ""})
        return self.form.write(event)[len(self.head) + 1 : -3]

    def copy(self, content: dict[str, Any]) -> None:
        """A content as another server wrote it, as one of this stream."""
        kind = content.get("type")
        self.end_content(kind if isinstance(kind, str) else "data", payload_of(content), said_of_end(content))

    def told(self, owner: str) -> bool:
        """Return whether a message of this owner was opened."""
        return owner in self._ids

    # ------------------------------------------------------------------ the response

    def begin(self, response_id: str, created_at: float, session_id: str) -> None:
        self.response = WireResponse(response_id, self.form.time(created_at), session_id)
        self.write(self.response.event(self.next(), "created"))
        self.write(self.response.event(self.next(), "in_progress"))

    def end(
        self, status: str, *, usage: dict[str, Any] | None, ended_at: float | None, error: dict[str, Any] | None = None
    ) -> None:
        """The terminal event, which repeats every message. `ended_at` is in Unix seconds; None: it did not complete."""
        self.close()
        output = self._messages if self._messages or error is None else None
        done = None if ended_at is None else self.form.time(ended_at)
        response = self.response
        self.write(response.event(self.next(), status, output=output, usage=usage, completed_at=done, error=error))
