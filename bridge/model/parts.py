"""Content parts of messages and of tool results.

Plain values. `extras` maps the name of a dialect to what only that dialect understands; all others pass it on unread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from bridge.model.media_types import fitted, is_base64_of_media, type_of_base64, type_of_name

Extras: TypeAlias = dict[str, dict[str, Any]]
"""Dialect name -> what only that dialect understands; and under `SHARED`, what several dialects do."""

SHARED = "shared"
"""The key of extras in OpenAI's form that several dialects read.

Of a piece of text: `logprobs`, ``{"content": [...]}``. Of the end of a text and of a raw event: `annotations`, a list
of citations, in the form of chat completions where that has one. Of a run: `service_tier` and `system_fingerprint`.
"""


class Origin(StrEnum):
    """The origin of a tool."""

    FUNCTION = "function"
    PLUGIN = "plugin"
    COMPONENT = "component"
    MCP = "mcp"


class MediaKind(StrEnum):
    """The kind of a medium, whatever its media type."""

    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    FILE = "file"


@dataclass(slots=True)
class Url:
    """A URL that can be fetched. A `data:` URL is `Inline` instead."""

    url: str


@dataclass(slots=True)
class Inline:
    """The bytes themselves, in base64 as in JSON protocols (standard alphabet, no line breaks).

    They stay encoded: a 5 MB image between two JSON protocols is copied, not decoded and encoded again. `bytes`
    decodes.
    """

    base64: str

    @property
    def bytes(self) -> bytes:
        """The decoded bytes. Raises `ValueError` when the text is not base64."""
        import base64

        return base64.b64decode(self.base64, validate=True)


@dataclass(slots=True)
class FileRef:
    """The id of a file that the backend already has."""

    file_id: str


Source: TypeAlias = Url | Inline | FileRef
"""The source of a medium's bytes."""


@dataclass(slots=True)
class Text:
    """Plain text."""

    text: str
    extras: Extras | None = None


@dataclass(slots=True)
class Reasoning:
    """Reasoning. `signature` is opaque and must be returned unchanged; `redacted` is encrypted reasoning."""

    text: str
    signature: str | None = None
    redacted: str | None = None
    extras: Extras | None = None


@dataclass(slots=True)
class Refusal:
    """The text with which the model refuses to answer."""

    text: str
    extras: Extras | None = None


@dataclass(slots=True)
class ToolCall:
    """`arguments` is the string the model wrote, valid JSON or not; it is never re-serialised."""

    call_id: str
    name: str
    arguments: str
    origin: Origin = Origin.FUNCTION
    server_label: str | None = None
    extras: Extras | None = None


@dataclass(slots=True)
class ToolResult:
    """The result of the call `call_id`, as parts."""

    call_id: str
    parts: list[Part]
    name: str | None = None
    is_error: bool = False
    extras: Extras | None = None


@dataclass(slots=True)
class Media:
    """An image, audio, a video or a file.

    `mime` is a media type such as `image/png`, or None if it is unknown. `detail` is the resolution at which a model
    reads an image: `low`, `high`, `auto`, or another value of the backend. `transcript` is the text of audio, which is
    also a text of its message.
    """

    kind: MediaKind
    source: Source
    mime: str | None = None
    filename: str | None = None
    extras: Extras | None = None
    detail: str | None = None
    transcript: str | None = None


@dataclass(slots=True)
class Data:
    """Any JSON value."""

    value: Any
    extras: Extras | None = None


Part: TypeAlias = Text | Reasoning | Refusal | ToolCall | ToolResult | Media | Data
"""Any part of a message."""


LINKED: frozenset[type] = frozenset({ToolCall, ToolResult})
"""The parts that name a call."""


@dataclass(slots=True, init=False)
class Message:
    """One message of a conversation. `role` is system, developer, user, assistant or tool.

    A string as `parts` becomes one text. `places` holds where the message stands in the client's body and then, if the
    dialect knows it, where its parts do; for a tool's result, the field with its parts. Each is a path, or a number: of
    the message in `messages`, or of the part in its `content`. It is never stored.
    """

    role: str
    parts: list[Part]
    id: str | None = None
    name: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    extras: Extras | None = None
    places: tuple[str | int, ...] = field(default=(), compare=False, repr=False)

    def __init__(
        self,
        role: str,
        parts: list[Part] | str,
        id: str | None = None,
        name: str | None = None,
        metadata: dict[str, Any] | None = None,
        extras: Extras | None = None,
        places: tuple[str | int, ...] = (),
    ) -> None:
        self.role = role
        self.parts = [Text(parts)] if isinstance(parts, str) else parts
        self.id = id
        self.name = name
        self.metadata = {} if metadata is None else metadata
        self.extras = extras
        self.places = places

    @property
    def text(self) -> str:
        """Its texts, joined; empty if it has none."""
        return "".join([part.text for part in self.parts if isinstance(part, Text)])


def plain_text(message: Message) -> str | None:
    """Return the text of a message that is one text and nothing else, as most are; None for any other.

    Neither the message nor its text has fields of a dialect. Code that has a shorter way for such a message asks here.
    """
    parts = message.parts
    if len(parts) == 1 and type(part := parts[0]) is Text and not part.extras and not message.extras:
        return part.text
    return None


def parse_data_url(url: str) -> tuple[str | None, str] | None:
    """`(mime or None, base64)` of a base64 `data:` URL; None when it is anything else.

    A percent-encoded `data:` URL is converted to base64, so that `Inline` has one form (RFC 2397).
    """
    if url[:5].lower() != "data:":
        return None
    head, comma, body = url[5:].partition(",")
    if not comma:
        return None
    mime, *flags = [p.strip() for p in head.split(";")]
    if not any(f.lower() == "base64" for f in flags):
        import base64
        from urllib.parse import unquote_to_bytes

        body = base64.b64encode(unquote_to_bytes(body)).decode()
    elif "%" in body:
        from urllib.parse import unquote

        body = unquote(body)  # `%3D` for the padding, `%2B` for a plus
    return mime or None, body


REDACTED = "redacted:"
"""Marks an opaque value of reasoning that was sent encrypted only, so that it is sent back in the same form."""


def after_last_answer(messages: Sequence[Message]) -> int:
    """Return the index of the first message after the last one of the assistant."""
    return next((n for n in range(len(messages), 0, -1) if messages[n - 1].role == "assistant"), 0)


def seal(signature: str | None, redacted: str | None) -> str | None:
    """Return the single opaque value of a reasoning, for wires with one field for it: a signature, or encrypted
    text.
    """
    return signature or (f"{REDACTED}{redacted}" if redacted else None)


def unseal(value: str | None) -> tuple[str | None, str | None]:
    """`(signature, redacted)` of what `seal` wrote; a value that it did not write is a signature."""
    if value and value.startswith(REDACTED):
        return None, value.removeprefix(REDACTED)
    return value or None, None


def source_of(url: str) -> tuple[Source, str | None]:
    """Return the source of a URL string on a wire, and its media type if the URL contains it.

    Some clients leave out the part before the base64 in a `data:` URL.
    """
    parsed = parse_data_url(url)
    if parsed is not None:
        return Inline(parsed[1]), parsed[0]
    return (Inline(url), type_of_base64(url)) if is_base64_of_media(url) else (Url(url), None)


def url_of(media: Media, fallback: str = "application/octet-stream") -> str | None:
    """The one URL string for a medium: its address, or a `data:` URL; None for a `FileRef`."""
    if isinstance(media.source, Url):
        return media.source.url
    if isinstance(media.source, Inline):
        return f"data:{mime_of(media) or fallback};base64,{media.source.base64}"
    return None


def mime_of(media: Media) -> str | None:
    """Return the media type: as declared, else by the name of the file, else by the first bytes; None if unknown."""
    if media.mime or not isinstance(media.source, Inline):
        return media.mime
    named = fitted(type_of_name(media.filename), media.kind)
    return named or fitted(type_of_base64(media.source.base64), media.kind)
