"""Joining of the deltas of contents other than text, for the decoder and the builders."""

from __future__ import annotations

from typing import Any

MEDIA_FIELDS = ("image_url", "video_url", "file_url", "file_data", "data")
_MERGE_DEPTH = 50


def join_media(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return media with a delta applied: a URL with a scheme replaces the present one, anything else is appended.

    The Python client always appends, the web frontend always replaces.
    """
    joined = {**old, **{k: v for k, v in new.items() if v is not None}}
    for name in MEDIA_FIELDS:
        before, after = old.get(name), new.get(name)
        is_complete = isinstance(after, str) and (after.startswith("data:") or "://" in after)
        if isinstance(before, str) and isinstance(after, str) and not is_complete:
            joined[name] = before + after
    return joined


def merge(
    old: dict[str, Any], new: dict[str, Any], *, unjoined: tuple[str, ...] = (), depth: int = 0
) -> dict[str, Any]:
    """Merge a data delta key by key as the reference builder does (capture `builder_data_merge`).

    Keys in `unjoined` are never concatenated: servers repeat a call's name and id with each delta of its arguments.
    """
    merged = dict(old)
    for key, value in new.items():
        before = merged.get(key)
        if key in unjoined:
            merged[key] = value if value is not None and not before else before
        elif key not in merged or depth > _MERGE_DEPTH:
            merged[key] = value
        elif isinstance(before, dict) and isinstance(value, dict):
            merged[key] = merge(before, value, depth=depth + 1)
        elif _is_joinable(before, value):
            merged[key] = before + value
        elif value is not None or not unjoined:
            merged[key] = value
    return merged


def _is_joinable(before: object, value: object) -> bool:
    if isinstance(before, (str, list)):
        return isinstance(value, type(before))
    return _is_number(before) and _is_number(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
