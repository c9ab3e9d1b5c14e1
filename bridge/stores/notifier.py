"""Wakes the tasks of this process that wait for a named event."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

_Name = TypeVar("_Name", bound=Hashable)


class Listener:
    """A task that waits. A notification between two waits is not missed.

    A future and a timer cost half of what `asyncio.Event` and `asyncio.timeout` do, and each event of a run has a wait.
    """

    def __init__(self) -> None:
        self._notified = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def waits(self) -> bool:
        """True while the task waits, and has not been notified."""
        return self._waiter is not None and not self._waiter.done()

    def notify(self) -> None:
        self._notified = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """Raise this where the task waits."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Wait for a notification, at most this long."""
        if not self._notified:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(max(0.0, seconds), self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        self._notified = False


_Listener = TypeVar("_Listener", bound=Listener)


class Notifier(Generic[_Name, _Listener]):
    """The listeners of this process, by name."""

    def __init__(self) -> None:
        self._waiting: dict[_Name, list[_Listener]] = {}

    @contextmanager
    def listening(self, name: _Name, listener: _Listener) -> Iterator[_Listener]:
        self._waiting.setdefault(name, []).append(listener)
        try:
            yield listener
        finally:
            self._waiting[name].remove(listener)
            if not self._waiting[name]:
                del self._waiting[name]

    def listeners(self, name: _Name) -> Sequence[_Listener]:
        return self._waiting.get(name, ())

    def notify(self, name: _Name) -> None:
        for listener in self.listeners(name):
            listener.notify()

    def notify_all(self) -> None:
        for name in self._waiting:
            self.notify(name)

    def __contains__(self, name: object) -> bool:
        return name in self._waiting

    def __bool__(self) -> bool:
        return bool(self._waiting)
