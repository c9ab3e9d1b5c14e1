"""Joining of the deltas of contents other than text, for the decoder and the builders."""

from __future__ import annotations

from typing import Any

from bridge.toolkit.pieces import Pieces

MEDIA_FIELDS = ("image_url", "video_url", "file_url", "file_data", "data")
_MERGE_DEPTH = 50


class _Items(list[Any]):
    """A list that deltas are appended to."""


class Merged:
    """An object that grows by deltas, in place: each delta costs its own size, not that of what came before."""

    __slots__ = ("_depth", "_values")

    def __init__(self, value: dict[str, Any], depth: int = 0) -> None:
        self._values = dict(value)
        self._depth = depth

    def __bool__(self) -> bool:
        return bool(self._values)

    def get(self, key: str) -> Any:
        """Return the present value of a field: of a text that has grown its `Pieces`."""
        return self._values.get(key)

    def plain(self) -> dict[str, Any]:
        """Return the whole object."""
        return {key: _plain(value) for key, value in self._values.items()}

    def add(self, new: dict[str, Any], unjoined: tuple[str, ...] = ()) -> None:
        """Merge a data delta key by key as the reference builder does (capture `builder_data_merge`).

        Keys in `unjoined` are never concatenated: servers repeat a call's name and id with each delta of its arguments.
        """
        values = self._values
        for key, value in new.items():
            before = values.get(key)
            if key in unjoined:
                values[key] = value if value is not None and not before else before
            elif key not in values or self._depth > _MERGE_DEPTH:
                values[key] = value
            elif isinstance(before, (dict, Merged)) and isinstance(value, dict):
                inner = values[key] = before if isinstance(before, Merged) else Merged(before, self._depth + 1)
                inner.add(value)
            elif isinstance(before, str) and isinstance(value, str):
                values[key] = Pieces(before, value)
            elif isinstance(before, Pieces) and isinstance(value, str):
                before.append(value)
            elif isinstance(before, list) and isinstance(value, list) and not isinstance(before, Pieces):
                items = values[key] = before if isinstance(before, _Items) else _Items(before)
                items.extend(value)
            elif _is_number(before) and _is_number(value):
                values[key] = before + value
            elif value is not None or not unjoined:
                values[key] = value

    def replace(self, new: dict[str, Any]) -> None:
        """Set fields that came again as a whole."""
        self._values.update(new)

    def add_media(self, new: dict[str, Any]) -> None:
        """Apply a delta of media: a URL with a scheme replaces the present one, anything else is appended.

        The Python client always appends, the web frontend always replaces.
        """
        for key, value in new.items():
            before = self._values.get(key)
            if value is None:
                continue
            if key not in MEDIA_FIELDS or not isinstance(value, str) or value.startswith("data:") or "://" in value:
                self._values[key] = value
            elif isinstance(before, Pieces):
                before.append(value)
            else:
                self._values[key] = Pieces(before, value) if isinstance(before, str) else value


def join_media(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return media with a delta applied, as `Merged.add_media` does."""
    merged = Merged(old)
    merged.add_media(new)
    return merged.plain()


def merge(old: dict[str, Any], new: dict[str, Any], *, unjoined: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return an object with a delta merged, as `Merged.add` does."""
    merged = Merged(old)
    merged.add(new, unjoined)
    return merged.plain()


def _plain(value: Any) -> Any:
    if isinstance(value, Merged):
        return value.plain()
    if isinstance(value, Pieces):
        return value.text
    return list(value) if isinstance(value, _Items) else value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
