"""A progress line on a terminal, overwritten during the work and removed at its end.

No library: `rich` and `tqdm` bring more than this package's other dependencies together, for one line of text.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable

_PATIENCE = 1.0
"""Seconds of work without a progress line."""
_EVERY = 0.2
"""Seconds between two lines; a line for each piece of work would cost more than the work."""
_ERASED = "\r\x1b[K"


class Progress:
    """The line. `on`: stderr is a terminal that can erase it; otherwise nothing is ever written."""

    def __init__(self) -> None:
        self.on = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._visible = False
        self._since = self._next = 0.0
        self.rest()

    def rest(self) -> None:
        """Other output was printed just now: remove the line until the output pauses."""
        self.clear()
        self._since = time.monotonic()
        self._next = self._since + _PATIENCE

    def tell(self, words: str) -> None:
        """Show this text when it is time to update the line."""
        now = time.monotonic()
        if not self.on or now < self._next:
            return
        self._next = now + _EVERY
        self._visible = True
        sys.stderr.write(f"{_ERASED}{words}")
        sys.stderr.flush()

    def clear(self) -> None:
        """Takes the line away; what is written next begins where it began."""
        if self._visible:
            self._visible = False
            sys.stderr.write(_ERASED)
            sys.stderr.flush()

    @contextlib.asynccontextmanager
    async def waiting(self, may: Callable[[], bool]) -> AsyncIterator[None]:
        """Show how long the block has been waiting, whenever `may()`."""
        if not self.on:
            yield
            return
        telling = asyncio.create_task(self._tell_on(may))
        try:
            yield
        finally:
            telling.cancel()
            self.clear()

    async def _tell_on(self, may: Callable[[], bool]) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            if may():
                self.tell(f"[waiting, {time.monotonic() - self._since:.0f} s]")


def amount(count: int) -> str:
    """A number of bytes for people: `640 kB`, `1.2 MB`."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
