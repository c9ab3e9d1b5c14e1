"""Wakes the tasks of this process that wait for a named event."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

_Name = TypeVar("_Name", bound=Hashable)


class Listener:
    """A task that waits. A notification between two waits is not missed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a notification, at most this long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._event.wait()
        self._event.clear()


class Notifier(Generic[_Name]):
    """The listeners of this process, by name."""

    def __init__(self) -> None:
        self._waiting: dict[_Name, list[Listener]] = {}

    @contextmanager
    def listen(self, name: _Name) -> Iterator[Listener]:
        listener = Listener()
        self._waiting.setdefault(name, []).append(listener)
        try:
            yield listener
        finally:
            self._waiting[name].remove(listener)
            if not self._waiting[name]:
                del self._waiting[name]

    def notify(self, name: _Name) -> None:
        for listener in self._waiting.get(name, ()):
            listener.notify()

    def notify_all(self) -> None:
        for name in self._waiting:
            self.notify(name)

    def __contains__(self, name: object) -> bool:
        return name in self._waiting

    def __bool__(self) -> bool:
        return bool(self._waiting)
