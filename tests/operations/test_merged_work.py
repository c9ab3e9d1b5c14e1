"""Reloads: one at a time, those asked for meanwhile are one, and a stop does not wait for one."""

from __future__ import annotations

import asyncio
import threading

import pytest

from bridge.server.requests.coalescing import MergedWork, in_daemon_thread


class Work:
    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        self.go_on = asyncio.Semaphore(0)
        self.merged = MergedWork(self._work)

    async def _work(self) -> None:
        self.begun += 1
        await self.go_on.acquire()
        self.ended += 1


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_requests_during_the_work_are_one_more() -> None:
    work = Work()
    for _ in range(12):
        work.merged.request()
        await turns()
    assert work.begun == 1
    work.go_on.release()
    await turns()
    assert (work.begun, work.ended) == (2, 1)
    work.go_on.release()
    await turns()
    assert (work.begun, work.ended) == (2, 2)
    work.merged.request()
    await turns()
    assert work.begun == 3
    await work.merged.stop()


async def test_a_stop_gives_the_work_up() -> None:
    work = Work()
    work.merged.request()
    await turns()
    work.merged.request()
    await work.merged.stop()
    await turns()
    assert (work.begun, work.ended) == (1, 0)
    await work.merged.stop()


async def test_a_function_in_a_thread_returns_or_raises() -> None:
    def fails() -> None:
        raise ValueError("no")

    assert await in_daemon_thread(lambda: 7) == 7
    with pytest.raises(ValueError, match="no"):
        await in_daemon_thread(fails)


def test_the_end_of_the_loop_does_not_wait_for_a_function() -> None:
    go_on, ended = threading.Event(), threading.Event()

    def waits() -> None:
        go_on.wait(60)
        ended.set()

    async def leave() -> None:
        task = asyncio.create_task(in_daemon_thread(waits))
        await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(leave())
    assert not ended.is_set()
    go_on.set()
    assert ended.wait(60)
