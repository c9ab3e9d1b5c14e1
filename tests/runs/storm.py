"""Processes that drive many runs of one database while something breaks, and what their readers get.

    python -m tests.runs.storm sqlite postgresql --processes 2,4 --streams 50

prints a table: runs whole, runs lost with their process, runs with a lost or doubled entry or a wrong end, and the
longest silence of a reader from the fault on. The readers are in a process of their own. Exit status 1 if anything is
wrong, or if a run is lost although its process lives.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bridge.errors import BridgeError, ErrorCode
from bridge.model import Event, RunFailed, RunFinished, TextDelta, verify
from bridge.run.durable import RunKey, Runs
from bridge.stores import open_runs
from tests.runs.agents import spoken
from tests.runs.breakable import Database, database
from tests.runs.helpers import Worker, begin, bridge_of, events_of, process, runs_of

LEASE = 2.0
FAULTS = {
    "none": "none",
    "kill": "a process is killed",
    "stop": "a process stands still for three leases",
    "clock": "the clock of a process steps by a day",
    "away": "the database is stopped for 15 s",
    "restarted": "the database is restarted",
    "power": "its machine loses power",
    "full": "its disk is full for 10 s",
    "slow": "it answers a second late for 10 s",
    "crowded": "no connections for 10 s",
    "switched": "it is switched over, and the old primary stays",
    "failover": "its synchronous standby takes over",
    "server_clock": "its clock steps by a day",
}
OF_SERVERS = frozenset({"crowded", "switched", "failover", "server_clock"})
"""Faults that a file does not have."""
FOR_ROOT = frozenset({"full", "power"})
"""Faults that need a file system of their own."""
LOSING = frozenset({"kill", "stop"})
"""Faults that end a process, and may end its runs."""
SECONDS = {"away": 15.0, "restarted": 0.0, "switched": 0.0, "failover": 0.0, "power": 0.0}
"""Duration of a fault; that of others is `HARD`."""
HARD = 10.0
POLL = 15.0
"""Seconds of one wait for entries, as in a subscription."""


@dataclass
class Seen:
    """What the readers of all runs got."""

    finished: int = 0
    lost: int = 0
    wrong: list[str] = field(default_factory=list)
    begun: int = 0
    silence: float = 0.0
    broken: float | None = None
    """When the fault began, in loop time: silences count from then on."""


async def read(runs: Runs, key: RunKey, seen: Seen, asked: str) -> None:
    reader = runs.follow(key)
    events: list[Event] = []
    clock = asyncio.get_running_loop().time
    last = clock()
    while not reader.done:
        try:
            found = await reader.read(POLL)
        except BridgeError as error:
            if error.code is not ErrorCode.STORE_UNAVAILABLE:
                seen.wrong.append(f"{key.run_id}: {error.code} after {len(events)} events")
                return
            await asyncio.sleep(0.2)  # it had not begun to read
            continue
        seen.begun += bool(found and not events)
        for _, batch in found:
            events += batch.events
            if seen.broken is not None:
                seen.silence = max(seen.silence, clock() - max(last, seen.broken))
            last = clock()
    verify(events)
    text, whole = "".join(event.text for event in events if isinstance(event, TextDelta)), "".join(spoken(asked))
    match events[-1]:
        case RunFinished() if text == whole:
            seen.finished += 1
        case RunFailed(error=failure) if failure.code is ErrorCode.RUN_LOST and whole.startswith(text):
            seen.lost += 1
        case end:
            seen.wrong.append(f"{key.run_id}: {text!r} {end}")
    if events != await _again(runs, key):
        seen.wrong.append(f"{key.run_id}: what is stored is not what its reader got")


async def _again(runs: Runs, key: RunKey) -> list[Event]:
    while True:
        try:
            return await events_of(runs, key)
        except BridgeError as error:
            if error.code is not ErrorCode.STORE_UNAVAILABLE:
                raise
            await asyncio.sleep(0.2)


async def storm(
    engine: str,
    processes: int,
    streams: int,
    fault: str,
    asked: str = "long",
    seconds: float | None = None,
    lease: float = LEASE,
) -> Seen:
    """Let some processes drive `streams` runs each, and break something in their middle, for so many seconds."""
    if seconds is None:
        seconds = 3 * lease if fault == "stop" else SECONDS.get(fault, HARD)
    seen = Seen()
    async with AsyncExitStack() as stack:
        where = stack.enter_context(database(engine, fault))
        bridge = await stack.enter_async_context(bridge_of())
        runs = runs_of(bridge, open_runs(where.url))
        stack.push_async_callback(runs.close)
        await runs._store.open()

        async def worker() -> Worker:
            return await stack.enter_async_context(process(where.url, lease, concurrent=streams))

        workers = [await worker() for _ in range(processes)]
        await asyncio.sleep(1.5 * lease)  # each of them may call another one dead
        if asked.startswith("slow"):  # all have begun before any goes on
            gate = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bridge-gate-"))) / "open"
            asked = f"{asked} {gate}"
        few = asyncio.Semaphore(50)

        async def began(number: int) -> RunKey:
            async with few:
                return await begin(bridge, runs, asked, f"r{number}", f"o{number}")

        keys = await asyncio.gather(*(began(n) for n in range(processes * streams)))
        reading = [asyncio.create_task(read(runs, key, seen, asked)) for key in keys]
        while seen.begun < len(keys):
            await asyncio.sleep(0.05)
        if asked.startswith("slow"):
            gate.touch()
            await asyncio.sleep(1.0)
        seen.broken = asyncio.get_running_loop().time()
        if fault == "power" and engine == "sqlite":  # it is the machine of the processes, too
            for each in workers:
                each.send_signal(signal.SIGSTOP)
        await _break(fault, where, workers[0], seconds)
        if fault == "power" and engine == "sqlite":
            for each in workers:
                each.send_signal(signal.SIGKILL)
            await worker()
        _, hanging = await asyncio.wait(reading, timeout=180)
        seen.wrong += ["a reader hangs" for _ in hanging]
        for task in hanging:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=bool(hanging))
    return seen


async def _break(fault: str, where: Database, worker: Worker, seconds: float) -> None:
    match fault:
        case "none":
            pass
        case "kill":
            worker.send_signal(signal.SIGKILL)
        case "stop" | "clock":
            first, last = (signal.SIGSTOP, signal.SIGCONT) if fault == "stop" else (signal.SIGUSR1, signal.SIGUSR2)
            worker.send_signal(first)
            await asyncio.sleep(seconds)
            worker.send_signal(last)
        case _:
            async with getattr(where, "away" if fault == "restarted" else fault)():
                await asyncio.sleep(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", default=["sqlite", "postgresql"])
    parser.add_argument("--processes", default="2,4,8")
    parser.add_argument("--streams", type=int, default=200, help="of each process")
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--seconds", type=float, default=25, help="length of a run")
    parser.add_argument("--pace", type=float, help="seconds between two entries of a run; by default half of PROCESSES")
    parser.add_argument("--lease", type=float, default=LEASE)
    asked = parser.parse_args()
    sys.stdout.write("| database | processes | fault | whole | lost | wrong | longest silence, s |\n")
    sys.stdout.write("| --- | --- | --- | --- | --- | --- | --- |\n")
    found = 0
    for engine in asked.engines:
        for count in map(int, asked.processes.split(",")):
            pace = asked.pace or count / 2
            for fault in asked.faults.split(","):
                if engine == "sqlite" and fault in OF_SERVERS:
                    continue
                if fault in FOR_ROOT and os.geteuid() != 0:
                    sys.stderr.write(f"{fault}: only root may mount file systems\n")
                    continue
                question = f"slow {round(asked.seconds / pace)} {pace}"
                seen = asyncio.run(storm(engine, count, asked.streams, fault, question, lease=asked.lease))
                row = (engine, count, FAULTS[fault], seen.finished, seen.lost, len(seen.wrong), f"{seen.silence:.1f}")
                sys.stdout.write(f"| {' | '.join(map(str, row))} |\n")
                sys.stdout.flush()
                sys.stderr.write("".join(f"{each}\n" for each in seen.wrong[:5]))
                may_lose = fault in LOSING or (engine, fault) == ("sqlite", "power")
                found += len(seen.wrong) + seen.lost * (not may_lose)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
