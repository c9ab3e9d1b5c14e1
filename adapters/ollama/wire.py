"""Words that both directions share: names of models, and the objects of calls."""

from __future__ import annotations

from typing import Any

from bridge.model.jsontext import dumps, escape_line_breaks

Wire = dict[str, Any]

NAME = "ollama"
NOTES = "notes"
LATEST = ":latest"
"""The tag of a model that is named without one."""
PICTURES = "a PNG, JPEG, GIF or WebP image"


def is_picture(mime: str | None) -> bool:
    """Return whether bytes of this type are sent as an image: the wire has no types, so that their first ones count."""
    return mime is not None and mime.startswith("image/")


def given(fields: Wire) -> Wire:
    """Return the fields that are not null."""
    return {name: value for name, value in fields.items() if value is not None}


def line(value: Wire) -> bytes:
    """Return one object of a stream. The official Python client splits lines at every line break of Unicode."""
    return escape_line_breaks(dumps(value))


def plain_name(name: str) -> str:
    """Return a model's name without the tag that means nothing, in whatever case it is written."""
    return name[: -len(LATEST)] or name if name.lower().endswith(LATEST) else name


def tagged_name(name: str) -> str:
    """Return a model's name as lists have it: with a tag, if it is neither a path nor has one."""
    return name if ":" in name or "/" in name else name + LATEST


def ends_at_once(keep_alive: Any) -> bool:
    """Return whether a model that is kept for this duration is unloaded at once: 0 seconds, or `0`, `0s`, `0h0m`."""
    if isinstance(keep_alive, str):
        return {each for each in keep_alive if each.isdigit()} == {"0"}
    return isinstance(keep_alive, (int, float)) and keep_alive == 0


def is_same_model(one: str, other: str) -> bool:
    """Return whether two names mean one model: the case and the tag `latest` do not count."""
    return one == other or plain_name(one).lower() == plain_name(other).lower()
