"""Converts content items to parts and back. The wire has no media types: they are detected by the first bytes."""

from __future__ import annotations

import base64
from typing import Any

from bridge.dialects.aip.wire import ContentItem
from bridge.model import Data, Inline, Media, MediaKind, Part, Text, mime_of
from bridge.model.jsontext import loads

EXTRAS = b'{"aip_extras":'
"""The beginning of the item that holds fields that the wire lacks (option `extras: embedded`)."""


def media_of(kind: MediaKind, data: bytes) -> Media:
    """Return a medium with the type detected by its first bytes."""
    media = Media(kind, Inline(base64.b64encode(data).decode()))
    media.mime = mime_of(media)
    return media


def part_of(item: ContentItem) -> Part | None:
    """The part that an item of an answer is; None for empty text."""
    if item.image is not None:
        return media_of(MediaKind.IMAGE, item.image)
    if item.audio is not None:
        return media_of(MediaKind.AUDIO, item.audio)
    if item.embedded is not None:
        return media_of(MediaKind.FILE, item.embedded)
    return Text(item.text) if item.text else None


def asked_part(item: ContentItem) -> Part | None:
    """The same of an inquiry: what is embedded may be JSON or text that a model can read, else it is a file."""
    if item.embedded is None:
        return part_of(item)
    try:
        text = item.embedded.decode()
    except ValueError:
        return media_of(MediaKind.FILE, item.embedded)
    try:
        value: Any = loads(item.embedded)
    except ValueError:
        return Text(text)
    return Data(value) if isinstance(value, dict | list) else Text(text)


def item_of(media: Media) -> ContentItem | None:
    """The item for a medium whose bytes are here; None for one that is an address, an id, a video or no base64."""
    if not isinstance(media.source, Inline):
        return None
    try:
        data = media.source.bytes
    except ValueError:
        return None
    match media.kind:
        case MediaKind.IMAGE:
            return ContentItem(image=data)
        case MediaKind.AUDIO:
            return ContentItem(audio=data)
        case MediaKind.FILE:
            return ContentItem(embedded=data)
        case MediaKind.VIDEO:
            return None
