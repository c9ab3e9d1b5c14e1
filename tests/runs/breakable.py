"""Databases that break as those of an operator do: stopped, switched over, full, slow, without power."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode

import asyncpg

from tests.stores.conftest import Server
from tests.stores.door import SqliteFile

SMALL = 400 * 2**20
"""Bytes of a file system that gets full; PostgreSQL takes 200 MB, its programs included."""
LARGE = 2 * 2**30
"""Bytes of a disk that loses its power."""
DAY = 86400.0


class Database(Protocol):
    """Each fault is a block in which it lasts. A fault that an engine does not have is not called."""

    url: str

    def away(self) -> AbstractAsyncContextManager[None]:
        """It is stopped as a crash does, and started again."""

    def slow(self) -> AbstractAsyncContextManager[None]:
        """It answers, but each time a second late."""

    def full(self) -> AbstractAsyncContextManager[None]:
        """Its file system is full, which is that of `small`."""

    def power(self) -> AbstractAsyncContextManager[None]:
        """Its machine has no power: what was not on its disk, that of `disk`, is lost."""


class Sqlite:
    def __init__(self, folder: Path, disk: Disk | None) -> None:
        self._folder = folder
        self._disk = disk
        self._file = SqliteFile(folder, "runs")
        self.url = self._file.url

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        self._file.away()
        yield
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

    @asynccontextmanager
    async def full(self) -> AsyncIterator[None]:
        with filled(self._folder):
            yield

    @asynccontextmanager
    async def power(self) -> AsyncIterator[None]:
        assert self._disk is not None
        await asyncio.to_thread(self._disk.cut)
        yield


class Postgres:
    """A server; with a standby, `url` leads to whichever of them is the primary."""

    def __init__(self, stack: ExitStack, *, disk: Disk | None, standby: str) -> None:
        self._disk = disk
        self._server = Server(synced=disk is not None)
        stack.callback(lambda: self._server.remove())
        if disk is not None:
            subprocess.run(
                ["sync", "-f", disk.folder], check=True
            )  # what was installed, not what is written from now on
        self.url = self._server.url
        if not standby:
            return
        self._other = Server(self._server)
        stack.callback(lambda: self._other.remove())
        self._address = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bridge-address-"))) / "primary"
        self._address.symlink_to(self._server.folder)
        folders = (urlencode({"host": str(folder)}) for folder in (self._server.folder, self._address))
        self.url = self.url.replace(*folders)
        if standby == "synchronous":
            self._server.execute("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        await asyncio.to_thread(self._server.stop)
        yield
        await asyncio.to_thread(self._server.start)

    @asynccontextmanager
    async def switched(self) -> AsyncIterator[None]:
        """The standby takes over; the old primary stays up, read-only, and keeps its connections."""
        await asyncio.to_thread(self._read_only)
        await self._take_over()
        yield

    @asynccontextmanager
    async def failover(self) -> AsyncIterator[None]:
        """The primary dies, and its synchronous standby takes over."""
        await asyncio.to_thread(self._server.stop)
        await self._take_over()
        yield

    def _read_only(self) -> None:
        self._server.execute("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
        time.sleep(0.5)  # for transactions that have begun
        (written,) = self._server.execute("SELECT pg_current_wal_lsn()::text")
        while self._other.execute(f"SELECT (pg_last_wal_replay_lsn() >= '{written}')::text") != ["true"]:
            time.sleep(0.05)

    async def _take_over(self) -> None:
        await asyncio.to_thread(self._other.promote)
        link = self._address.with_name("next")
        link.symlink_to(self._other.folder)
        link.rename(self._address)

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
        """Connections are cut, and no new ones are taken."""
        taken: list[asyncpg.Connection[asyncpg.Record]] = []

        async def take() -> None:
            with suppress(asyncpg.TooManyConnectionsError):
                taken.append(await asyncpg.connect(self.url, server_settings={"application_name": "crowd"}))

        async def take_all() -> None:
            await asyncio.gather(*(take() for _ in range(70)))

        try:
            await take_all()
            # Who was cut off comes back for its place. One that got it would be alive alone, and end the others' runs.
            while await taken[0].fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND application_name <> 'crowd'"
            ):
                await take_all()
            yield
        finally:
            for each in taken:
                await each.close()

    @asynccontextmanager
    async def full(self) -> AsyncIterator[None]:
        with filled(self._server.folder):
            yield
        if not self._server.pids():  # it gives up where it cannot write its log
            await asyncio.to_thread(self._server.start)

    @asynccontextmanager
    async def server_clock(self) -> AsyncIterator[None]:
        """The clock of the server is set a day on, and back: all that it has said before is a day off."""
        for by in (-DAY, DAY):
            await asyncio.to_thread(self._server.execute, f"UPDATE run_processes SET expires = expires + {by}")
            if by < 0:
                yield

    @asynccontextmanager
    async def power(self) -> AsyncIterator[None]:
        assert self._disk is not None
        await asyncio.to_thread(self._disk.cut, self._server.halted)
        yield
        await asyncio.to_thread(self._server.start)


@contextmanager
def database(engine: str, fault: str) -> Iterator[Database]:
    """Only root may mount the file systems for the faults `full` and `power`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bridge-storm-")))
        folder.chmod(0o755)  # PostgreSQL runs as another account
        disk = None
        if fault == "full":
            folder = stack.enter_context(small(folder))
        elif fault == "power":
            disk = stack.enter_context(Disk(folder))
            folder = disk.folder
        if engine == "sqlite":
            yield Sqlite(folder, disk)
            return
        stack.enter_context(_temporary(folder))
        yield Postgres(stack, disk=disk, standby={"switched": "asynchronous", "failover": "synchronous"}.get(fault, ""))


# ---------------------------------------------------------------------- file systems


@contextmanager
def small(folder: Path) -> Iterator[Path]:
    """A file system of `SMALL` bytes."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL},mode=1777", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def _temporary(folder: Path) -> Iterator[None]:
    """All temporary folders are in this one."""
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


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


class Disk:
    """A file system of `LARGE` bytes whose disk is a file: what was not synchronized is not in that file."""

    def __init__(self, folder: Path) -> None:
        self._image = folder / "disk"
        self.folder = folder / "mounted"
        self.folder.mkdir()
        self._mounted = 0

    def __enter__(self) -> Disk:
        with self._image.open("wb") as image:
            image.truncate(LARGE)
        subprocess.run(["mkfs.ext4", "-q", self._image], check=True)
        self._mount()
        self.folder.chmod(0o1777)
        return self

    def __exit__(self, *_: object) -> None:
        for _mount in range(self._mounted):
            subprocess.run(["umount", "--lazy", self.folder], check=True)

    def _mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self._image, self.folder], check=True)
        self._mounted += 1

    def cut(self, stop: Callable[[], AbstractContextManager[object]] | None = None) -> None:
        """Go on with what is on the disk at this moment. In `stop`, its processes stand still; then they are dead."""
        found = self._image.with_name("found")
        with stop() if stop is not None else ExitStack():
            subprocess.run(["cp", "--sparse=always", self._image, found], check=True)
        self._image = found
        self._mount()  # upon the other one: readers who are still there must not find an empty folder in between
