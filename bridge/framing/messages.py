"""Length-prefixed messages: bytes <-> frames, without I/O (gRPC over HTTP/2, "Length-Prefixed-Message").

Each message has one byte that says whether it is compressed (never here) and four bytes with its length, big-endian. A
gRPC library does this by itself and hands out bare messages; what is recorded, cut and joined elsewhere looks so.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.codec.wire import Frame, FrameLike
from bridge.errors import BackendError, ErrorCode

CONTENT_TYPE = "application/grpc+proto"
MAX_EVENT = 64 * 1024 * 1024
_HEAD = 5


class Splitter:
    """Incremental reader. `feed` gives the messages that became complete, as plain `bytes`.

    `max_event` bounds the bytes of a message. Beyond it, and for bytes that are no such message, `feed` raises
    `BackendError`; `close` does for an input that ended in the middle of one.
    """

    __slots__ = ("_kept", "_limit")

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._kept = bytearray()
        self._limit = max_event

    def feed(self, chunk: bytes) -> list[FrameLike]:
        kept = self._kept
        kept += chunk
        out: list[FrameLike] = []
        place = 0
        while len(kept) - place >= _HEAD:
            try:
                size = self._size(place)
            except BackendError:
                if not out:
                    raise
                break  # what came before counts; the next call says what is wrong
            if len(kept) - place < _HEAD + size:
                break
            out.append(bytes(kept[place + _HEAD : place + _HEAD + size]))
            place += _HEAD + size
        del kept[:place]
        return out

    def close(self) -> list[FrameLike]:
        """The input ended: nothing can be complete now that was not before."""
        if len(self._kept) >= _HEAD:
            self._size(0)
        if self._kept:
            text = "The backend's answer ended in the middle of a message."
            raise BackendError(text, code=ErrorCode.TRUNCATED_STREAM)
        return []

    def _size(self, place: int) -> int:
        """The length that the head at `place` tells."""
        flag, size = self._kept[place], int.from_bytes(self._kept[place + 1 : place + _HEAD], "big")
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
