"""Another process that takes runs: `python process.py URL LEASE CONCURRENT`.

It says `ready`, and stops when its input ends.
"""

from __future__ import annotations

import asyncio
import sys

from bridge.stores import open_runs
from tests.runs.helpers import bridge_of
from tests.runs.helpers import runs_of as make


async def main() -> None:
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
