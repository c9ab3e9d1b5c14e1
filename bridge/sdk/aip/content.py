"""Plain Python values -> content items, and the ids that programs make."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Sequence

from bridge.dialects.aip.wire import ContentItem, Mode

Content = str | bytes | Sequence[str | bytes]
Modes = Mode | int | Sequence[Mode | int]


def new_id(prefix: str) -> str:
    """In the specification's form: `agent_session_<uuid4>_<YYYYmmdd_HHMMSS>`."""
    return f"{prefix}_{uuid.uuid4()}_{datetime.datetime.now().strftime('%Y%m%d_%H%M%S')}"


def content_items(content: Content, modes: Modes | None = None) -> list[ContentItem]:
    """At least one item, since agents read the first one. One mode, alone or in a list, holds for all contents; without
    a mode a str is TEXT and bytes are EMBEDDED.

    Raises `ValueError` for modes that do not fit: one for all or one for each, text for str, another one for bytes.
    """
    values: list[str | bytes] = [content] if isinstance(content, str | bytes) else list(content)
    wanted: list[int | None] = [modes] if modes is None or isinstance(modes, int) else list(modes)
    if len(wanted) == 1:
        wanted *= len(values)
    if len(wanted) != len(values):
        raise ValueError(f"content_mode: expected one, or {len(values)}, one for each content; got {len(wanted)}")
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
        case None | Mode.EMBEDDED:
            return ContentItem(embedded=bytes(value))
        case _:
            raise ValueError(f"content_mode: bytes are IMAGE, AUDIO or EMBEDDED, got {Mode(mode).name}")
