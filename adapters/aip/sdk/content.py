"""Plain Python values -> content items, and the ids that programs make."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Sequence

from bridge.dialects.aip.messages import ContentItem, Mode

Content = str | bytes | Sequence[str | bytes]
Modes = Mode | int | Sequence[Mode | int]


def new_id(prefix: str) -> str:
    """In the specification's form: `agent_session_<uuid4>_<YYYYmmdd_HHMMSS>`."""
    return f"{prefix}_{uuid.uuid4()}_{datetime.datetime.now().strftime('%Y%m%d_%H%M%S')}"


def content_items(content: Content, modes: Modes | None = None) -> list[ContentItem]:
    """At least one item, since agents read the first one.

    Raises `ValueError` for modes that do not fit: as many as there are contents, text for str, another one for bytes.
    """
    values: list[str | bytes] = [content] if isinstance(content, str | bytes) else list(content)
    if modes is None or isinstance(modes, int):
        wanted: list[int | None] = [modes] * len(values)
    else:
        wanted = list(modes)
    if len(wanted) != len(values):
        raise ValueError(f"content_mode: expected {len(values)}, one for each content, got {len(wanted)}")
    return [_item(value, mode) for value, mode in zip(values, wanted, strict=True)] or [ContentItem(text="")]


def _item(value: str | bytes, mode: int | None) -> ContentItem:
    if isinstance(value, str):
        if mode in (None, Mode.TEXT):
            return ContentItem(text=value)
        raise ValueError(f"content_mode: a str is TEXT, got {Mode(mode or 0).name}; give bytes for other modes")
    match mode:
        case Mode.IMAGE:
            return ContentItem(image=bytes(value))
        case Mode.AUDIO:
            return ContentItem(audio=bytes(value))
        case Mode.EMBEDDED:
            return ContentItem(embedded=bytes(value))
        case _:
            raise ValueError("content_mode: bytes need IMAGE, AUDIO or EMBEDDED")
