"""One JSON array whose elements come one after another: bytes <-> frames, without I/O.

Some APIs stream so for clients that do not ask for server-sent events. A whole array is valid JSON however it ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from bridge.contract.wire import Frame, FrameLike
from bridge.errors import BackendError, ErrorCode

CONTENT_TYPE = "application/json"
MAX_EVENT = 64 * 1024 * 1024
END: Final = Frame(b"", event="end of the array")
"""The last frame that a `Joiner` gets; it closes the array."""
_MARK = b"\xef\xbb\xbf"
_OUTSIDE = re.compile(rb'[\[\]{}",]')
_INSIDE = re.compile(rb'["\\]')
_QUOTE, _BACKSLASH, _COMMA = b'"\\,'
_OPENING, _CLOSING = b"[{", b"]}"


class Splitter:
    """Incremental reader. `feed` gives the elements that became complete; an object is, once its bracket closes.

    Each byte is examined once. Elements are not checked: an invalid one fails when it is parsed. Bytes after the array,
    an element of more than `max_event` bytes, and an end inside an element raise `BackendError`. An array that ends
    between two elements is accepted, since its elements show whether the answer is complete.
    """

    __slots__ = ("_depth", "_ended", "_error", "_escaped", "_in_string", "_limit", "_rest", "_size")

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._limit = max_event
        # The pieces of an unfinished element, concatenated once.
        self._rest: list[bytes] = []
        self._size = 0
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._ended = False
        self._error: BackendError | None = None

    def feed(self, chunk: bytes) -> list[FrameLike]:
        if self._error is not None:
            raise self._error
        out: list[FrameLike] = []
        try:
            self._read(chunk, out)
        except BackendError as error:
            if not out:
                raise
            self._error = error  # return what came before; the next call raises
        return out

    def _read(self, chunk: bytes, out: list[FrameLike]) -> None:
        start = position = 0
        if self._escaped and chunk:
            self._escaped, position = False, 1
        while found := (_INSIDE if self._in_string else _OUTSIDE).search(chunk, position):
            at, position = found.start(), found.end()
            mark = chunk[at]
            if mark == _QUOTE:
                self._in_string = not self._in_string
            elif mark == _BACKSLASH:
                self._escaped = position == len(chunk)
                position += 1
            elif mark == _COMMA:
                if self._depth == 1:
                    self._complete(chunk[start:at], out)
                    start = position
            elif mark in _OPENING:
                self._depth += 1
                if self._depth == 1:
                    self._check_end(chunk[start:position])
                    start = position
            elif mark in _CLOSING:
                if self._depth <= 1:
                    self._complete(chunk[start:at], out)
                    self._depth, self._ended, start = 0, True, position
                    continue
                self._depth -= 1
                if self._depth == 1:
                    self._complete(chunk[start:position], out)
                    start = position
        self._keep(chunk[start:])

    def close(self) -> list[FrameLike]:
        """The input ended: nothing can be complete now that was not before."""
        if self._error is not None:
            raise self._error
        if b"".join(self._rest).strip():
            text = "The backend's answer ended in the middle of an element of its JSON array."
            raise BackendError(text, code=ErrorCode.TRUNCATED_STREAM)
        return []

    def _complete(self, last: bytes, out: list[FrameLike]) -> None:
        self._keep(last)
        element = b"".join(self._rest).strip()
        self._rest, self._size = [], 0
        if element:
            out.append(element)

    def _keep(self, piece: bytes) -> None:
        if self._depth == 0:
            self._check_end(piece)
            return
        self._rest.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            text = f"An element of the backend's JSON array is longer than the limit of {self._limit} bytes."
            raise BackendError(text, code=ErrorCode.BACKEND_PROTOCOL)

    def _check_end(self, between: bytes) -> None:
        if self._ended and between.strip():
            raise BackendError("The backend's answer continues after its JSON array.", code=ErrorCode.BACKEND_PROTOCOL)


def is_array(start: bytes) -> bool:
    """Return whether a body that begins like this is a JSON array."""
    return start.removeprefix(_MARK).lstrip()[:1] == b"["


class Joiner:
    """The bytes of one array, piece by piece: one buffer for one write.

    `END` closes the array, also one without elements. Comments are left out, since JSON has none.
    """

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before = b"["

    def __call__(self, frames: Sequence[FrameLike]) -> bytes:
        out: list[bytes] = []
        for frame in frames:
            if frame is END:
                out.append(b"[]" if self._before == b"[" else b"]")
            elif data := frame.data if isinstance(frame, Frame) else frame:
                out += (self._before, data)
                self._before = b",\r\n"
        return b"".join(out)
