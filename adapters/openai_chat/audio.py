"""Audio that a chat backend made: pieces of base64 in, one medium out."""

from __future__ import annotations

import base64
from typing import Any

from bridge.dialects.openai.api import audio_type
from bridge.dialects.openai_chat.wire import noted
from bridge.model import Inline, Media, MediaKind
from bridge.toolkit.merging import Added

TRANSCRIPT = "openai-chat transcript"
"""The key of extras that marks a text as the transcript of an audio: chat clients get it in `audio`."""


def joined(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """The `audio` object that these pieces add up to."""
    added = Added()
    for piece in pieces:
        added.add({k: v for k, v in piece.items() if k != "data"})
    total = added.plain()
    data = [piece["data"] for piece in pieces if isinstance(piece.get("data"), str)]
    return {**total, "data": _one("".join(data), data)} if data else total


def audio_from(total: dict[str, Any], audio_format: Any, streamed: bool) -> Media:
    """Return the audio for other dialects. A chat client of a stream has had its pieces, which `streamed` marks."""
    words = total.get("transcript")
    extras = {k: v for k, v in total.items() if k not in ("data", "transcript")}
    if streamed:
        extras["streamed"] = True
    mime = audio_type(audio_format) if isinstance(audio_format, str) else None
    source, transcript = Inline(total["data"]), words if isinstance(words, str) and words else None
    return Media(MediaKind.AUDIO, source, mime, extras=noted(extras), transcript=transcript)


def _one(plain: str, pieces: list[str]) -> str:
    """Base64 pieces as one: pieces that were padded each for itself cannot simply be strung together."""
    if "=" not in plain.rstrip("="):
        return plain
    try:
        return base64.b64encode(b"".join(base64.b64decode(piece) for piece in pieces)).decode()
    except ValueError:
        return plain
