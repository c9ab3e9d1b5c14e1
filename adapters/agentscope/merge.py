"""How the pieces of a content other than text join, for reading and for the builders."""

from __future__ import annotations

from typing import Any

MEDIA_FIELDS = ("image_url", "video_url", "file_url", "file_data", "data")
_MERGE_DEPTH = 50


def join_media(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Python's own client appends an address, the web frontend replaces it: an address that begins anew replaces."""
    joined = {**old, **{k: v for k, v in new.items() if v is not None}}
    for name in MEDIA_FIELDS:
        before, after = old.get(name), new.get(name)
        anew = isinstance(after, str) and (after.startswith("data:") or "://" in after)
        if isinstance(before, str) and isinstance(after, str) and not anew:
            joined[name] = before + after
    return joined


def merge(old: dict[str, Any], new: dict[str, Any], *, once: tuple[str, ...] = (), depth: int = 0) -> dict[str, Any]:
    """Joins a data delta key by key as the original builder does (capture `builder_data_merge`).

    Keys in `once` are never joined: servers repeat a call's name and id beside each piece of its arguments.
    """
    out = dict(old)
    for key, value in new.items():
        before = out.get(key)
        if key in once:
            out[key] = value if value is not None and not before else before
        elif key not in out or depth > _MERGE_DEPTH:
            out[key] = value
        elif isinstance(before, dict) and isinstance(value, dict):
            out[key] = merge(before, value, depth=depth + 1)
        elif _joins(before, value):
            out[key] = before + value
        elif value is not None or not once:
            out[key] = value
    return out


def _joins(before: object, value: object) -> bool:
    if isinstance(before, (str, list)):
        return isinstance(value, type(before))
    return _number(before) and _number(value)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
