"""Work that is asked for more often than it can be done."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class MergedWork:
    """Does `work` once for each `request`, one after the other; all requests during it are once more together."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def request(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="merged-work")
        else:
            self._again = True

    async def stop(self) -> None:
        """Cancel the work, and return when it has ended."""
        self._again = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            await self._work()
            while self._again:
                self._again = False
                await self._work()
        finally:
            self._task = None


async def in_daemon_thread(function: Callable[[], T]) -> T:
    """Return what the function returns in a thread of its own, which does not keep the process from ending.

    A function that is not waited for any more goes on by itself; `asyncio.to_thread` would be waited for at the end.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value: T | None = None
        failure: BaseException | None = None
        try:
            value = function()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=run, name="daemon-work", daemon=True).start()
    return await result
