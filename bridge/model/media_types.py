"""Detection of undeclared media types: by the name of a file, else by the first bytes."""

from __future__ import annotations

import base64
import re

EXTENSIONS = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "avif": "image/avif",
    "heic": "image/heic",
    "bmp": "image/bmp",
    "svg": "image/svg+xml",
    "tiff": "image/tiff",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "ogg": "audio/ogg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "aac": "audio/aac",
    "m4a": "audio/mp4",
    "weba": "audio/webm",
    "mp4": "video/mp4",
    "mov": "video/quicktime",
    "webm": "video/webm",
    "ogv": "video/ogg",
    "avi": "video/x-msvideo",
    "pdf": "application/pdf",
    "json": "application/json",
    "zip": "application/zip",
    "rtf": "application/rtf",
    "doc": "application/msword",
    "xls": "application/vnd.ms-excel",
    "ppt": "application/vnd.ms-powerpoint",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "html": "text/html",
    "css": "text/css",
    "xml": "text/xml",
}
"""The usual media type of a file, by its extension. Of several extensions of one type the first is the usual one."""

_REGISTERED = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-jpeg": "image/jpeg",
    "image/x-png": "image/png",
    "image/x-webp": "image/webp",
    "image/x-gif": "image/gif",
    "application/x-pdf": "application/pdf",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
}
"""Common wrong names of media types -> the registered ones."""

_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"RIFF.{4}WAVE", re.DOTALL), "audio/wav"),
    (re.compile(rb"RIFF.{4}AVI ", re.DOTALL), "video/x-msvideo"),
    (re.compile(rb".{4}ftyp(?:avif|avis)", re.DOTALL), "image/avif"),
    (re.compile(rb".{4}ftyp(?:heic|heix|mif1)", re.DOTALL), "image/heic"),
    (re.compile(rb".{4}ftypM4[AB] ", re.DOTALL), "audio/mp4"),
    (re.compile(rb".{4}ftypqt  ", re.DOTALL), "video/quicktime"),
    (re.compile(rb".{4}ftyp", re.DOTALL), "video/mp4"),
    (re.compile(rb"\x1aE\xdf\xa3"), "video/webm"),
    (re.compile(rb"OggS"), "audio/ogg"),
    (re.compile(rb"fLaC"), "audio/flac"),
    (re.compile(rb"ID3"), "audio/mpeg"),
    (re.compile(rb"\xff[\xf0\xf1\xf8\xf9]"), "audio/aac"),
    (re.compile(rb"\xff[\xe2\xe3\xf2-\xf5\xfa-\xfd]"), "audio/mpeg"),
    (re.compile(rb"%PDF"), "application/pdf"),
    (re.compile(rb"PK\x03\x04"), "application/zip"),
)
_USUAL = frozenset(EXTENSIONS.values())
_CONTAINERS = frozenset({"mp4", "webm", "ogg"})
"""Formats of both audio and video."""
_HEAD = 24
_BASE64 = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")


def registered(mime: str | None) -> str | None:
    """Return a media type by its registered name; None for one that leaves the format open (`image/*`, `image`)."""
    if mime is None or mime in _USUAL:
        return mime
    plain = mime.partition(";")[0].strip().lower()
    main, slash, sub = plain.partition("/")
    if not slash or not main or sub in ("", "*"):
        return None
    return _REGISTERED.get(plain, mime)


def type_of_name(filename: str | None) -> str | None:
    """Return the media type of a file extension."""
    return EXTENSIONS.get((filename or "").rpartition(".")[2].lower())


def type_of_bytes(data: bytes) -> str | None:
    """Return the media type by the first bytes of a file."""
    return next((mime for start, mime in _SIGNATURES if start.match(data)), None)


def type_of_base64(data: str) -> str | None:
    """Return the media type by the first bytes in base64."""
    head = data[:_HEAD]
    try:
        return type_of_bytes(base64.b64decode(head + "=" * (-len(head) % 4), validate=True))
    except ValueError:
        return None


def fitted(mime: str | None, kind: str) -> str | None:
    """Return the media type as that of a medium of this kind; None if it is of another kind."""
    main, _, sub = (mime or "").partition("/")
    if kind == "file" or main == kind:
        return mime
    return f"{kind}/{sub}" if sub in _CONTAINERS and kind in ("audio", "video") else None


def is_base64_of_media(text: str) -> bool:
    """Return whether a text is the base64-encoded bytes of a known format, and no address."""
    return type_of_base64(text) is not None and _BASE64.fullmatch(text) is not None
