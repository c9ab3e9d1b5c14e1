"""Processes that drive many runs of one database while something breaks, and what their readers get.

    python -m tests.runs.storm sqlite postgresql --processes 2,4 --streams 50

prints a table: runs whole, runs lost with their process, runs with a lost or doubled entry or a wrong end, and the
longest silence of a reader. The readers are in a process of their own. Exit status 1 if anything is wrong, or if a run
is lost although its process lives.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import asyncpg

from bridge.errors import BridgeError, ErrorCode
from bridge.model import Event, RunFailed, RunFinished, TextDelta, verify
from bridge.run.durable import RunKey, Runs
from bridge.stores import open_runs
from tests.runs.agents import LONG, SLOW
from tests.runs.helpers import begin, bridge_of, process, runs_of
from tests.stores.conftest import Server
from tests.stores.door import SqliteFile

LEASE = 2.0
FAULTS = {
    "none": "none",
    "kill": "a process is killed",
    "stop": "a process stands still for three leases",
    "away": "the database is stopped for 15 s",
    "restarted": "the database is restarted",
    "full": "its disk is full for 10 s",
    "slow": "it answers a second late for 10 s",
    "crowded": "no connections for 10 s",
}
WHOLE = {"long": LONG, "slow": SLOW}
STOPPED = 15.0
"""Seconds for which the table's database is stopped."""
HARD = 10.0
"""Seconds for which it is full, slow or out of connections."""
SMALL = 400 * 2**20
"""Bytes of a file system that gets full; PostgreSQL takes 200 MB, its programs included."""


class Database(Protocol):
    url: str

    async def away(self) -> None: ...

    async def back(self) -> None: ...

    def slow(self) -> AbstractAsyncContextManager[None]:
        """It answers, but each time late."""

    def crowded(self) -> AbstractAsyncContextManager[None]:
        """Connections are cut, and no new ones are taken. There is no such limit for a file."""

    def full(self) -> AbstractAsyncContextManager[None]:
        """Its file system is full, which is that of `small`."""


class _Sqlite:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = SqliteFile(folder, "runs")
        self.url = self._file.url

    async def away(self) -> None:
        self._file.away()

    async def back(self) -> None:
        self._file.back()

    @asynccontextmanager
    async def slow(self) -> AsyncIterator[None]:
        """Another process, here a thread, holds the write lock most of the time."""
        over = threading.Event()

        def hold() -> None:
            with closing(sqlite3.connect(self._file.path, isolation_level=None, timeout=60)) as db:
                while not over.is_set():
                    db.execute("BEGIN IMMEDIATE")
                    over.wait(1.0)
                    db.execute("COMMIT")
                    time.sleep(0.3)

        holding = asyncio.create_task(asyncio.to_thread(hold))
        yield
        over.set()
        await holding

    def crowded(self) -> AbstractAsyncContextManager[None]:
        raise NotImplementedError

    @asynccontextmanager
    async def full(self) -> AsyncIterator[None]:
        with filled(self._folder):
            yield


class _Postgres:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.url = server.url

    async def away(self) -> None:
        await asyncio.to_thread(self._server.stop)

    async def back(self) -> None:
        await asyncio.to_thread(self._server.start)

    @asynccontextmanager
    async def slow(self) -> AsyncIterator[None]:
        """All its processes stand still for a second, again and again."""
        over = asyncio.Event()

        async def hold() -> None:
            while not over.is_set():
                stopped = self._server.pids()
                for pid in stopped:
                    os.kill(pid, signal.SIGSTOP)
                await asyncio.sleep(1.0)
                for pid in stopped:
                    os.kill(pid, signal.SIGCONT)
                await asyncio.sleep(0.3)

        holding = asyncio.create_task(hold())
        yield
        over.set()
        await holding

    @asynccontextmanager
    async def crowded(self) -> AsyncIterator[None]:
        taken: list[asyncpg.Connection[asyncpg.Record]] = []

        async def take() -> None:
            with suppress(asyncpg.TooManyConnectionsError):
                taken.append(await asyncpg.connect(self.url, server_settings={"application_name": "crowd"}))

        try:
            await take()
            for _ in range(10):  # who was cut off comes back for its place
                await taken[0].execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE backend_type = 'client backend' AND application_name <> 'crowd'"
                )
                await asyncio.gather(*(take() for _ in range(70)))
            yield
        finally:
            for each in taken:
                await each.close()

    @asynccontextmanager
    async def full(self) -> AsyncIterator[None]:
        with filled(self._server.folder):
            yield
        if not self._server.pids():  # it gives up where it cannot write its log
            await self.back()


@contextmanager
def small(folder: Path) -> Iterator[None]:
    """A file system of `SMALL` bytes in this folder, with all temporary folders in it. Only root may mount one."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL},mode=1777", "tmpfs", folder], check=True)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as out:
        for size in (2**20, 512):
            with suppress(OSError):
                while True:
                    out.write(bytes(size))
    yield
    filler.unlink()


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


async def read(runs: Runs, key: RunKey, seen: Seen, asked: str) -> None:
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
    text, whole = "".join(event.text for event in events if isinstance(event, TextDelta)), "".join(WHOLE[asked])
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


async def storm(engine: str, processes: int, streams: int, fault: str, asked: str = "long") -> Seen:
    """Let some processes drive `streams` runs each, and break something in their middle."""
    seen = Seen()
    async with AsyncExitStack() as stack:
        if fault == "full":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            stack.enter_context(small(Path(folder)))
        where = await stack.enter_async_context(database(engine))
        bridge = await stack.enter_async_context(bridge_of())
        runs = runs_of(bridge, open_runs(where.url))
        stack.push_async_callback(runs.close)
        await runs._store.open()
        workers = [
            await stack.enter_async_context(process(where.url, LEASE, concurrent=streams)) for _ in range(processes)
        ]
        await asyncio.sleep(1.5 * LEASE)  # each of them may call another one dead
        beginning = (begin(bridge, runs, asked, f"r{n}", f"o{n}") for n in range(processes * streams))
        keys = await asyncio.gather(*beginning)
        reading = [asyncio.create_task(read(runs, key, seen, asked)) for key in keys]
        for key in keys:
            while (record := await runs.status(key)) is None or not record.entries:
                await asyncio.sleep(0.05)
        await _break(fault, where, workers[0], STOPPED if asked == "slow" else 2 * LEASE)
        async with asyncio.timeout(180):
            await asyncio.gather(*reading)
    return seen


async def _break(fault: str, where: Database, worker: Process, stopped: float) -> None:
    match fault:
        case "kill":
            worker.send_signal(signal.SIGKILL)
        case "stop":
            worker.send_signal(signal.SIGSTOP)
            await asyncio.sleep(3 * LEASE)
            worker.send_signal(signal.SIGCONT)
        case "away" | "restarted":
            await where.away()
            await asyncio.sleep(stopped if fault == "away" else 0)
            await where.back()
        case "full" | "slow" | "crowded":
            async with getattr(where, fault)():
                await asyncio.sleep(HARD)
        case _:
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", default=["sqlite", "postgresql"])
    parser.add_argument("--processes", default="2,4,8")
    parser.add_argument("--streams", type=int, default=200, help="of each process")
    parser.add_argument("--faults", default=",".join(FAULTS))
    asked = parser.parse_args()
    sys.stdout.write("| database | processes | fault | whole | lost | wrong | longest silence, s |\n")
    sys.stdout.write("| --- | --- | --- | --- | --- | --- | --- |\n")
    found = 0
    for engine in asked.engines:
        for count in map(int, asked.processes.split(",")):
            for fault in asked.faults.split(","):
                if (engine, fault) == ("sqlite", "crowded"):
                    continue
                if fault == "full" and os.geteuid() != 0:
                    sys.stderr.write("only root may mount the file system that gets full\n")
                    continue
                seen = asyncio.run(storm(engine, count, asked.streams, fault, "slow"))
                row = (engine, count, FAULTS[fault], seen.finished, seen.lost, len(seen.wrong), f"{seen.silence:.1f}")
                sys.stdout.write(f"| {' | '.join(map(str, row))} |\n")
                sys.stdout.flush()
                sys.stderr.write("".join(f"{each}\n" for each in seen.wrong[:5]))
                found += len(seen.wrong) + seen.lost * (fault not in ("kill", "stop"))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
