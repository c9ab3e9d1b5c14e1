"""JSON lines: bytes <-> frames, without I/O. Some protocols and agents stream one JSON object a line."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract.wire import Frame, FrameLike
from bridge.errors import BackendError, ErrorCode
from bridge.model.jsontext import loads

CONTENT_TYPE = "application/x-ndjson"
MAX_EVENT = 64 * 1024 * 1024
CONTENT_TYPES = frozenset(
    {
        *(CONTENT_TYPE, "application/ndjson", "application/jsonl", "application/x-jsonl"),
        *("application/jsonlines", "application/x-jsonlines", "application/json-lines", "application/json-seq"),
        "application/stream+json",
    }
)
_MARK = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n\x1e"
"""White space, and the separator of JSON text sequences (RFC 7464)."""


class Splitter:
    """Incremental reader. `feed` gives the lines that became complete, without blank ones.

    A line of more than `max_event` bytes is a `BackendError`. Lines that were complete before it are returned first:
    then the next call raises.
    """

    __slots__ = ("_excess", "_limit", "_rest")

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._limit = max_event
        self._rest = bytearray()
        self._excess = False

    def feed(self, chunk: bytes) -> list[FrameLike]:
        self._check()
        head, *lines = chunk.split(b"\n")
        self._rest += head
        if not lines:
            self._excess = len(self._rest) > self._limit
            self._check()
            return []
        lines.insert(0, bytes(self._rest))
        self._rest[:] = lines.pop()
        sizes = [*map(len, lines), len(self._rest)]
        if max(sizes) <= self._limit:
            return _frames(lines)
        self._excess = True
        complete = _frames(lines[: next(n for n, size in enumerate(sizes) if size > self._limit)])
        if not complete:
            self._check()
        return complete

    def close(self) -> list[FrameLike]:
        """The input ended: its last line needs no line end."""
        self._check()
        return _frames([bytes(self._rest)])

    def _check(self) -> None:
        if self._excess:
            text = f"A line of the backend's stream is longer than the limit of {self._limit} bytes."
            raise BackendError(text, code=ErrorCode.BACKEND_PROTOCOL)


def _frames(lines: list[bytes]) -> list[FrameLike]:
    return [line for line in (raw.removeprefix(_MARK).strip(_BLANK) for raw in lines) if line]


def is_stream(start: bytes) -> bool | None:
    """Return whether a body with this beginning is JSON lines: an object on its first line, followed by another one.

    None while undecided.
    """
    first, _, rest = start.removeprefix(_MARK).lstrip(_BLANK).partition(b"\n")
    rest = rest.lstrip(_BLANK)
    if not rest:
        return None
    try:
        return isinstance(loads(first), dict) and rest[:1] == b"{"
    except ValueError:
        return False


def join(frames: Sequence[FrameLike]) -> bytes:
    """The bytes of these frames: one buffer for one write. Comments are left out, since JSON lines have none."""
    payloads = [f.data if isinstance(f, Frame) else f for f in frames]
    return b"".join(payload + b"\n" for payload in payloads if payload)
