"""`ContentBuilder`, which a `MessageBuilder` creates."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Protocol

from bridge.dialects.agentscope.forms import PYTHON, Form
from bridge.dialects.agentscope.merge import MEDIA_FIELDS, join_media, merge
from bridge.dialects.agentscope.normalization import CONTENT_TYPES
from bridge.dialects.agentscope.objects import content_object
from bridge.model.jsontext import dumps, kind_of

# The payload fields of each content type, with their initial values.
PAYLOADS: dict[str, dict[str, Any]] = {
    "text": {"text": None},
    "refusal": {"refusal": None},
    "data": {"data": None},
    "image": {"image_url": None},
    "audio": {"data": None, "format": None},
    "file": {"file_url": None, "file_id": None, "filename": None, "file_data": None},
    "video": {"video_url": None},
}


class Snapshot(dict[str, Any]):
    """An event at the time of its creation: its fields in the order of the protocol, in the Python form.

    Later calls of the builders do not change it. The fields are attributes, too, and objects in them are snapshots.
    """

    __slots__ = ("form",)
    form: Form

    @classmethod
    def of(cls, event: Mapping[str, Any], form: Form = PYTHON) -> Snapshot:
        snapshot = cls({name: _nested(value, form) for name, value in event.items()})
        object.__setattr__(snapshot, "form", form)
        return snapshot

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"this event has no field {name!r}; its fields: {', '.join(self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __reduce__(self) -> tuple[Any, ...]:
        return Snapshot.of, (dict(self), self.form)

    def model_dump(self, *, exclude_none: bool = False) -> dict[str, Any]:
        """The event as plain dicts and lists, as pydantic's method of this name returns it."""
        return {k: _plain(v, exclude_none) for k, v in self.items() if not (exclude_none and v is None)}

    def model_dump_json(self, *, exclude_none: bool = False) -> str:
        """As `json()`; with `exclude_none` without the fields that are null."""
        return self.form.write(self.model_dump(exclude_none=exclude_none)).decode()

    def json(self) -> str:
        """One line of JSON in the form that its response is written in."""
        return self.form.write(self).decode()

    def sse(self) -> bytes:
        """The event as a frame of a `text/event-stream`."""
        return b"data: " + self.form.write(self) + b"\n\n"


def _nested(value: Any, form: Form) -> Any:
    if isinstance(value, list):
        return [_nested(item, form) for item in value]
    return Snapshot.of(value, form) if isinstance(value, Mapping) else value


def _plain(value: Any, exclude_none: bool) -> Any:
    if isinstance(value, list):
        return [_plain(item, exclude_none) for item in value]
    if isinstance(value, dict):
        return {k: _plain(v, exclude_none) for k, v in value.items() if not (exclude_none and v is None)}
    return value


class ModelLike(Protocol):
    """An object with pydantic's `model_dump()`, such as the runtime's contents and messages."""

    def model_dump(self) -> dict[str, Any]: ...


Fields = Mapping[str, Any] | ModelLike


def fields_of(value: Fields, parameter: str) -> dict[str, Any]:
    """Return the fields of a content or message. Raises `ValueError` for anything but a mapping or a model."""
    if isinstance(value, Mapping):
        return dict(value)
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise ValueError(f"{parameter}: expected a mapping or an object with model_dump(), got {type(value).__name__}.")
    fields: dict[str, Any] = dump()
    return fields


class ParentMessage(Protocol):
    """The message that holds a content."""

    @property
    def id(self) -> str: ...

    @property
    def form(self) -> Form: ...

    def changed(self) -> None:
        """Called before the content changes."""
        ...


class ContentBuilder:
    """One content. Every method that changes it returns the event to send.

    Raises `ValueError` for a method or a value that does not fit its type.
    """

    def __init__(self, message: ParentMessage, content_type: str, index: int) -> None:
        if content_type not in CONTENT_TYPES:
            known = ", ".join(sorted(CONTENT_TYPES))
            raise ValueError(f"content_type: expected one of {known}, got {content_type!r}.")
        self.type = content_type
        self.index = index
        self._message = message
        self._payload = dict(PAYLOADS[content_type])
        self._started = False
        self._completed: Snapshot | None = None

    @property
    def done(self) -> bool:
        return self._completed is not None

    # ------------------------------------------------------------------ text

    def add_text_delta(self, text: str | None) -> Snapshot:
        """Append text; None counts as empty."""
        self._require_type("add_text_delta", "text")
        return self.add_payload_delta({"text": "" if text is None else text})

    add_delta = add_text_delta

    def set_text(self, text: str | None) -> Snapshot:
        """Replace the text so far."""
        return self._set("set_text", "text", {"text": text})

    def set_refusal(self, text: str | None) -> Snapshot:
        return self._set("set_refusal", "refusal", {"refusal": text})

    # ------------------------------------------------------------------ data

    def set_data(self, data: dict[str, Any]) -> Snapshot:
        return self._set("set_data", "data", {"data": data})

    def update_data(self, key: str, value: Any) -> Snapshot:
        """Set one key of the data; the event holds all data so far."""
        self._require_type("update_data", "data")
        return self._set("update_data", "data", {"data": {**(self._payload["data"] or {}), key: value}})

    def add_data_delta(self, data: dict[str, Any]) -> Snapshot:
        """Merge data key by key: texts, lists and objects are concatenated, numbers added, other values replaced."""
        self._require_type("add_data_delta", "data")
        return self.add_payload_delta({"data": data})

    # ------------------------------------------------------------------ media

    def set_image_url(self, url: str) -> Snapshot:
        """An address or a `data:` URL."""
        return self._set("set_image_url", "image", {"image_url": url})

    def set_audio(self, data: str, format: str | None = None) -> Snapshot:
        """`data`: an address, a `data:` URL, or base64 with its `format` (`wav`, `audio/wav`)."""
        return self._set("set_audio", "audio", {"data": data, "format": format})

    def set_video_url(self, url: str) -> Snapshot:
        return self._set("set_video_url", "video", {"video_url": url})

    def set_file(
        self,
        *,
        file_url: str | None = None,
        file_id: str | None = None,
        filename: str | None = None,
        file_data: str | None = None,
    ) -> Snapshot:
        fields = {"file_url": file_url, "file_id": file_id, "filename": filename, "file_data": file_data}
        return self._set("set_file", "file", fields)

    # ------------------------------------------------------------------ the end

    def complete(self) -> Snapshot:
        """Complete the content, which adds it to the message. Further calls return the same event."""
        if self._completed is None:
            self._message.changed()
            self._completed = self._event("completed", False, self._payload)
        return self._completed

    def get_content_data(self) -> Snapshot:
        """The content in its present state."""
        return self._completed or self._event("in_progress", False, self._payload)

    # ------------------------------------------------------------------ any type

    def add_payload_delta(self, payload: dict[str, Any]) -> Snapshot:
        """Add a delta of any type: text and addresses are appended, data is merged."""
        payload = _checked_copy(self.type, payload)
        self._start()
        self._payload.update(_joined(self.type, self._payload, payload))
        return self._event("in_progress", True, {**PAYLOADS[self.type], **payload})

    def set_payload(self, payload: dict[str, Any]) -> Snapshot:
        """Replace the whole value so far.

        The first event of a second or later content is a delta: the web frontend overwrites the previous content
        otherwise.
        """
        payload = _checked_copy(self.type, payload)
        first = self._start()
        self._payload.update(payload)
        return self._event("in_progress", first and self.index > 0, self._payload)

    def _set(self, action: str, kind: str, payload: dict[str, Any]) -> Snapshot:
        self._require_type(action, kind)
        return self.set_payload(payload)

    def _start(self) -> bool:
        """Mark the content as changed. Returns True before its first event."""
        self._message.changed()
        first, self._started, self._completed = not self._started, True, None
        return first

    def _require_type(self, action: str, kind: str) -> None:
        if self.type != kind:
            raise ValueError(f"{action}(): expected a content of type {kind}, this one is {self.type}.")

    def _event(self, status: str, delta: bool, payload: dict[str, Any]) -> Snapshot:
        event = content_object(None, status, self.type, self.index, delta, self._message.id, payload)
        return Snapshot.of(event, self._message.form)


def _checked_copy(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Return a private copy of the payload. Raises `ValueError` for a value that its field cannot have."""
    for name, value in payload.items():
        if kind == "data":
            _check_data(value)
        elif value is not None and not isinstance(value, str):
            raise ValueError(f"{name}: expected a string, got {kind_of(value)}.")
    return deepcopy(payload)


def _check_data(value: Any) -> None:
    """Raise `ValueError` for data that is not a JSON object, before an event is written."""
    if not isinstance(value, dict):
        raise ValueError(f"data: expected a dict, got {kind_of(value)}.")
    try:
        dumps(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"data: expected a JSON value; {error}.") from None


def _joined(kind: str, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    if kind == "data":
        return {"data": merge(old["data"] or {}, new.get("data") or {})}
    if kind in ("text", "refusal"):
        return {kind: (old[kind] or "") + (new.get(kind) or "")}
    media = join_media({k: old[k] for k in old if k in MEDIA_FIELDS}, new)
    return {k: v for k, v in media.items() if k in old}
