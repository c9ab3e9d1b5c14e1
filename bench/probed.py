#!/usr/bin/env python3
"""The command line with a probe beside it: `probed.py PORT serve CONFIG ...`

A GET of PORT tells for how long the event loop did nothing but one thing, at most, since the last GET: in CPU
milliseconds of its thread, so that other programs that the machine runs meanwhile do not count.
"""

from __future__ import annotations

import asyncio
import sys
import time

from aiohttp import web

from bridge.cli import main

EVERY = 0.01


class Probe:
    """Looks at the clock of its thread again and again: between two looks the loop was busy for as long as that ran."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = 0.0

    def look(self) -> None:
        now = time.thread_time()
        if self._last:
            self.longest = max(self.longest, now - self._last)
        self._last = now
        asyncio.get_running_loop().call_later(EVERY, self.look)

    async def answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        text = f"{self.longest * 1e3:.2f}"
        self.longest = 0.0
        writer.write(f"HTTP/1.0 200 OK\r\ncontent-length: {len(text)}\r\n\r\n{text}".encode())
        await writer.drain()
        writer.close()


def install(port: int) -> None:
    """The probe runs in whichever loop serves."""
    setup = web.AppRunner.setup

    async def probed(runner: web.AppRunner) -> None:
        await setup(runner)
        probe = Probe()
        probe.look()
        await asyncio.start_server(probe.answer, "127.0.0.1", port)

    web.AppRunner.setup = probed  # type: ignore[method-assign]


if __name__ == "__main__":
    install(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
