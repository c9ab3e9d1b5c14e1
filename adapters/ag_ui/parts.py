"""Content parts in both directions: those of 1.0, and `binary`, the one part of 0.x."""

from __future__ import annotations

from typing import Any

from bridge.dialects.ag_ui.wire import camel, noted, own
from bridge.errors import RequestError
from bridge.model import (
    Data,
    FileRef,
    Inline,
    Media,
    MediaKind,
    Part,
    Reasoning,
    Source,
    Text,
    Url,
    as_text,
    json_text,
    mime_of,
    source_of,
    unseal,
)
from bridge.toolkit.check import Node
from bridge.toolkit.media import DEFAULT_TYPES, kind_of

_Wire = dict[str, Any]

_KINDS: dict[str, MediaKind] = {
    "image": MediaKind.IMAGE,
    "audio": MediaKind.AUDIO,
    "video": MediaKind.VIDEO,
    "document": MediaKind.FILE,
}
_TYPES = {kind: name for name, kind in _KINDS.items()}
_PART_TYPES = ("text", "binary", *_KINDS)
_NOTES: dict[str, type] = {"id": str, "metadata": dict}

# ------------------------------------------------------------------ reading


def read_part(found: Node) -> Part:
    """One content part. Raises `RequestError` with its place."""
    node = Node(camel(found.value), found.path)
    node.need_string("type")
    kind = node.one_of("type", _PART_TYPES) or ""
    if kind == "text":
        return Text(node.need_string("text"), noted(node.rest({"type", "text"})))
    if kind == "binary":
        return _binary(node)
    inner = node.need_object("source")
    source, mime = _source(Node(camel(inner.value), inner.path))
    extras = node.rest({"type", "source"})
    if (provider := inner.get("provider")) is not None:
        extras["provider"] = provider
    metadata = node.get("metadata")
    filename = metadata.get("filename") if isinstance(metadata, dict) else None
    if not isinstance(filename, str):
        filename = None
    return Media(_KINDS[kind], source, mime, filename, noted(extras))


def _source(node: Node) -> tuple[Source, str | None]:
    node.need_string("type")
    kind = node.one_of("type", ("data", "url", "file"))
    value, mime = node.need_string("value"), node.string("mimeType")
    if kind == "file":
        return FileRef(value), mime
    return _located(value, mime, inline=kind == "data")


def _located(value: str, mime: str | None, *, inline: bool) -> tuple[Source, str | None]:
    """A data URL is seen in either place, with its prefix."""
    source, declared = source_of(value)
    if inline and not isinstance(source, Inline):
        source = Inline(value)
    return source, mime or declared


def _binary(node: Node) -> Media:
    """Return the part of 0.x, whose kind depends only on its media type."""
    declared, filename = node.string("mimeType"), node.string("filename")
    data, url, file_id = node.string("data"), node.string("url"), node.string("id")
    source: Source
    mime = declared
    if data:
        source, mime = _located(data, declared, inline=True)
    elif url:
        source, mime = _located(url, declared, inline=False)
    elif file_id:
        source = FileRef(file_id)
    else:
        raise RequestError(f"{node.path}: expected one of data, url or id in a binary part.", param=node.path)
    kind = kind_of(mime)
    rest = node.rest({"type", "mimeType", "filename", "data", "url", "id"})
    return Media(kind, source, mime, filename, noted(rest))


def reasoning_part(text: str, value: str) -> Reasoning:
    """Return reasoning and its encrypted value, which is a signature or the encrypted form."""
    return Reasoning(text, *unseal(value))


def tolerant_parts(value: Any) -> list[Part]:
    """Return the content of a backend's result: a string, a list of parts, or any JSON value."""
    if isinstance(value, str):
        return [Text(value)]
    if not isinstance(value, list):
        return [] if value is None else [Text(json_text(value))]
    parts: list[Part] = []
    for item in value:
        try:
            parts.append(read_part(Node.of(item, "content")))
        except RequestError:
            parts.append(Data(item))
    return parts


# ------------------------------------------------------------------ writing


def write_part(part: Part, new: bool) -> _Wire:
    """Return a part in the form of 1.0 (`new`) or of 0.x; anything but text and media becomes text."""
    if isinstance(part, Media):
        return _media(part) if new else _as_binary(part)
    wire: _Wire = {"type": "text", "text": as_text(part)}
    return {**wire, **_notes(part)} if new else wire


def tells_media(parts: list[Part]) -> bool:
    """Return whether there are media and all can be written without inventing anything: bytes need a media type
    here.
    """
    media = [p for p in parts if isinstance(p, Media)]
    return bool(media) and not any(isinstance(m.source, Inline) and mime_of(m) is None for m in media)


def _notes(part: Part) -> _Wire:
    """Return the extra fields of a part, without those that strict readers refuse."""
    return {k: v for k, v in own(part.extras).items() if isinstance(v, _NOTES.get(k, object))}


def _media(media: Media) -> _Wire:
    extras = _notes(media)
    source: _Wire
    match media.source:
        case Inline(base64=data):
            source = {"type": "data", "value": data, "mimeType": mime_of(media) or DEFAULT_TYPES[media.kind]}
        case Url(url=url):
            source = {"type": "url", "value": url}
        case FileRef(file_id=file_id):
            source = {"type": "file", "value": file_id}
    provider = extras.pop("provider", None)
    if isinstance(provider, str) and isinstance(media.source, FileRef):
        source["provider"] = provider
    if media.mime:
        source["mimeType"] = media.mime
    if media.filename:
        extras["metadata"] = {**extras.get("metadata", {}), "filename": media.filename}
    return {"type": _TYPES[media.kind], "source": source, **extras}


def _as_binary(media: Media) -> _Wire:
    """The part that agents of 0.x know."""
    wire: _Wire = {"type": "binary", "mimeType": mime_of(media) or DEFAULT_TYPES[media.kind]}
    match media.source:
        case Inline(base64=data):
            wire["data"] = data
        case Url(url=url):
            wire["url"] = url
        case FileRef(file_id=file_id):
            wire["id"] = file_id
    if media.filename:
        wire["filename"] = media.filename
    return wire
