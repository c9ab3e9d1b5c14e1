"""Bytes <-> frames, sans-IO. One module per framing, all with the same names; `of` gives that of a dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from bridge.contract.dialect import Framing
from bridge.contract.wire import FrameLike
from bridge.translation.framing import lines, messages, sse

__all__ = ["FramingModule", "Splits", "lines", "messages", "of", "sse"]


class Splits(Protocol):
    """An incremental reader. Both methods raise `BackendError` for bytes that cannot be frames."""

    def feed(self, chunk: bytes) -> list[FrameLike]:
        """The frames that became complete."""

    def close(self) -> list[FrameLike]:
        """The input ended: the frames that are complete by that."""


class FramingModule(Protocol):
    """The interface of every module of this package."""

    @property
    def CONTENT_TYPE(self) -> str: ...

    @property
    def MAX_EVENT(self) -> int: ...

    def Splitter(self, max_event: int = ...) -> Splits: ...

    def is_stream(self, start: bytes) -> bool | None: ...

    def join(self, frames: Sequence[FrameLike]) -> bytes: ...


_MODULES: dict[Framing, FramingModule] = {Framing.SSE: sse, Framing.JSON_LINES: lines, Framing.MESSAGES: messages}

of: Callable[[Framing], FramingModule] = _MODULES.__getitem__
"""Return the module that reads and writes a framing."""
