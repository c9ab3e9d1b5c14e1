"""A server in a process of its own that reports on itself.

The first line of its input is its configuration. It prints its port, and for each further line a report: a JSON object.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import orjson

from bridge.engine.bridge import Bridge
from bridge.server import running
from tests.watched import LONGEST, WatchedLoop


class _Errors(logging.Handler):
    """Keeps what is logged as an error, with the traceback that `log_unexpected` leaves to the debug log."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self.found.append(self.format(record))
        elif record.exc_info and self.found and record.getMessage() in self.found[-1]:
            self.found[-1] = self.format(record)


class _Stacks(threading.Thread):
    """Notes where the loop is while one of its iterations takes longer than it may."""

    def __init__(self, loop: WatchedLoop) -> None:
        super().__init__(daemon=True)
        self.stack = ""
        self._watch = loop.watch
        self._main = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._main)

    def run(self) -> None:
        while True:
            time.sleep(LONGEST / 4)
            if self.stack or time.clock_gettime(self._clock) - self._watch.since < LONGEST:
                continue
            if frame := sys._current_frames().get(self._main):
                self.stack = "".join(traceback.format_stack(frame)[-12:])


def _resident() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _files() -> int:
    """Open descriptors, without those of databases: a store opens another connection when it first needs one."""
    names = (os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.islink(entry.path))
    return sum(not name.endswith((".db", ".db-wal", ".db-shm")) for name in names)


async def _main() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WatchedLoop)
    asked = asyncio.StreamReader(limit=2**24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(asked), sys.stdin)
    errors = _Errors()
    logging.basicConfig(level=logging.DEBUG, handlers=[errors])
    async with running(Bridge.from_config(orjson.loads(await asked.readline()))) as port:
        stacks = _Stacks(loop)
        stacks.start()
        gc.collect()
        gc.freeze()
        loop.watch.reset()
        _say(port)
        while await asked.readline():
            # The held time is that of the cases; the collection before the memory is looked at is no part of it.
            held, holder, stack = loop.watch.longest, loop.watch.callback, stacks.stack
            gc.collect()
            _say(
                {
                    "held": held,
                    "holder": f"{holder}\n{stack}",
                    "errors": errors.found,
                    "memory": _resident(),
                    "files": _files(),
                    "tasks": [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()],
                }
            )
            errors.found = []
            await asyncio.sleep(0)
            loop.watch.reset()
            stacks.stack = ""


def _say(value: Any) -> None:
    sys.stdout.buffer.write(orjson.dumps(value) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        runner.run(_main())
