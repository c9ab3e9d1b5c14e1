"""The loop that measures its callbacks: what holds it is found and named, and waiting is no holding."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable

import pytest

from tests.watched import Watch, WatchedLoop

_WORK = 0.03


def _work() -> None:
    until = time.thread_time() + _WORK
    while time.thread_time() < until:
        pass


async def _task() -> None:
    async def busy() -> None:
        await asyncio.sleep(0)
        _work()

    await asyncio.create_task(busy(), name="busy task")


async def _timer() -> None:
    fired = asyncio.Event()

    def busy_timer() -> None:
        _work()
        fired.set()

    asyncio.get_running_loop().call_later(0, busy_timer)
    await fired.wait()


async def _thread() -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def busy_thread() -> None:
        _work()
        done.set()

    await loop.run_in_executor(None, loop.call_soon_threadsafe, busy_thread)
    await done.wait()


async def _socket() -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    near, far = socket.socketpair()
    with near, far:

        def read() -> None:
            _work()
            loop.remove_reader(near)
            done.set()

        loop.add_reader(near, read)
        far.send(b"x")
        await done.wait()
        await asyncio.sleep(0)


def _watch(main: Callable[[], Awaitable[None]]) -> Watch:
    async def run() -> None:
        await main()

    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, WatchedLoop)
        runner.run(run())
        return loop.watch


@pytest.mark.parametrize(
    ("main", "name"), [(_task, "busy task"), (_timer, "busy_timer"), (_thread, "busy_thread"), (_socket, "sockets")]
)
def test_what_holds_the_loop_is_named(main: Callable[[], Awaitable[None]], name: str) -> None:
    watch = _watch(main)
    assert watch.longest >= _WORK
    assert name in watch.callback


def test_waiting_does_not_count() -> None:
    """A callback that sleeps stops the loop as well, but so does a machine that runs something else."""

    async def wait() -> None:
        await asyncio.sleep(0)
        time.sleep(_WORK)  # noqa: ASYNC251

    watch = _watch(wait)
    assert watch.iterations > 1
    assert watch.longest < _WORK
