"""Contents <-> parts: text, data and media inside messages, the same in requests and answers.

Readers accept any JSON value and return None or a default for invalid ones; requests are validated before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.model import (
    Data,
    FileRef,
    Inline,
    Media,
    MediaKind,
    Part,
    Refusal,
    Source,
    Text,
    as_text,
    mime_of,
    source_of,
    url_of,
)
from bridge.model.jsontext import text_of

# ------------------------------------------------------------------ writing


def content_of(part: Part, *, request: bool = False) -> tuple[str, dict[str, Any]]:
    """Return content type and payload fields of a part that is not a call, result or reasoning."""
    match part:
        case Text():
            return "text", {"text": part.text}
        case Refusal():
            return "refusal", {"refusal": part.text}
        case Data(value=dict() as value):
            return "data", {"data": value}
        case Data(value=value):
            # The schema allows objects only; `wrapped` marks for the bridge's reader that the value is inside.
            return "data", {"data": {"value": value}, "wrapped": True}
        case Media():
            return str(part.kind), _media(part, request)
        case _:
            return "text", {"text": as_text(part)}


def _media(media: Media, request: bool) -> dict[str, Any]:
    reference = {"file_id": media.source.file_id} if isinstance(media.source, FileRef) else {}
    extra = {"detail": media.detail} if media.detail is not None else {}
    match media.kind:
        case MediaKind.IMAGE:
            return {"image_url": url_of(media), **reference, **extra}
        case MediaKind.VIDEO:
            return {"video_url": url_of(media), **reference}
        case MediaKind.AUDIO:
            return {**_audio(media), **reference}
        case MediaKind.FILE:
            url = url_of(media)
            # Table 18 of the documentation has file_data, but the real agent reads file_url only: requests send both.
            data = url if request and isinstance(media.source, Inline) else None
            return {"file_url": url, "file_id": None, "filename": media.filename, "file_data": data, **reference}


def _audio(media: Media) -> dict[str, Any]:
    """Return base64 with a short format if that is sufficient, otherwise one URL.

    The agent prepends `audio/` to a format, so it must not be a full media type.
    """
    mime = mime_of(media)
    if isinstance(media.source, Inline) and mime:
        format_name = "mp3" if mime == "audio/mpeg" else mime.removeprefix("audio/")
        if "/" not in format_name and _audio_type(format_name) == mime:
            return {"data": media.source.base64, "format": format_name}
    return {"data": url_of(media), "format": None if isinstance(media.source, Inline) else media.mime}


# ------------------------------------------------------------------ reading


def part_of(content: dict[str, Any]) -> Part | None:
    """Return the part of a whole content; None if its payload is missing or its type unknown."""
    reader = _READERS.get(text_of(content.get("type")).lower() or "text")
    return reader(content) if reader else None


def _read_data(content: dict[str, Any]) -> Part | None:
    value = content.get("data")
    if content.get("wrapped") is True and isinstance(value, dict):
        value = value.get("value")
    elif value is None:
        return None
    return Data(value)


def _read_image(content: dict[str, Any]) -> Part | None:
    media = _medium(MediaKind.IMAGE, content.get("image_url"), content)
    if media is not None:
        media.detail = text_of(content.get("detail")) or None
    return media


def _read_video(content: dict[str, Any]) -> Part | None:
    return _medium(MediaKind.VIDEO, content.get("video_url"), content)


def _read_audio(content: dict[str, Any]) -> Part | None:
    data, mime = text_of(content.get("data")), _audio_type(text_of(content.get("format")))
    if not data:
        return _medium(MediaKind.AUDIO, None, content)
    if _is_url(data):
        source, url_mime = source_of(data)
        return Media(MediaKind.AUDIO, source, url_mime or mime)
    return Media(MediaKind.AUDIO, Inline(data), mime)


def _read_file(content: dict[str, Any]) -> Part | None:
    data = text_of(content.get("file_data"))
    if data and not _is_url(data):
        return Media(MediaKind.FILE, Inline(data), None, _filename(content))
    return _medium(MediaKind.FILE, data or content.get("file_url"), content)


def _medium(kind: MediaKind, url: object, content: dict[str, Any]) -> Media | None:
    text, file_id = text_of(url), text_of(content.get("file_id"))
    source: Source
    if text:
        source, mime = source_of(text)
    elif file_id:
        source, mime = FileRef(file_id), None
    else:
        return None
    return Media(kind, source, mime, _filename(content))


def _is_url(data: str) -> bool:
    """Return whether a field that may hold bare base64 holds a URL."""
    return data[:5].lower() == "data:" or "://" in data


def _filename(content: dict[str, Any]) -> str | None:
    """Return the file name: `filename` in the schema, `file_name` from the web frontend."""
    return text_of(content.get("filename")) or text_of(content.get("file_name")) or None


def _audio_type(name: str) -> str | None:
    if not name or "/" in name:
        return name or None
    return "audio/mpeg" if name == "mp3" else f"audio/{name}"


_READERS: dict[str, Callable[[dict[str, Any]], Part | None]] = {
    "text": lambda content: Text(text_of(content.get("text"))),
    "refusal": lambda content: Refusal(text_of(content.get("refusal"))),
    "data": _read_data,
    "image": _read_image,
    "video": _read_video,
    "audio": _read_audio,
    "file": _read_file,
}
