"""Processes that drive many runs of one database while something breaks, and what their readers get.

    python -m tests.runs.storm sqlite postgresql --processes 2,4 --streams 50

prints a table: runs lost, entries lost or doubled, and the longest silence of a reader.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bridge.errors import BridgeError, ErrorCode
from bridge.model import Event, RunFailed, RunFinished, TextDelta, verify
from bridge.run.durable import RunKey, Runs
from bridge.stores import open_runs
from tests.runs.agents import LONG
from tests.runs.helpers import begin, bridge_of, process, runs_of
from tests.stores.conftest import Server
from tests.stores.door import SqliteFile

LEASE = 2.0
FAULTS = ("none", "kill", "stop", "away")


class Database(Protocol):
    url: str

    async def away(self) -> None: ...

    async def back(self) -> None: ...


class _Sqlite:
    def __init__(self, folder: Path) -> None:
        self._file = SqliteFile(folder, "runs")
        self.url = self._file.url

    async def away(self) -> None:
        self._file.away()

    async def back(self) -> None:
        self._file.back()


class _Postgres:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.url = server.url

    async def away(self) -> None:
        await asyncio.to_thread(self._server.stop)

    async def back(self) -> None:
        await asyncio.to_thread(self._server.start)


@asynccontextmanager
async def database(engine: str) -> AsyncIterator[Database]:
    """A database that can be stopped as a crash does, and started again."""
    if engine == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield _Sqlite(Path(folder))
        return
    server = await asyncio.to_thread(Server)
    try:
        yield _Postgres(server)
    finally:
        await asyncio.to_thread(server.remove)


@dataclass
class Seen:
    """What the readers of all runs got."""

    finished: int = 0
    lost: int = 0
    wrong: list[str] = field(default_factory=list)
    silence: float = 0.0


async def read(runs: Runs, key: RunKey, seen: Seen) -> None:
    reader = runs.follow(key)
    events: list[Event] = []
    clock = asyncio.get_running_loop().time
    last = clock()
    while not reader.done:
        try:
            found = await reader.read(1.0)
        except BridgeError as error:
            if error.code is not ErrorCode.STORE_UNAVAILABLE:
                raise
            await asyncio.sleep(0.2)  # it had not begun to read
            continue
        for _, batch in found:
            events += batch.events
            seen.silence, last = max(seen.silence, clock() - last), clock()
    verify(events)
    text, whole = "".join(event.text for event in events if isinstance(event, TextDelta)), "".join(LONG)
    match events[-1]:
        case RunFinished() if text == whole:
            seen.finished += 1
        case RunFailed(error=failure) if failure.code is ErrorCode.RUN_LOST and whole.startswith(text):
            seen.lost += 1
        case end:
            seen.wrong.append(f"{key.run_id}: {text!r} {end}")
    record = await _patiently(runs, key)
    if record != len(await runs._store.read(key, limit=10_000)):
        seen.wrong.append(f"{key.run_id}: entries")


async def _patiently(runs: Runs, key: RunKey) -> int:
    while True:
        try:
            record = await runs.status(key)
        except BridgeError:
            await asyncio.sleep(0.2)
        else:
            return record.entries if record is not None else -1


async def storm(engine: str, processes: int, streams: int, fault: str) -> Seen:
    """Let some processes drive `streams` runs each, and break something in their middle."""
    seen = Seen()
    async with AsyncExitStack() as stack:
        where = await stack.enter_async_context(database(engine))
        bridge = await stack.enter_async_context(bridge_of())
        runs = runs_of(bridge, open_runs(where.url))
        stack.push_async_callback(runs.close)
        await runs._store.open()
        workers = [
            await stack.enter_async_context(process(where.url, LEASE, concurrent=streams)) for _ in range(processes)
        ]
        await asyncio.sleep(1.5 * LEASE)  # each of them may call another one dead
        beginning = (begin(bridge, runs, "long", f"r{n}", f"o{n}") for n in range(processes * streams))
        keys = await asyncio.gather(*beginning)
        reading = [asyncio.create_task(read(runs, key, seen)) for key in keys]
        for key in keys:
            while (record := await runs.status(key)) is None or not record.entries:
                await asyncio.sleep(0.05)
        await _break(fault, where, workers[0])
        async with asyncio.timeout(120):
            await asyncio.gather(*reading)
    return seen


async def _break(fault: str, where: Database, worker: Process) -> None:
    if fault == "kill":
        worker.send_signal(signal.SIGKILL)
    elif fault == "stop":
        worker.send_signal(signal.SIGSTOP)
        await asyncio.sleep(3 * LEASE)
        worker.send_signal(signal.SIGCONT)
    elif fault == "away":
        await where.away()
        await asyncio.sleep(2 * LEASE)
        await where.back()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", default=["sqlite", "postgresql"])
    parser.add_argument("--processes", default="2,4")
    parser.add_argument("--streams", type=int, default=50, help="of each process")
    asked = parser.parse_args()
    sys.stdout.write("| database | processes | fault | whole | lost | wrong | longest silence, s |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    for engine in asked.engines:
        for count in map(int, asked.processes.split(",")):
            for fault in FAULTS:
                seen = asyncio.run(storm(engine, count, asked.streams, fault))
                row = (engine, count, fault, seen.finished, seen.lost, len(seen.wrong), f"{seen.silence:.1f}")
                sys.stdout.write(f"| {' | '.join(map(str, row))} |\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
