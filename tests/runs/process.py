"""Another process that takes runs: `python process.py URL LEASE CONCURRENT`.

It says `ready`, and stops when its input ends. SIGUSR1 sets its wall clock a day on, SIGUSR2 a day back.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time

from bridge.stores import open_runs
from tests.runs.helpers import bridge_of
from tests.runs.helpers import runs_of as make

WALL = time.time
DAY = 86400


def set_clock(seconds: int) -> None:
    time.time = lambda: WALL() + seconds


async def main() -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, set_clock, DAY)
    loop.add_signal_handler(signal.SIGUSR2, set_clock, -DAY)
    url, lease, concurrent = sys.argv[1:]
    async with bridge_of() as bridge:
        runs = make(bridge, open_runs(url), lease=float(lease), concurrent=int(concurrent))
        await runs.open()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        await runs.close()


if __name__ == "__main__":
    asyncio.run(main())
