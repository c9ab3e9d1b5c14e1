"""The frames of a client's WebSocket, read ahead of aiohttp: it holds unfinished messages, and does not say how large.

RFC 6455, section 5.2 has the layout of a frame. By RFC 6455, section 5.1 clients mask theirs, which aiohttp does not
check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

_FINAL, _MASKED = 0x80, 0x80
_CONTROL = 0x8
_LENGTHS = {126: 2, 127: 8}
"""Bytes that hold the length of a payload, by what stands in the seven bits for it."""


class FrameParser(Protocol):
    """What reads the bytes of an upgraded connection."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]: ...

    def feed_eof(self) -> None: ...


class ReceivedFrames:
    """Passes bytes on to aiohttp's parser, and knows what of a message has come. `changed` is called for new bytes."""

    def __init__(self, parser: FrameParser) -> None:
        self.size = 0
        """Bytes of the payload of the message that is not complete."""
        self.is_open = False
        """A message has begun, and is not complete."""
        self.count = 0
        """Messages that have begun."""
        self.are_masked = True
        self.changed: Callable[[], None] | None = None
        self._parser: FrameParser | None = parser
        self._head = bytearray()
        self._left = 0
        """Bytes that are missing of the payload of the present frame."""
        self._is_control = False
        self._is_final = False

    def stop(self) -> None:
        """Drop everything that comes from now on, and what aiohttp's parser holds."""
        self._parser = None

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take bytes; see `FrameParser`."""
        if self._parser is not None:
            self._scan(data)
            if self.changed is not None:
                self.changed()
        return self._parser.feed_data(data) if self._parser is not None else (False, b"")

    def feed_eof(self) -> None:
        """Take the end. The parser is dropped, as it refers to the connection, which refers to these frames."""
        if self._parser is not None:
            self._parser.feed_eof()
        self._parser = None

    def _scan(self, data: bytes) -> None:
        at = 0
        while at < len(data) and self.are_masked:
            if self._left:
                taken = min(self._left, len(data) - at)
                at += taken
                self._left -= taken
                if not self._is_control:
                    self.size += taken
            else:
                self._head.append(data[at])
                at += 1
                if not self._begins():
                    continue
            if not self._left:
                self._end_frame()

    def _begins(self) -> bool:
        """Return whether the head of a frame is complete, and read it then."""
        head = self._head
        if len(head) < 2:
            return False
        self.are_masked = bool(head[1] & _MASKED)
        short = head[1] & 0x7F
        extended = _LENGTHS.get(short, 0)
        if len(head) < 2 + extended + 4:
            return False
        self._left = int.from_bytes(head[2 : 2 + extended], "big") if extended else short
        self._is_control = bool(head[0] & _CONTROL)
        self._is_final = bool(head[0] & _FINAL)
        if not self._is_control and not self.is_open:
            self.is_open = True
            self.count += 1
        head.clear()
        return True

    def _end_frame(self) -> None:
        if self._is_final and not self._is_control:
            self.is_open, self.size = False, 0
