"""Length-prefixed messages: bytes <-> frames, without I/O (gRPC over HTTP/2, "Length-Prefixed-Message").

Each message has one byte for its compression (always none here) and four bytes with its length, big-endian. A gRPC
library does this itself and returns bare messages; recordings have this form.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract.wire import Frame, FrameLike
from bridge.errors import BackendError, ErrorCode

CONTENT_TYPE = "application/grpc+proto"
MAX_EVENT = 64 * 1024 * 1024
_HEAD = 5


class Splitter:
    """Incremental reader. `feed` gives the messages that became complete, as plain `bytes`.

    `max_event` bounds the bytes of a message. Beyond it, and for bytes that are no such message, `feed` raises
    `BackendError`; `close` does for an input that ended in the middle of one.
    """

    __slots__ = ("_buffer", "_limit")

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._buffer = bytearray()
        self._limit = max_event

    def feed(self, chunk: bytes) -> list[FrameLike]:
        buffered = self._buffer
        buffered += chunk
        out: list[FrameLike] = []
        position = 0
        while len(buffered) - position >= _HEAD:
            try:
                size = self._size(position)
            except BackendError:
                if not out:
                    raise
                break  # return what came before; the next call raises
            if len(buffered) - position < _HEAD + size:
                break
            out.append(bytes(buffered[position + _HEAD : position + _HEAD + size]))
            position += _HEAD + size
        del buffered[:position]
        return out

    def close(self) -> list[FrameLike]:
        """The input ended: nothing can be complete now that was not before."""
        if len(self._buffer) >= _HEAD:
            self._size(0)
        if self._buffer:
            text = "The backend's answer ended in the middle of a message."
            raise BackendError(text, code=ErrorCode.TRUNCATED_STREAM)
        return []

    def _size(self, position: int) -> int:
        """Return the length in the head at `place`."""
        flag, size = self._buffer[position], int.from_bytes(self._buffer[position + 1 : position + _HEAD], "big")
        if flag != 0:
            text = f"The backend's answer is no message of this protocol: expected the flag 0 before it, got {flag}."
            raise BackendError(text, code=ErrorCode.BACKEND_PROTOCOL)
        if size > self._limit:
            raise BackendError(
                f"A message of the backend is longer than the limit of {self._limit} bytes.",
                code=ErrorCode.BACKEND_PROTOCOL,
            )
        return size


def is_stream(start: bytes) -> bool | None:
    """Return whether a body that begins like this holds such messages; None while undecided."""
    return start[0] < 2 if start else None


def join(frames: Sequence[FrameLike]) -> bytes:
    """The bytes of these frames: one buffer for one write."""
    return b"".join(_one(f.data if isinstance(f, Frame) else f) for f in frames)


def _one(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message
