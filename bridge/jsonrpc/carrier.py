"""What carries frames between two sides: the interface of all carriers, and the lines of those that carry bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bridge.errors import BackendError
from bridge.jsonrpc.peer import MAX_FRAME
from bridge.translation.framing.lines import Splitter

CHUNK = 64 * 1024
"""Bytes of one read."""


class CarrierEnded(ConnectionError):
    """Nothing more can be sent or received. The text says why, without content of messages."""


class FrameTooLong(CarrierEnded):
    """The other side sent a frame beyond the limit, so that everything after it is unknown."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a message is longer than the limit of {limit} bytes")


class Carrier(Protocol):
    """Carries frames, one JSON text each, in both directions and in order."""

    async def receive(self) -> list[bytes]:
        """Return the next frames, at least one. Raises `CarrierEnded` after the last one."""

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send frames, and return when the carrier has room for more. Raises `CarrierEnded`."""

    async def close(self) -> None:
        """End both directions and release everything. May be called repeatedly."""


class LineReader:
    """Bytes to frames, one frame for each line. Blank lines are none; a line may end in CR LF."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._splitter = Splitter(limit)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that became complete.

        Raises `FrameTooLong`; frames that were complete before are returned first, then the next call raises.
        """
        try:
            return [frame for frame in self._splitter.feed(data) if isinstance(frame, bytes)]
        except BackendError:
            raise FrameTooLong(self._limit) from None

    def close(self) -> list[bytes]:
        """The bytes ended: the last line needs no line end. Raises `FrameTooLong`."""
        try:
            return [frame for frame in self._splitter.close() if isinstance(frame, bytes)]
        except BackendError:
            raise FrameTooLong(self._limit) from None


def joined(frames: Sequence[bytes]) -> bytes:
    """Return frames as lines. A frame has no line feed in it, since JSON escapes them in strings."""
    return b"".join([part for frame in frames for part in (frame, b"\n")])
