"""`MessageBuilder`, which a `ResponseBuilder` creates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from bridge.dialects.agentscope.forms import Form
from bridge.dialects.agentscope.objects import WireMessage
from bridge.sdk.agentscope.content_builder import PAYLOADS, ContentBuilder, Fields, Snapshot, fields_of

_ROLES = ("assistant", "user", "system", "tool")


class ParentResponse(Protocol):
    """The response that holds a message."""

    @property
    def form(self) -> Form: ...

    def new_id(self, prefix: str) -> str: ...


class MessageBuilder:
    """One message. Every method that changes it returns the event to send; `get_message_data()` returns the first one.

    Contents and messages may overlap, and a complete message may get more content. Raises `ValueError` for an invalid
    value.
    """

    def __init__(self, response: ParentResponse, role: str = "assistant", message_type: str = "message") -> None:
        if role not in _ROLES:
            raise ValueError(f"role: expected one of {', '.join(_ROLES)}, got {role!r}.")
        if not isinstance(message_type, str) or not message_type:
            raise ValueError(f"message_type: expected a type such as message or plugin_call, got {message_type!r}.")
        self._response = response
        self._wire = WireMessage(response.new_id("msg"), message_type, role, "")
        self._parts: dict[int, ContentBuilder] = {}
        self._ended: Snapshot | None = None

    @property
    def id(self) -> str:
        return self._wire.id

    @property
    def message(self) -> Snapshot:
        """The message in its present state."""
        return self.get_message_data()

    @property
    def form(self) -> Form:
        return self._response.form

    @property
    def done(self) -> bool:
        return self._ended is not None

    # ------------------------------------------------------------------ contents

    def create_content_builder(self, content_type: str = "text", index: int | None = None) -> ContentBuilder:
        """A builder of the content at this index, which replaces the present one; without an index it is appended."""
        if index is None:
            index = max(self._parts, default=-1) + 1
        elif not isinstance(index, int) or isinstance(index, bool) or index < 0:
            raise ValueError(f"index: expected a whole number from 0, got {index!r}.")
        part = self._parts[index] = ContentBuilder(self, content_type, index)
        self._ended = None
        return part

    def add_delta_content(self, content: Fields) -> Snapshot:
        """Add a delta to the content at its `index`, without one to a new content.

        `content`, a mapping or an object with `model_dump()`, has a `type` and the fields of that type (`text`, `data`,
        `image_url` ...). A content with an `index` needs `delta` true.
        """
        content = fields_of(content, "content")
        kind, payload = self._payload(content)
        index = content.get("index")
        if index is None:
            part = self.create_content_builder(kind)
        else:
            part = self._part(index)
            if content.get("delta") is not True:
                raise ValueError("delta: expected true for a content that has an index already.")
            if part.type != kind:
                raise ValueError(f"type: content {index} is {part.type}, got {kind}.")
        return part.add_payload_delta(payload)

    def content_completed(self, index: int) -> Snapshot:
        """Complete the content at this index."""
        return self._part(index).complete()

    def add_content(self, content: Fields) -> Snapshot:
        """Add a whole content, a mapping or an object with `model_dump()`; with an `index`, in its place."""
        content = fields_of(content, "content")
        kind, payload = self._payload(content)
        part = self.create_content_builder(kind, content.get("index"))
        part.set_payload(payload)
        return part.complete()

    def get_text_content(self) -> str | None:
        """The first text of the message."""
        return next((t for t in self._values("text", "text") if t is not None), None)

    def get_image_content(self) -> list[str]:
        """The addresses of all images."""
        return [url for url in self._values("image", "image_url") if url is not None]

    def get_audio_content(self) -> list[str]:
        """Addresses or base64 of all audio contents."""
        return [data for data in self._values("audio", "data") if data is not None]

    # ------------------------------------------------------------------ the message

    def get_message_data(self) -> Snapshot:
        """The message in its present state; before its first content, the event that opens it."""
        return self._ended or self.snapshot("in_progress")

    def complete(self, *, usage: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None) -> Snapshot:
        """Complete the message, with its complete contents. Further calls return the same event.

        `usage`: `{"input_tokens", "output_tokens", "total_tokens"}`.
        """
        if self._ended is None:
            self._wire.usage = dict(usage) if usage else None
            self._wire.metadata = dict(metadata or {})
            self._ended = self.snapshot("completed")
        return self._ended

    def failed(self, code: str, message: str) -> Snapshot:
        """End the message with an error. Messages of type `error` have no other content."""
        self._wire.extra = {"code": str(code), "message": str(message)}
        self._ended = self.snapshot("failed")
        return self._ended

    def cut(self, status: str) -> Snapshot:
        """Return the message as it is when its response ends before it: `incomplete` or `canceled`."""
        return self._ended or self.snapshot(status)

    def snapshot(self, status: str) -> Snapshot:
        """The message with this status. Incomplete contents are in it only if it was cut off."""
        self._wire.status = status
        parts = [self._parts[index] for index in sorted(self._parts)]
        if status in ("in_progress", "completed"):
            parts = [part for part in parts if part.done]
        self._wire.contents = [{**p.get_content_data(), **({} if p.done else {"status": status})} for p in parts]
        is_opening = status == "in_progress" and not parts
        return Snapshot.of(self._wire.opening(None) if is_opening else self._wire.closing(None), self.form)

    def changed(self) -> None:
        """Record the change of a content: the message is no longer complete."""
        self._ended = None

    # ------------------------------------------------------------------ inside

    def _part(self, index: object) -> ContentBuilder:
        if not isinstance(index, int) or isinstance(index, bool) or index not in self._parts:
            count = len(self._parts)
            raise ValueError(f"index: this message has {count} content{'' if count == 1 else 's'}, got {index!r}.")
        return self._parts[index]

    def _values(self, kind: str, name: str) -> list[Any]:
        return [part.get_content_data()[name] for _, part in sorted(self._parts.items()) if part.type == kind]

    @staticmethod
    def _payload(content: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the type of a content and its payload fields."""
        kind = content.get("type")
        if kind not in PAYLOADS:
            raise ValueError(f"type: expected one of {', '.join(sorted(PAYLOADS))}, got {kind!r}.")
        return kind, {name: content[name] for name in PAYLOADS[kind] if name in content}
