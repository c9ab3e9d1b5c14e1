"""Audio that a chat backend made: pieces of base64 in, one medium out."""

from __future__ import annotations

import base64
from typing import Any

from bridge.dialects.openai_chat.wire import merge, noted
from bridge.model import Inline, Media, MediaKind


def audio_from(pieces: list[dict[str, Any]], audio_format: Any, streamed: bool) -> Media:
    """The audio for other dialects. A chat client of a stream had its pieces already, which `streamed` says."""
    total: dict[str, Any] = {}
    for piece in pieces:
        merge(total, piece)
    data = total.pop("data", None)
    if streamed:
        total["streamed"] = True
    mime = f"audio/{audio_format}" if isinstance(audio_format, str) else None
    source = Inline(_joined(pieces, data if isinstance(data, str) else ""))
    return Media(MediaKind.AUDIO, source, mime, extras=noted(total))


def _joined(pieces: list[dict[str, Any]], plain: str) -> str:
    """Base64 pieces as one: pieces that were padded each for itself cannot simply be strung together."""
    if "=" not in plain.rstrip("="):
        return plain
    try:
        data = b"".join(base64.b64decode(p["data"]) for p in pieces if isinstance(p.get("data"), str))
    except ValueError:
        return plain
    return base64.b64encode(data).decode()
