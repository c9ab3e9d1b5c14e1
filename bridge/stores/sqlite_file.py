"""One SQLite file, which several processes of one machine may share: connections, threads, schema, failures.

Each job is one function in a dedicated thread: jobs on the same connection do not interleave, a canceled task cannot
leave one half done, and it takes one switch between threads instead of one per statement (hence the standard library's
`sqlite3` without an asynchronous wrapper). Jobs that arrive while the thread is busy share the next transaction: the
more writes there are, the less each costs. Writing and reading use separate threads, so that no reader waits for
another process that writes.

While another process holds the file, all jobs wait together, each until its own deadline: `busy` seconds after it was
asked for. Renewals of leases (`first`) are the first to get in.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from bridge.errors import BridgeError, ConfigError
from bridge.stores import machine, schema
from bridge.stores.base import unavailable

_T = TypeVar("_T")
MEMORY = ":memory:"
_TOGETHER = 64
"""Maximum number of jobs in one transaction, so that later ones do not wait too long."""
_SOON = 0.02
"""Seconds that are not worth another attempt at a busy file."""


class SQLiteFile:
    """The tables of one store in the file at `path`, whose folder is created. `:memory:` is lost on close.

    A write waits up to `busy` seconds for another process before it raises `STORE_UNAVAILABLE`.
    """

    def __init__(self, path: str, tables: schema.Schema, busy: float) -> None:
        # Absolute, since the working directory may change later.
        self._path = path if path == MEMORY else str(Path(path).absolute())
        self._tables = tables
        self._busy = busy
        self._lanes: dict[bool, _Lane] = {}  # key: True for the one that writes
        self._closed = False

    async def open(self) -> None:
        self._closed = False
        await self.write(lambda _: None)

    async def close(self) -> None:
        self._closed = True
        while self._lanes:
            await self._lanes.popitem()[1].close()

    def check_open(self) -> None:
        """Raise `BridgeError` (store_unavailable) after `close`."""
        if self._closed:
            raise unavailable("sqlite", "closed", self._tables.name)

    async def write(self, work: Callable[[sqlite3.Connection], _T], *, first: bool = False) -> _T:
        """Return the result of `work` in a transaction that may write, before all that wait if it is to be `first`.

        Raises `BridgeError` (store_unavailable).
        """
        return await self._lane(True).run(work, first=first)

    async def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return the result of `work` in a transaction that only reads. Raises `BridgeError` (store_unavailable)."""
        return await self._lane(self._path == MEMORY).run(work)

    def _lane(self, writes: bool) -> _Lane:
        self.check_open()
        if writes not in self._lanes:
            begin = "BEGIN IMMEDIATE" if writes else "BEGIN"
            self._lanes[writes] = _Lane(self._path, self._tables, self._busy, begin)
        return self._lanes[writes]


def make_private(path: Path) -> None:
    """Create the file and its folder for this user alone, where they do not exist.

    SQLite gives its journal files the mode of the database. Raises `OSError`.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


class Connection:
    """A connection to the file, for one thread at a time. It connects when needed, and again after a failure.

    `begin` is the statement that begins its transactions.
    """

    def __init__(self, path: str, tables: schema.Schema, busy: float, begin: str) -> None:
        self._path = path
        self._tables = tables
        self._busy = self._waits = busy
        self._begin = begin
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return the result of `work`, run in one transaction. Raises `BridgeError` (store_unavailable)."""
        try:
            return self.attempt(work, self._busy)
        except (sqlite3.Error, OSError) as error:
            reason = reason_of(error)
        # Outside of the handler: the engine's own text may name files and values.
        raise self.failure(reason)

    def attempt(self, work: Callable[[sqlite3.Connection], _T], seconds: float) -> _T:
        """As `run`, after at most `seconds` of waiting for another process. Raises what the engine raises."""
        self._wait_at_most(seconds)
        try:
            with self as db:
                return work(db)
        except (sqlite3.Error, OSError) as error:
            if not is_busy(error) and self._path != MEMORY:
                self.close()
            raise

    def failure(self, reason: str) -> BridgeError:
        """Return the error for a failure of the engine with this name."""
        return unavailable("sqlite", reason, self._tables.name)

    def _wait_at_most(self, seconds: float) -> None:
        # A statement more for each transaction only where some of the time has passed.
        waits = self._busy if seconds > 0.9 * self._busy else max(0.0, seconds)
        if waits != self._waits and self._db is not None:
            self._db.execute(f"PRAGMA busy_timeout = {int(waits * 1000)}")
        self._waits = waits

    def __enter__(self) -> sqlite3.Connection:
        """Begin a transaction, which an exception rolls back. Raises what the engine raises."""
        db = self._connected()
        db.execute(self._begin)
        return db

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        db = self._db
        assert db is not None
        try:
            if kind is None:
                db.execute("COMMIT")
        finally:
            if db.in_transaction:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")

    def _connected(self) -> sqlite3.Connection:
        if self._db is not None:
            if self._path == MEMORY or self._file == self._identity():
                return self._db
            self.close()  # the file was deleted or replaced
        if self._path != MEMORY:
            make_private(Path(self._path))
        db = sqlite3.connect(self._path, timeout=self._waits, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        self._db, self._file = db, self._identity()
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA synchronous = NORMAL")
        self._wal(db)
        db.execute("PRAGMA journal_size_limit = 67108864")
        with suppress(sqlite3.OperationalError):  # no such table
            if not self._tables.missing(self._version(db), "") and self._boot(db) == machine.boot():
                return
        db.execute("BEGIN IMMEDIATE")
        db.execute(schema.VERSIONS)
        for statement in self._tables.missing(self._version(db), "INTEGER PRIMARY KEY AUTOINCREMENT"):
            db.execute(statement)
        db.execute(
            "INSERT INTO schema_version (room, version) VALUES (?, ?)"
            " ON CONFLICT (room) DO UPDATE SET version = excluded.version",
            (self._tables.name, self._tables.newest),
        )
        db.execute(schema.BOOTS)
        if self._boot(db) != machine.boot():
            for statement in self._tables.rebooted:
                db.execute(statement, {"now": machine.now()})
            db.execute(
                "INSERT INTO machine_boot (room, boot) VALUES (?, ?)"
                " ON CONFLICT (room) DO UPDATE SET boot = excluded.boot",
                (self._tables.name, machine.boot()),
            )
        db.execute("COMMIT")

    def _wal(self, db: sqlite3.Connection) -> None:
        """Enable WAL. This statement ignores the busy timeout if two processes create the file at the same time."""
        end = time.monotonic() + self._waits
        while True:
            try:
                with closing(db.execute("PRAGMA journal_mode = WAL")) as cursor:
                    cursor.fetchone()
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def close(self) -> None:
        """Close the connection; `run` connects again."""
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    def _boot(self, db: sqlite3.Connection) -> str | None:
        found = db.execute("SELECT boot FROM machine_boot WHERE room = ?", (self._tables.name,)).fetchone()
        return str(found[0]) if found else None

    def _version(self, db: sqlite3.Connection) -> int:
        found = db.execute("SELECT version FROM schema_version WHERE room = ?", (self._tables.name,)).fetchone()
        return int(found[0]) if found else 0


@dataclass(slots=True, eq=False)
class _Job:
    """A function to run, and the future of its result."""

    work: Callable[[sqlite3.Connection], Any]
    waiter: asyncio.Future[Any]
    deadline: float
    """When it stops to wait for another process, by the monotonic clock."""
    result: Any = None
    error: BaseException | None = None


class _Lane:
    """One connection in one thread."""

    def __init__(self, path: str, tables: schema.Schema, busy: float, begin: str) -> None:
        self._connection = Connection(path, tables, busy, begin)
        self._busy = busy
        self._jobs: deque[_Job] = deque()
        self._working = False
        # A loop = it has jobs; None = stop. An executor takes 400 bytecodes to hand over a job, this queue 15.
        self._signal: SimpleQueue[asyncio.AbstractEventLoop | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=tables.name, daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[sqlite3.Connection], _T], *, first: bool = False) -> _T:
        """Return the result of `work`, which is called again if its first transaction fails."""
        loop = asyncio.get_running_loop()
        job = _Job(work, loop.create_future(), time.monotonic() + self._busy)
        if first:
            self._jobs.appendleft(job)
        else:
            self._jobs.append(job)
        if not self._working:
            self._working = True
            # Deferred, so that other jobs of this iteration of the event loop share the transaction.
            loop.call_soon(self._signal.put, loop)
        result: _T = await job.waiter
        return result

    async def close(self) -> None:
        """Finish the remaining jobs and close the connection."""
        if self._working:
            with suppress(BridgeError):
                await self.run(lambda _: None)
        self._signal.put(None)
        await asyncio.to_thread(self._thread.join)

    # ------------------------------------------------------------------ in the event loop's thread, then in this one

    def _done(self, jobs: list[_Job], loop: asyncio.AbstractEventLoop) -> None:
        """Set the results of jobs, and start those that arrived in the meantime."""
        for job in jobs:
            if job.waiter.done():
                continue
            if job.error is None:
                job.waiter.set_result(job.result)
            else:
                job.waiter.set_exception(job.error)
        if self._jobs:
            self._signal.put(loop)
        else:
            self._working = False

    def _work(self) -> None:
        while (loop := self._signal.get()) is not None:
            self._drain(loop)
        self._connection.close()

    def _drain(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs: list[_Job] = []
        while self._jobs and len(jobs) < _TOGETHER:
            job = self._jobs.popleft()
            if not job.waiter.done():  # else canceled before it began
                jobs.append(job)
        done = self._run_all(jobs) if jobs else []
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._done, done, loop)

    def _run_all(self, jobs: list[_Job]) -> list[_Job]:
        """Run the jobs in one transaction, or each in one of its own where a job raises or the engine fails.

        Failures are rare; a savepoint for each job would take two more statements. Return the jobs that are done: those
        that found the file busy and may wait longer are in the queue again.
        """
        if len(jobs) > 1:
            try:
                self._connection.attempt(partial(_together, jobs), _patience(jobs))
                return jobs
            except BaseException as error:
                if is_busy(error):
                    return self._still_busy(jobs, error)
        for number, job in enumerate(jobs):
            try:
                job.result = self._connection.attempt(job.work, _patience([job]))
            except (sqlite3.Error, OSError) as error:
                if is_busy(error):
                    return jobs[:number] + self._still_busy(jobs[number:], error)
                job.error = self._connection.failure(reason_of(error))
            except BaseException as error:
                job.error = error
        return jobs

    def _still_busy(self, jobs: list[_Job], error: BaseException) -> list[_Job]:
        """Return those of the jobs whose time is over, with their error. The others wait in the queue again."""
        now = time.monotonic() + _SOON
        waiting = [job for job in jobs if job.deadline > now]
        over = [job for job in jobs if job.deadline <= now]
        if not over:
            time.sleep(_SOON)  # the engine did not wait
        self._jobs.extendleft(reversed(waiting))
        for job in over:
            job.error = self._connection.failure(reason_of(error))
        return over


def _together(jobs: list[_Job], db: sqlite3.Connection) -> None:
    for job in jobs:
        job.result = job.work(db)


def _patience(jobs: list[_Job]) -> float:
    """Return the seconds until the first of these jobs stops to wait."""
    return min(job.deadline for job in jobs) - time.monotonic()


def is_busy(error: BaseException) -> bool:
    """Return whether another process had the file for longer than this one waited."""
    return reason_of(error).startswith("SQLITE_BUSY")


def reason_of(error: BaseException) -> str:
    """Return the engine's name of its failure, such as `SQLITE_FULL`; the name of the class for any other error."""
    return getattr(error, "sqlite_errorname", None) or type(error).__name__


def path_of(url: str) -> str:
    """Return the path in `sqlite:///relative` or `sqlite:////absolute`."""
    head, slashes, path = url.partition(":///")
    if head != "sqlite" or not slashes or not path or path.endswith("/"):
        raise ConfigError("expected sqlite:/// and the path of a file for the store")
    return path
