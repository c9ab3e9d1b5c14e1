"""An event loop that measures how long each callback holds it, in CPU time of its thread.

A busy machine takes the processor away in the middle of a callback. That shows on the wall clock and not here, so that
a limit can be put on these figures.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any

LONGEST = 0.1
"""Seconds of CPU time for which one callback may hold the loop."""


class Watch:
    """The longest that one callback held the loop since the last `reset`, and which one it was.

    Readiness of sockets reaches transports without a public hook. What an iteration of the loop spent beside its
    scheduled callbacks is therefore counted as one callback, named "sockets": an upper bound for each of them.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self.callback = ""
        self.iterations = 0
        self.since = time.thread_time()
        self._scheduled = 0.0

    def reset(self) -> None:
        """Forgets the longest callback."""
        self.longest, self.callback, self.iterations = 0.0, "", 0

    def timed(self, callback: Callable[..., Any]) -> Callable[..., None]:
        """The callback, measured."""

        def run(*args: Any) -> None:
            began = time.thread_time()
            try:
                callback(*args)
            finally:
                spent = time.thread_time() - began
                self._scheduled += spent
                if spent > self.longest:
                    self.longest, self.callback = spent, _named(callback)

        return run

    def began(self) -> None:
        """The loop begins to run what is ready."""
        self.since, self._scheduled = time.thread_time(), 0.0

    def ended(self) -> None:
        """The loop has run what was ready."""
        self.iterations += 1
        rest = time.thread_time() - self.since - self._scheduled
        if rest > self.longest:
            self.longest, self.callback = rest, "sockets"


def _named(callback: Callable[..., Any]) -> str:
    task = getattr(callback, "__self__", None)
    return repr(task) if isinstance(task, asyncio.Task) else repr(callback)


class _Selector(selectors.DefaultSelector):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._watch.ended()
        ready = super().select(timeout)
        self._watch.began()
        return ready


class WatchedLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop with a `watch`, as a `loop_factory`."""

    def __init__(self) -> None:
        self.watch = Watch()
        super().__init__(_Selector(self.watch))

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        return super().call_soon(self.watch.timed(callback), *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when, self.watch.timed(callback), *args, context=context)

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        return super().call_soon_threadsafe(self.watch.timed(callback), *args, context=context)
