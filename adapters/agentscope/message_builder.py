"""Messages written by hand: `MessageBuilder`, made by a `ResponseBuilder`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from bridge.dialects.agentscope.content_builder import PAYLOADS, ContentBuilder, Snapshot
from bridge.dialects.agentscope.forms import Form
from bridge.dialects.agentscope.objects import WireMessage

_ROLES = ("assistant", "user", "system", "tool")


class Holder(Protocol):
    """The response in which a message stands."""

    @property
    def form(self) -> Form: ...

    def new_id(self, prefix: str) -> str: ...

    def need_open(self, action: str) -> None:
        """Raises `RuntimeError` unless the response has begun and is not over."""
        ...


class MessageBuilder:
    """One message. Every method that changes it returns the event to send; `get_message_data()` is the opening one.

    Contents come one after another, each complete before the next begins; messages may overlap. Raises `ValueError`
    for a value that makes no sense and `RuntimeError` for a step out of order.
    """

    def __init__(self, response: Holder, role: str = "assistant", message_type: str = "message") -> None:
        if role not in _ROLES:
            raise ValueError(f"role: expected one of {', '.join(_ROLES)}, got {role!r}.")
        if not isinstance(message_type, str) or not message_type:
            raise ValueError(f"message_type: expected a type such as message or plugin_call, got {message_type!r}.")
        self._response = response
        self._wire = WireMessage(response.new_id("msg"), message_type, role, "")
        self._parts: list[ContentBuilder] = []
        self._ended: Snapshot | None = None

    @property
    def id(self) -> str:
        return self._wire.id

    @property
    def form(self) -> Form:
        return self._response.form

    @property
    def done(self) -> bool:
        return self._ended is not None

    # ------------------------------------------------------------------ contents

    def create_content_builder(self, content_type: str = "text", index: int | None = None) -> ContentBuilder:
        """The next content. `index` may be said, but it can only be the next one."""
        self._need_open("create_content_builder")
        following = len(self._parts)
        if index is not None and index != following:
            raise ValueError(f"index: the next content of this message is {following}, got {index!r}.")
        part = ContentBuilder(self, content_type, following)
        self._parts.append(part)
        return part

    def add_delta_content(self, content: Mapping[str, Any]) -> Snapshot:
        """A piece: of a new content when `index` is absent, else of the content at that index.

        `content` has a `type` and the fields of that type (`text`, `data`, `image_url` ...). Only a piece can join
        what is there: a content with an `index` needs `delta` true.
        """
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
        return part.add_payload_delta(payload, "add_delta_content")

    def content_completed(self, index: int) -> Snapshot:
        """The content at this index, whole."""
        return self._part(index).complete()

    def add_content(self, content: Mapping[str, Any]) -> Snapshot:
        """A whole content: a new one, or in place of the one at its `index`."""
        kind, payload = self._payload(content)
        index = content.get("index")
        if index is None or index == len(self._parts):
            part = self.create_content_builder(kind, index)
        else:
            self._part(index)
            self._need_open("add_content")
            part = self._parts[index] = ContentBuilder(self, kind, index)
        part.set_payload(payload, "add_content")
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
        """The message as it stands; before its first content, the event that opens it."""
        return self._ended or self.snapshot("in_progress")

    def complete(self, *, usage: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None) -> Snapshot:
        """The whole message. `usage`: `{"input_tokens", "output_tokens", "total_tokens"}`. Again: the same event."""
        if self._ended is None:
            self._need_open("complete")
            unfinished = next((p for p in self._parts if not p.done), None)
            if unfinished is not None:
                raise RuntimeError(
                    f"complete(): content {unfinished.index} ({unfinished.type}) of message {self.id} is not complete; "
                    "call complete() on it first."
                )
            self._wire.usage = dict(usage) if usage else None
            self._wire.metadata = dict(metadata or {})
            self._ended = self.snapshot("completed")
        return self._ended

    def failed(self, code: str, message: str) -> Snapshot:
        """The message as one that reports an error, which ends it; with the type `error` it says nothing else."""
        self._need_open("failed")
        self._wire.extra = {"code": str(code), "message": str(message)}
        self._ended = self.snapshot("failed")
        return self._ended

    def cut(self, status: str) -> Snapshot:
        """Return the message as it is when its response ends before it: `incomplete` or `canceled`."""
        return self._ended or self.snapshot(status)

    def snapshot(self, status: str) -> Snapshot:
        """The message with this status; contents that are not complete stand in it only when it is over."""
        self._wire.status, going_on = status, status == "in_progress"
        contents = [{**p.get_content_data(), **({} if p.done else {"status": status})} for p in self._parts]
        self._wire.contents = [c for c in contents if c["status"] != "in_progress"] if going_on else contents
        event = self._wire.closing(None) if self._wire.contents or not going_on else self._wire.opening(None)
        return Snapshot.of(event, self.form)

    def turn_of(self, index: int, action: str) -> None:
        """Raises `RuntimeError` unless the content at this index may be written now."""
        self._need_open(action)
        before = next((p for p in self._parts[:index] if not p.done), None)
        if before is not None:
            raise RuntimeError(
                f"{action}(): content {before.index} ({before.type}) of message {self.id} is not complete; "
                "contents come one after another."
            )

    # ------------------------------------------------------------------ inside

    def _need_open(self, action: str) -> None:
        self._response.need_open(action)
        if self._ended is not None:
            raise RuntimeError(f"{action}(): message {self.id} is complete, nothing can be added to it.")

    def _part(self, index: object) -> ContentBuilder:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(self._parts):
            count = len(self._parts)
            raise ValueError(f"index: this message has {count} content{'' if count == 1 else 's'}, got {index!r}.")
        return self._parts[index]

    def _values(self, kind: str, name: str) -> list[Any]:
        return [p.get_content_data()[name] for p in self._parts if p.type == kind]

    @staticmethod
    def _payload(content: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The type of a content and the fields that belong to it."""
        if not isinstance(content, Mapping):
            raise ValueError(f"content: expected a mapping with a type, got {type(content).__name__}.")
        kind = content.get("type")
        if kind not in PAYLOADS:
            raise ValueError(f"type: expected one of {', '.join(sorted(PAYLOADS))}, got {kind!r}.")
        return kind, {name: content[name] for name in PAYLOADS[kind] if name in content}
