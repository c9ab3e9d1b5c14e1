"""One SQLite file, which several processes of one machine may share: connections, threads, schema, failures.

Each job is one function in a dedicated thread: jobs on the same connection do not interleave, a canceled task cannot
leave one half done, and it takes one switch between threads instead of one per statement (hence the standard library's
`sqlite3` without an asynchronous wrapper). Jobs that arrive while the thread is busy share the next transaction: the
more writes there are, the less each costs. Writing and reading use separate threads, so that no reader waits for
another process that writes.

While another process writes, all jobs wait together, each until its own deadline: `busy` seconds after it was asked
for. Renewals of leases (`first`) are the first to get in. A process that waits tries again every few milliseconds: the
engine itself would wait longer and longer, up to 100 ms, while others find the short pauses between two transactions.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, ClassVar, TypeVar

import orjson

from bridge.errors import BridgeError, ConfigError
from bridge.stores import lease_clock, schema
from bridge.stores.conversation_store import unavailable
from bridge.stores.scripts import ALONE, UNSYNCED, Rows, Spelled, Values, Work, spelled

_T = TypeVar("_T")
MEMORY = ":memory:"
_TOGETHER = 64
"""Maximum number of jobs in one transaction, so that later ones do not wait too long."""
_SHRINK = 400
"""Pages that one transaction gives back to the file system at most."""
_KEPT = 2000
"""Free pages that a file keeps at least."""
_INCREMENTAL = 2
_PAGE = 2048
"""Bytes of a page. An entry changes the last page of its run, which is written whole: with 4,096 bytes, the default of
SQLite, that is up to twice as much.
"""
_CHECKPOINT = 4000
"""Pages of the log after which they are written to the file: each once, however often it has changed."""
_SOON = 0.02
"""Seconds that are not worth another attempt at a busy file."""
_RETRY = 0.002
"""Seconds between two attempts to begin to write."""


class SQLiteFile:
    """The tables of some stores in the file at `path`, whose folder is created. `:memory:` is lost on close.

    A write waits up to `busy` seconds for another process before it raises `STORE_UNAVAILABLE`.
    """

    def __init__(self, path: str, tables: Sequence[schema.Schema], busy: float) -> None:
        # Absolute, since the working directory may change later.
        self._path = path if path == MEMORY else str(Path(path).absolute())
        self._tables = tables
        self._busy = busy
        self._lanes: dict[bool, _Lane] = {}  # key: True for the one that writes
        self._closed = False

    async def open(self) -> None:
        self._closed = False
        if (writer := self._lanes.get(True)) is None or not writer.is_connected:
            await self.write(lambda _: None)

    async def close(self) -> None:
        self._closed = True
        while self._lanes:
            await self._lanes.popitem()[1].close()

    def check_open(self) -> None:
        """Raise `BridgeError` (store_unavailable) after `close`."""
        if self._closed:
            raise unavailable("sqlite", "closed", schema.names(self._tables))

    def write(self, work: Callable[[sqlite3.Connection], _T], *, first: bool = False) -> Coroutine[Any, Any, _T]:
        """Return the result of `work` in a transaction that may write, before all that wait if it is to be `first`.

        Raises `BridgeError` (store_unavailable).
        """
        return self._lane(True).run(work, first=first)

    def read(self, work: Callable[[sqlite3.Connection], _T]) -> Coroutine[Any, Any, _T]:
        """Return the result of `work` in a transaction that only reads. Raises `BridgeError` (store_unavailable)."""
        return self._lane(self._path == MEMORY).run(work)

    async def shrink(self) -> None:
        """Give free pages back to the file system, except a tenth of the file, which it may soon need again.

        A file that was not made for it (`auto_vacuum`) keeps them until VACUUM is run on it.
        """
        more = True
        while more:
            began = time.monotonic()
            more = await self.write(_shrink)
            # Idle for as long as it took, so that nobody waits for it.
            await asyncio.sleep(time.monotonic() - began)

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


class SQLiteConnection:
    """A connection to the file, for one thread at a time. It connects when needed, and again after a failure.

    `begin` is the statement that begins its transactions.
    """

    def __init__(self, path: str, tables: Sequence[schema.Schema], busy: float, begin: str) -> None:
        self._path = path
        self._tables = tables
        self._busy = busy
        self._until = 0.0
        """When to stop waiting for another process, by the monotonic clock."""
        self._begin = begin
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return the result of `work`, run in one transaction. Raises `BridgeError` (store_unavailable)."""
        try:
            return self.attempt(work, time.monotonic() + self._busy)
        except (sqlite3.Error, OSError) as error:
            reason = reason_of(error)
        # Outside of the handler: the engine's own text may name files and values.
        raise self.failure(reason)

    def attempt(self, work: Callable[[sqlite3.Connection], _T], until: float) -> _T:
        """As `run`; `until`: when to stop waiting for another process. Raises what the engine raises."""
        self._until = until
        try:
            with self as db:
                return work(db)
        except (sqlite3.Error, OSError) as error:
            if not is_busy(error) and self._path != MEMORY:
                self.close()
            raise

    def failure(self, reason: str) -> BridgeError:
        """Return the error for a failure of the engine with this name."""
        return unavailable("sqlite", reason, schema.names(self._tables))

    def __enter__(self) -> sqlite3.Connection:
        """Begin a transaction, which an exception rolls back. Raises what the engine raises."""
        db = self._connected()
        self._patiently(db, self._begin)
        return db

    def _patiently(self, db: sqlite3.Connection, statement: str) -> None:
        """Execute a statement that may find the file busy."""
        while True:
            try:
                db.execute(statement).close()
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > self._until:
                    raise
                time.sleep(_RETRY)

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
        if self._db is not None and self.is_connected:
            return self._db
        self.close()  # if there is one, its file was deleted or replaced
        if self._path != MEMORY:
            make_private(Path(self._path))
        # Only readers leave it to the engine to wait: while another process recovers the file.
        timeout = self._busy if self._begin == "BEGIN" else 0
        db = sqlite3.connect(self._path, timeout=timeout, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        self._db, self._file = db, self._identity()
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA foreign_keys = ON")
        db.execute(f"PRAGMA synchronous = {'FULL' if any(each.synced for each in self._tables) else 'NORMAL'}")
        if db.execute("PRAGMA page_count").fetchone() == (0,):
            # Only a new file can be changed, and only before WAL.
            db.execute(f"PRAGMA page_size = {_PAGE}")
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self._patiently(db, "PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")
        db.execute("PRAGMA journal_size_limit = 67108864")
        with suppress(sqlite3.OperationalError):  # no such table, or no such column
            if all(
                not self._missing(db, tables) and self._boot(db, tables) == lease_clock.boot()
                for tables in self._tables
            ):
                return
        self._patiently(db, "BEGIN IMMEDIATE")
        run_statement(db, schema.VERSIONS)
        if "needs" not in [row[1] for row in db.execute("PRAGMA table_info(schema_version)")]:
            run_statement(db, schema.NEEDS)
        run_statement(db, schema.BOOTS)
        for tables in self._tables:
            missing = self._missing(db, tables)
            for statement in (statement for migration in missing for statement in migration):
                run_statement(db, statement)
            if missing:
                run_statement(db, schema.RECORD, tables.record(tables.newest))
            if self._boot(db, tables) != lease_clock.boot():
                for statement in tables.rebooted:
                    run_statement(db, statement)
                db.execute(
                    "INSERT INTO machine_boot (room, boot) VALUES (?, ?)"
                    " ON CONFLICT (room) DO UPDATE SET boot = excluded.boot",
                    (tables.name, lease_clock.boot()),
                )
        db.execute("COMMIT")

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    @property
    def is_connected(self) -> bool:
        """True while the file is the one that is open."""
        if self._db is None or self._path == MEMORY:
            return self._db is not None
        return self._file is not None and self._file == self._identity()

    def close(self) -> None:
        """Close the connection; `run` connects again."""
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    def _boot(self, db: sqlite3.Connection, tables: schema.Schema) -> str | None:
        found = db.execute("SELECT boot FROM machine_boot WHERE room = ?", (tables.name,)).fetchone()
        return str(found[0]) if found else None

    def _missing(self, db: sqlite3.Connection, tables: schema.Schema) -> list[tuple[str, ...]]:
        found = run_statement(db, schema.READ, {"room": tables.name})
        return tables.missing(*found[0] if found else (0, None))


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

    def __init__(self, path: str, tables: Sequence[schema.Schema], busy: float, begin: str) -> None:
        self._connection = SQLiteConnection(path, tables, busy, begin)
        self._busy = busy
        self._jobs: deque[_Job] = deque()
        self._working = False
        # A loop = it has jobs; None = stop. An executor takes 400 bytecodes to hand over a job, this queue 15.
        self._signal: SimpleQueue[asyncio.AbstractEventLoop | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=schema.names(tables), daemon=True)
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

    @property
    def is_connected(self) -> bool:
        return self._connection.is_connected

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
        """Run the jobs in one transaction, or each in one of its own where the engine fails.

        Return the jobs that are done: those that found the file busy and may wait longer are in the queue again.
        """
        if len(jobs) > 1:
            for together in (_together, _apart):
                try:
                    self._connection.attempt(partial(together, jobs), min(job.deadline for job in jobs))
                except BaseException as error:
                    if is_busy(error):
                        return self._still_busy(jobs, error)
                else:
                    return self._told(jobs)
        for number, job in enumerate(jobs):
            job.error = None
            try:
                job.result = self._connection.attempt(job.work, job.deadline)
            except BaseException as error:
                if is_busy(error):
                    return self._told(jobs[:number]) + self._still_busy(jobs[number:], error)
                job.error = error
        return self._told(jobs)

    def _told(self, jobs: list[_Job]) -> list[_Job]:
        """Put the store's error in the place of the engine's, whose text may name files and values."""
        for job in jobs:
            if isinstance(job.error, (sqlite3.Error, OSError)):
                job.error = self._connection.failure(reason_of(job.error))
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
    """Run the jobs in this transaction. One that refuses before it has changed anything leaves it as it is.

    A savepoint for each job would take two more statements.
    """
    for job in jobs:
        changes, job.error = db.total_changes, None
        try:
            job.result = job.work(db)
        except BridgeError as error:
            if db.total_changes != changes:
                raise
            job.error = error


def _apart(jobs: list[_Job], db: sqlite3.Connection) -> None:
    """Run the jobs in this transaction, so that what one has changed before it raised can be undone alone."""
    for job in jobs:
        job.error = None
        db.execute("SAVEPOINT job")
        try:
            job.result = job.work(db)
        except Exception as error:
            if not db.in_transaction or is_busy(error):
                raise  # the engine has undone everything
            db.execute("ROLLBACK TO job")
            job.error = error
        db.execute("RELEASE job")


def is_busy(error: BaseException) -> bool:
    """Return whether another process had the file for longer than this one waited."""
    return reason_of(error).startswith("SQLITE_BUSY")


def reason_of(error: BaseException) -> str:
    """Return the engine's name of its failure, such as `SQLITE_FULL`; the name of the class for any other error."""
    return getattr(error, "sqlite_errorname", None) or type(error).__name__


def _shrink(db: sqlite3.Connection) -> bool:
    """Give some pages back. Return whether there are more."""
    kind, free, pages = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("auto_vacuum", "freelist_count", "page_count")
    )
    more = free - max(_KEPT, pages // 10)
    if kind != _INCREMENTAL or more <= 0:
        return False
    for _ in range(min(more, _SHRINK)):
        # The pragma has no columns, so that `sqlite3` takes only its first step: one page, whatever the number says.
        db.execute("PRAGMA incremental_vacuum(1)")
    return bool(more > _SHRINK)


class SQLiteSyntax:
    """See `bridge.stores.scripts.Syntax`."""

    fragments: ClassVar[dict[str, str]] = {
        "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "now": ":now",
        "wall": ":wall",
        "lock": "",
        "skip": "",
        "greatest": "max",
        "json": "text",
        "concurrently": "",
        "volatile": "",
        "clustered": "WITHOUT ROWID",
        "version": "PRAGMA data_version",
        "alone": "",
        "unsynced": "",
        # RETURNING would store its rows in a table before they are read, at the cost of another statement.
        "changed": "",
    }

    def size(self, column: str) -> str:
        return f"length(CAST({column} AS BLOB))"

    def among(self, name: str, kind: str) -> str:
        return f"IN (SELECT value FROM json_each(:{name}))"

    def table(self, name: str, columns: Sequence[tuple[str, str]]) -> str:
        fields = ", ".join(f"json_extract(value, '$[{n}]') AS {column}" for n, (column, _) in enumerate(columns))
        return f"(SELECT {fields} FROM json_each(:{name})) AS {name}"

    def values(self, name: str, columns: Sequence[tuple[str, str]]) -> str:
        return f"VALUES ({', '.join('?' * len(columns))})"

    def each(self, name: str, columns: Sequence[tuple[str, str]]) -> tuple[str, dict[str, str]]:
        # A subquery of the values would be stored in a table before it is read, at half the cost of the statement.
        return "", {column: f"?{n}" for n, (column, _) in enumerate(columns, 1)}

    def joined(self, steps: Sequence[tuple[str, str]], last: str) -> None:
        """Nothing that changes rows can be a part of another statement."""


SYNTAX = SQLiteSyntax()
_OF_OTHERS = frozenset({ALONE, UNSYNCED})
"""Statements that say nothing to SQLite."""


def run_script(work: Work[_T], db: sqlite3.Connection) -> _T:
    """Return the result of a script, run in the transaction that has begun. Raises what it and the engine raise."""
    script = work()
    rows: Rows | None = None
    try:
        while True:
            statement, values = script.send(rows)  # type: ignore[arg-type]  # the first one is sent None
            rows = [] if statement in _OF_OTHERS else run_statement(db, statement, values)
    except StopIteration as done:
        result: _T = done.value
        return result
    finally:
        script.close()


def run_statement(db: sqlite3.Connection, statement: str, values: Values | None = None) -> Rows:
    """Return the rows of a statement with the fragments of `bridge.stores.scripts`."""
    found = spelled(statement, SYNTAX)
    if not found.text:
        return []
    given: Values = values or {}
    if found.steps:
        given = dict(given)
        for name, step in found.steps:
            given[name] = _rows_of(db, step, given)
    return _rows_of(db, found, given)


def _rows_of(db: sqlite3.Connection, found: Spelled, given: Values) -> Rows:
    if found.many is not None:
        db.executemany(found.text, given[found.many])
        return []
    if found.clocks or found.sets:
        given = dict(given)
        for name in found.clocks:
            given[name] = lease_clock.now() if name == "now" else time.time()
        for name in found.sets:
            given[name] = orjson.dumps(given[name]).decode()
    cursor = db.execute(found.text, given)
    return [(1,)] * cursor.rowcount if found.counts else cursor.fetchall()


def run_counted(statement: str, values: Values, db: sqlite3.Connection) -> int:
    """Run a statement. Return how many rows it has changed (with `{each}`) or returned."""
    found = spelled(statement, SYNTAX)
    if found.many is not None:
        return db.executemany(found.text, values[found.many]).rowcount
    return len(run_statement(db, statement, values))


def path_of(url: str) -> str:
    """Return the path in `sqlite:///relative` or `sqlite:////absolute`."""
    head, slashes, path = url.partition(":///")
    if head != "sqlite" or not slashes or not path or path.endswith("/"):
        raise ConfigError("expected sqlite:/// and the path of a file for the store")
    return path
