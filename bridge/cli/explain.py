"""`translate --explain`: what came, what it was taken for and what was made of it, side by side, as plain text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any

import orjson

from bridge.contract import Context, Dialect, registry
from bridge.errors import BridgeError
from bridge.model import pretty
from bridge.model.pretty import pretty_request
from bridge.translation import AnswerDecoder
from bridge.translation.framing import lines as json_lines
from bridge.translation.framing import sse
from bridge.translation.library import Translator
from bridge.version import __version__

_RUN = "run"
"""The same run id each time: two reports of one recording can be compared."""
_NARROWEST = 24
_LONGEST = 1200
_GAP = " | "

Row = tuple[str, str, str]


class Explanation:
    """The three columns of one translation. `failed` is known after the last line: no translation, or a failed run."""

    def __init__(
        self, data: bytes, source: str, target: str, what: str, done: Callable[[int], None] = lambda _: None
    ) -> None:
        """`what` is stream, request or response. Raises `ConfigError` for an unknown dialect.

        `done` is called with the number of bytes of a stream that were explained, after each frame.
        """
        self._done = done
        self.failed = False
        self._title = f"dialect-bridge {__version__}: translate --from {source} --to {target} --what {what}"
        self._heads = (source, "events" if what != "request" else "request", target)
        self._source: Dialect = registry.get(source)
        self._translator = Translator(source, target, run_id=_RUN)
        rows = {"stream": self._stream, "request": self._request, "response": self._response}[what]
        self._rows = rows(data)

    def text(self, width: int) -> str:
        """All of it, which can be had once."""
        return "".join(self.lines(width))

    def lines(self, width: int) -> Iterator[str]:
        """Lines of at most `width` columns of a terminal, as far as three readable columns allow, as they are made."""
        column = max(_NARROWEST, (width - 2 * len(_GAP)) // 3)
        rule = ("-" * column,) * 3
        for line in (self._title, "", *_lines(self._heads, column), *_lines(rule, column)):
            yield f"{line}\n"
        for row in self._rows:
            for line in (*_lines(row, column), *_lines(("", "", ""), column)):
                yield f"{line}\n"
        for line in self._lost():
            yield f"{line}\n"

    def _lost(self) -> Iterator[str]:
        yield "lost:" if self._translator.lost else "lost: nothing"
        for name, detail in self._translator.lost_details.items():
            yield f"  {name}: {detail}" if detail else f"  {name}"

    # ------------------------------------------------------------------ rows

    def _stream(self, data: bytes) -> Iterator[Row]:
        """A row for each frame, as if each had come in a read of its own, and one for the end."""
        reading = self._reading()
        explained = 0
        for frame in _frames(data):
            yield _wire(frame), pretty(reading.receive(frame)), _wire(self._translator.feed(frame))
            explained += len(frame)
            self._done(explained)
        yield "(end of input)", pretty(reading.close()), _wire(self._translator.close())
        self.failed = self._translator.failure is not None

    def _request(self, data: bytes) -> Iterator[Row]:
        made = self._tried(lambda: self._translator.request(data, client=self._source))
        understood = _if_made(lambda: pretty_request(self._translator.client_request))
        line = _if_made(lambda: f"{self._translator.sent.method} {self._translator.sent.path}\n")
        yield _wire(data), understood, line + made

    def _response(self, data: bytes) -> Iterator[Row]:
        reading = self._reading()
        yield (
            _wire(data),
            pretty(reading.receive(data) + reading.close()),
            self._tried(lambda: self._translator.response(data)),
        )

    def _tried(self, translate: Any) -> str:
        """Return the translation, or the error that prevented it."""
        try:
            return _wire(translate())
        except BridgeError as error:
            self.failed = True
            return f"{error.code}: {error.message}"

    def _reading(self) -> AnswerDecoder:
        return AnswerDecoder(self._source, Context(_RUN, None, 0.0, self._source.back_options()))


def _if_made(shown: Callable[[], str]) -> str:
    """What a translator shows of a request; nothing of one that it refused before."""
    try:
        return shown()
    except RuntimeError:
        return ""


_FRAME = re.compile(rb".+?(?:(?:\r\n|\r|\n){2}|\Z)", re.DOTALL)


def _frames(data: bytes) -> list[bytes]:
    """A stream cut after its blank lines, or, of JSON lines, after each; a body in one piece is one frame."""
    if not sse.is_stream(data):
        return data.splitlines(keepends=True) if json_lines.is_stream(data) else [data]
    return [m[0] for m in _FRAME.finditer(data)]


def _wire(data: bytes) -> str:
    """Bytes to be looked at: a JSON body with its lines, frames as they are, nothing that a terminal would obey."""
    try:
        text = orjson.dumps(orjson.loads(data), option=orjson.OPT_INDENT_2).decode()
    except ValueError:
        text = data.decode("utf-8", "backslashreplace").replace("\r\n", "\n").strip("\n")
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}... ({len(text)} characters)"
    return text


# ---------------------------------------------------------------------- columns


def _lines(row: Iterable[str], column: int) -> list[str]:
    cells = [list(_wrapped(text, column)) for text in row]
    return [_GAP.join(_padded(c, column) for c in line).rstrip() for line in zip_longest(*cells, fillvalue="")]


def _wrapped(text: str, column: int) -> Iterator[str]:
    """Return the lines of a cell, wrapped at the width of the column."""
    for line in text.split("\n"):
        out, size = "", 0
        for char in map(_safe, line):
            wide = _size(char)
            if size + wide > column:
                yield out
                out, size = "", 0
            out, size = out + char, size + wide
        yield out


def _safe(char: str) -> str:
    """The character, or its escape where a terminal would act on it or show nothing."""
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def _padded(text: str, column: int) -> str:
    return text + " " * (column - sum(map(_size, text)))


def _size(text: str) -> int:
    """Return the width on a terminal: two columns for wide characters, none for combining ones."""
    if len(text) > 1:
        return len(text)
    if unicodedata.combining(text):
        return 0
    return 2 if unicodedata.east_asian_width(text) in "WF" else 1
