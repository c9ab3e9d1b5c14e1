"""Events that differ from the last one in nothing but their text: most of what a backend sends.

Such an event repeats a few hundred bytes around a few new ones. If the bytes around the text are those of an event that
was parsed in full, their meaning is known, and only the text is parsed (which saves three to six tenths of the time).
The result is that of parsing in full: JSON is read from left to right, so that with the same bytes before it, the text
is at the position of a value; as long as it is a single string, the bytes after it have the same meaning.

Where many events come in one read, this is most of what an event costs: a chat token in a burst of 32, from chunk to
chunk, takes 15,700 machine instructions with it and 38,300 without it.

Beside the text, an event may contain a counter and a string of random letters (OpenAI pads its events so that their
length reveals nothing). Decoders ignore both, so that they may differ, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

from bridge.contract.wire import FrameLike
from bridge.model import Builder, Event
from bridge.model.jsontext import dumps, loads
from bridge.model.open_part import OpenPart

_STRING = rb'"%b"\s*:\s*("(?:[^"\\]|\\.)*+")'
_NUMBER = rb'"%b"\s*:\s*([1-9][0-9]{0,14}+)(?=[\s,}])'
_LETTERS = rb'"%b"\s*:\s*"([0-9A-Za-z]*+)"'
_ZERO = ord("0")
_NOTHING: tuple[bytes, str | None] = b"", None
_NOWHERE = slice(0, 0)
_PROBE = "\x00?"
_LONGEST = 4000
_CHANCES = 4
"""How often in a row a learned event may prove useless, as some servers send no two similar events."""

Path = tuple[str | int, ...]
_Span = tuple[int, int]


class Appends(Protocol):
    """What takes pieces of a text, such as a list."""

    def append(self, piece: str, /) -> None:
        """Take the next piece."""


class Repeat:
    """The bytes around the text of an event that was parsed, and the part that the text belongs to.

    Each parsed event clears it, and its reader learns it again if a similar event would only append to the same part.
    So no other event comes between a learned event and a similar one.
    """

    __slots__ = (
        "_after",
        "_around",
        "_before",
        "_between",
        "_builder",
        "_chances",
        "_head",
        "_met",
        "_name",
        "_number",
        "_part",
        "_place",
        "_reading",
        "_side",
        "_tail",
        "_texts",
        "_used",
    )

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._met = self._used = False
        self._chances = _CHANCES
        self._reading = _NOTHING  # what is read in full now, and the name of that event
        self._part: OpenPart | None = None
        self._texts: Appends | None = None
        # The constant pieces, with their positions; pieces after the text are counted from the end.
        self._name: str | None = None
        self._before: bytes | None = None  # None while nothing is known
        self._after = self._around = b""
        self._head = self._tail = self._side = _NOWHERE
        # The positions of the counter and of the text. If letters follow, the position extends to their end.
        self._number: slice | None = None
        self._place = _NOWHERE
        self._between: bytes | None = None

    def feed(self, frames: Sequence[FrameLike], read: Callable[[bytes, str | None], None]) -> list[Event]:
        """The events of these frames: texts of those like the one learned; all others are given to `read`, with names.

        `read` passes their content to the builder. Nothing is read after the end of the run.
        """
        builder = self._builder
        if builder.done:
            self._before = None
        events: list[Event] = []
        read_any = False  # whether the builder holds events that are not among `events` yet
        for frame in frames:
            if type(frame) is bytes:
                data, name = frame, None
            else:
                data, name = frame.data, frame.event  # type: ignore[union-attr]
            text = None
            if data[self._head] == self._before and data[self._tail] == self._after and name == self._name:
                text = self._text(data)
            if text:
                if read_any:
                    events += builder.take()
                    read_any = False
                part = self._part
                events.append(part.make(part.id, text, None))  # type: ignore[union-attr]
                self._used = True
                if self._texts is not None:
                    self._texts.append(text)
                continue
            if builder.done:
                break
            self._before = None
            self._reading = data, name
            read(data, name)
            self._reading = _NOTHING
            read_any = True
        if not read_any:
            return events
        if not events:
            return builder.take()
        events += builder.take()
        return events

    def _text(self, data: bytes) -> str | None:
        """The text of an event whose first and last bytes are those learned; None when the rest of it is not."""
        number = self._number
        if number is not None:
            digits = data[number]
            if not digits.isdigit() or digits[0] == _ZERO or data[self._side] != self._around:
                return None
        piece = data[self._place]
        try:
            text = loads(piece if self._between is None else self._unpadded(piece))
        except ValueError:
            return None
        return text if type(text) is str else None

    def _unpadded(self, piece: bytes) -> bytes:
        """Return the text without the letters after it; empty if there are none."""
        text, found, letters = piece.partition(self._between or b"")
        return text if found and (letters.isalnum() or not letters) else b""

    def learn(
        self,
        event: dict[str, Any],
        path: Path,
        part: OpenPart | None,
        *,
        number: str | None = None,
        padding: str | None = None,
        texts: Appends | None = None,
    ) -> None:
        """Takes note of the event that is being read: one like it would only add the text at `path` to this open part.

        `number` and `padding` name fields of the event that are not read at all. All texts go into `texts`, too.
        """
        if not self._met:
            self._met = True  # short answers have one such event, and nothing is gained with it
            return
        data, name = self._reading
        if part is None or not self._chances or len(data) > _LONGEST or self._builder.joins_halves:
            return
        self._chances = _CHANCES if self._used else self._chances - 1
        self._used = False
        text = _find(_STRING, path[-1], data)
        digits = _find(_NUMBER, number, data) if number in event else None
        letters = _find(_LETTERS, padding, data) if padding in event else None
        if text is None or (letters is not None and letters < text):
            return
        behind = letters or text
        if digits is not None and text < digits < behind:
            return
        if _are_these(data, event, (path, text), (number, digits), (padding, letters)):
            self._part, self._name, self._texts = part, name, texts
            self._cut(data, text, digits, behind)

    def _cut(self, data: bytes, text: _Span, digits: _Span | None, behind: _Span) -> None:
        """Store the positions of the counter, of the text with the letters after it, and of all constant pieces."""
        size = len(data)
        begin, end = text[0], behind[1]
        self._number = None
        if digits is not None and digits < text:
            begin = digits[0]
            self._number, self._side = slice(*digits), slice(digits[1], text[0])
        elif digits is not None:
            end = digits[1]
            self._number, self._side = slice(digits[0] - size, end - size), slice(behind[1] - size, digits[0] - size)
        self._head, self._place, self._tail = slice(begin), slice(text[0], behind[1] - size), slice(end - size, None)
        self._before, self._around, self._after = data[self._head], data[self._side], data[self._tail]
        self._between = data[text[1] : behind[0]] if behind is not text else None


def _find(form: bytes, name: str | int | None, data: bytes) -> _Span | None:
    found = _pattern(form, str(name)).search(data)
    return found.span(1) if found else None


@cache
def _pattern(form: bytes, name: str) -> re.Pattern[bytes]:
    return re.compile(form % name.encode())


def _are_these(
    data: bytes,
    event: dict[str, Any],
    text: tuple[Path, _Span],
    number: tuple[str | None, _Span | None],
    padding: tuple[str | None, _Span | None],
) -> bool:
    """Return whether these values were found, so that an event with other values in their places must be parsed.

    A value may also be found in another field of the same name, or in one of two, of which the last counts.
    """
    wanted: dict[str, Any] = _with(event, text[0], _PROBE)
    if wanted == event:
        return False
    probes = [(text[1], dumps(_PROBE))]
    for (name, span), kind in ((number, int), (padding, bytes.decode)):
        if name is not None and span is not None:
            probe = b"1" if data[slice(*span)] != b"1" else b"2"
            wanted[name] = kind(probe)
            probes.append((span, probe))
    for (begin, end), probe in sorted(probes, reverse=True):
        data = data[:begin] + probe + data[end:]
    try:
        return bool(loads(data) == wanted)
    except ValueError:  # half a character in another field
        return False


def _with(value: Any, path: Path, new: Any) -> Any:
    """A copy of a JSON value with another one at `path`."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _with(value[path[0]], path[1:], new)
    return copy
