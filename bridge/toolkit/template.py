"""`Template`: a frame that is written once, and then again with another text: most of what an encoder writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from bridge.model.jsontext import dumps, escape_line_breaks
from bridge.model.surrogates import repair

HOLE = orjson.Fragment(b"\0")
"""The place of the text in a frame."""
NUMBER = orjson.Fragment(b"\1")
"""The place of an integer in a frame, before that of the text."""


class Template:
    """A frame of which only a text differs, and perhaps a number before it.

    Its JSON is made once, with each `HOLE` and `NUMBER` (control characters, which JSON has in no other place) as a
    format. Calling it fills in a text::

        template = Template({"type": "delta", "text": HOLE})
        frame = template("Hello")

    `one_line` escapes the characters at which some readers end a line (`escape_line_breaks`).
    """

    __slots__ = ("_form", "_holes", "_one_line")

    def __init__(self, frame: Mapping[str, Any], *, one_line: bool = False) -> None:
        try:
            form = orjson.dumps(frame)
        except TypeError:
            form = orjson.dumps(_writable(frame))
        if one_line:
            form = escape_line_breaks(form)
        self._holes = form.count(b"\0")
        self._form = form.replace(b"%", b"%%").replace(b"\0", b"%b").replace(b"\1", b"%d")
        self._one_line = one_line

    def __call__(self, text: str, number: int | None = None) -> bytes:
        """Return the frame with this text in each hole, or with `number` and the text in a frame that has both once."""
        # Written out, as each token comes here: a call of `dumps` would cost a third of it.
        try:
            piece = orjson.dumps(text)
        except TypeError:
            piece = dumps(text)
        if self._one_line:
            piece = escape_line_breaks(piece)
        if number is not None:
            return self._form % (number, piece)
        return self._form % (piece if self._holes == 1 else (piece,) * self._holes)


def filled(frame: Any, text: str) -> Any:
    """Return a frame, or a piece of one, with a text in place of each `HOLE`."""
    if isinstance(frame, dict):
        return {name: text if value is HOLE else filled(value, text) for name, value in frame.items()}
    if isinstance(frame, list):
        return [filled(value, text) for value in frame]
    return text if frame is HOLE else frame


def _writable(value: Any) -> Any:
    """A frame with the values that `dumps` writes and orjson does not, as fragments."""
    if isinstance(value, Mapping):
        return {repair(name): _writable(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_writable(item) for item in value]
    return value if isinstance(value, orjson.Fragment) else orjson.Fragment(dumps(value))
