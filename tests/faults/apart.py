"""A bridge in a process of its own, which measures itself: what its clients and backends cost is not in its figures."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import orjson

from tests.server.harness import free_port, serving
from tests.watched import WatchedLoop

_TICK = 0.01
"""Seconds between two measurements of the lag."""
_TRACE = 5.0
"""Seconds between two measurements of the memory."""
_LINE = 64 * 2**20
"""Bytes of the line with the figures of an hour."""


@dataclass
class Figures:
    """What a bridge measured from `Apart.begin` to its end."""

    tasks: int = 0
    """Tasks at the end more than before the bridge."""
    files: int = 0
    memory: list[int] = field(default_factory=list)
    """Bytes that the process held, every five seconds of the load and after its end."""
    lags: list[float] = field(default_factory=list)
    """Seconds by which timers fired late, by the wall clock: what else the machine does is in them."""
    held: float = 0.0
    """Seconds of CPU time for which the longest callback held the loop, which `holder` was."""
    holder: str = ""


class Apart:
    """The bridge's process, and its base URL."""

    def __init__(self, process: asyncio.subprocess.Process, base: str) -> None:
        self.base = base
        self._process = process

    async def begin(self) -> None:
        """Measure from now on: starting may take its time."""
        await self._say(b"begin\n")

    async def end(self) -> Figures:
        """End the bridge and return what it measured."""
        line = await self._say(b"end\n")
        return Figures(**orjson.loads(line))

    async def _say(self, word: bytes) -> bytes:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(word)
        await stdin.drain()
        line = await stdout.readline()
        assert line, "the bridge's process is dead"
        return line


@asynccontextmanager
async def apart(config: dict[str, Any]) -> AsyncIterator[Apart]:
    """Serve this configuration in another process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.faults.apart"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,  # a line for each request
        limit=_LINE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(orjson.dumps(config) + b"\n")
        yield Apart(process, (await process.stdout.readline()).decode().strip())
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 20)
        except TimeoutError:
            process.kill()
            await process.wait()


def resident() -> int:
    """Return the bytes of memory that this process holds, without garbage."""
    gc.collect()
    return _held()


def _held() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def files() -> int:
    """Return how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def _line() -> Any:
    return asyncio.to_thread(sys.stdin.buffer.readline)


async def _serve() -> None:
    loop, figures = cast(WatchedLoop, asyncio.get_running_loop()), Figures()
    config = orjson.loads(await _line())
    free_port()  # opens the socket by which this process holds its range of ports
    tasks, opened = len(asyncio.all_tasks()), files()

    async def lag() -> None:
        while True:
            due = loop.time() + _TICK
            await asyncio.sleep(_TICK)
            figures.lags.append(max(0.0, loop.time() - due))

    async def trace() -> None:
        while True:
            figures.memory.append(_held())
            await asyncio.sleep(_TRACE)

    async with serving(config) as base:
        _tell(base.encode())
        await _line()
        loop.watch.reset()
        _tell(b"begun")
        async with asyncio.TaskGroup() as group:
            measuring = [group.create_task(lag()), group.create_task(trace())]
            await _line()
            for task in measuring:
                task.cancel()
        figures.held, figures.holder = loop.watch.longest, loop.watch.callback
    until = loop.time() + 5
    while (len(asyncio.all_tasks()) > tasks or files() > opened) and loop.time() < until:
        await asyncio.sleep(0.05)
    figures.tasks, figures.files = len(asyncio.all_tasks()) - tasks, files() - opened
    figures.memory.append(await asyncio.to_thread(resident))
    _tell(orjson.dumps(asdict(figures)))


def _tell(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    gc.collect()
    gc.freeze()  # the collector's halts then grow with what the load keeps, not with what was imported
    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        runner.run(_serve())
