"""Scripts in PostgreSQL (14 or newer), for bridges on several machines. Needs the extra `postgres`.

Transactions run at READ COMMITTED, those that only read at REPEATABLE READ. A round trip costs this process about as
much as its statement costs the server, so that what needs no answer is sent with what follows (`_Session`), and a
single statement is its own transaction. All settings and locks end with their transaction, so that a pooler that gives
each transaction another connection (PgBouncer in transaction mode) may stand in between. Statements are prepared under
names, which halves their cost, only where there is no pooler: the server's process id is then the one that was told
when the connection was made.

After a failover, open connections still lead to the old primary, which answers that it is read-only, or to nobody. Such
a connection is closed, all others are replaced before they are used again, and the script runs once more on a new one,
unless it may have been committed. A process that only reads notices it by what the server reports beside its answers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import asyncpg

from bridge.errors import BridgeError
from bridge.stores import schema
from bridge.stores.connections import Connections, end
from bridge.stores.conversation_store import unavailable
from bridge.stores.scripts import ALONE, UNSYNCED, Rows, T, Values, Work, execute, spelled

if TYPE_CHECKING:
    from bridge.stores.connections import Connection

    _Run: TypeAlias = Callable[["_Session"], Awaitable[T]]

CONNECTIONS = 5
"""Connections of a process. A transaction takes milliseconds, and PostgreSQL allows 100 connections by default."""

_WAIT = 10.0
"""Seconds to wait for a connection: for a new one, and for one that is free."""
_ANSWER = 30.0
"""Seconds to wait for the result of a statement. Migrations have no limit."""
_ATTEMPTS = 3
_POLL = 0.2
"""Seconds between two looks whether another process has finished its migration."""

_FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
_USELESS = frozenset({"25006", "25P03", "57P01", "57P02", "57P03", "57P05"})
"""Read-only (a former primary, or a standby), idle for too long, shutting down, crashed, not up yet."""
_UNDONE = frozenset({"40001", "40P01"})
"""Serialization failure, deadlock."""
_UNPREPARED = frozenset({"26000", "42P05"})
"""A prepared statement is not known, or another one has its name: there is a pooler in between, since a short time."""
_OUTDATED = "0A000"
"""A prepared statement has another result than it had. The driver then forgets all that it has prepared."""

_MAY_REPEAT = _UNDONE | _UNPREPARED | {_OUTDATED}

_CLOCK = "(SELECT extract(epoch FROM clock_timestamp())::double precision)"
# A subquery reads the clock once: compared with a volatile function, no row would be found by an index.


class Postgres:
    """A `Database` at `url`, with parameters of libpq (`?sslmode=require`); see `bridge.stores.urls`.

    `prepared`: how many prepared statements a connection keeps; by default 100, and none behind a pooler.
    """

    engine = "postgresql"

    def __init__(
        self,
        url: str,
        prepared: int | None,
        schemas: Sequence[schema.Schema],
        *,
        connections: int = CONNECTIONS,
    ) -> None:
        self._url = url
        self.place: str | None = url
        self._prepared = 100 if prepared is None else prepared
        self._schemas = schemas
        self._connections = connections
        self._pool: Connections | None = None
        self._connecting: asyncio.Task[Connections] | None = None
        self._is_pooled = False
        self._closed = False

    async def open(self) -> None:
        self._closed = False
        await self._run(partial(_run_script, lambda: execute("SELECT 1")), readonly=True, wait=None, apart=True)

    async def close(self) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close(5)

    def check_open(self) -> None:
        if self._closed:
            raise self._failure("closed")

    async def read(self, work: Work[T], *, snapshot: bool = True) -> T:
        return await self._run(partial(_run_script, work), readonly=True, apart=not snapshot)

    async def write(self, work: Work[T], *, first: bool = False) -> T:
        return await self._run(partial(_run_script, work), readonly=False)

    async def change(self, statement: str, values: Values) -> int | None:
        if self._is_pooled:
            return None  # parsing and execution must reach the same connection
        return await self._run(partial(_count, statement, values), readonly=False, apart=True)

    async def shrink(self) -> None:
        """Do nothing: autovacuum does."""

    # ------------------------------------------------------------------ transactions

    async def _run(self, work: _Run[T], *, readonly: bool, wait: float | None = _WAIT, apart: bool = False) -> T:
        """Run a script, its statements `apart` if it needs no transaction; wait at most `wait` seconds for a migration.

        Raises `BridgeError` (store_unavailable).
        """
        self.check_open()
        for attempt in range(1, _ATTEMPTS + 1):
            begin = None if apart and not self._is_pooled else _BEGIN_TO_READ if readonly else _BEGIN
            try:
                pool = self._pool or await self._connected(wait)
                return await _transaction(pool, work, readonly, begin)
            except _Undone as error:
                reason, may_repeat = error.reason, error.may_repeat
                if reason in _UNPREPARED:
                    self._forget(pool)
            except _FAILURES as error:
                reason, may_repeat = reason_of(error), False
            if not may_repeat or attempt == _ATTEMPTS:
                break
        # Outside of the handler: the driver's own text may name hosts, users and values.
        raise self._failure(reason)

    def _failure(self, reason: str) -> BridgeError:
        return unavailable(self.engine, reason, schema.names(self._schemas))

    async def _connected(self, seconds: float | None) -> Connections:
        """Connect. Return the pool, once the tables are there; wait for a migration at most so many seconds."""
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect(), name="postgresql-connect")
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self._connecting)

    def _forget(self, pool: Connections) -> None:
        """Replace a pool whose connections prepare statements that get lost."""
        self._is_pooled = True
        if self._pool is pool:
            self._pool = None
        pool.retire()

    async def _connect(self) -> Connections:
        self._is_pooled |= await _migrate(self._url, self._schemas)
        prepared = 0 if self._is_pooled else self._prepared
        self._pool = Connections(partial(_ready, self._url, prepared), self._connections)
        return self._pool


class _Undone(Exception):
    """A transaction that failed. `may_repeat`: it was surely not committed, and another attempt may be better."""

    def __init__(self, reason: str, may_repeat: bool) -> None:
        self.reason = reason
        self.may_repeat = may_repeat


_BEGIN = "BEGIN"
_BEGIN_TO_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class _Session:
    """A connection while it executes the statements of one script. `begin` begins their transaction; None is none.

    That is sent in one message with the locks (`ALONE`) and settings (`UNSYNCED`) that come first. The statement after
    them is another one, so that it sees what was committed before a lock was had.
    """

    def __init__(self, db: Connection, begin: str | None) -> None:
        self.db = db
        self.is_committing = False
        self._ahead = [begin] if begin is not None else []
        """What is not sent yet."""
        self._has_begun = False

    async def rows(self, statement: str, values: Values) -> Rows:
        """Return the rows of a statement."""
        if self._ahead:
            if statement == UNSYNCED:
                self._ahead.append("SET LOCAL synchronous_commit = off")
                return []
            if statement == ALONE:
                self._ahead.append(_lock(values["name"]))
                return []
            await self._begin()
        return await _rows(self.db, statement, values)

    async def count(self, statement: str, values: Values) -> int:
        """Return how many rows a statement has changed or returned."""
        if self._ahead:
            await self._begin()
        found = query(statement)
        status = await self.db.execute(found.text, *_arguments(found, values))
        return int(status.rpartition(" ")[2])

    async def _begin(self) -> None:
        ahead, self._ahead = "; ".join(self._ahead), []
        self._has_begun = True
        await self.db.execute(ahead)

    async def commit(self) -> None:
        if self._has_begun:
            self.is_committing = True
            await self.db.execute("COMMIT")

    async def rollback(self) -> None:
        """Undo what was done. A connection of which that is not known is closed."""
        if self._has_begun:
            try:
                await self.db.execute("ROLLBACK")
            except _FAILURES:
                end(self.db)
            except BaseException:
                end(self.db)
                raise


def _lock(name: str) -> str:
    """Return `ALONE` as a statement without values, which may be sent with others. The name may be anything."""
    text = f"convert_from(decode('{name.encode().hex()}', 'hex'), 'UTF8')"
    return f"SELECT pg_advisory_xact_lock(hashtextextended({text}, 0))"


async def _transaction(pool: Connections, work: _Run[T], readonly: bool, begin: str | None) -> T:
    db = await pool.take(_WAIT)
    session = _Session(db, begin)
    try:
        try:
            result = await work(session)
        except BaseException:
            await session.rollback()
            raise
        await session.commit()
        if _is_read_only(db):
            pool.expire()
        return result
    except _FAILURES as error:
        reason = reason_of(error)
        useless = _is_useless(error)
        # The server commits a single statement itself, unless it answers with an error.
        is_alone = begin is None and not readonly and not hasattr(error, "sqlstate")
        may_repeat = reason in _MAY_REPEAT or (useless and not session.is_committing and not is_alone)
        if useless:
            end(db)
            pool.expire()
    finally:
        pool.give_back(db)
    raise _Undone(reason, may_repeat)


def _is_useless(error: BaseException) -> bool:
    """Return whether another connection may be better than the one that raised this."""
    state = getattr(error, "sqlstate", None)
    return state is None or state in _USELESS or state.startswith("08")


def _is_read_only(db: Connection) -> bool:
    """Return whether the server reported with its last answer that it is a standby, or a former primary."""
    settings = db.get_settings()
    return any(getattr(settings, name, "") == "on" for name in ("default_transaction_read_only", "in_hot_standby"))


def reason_of(error: BaseException) -> str:
    """Return the code of a failure, such as `25006`; the name of the class for an error without one."""
    return getattr(error, "sqlstate", None) or type(error).__name__


# ---------------------------------------------------------------------- statements


class PostgresSyntax:
    """See `bridge.stores.scripts.Syntax`."""

    fragments: ClassVar[dict[str, str]] = {
        "serial": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "now": _CLOCK,
        "wall": _CLOCK,
        "lock": "FOR UPDATE",
        "skip": "FOR UPDATE SKIP LOCKED",
        "greatest": "greatest",
        "json": "jsonb",
        "concurrently": " CONCURRENTLY",
        "volatile": "UNLOGGED",
        "clustered": "",
        "version": "",
        "alone": "SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))",
        "unsynced": "SELECT set_config('synchronous_commit', 'off', true)",
        "changed": "RETURNING 1",
    }

    def size(self, column: str) -> str:
        return f"octet_length({column})"

    def among(self, name: str, kind: str) -> str:
        # A join with the list may become a scan of the table, where its statistics are out of date.
        return f"= ANY(CAST(:{name} AS {kind}[]))"

    def table(self, name: str, columns: Sequence[tuple[str, str]]) -> str:
        return f"{self._unnest(name, columns)} AS {name} ({', '.join(column for column, _ in columns)})"

    def values(self, name: str, columns: Sequence[tuple[str, str]]) -> str:
        return f"SELECT * FROM {self._unnest(name, columns)}"

    def each(self, name: str, columns: Sequence[tuple[str, str]]) -> tuple[str, dict[str, str]]:
        return f", {self.table(name, columns)}", {}

    def joined(self, steps: Sequence[tuple[str, str]], last: str) -> str:
        return f"WITH {', '.join(f'{name} AS ({text.strip()})' for name, text in steps)} {last.strip()}"

    def _unnest(self, name: str, columns: Sequence[tuple[str, str]]) -> str:
        return f"unnest({', '.join(f'CAST(:{name}__{n} AS {kind}[])' for n, (_, kind) in enumerate(columns))})"


SYNTAX = PostgresSyntax()
_VALUE = re.compile(r"(?<![:\w]):([a-z_]\w*)")


@dataclass(frozen=True, slots=True)
class Query:
    """A statement with `$1`, `$2`, ... and where its arguments come from: a value, or a column of a list of tuples."""

    text: str
    arguments: tuple[tuple[str, int | None], ...]


@lru_cache(1024)
def query(statement: str) -> Query:
    """Return the statement as PostgreSQL takes it."""
    names: list[str] = []

    def numbered(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    text = _VALUE.sub(numbered, spelled(statement, SYNTAX).text)
    parts = (name.partition("__") for name in names)
    return Query(text, tuple((name, int(column) if column else None) for name, _, column in parts))


async def _run_script(work: Work[T], session: _Session) -> T:
    script = work()
    rows: Rows | None = None
    try:
        while True:
            statement, values = script.send(rows)  # type: ignore[arg-type]  # the first one is sent None
            rows = await session.rows(statement, values)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        script.close()


async def _count(statement: str, values: Values, session: _Session) -> int:
    return await session.count(statement, values)


async def _rows(db: Connection, statement: str, values: Values) -> Rows:
    found = query(statement)
    if not found.text:
        return []
    return [tuple(row) for row in await db.fetch(found.text, *_arguments(found, values))]


def _arguments(found: Query, values: Values) -> list[Any]:
    return [values[name] if n is None else [row[n] for row in values[name]] for name, n in found.arguments]


# ---------------------------------------------------------------------- migrations

_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('bridge schema', 0))"
_HAS_NEEDS = """SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('schema_version') AND attname = 'needs'
    AND NOT attisdropped"""
_INDEX = re.compile(r"CREATE INDEX\{concurrently\} (\w+) ON")
_IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)"


async def _migrate(url: str, schemas: Sequence[schema.Schema]) -> bool:
    """Migrate the tables, one process at a time, without a limit of time. Changes nothing if nothing is missing.

    Return whether there is a pooler before the server.
    """
    connection = await _connected_to(url)
    try:
        while await _is_missing(connection, schemas):
            # This connection holds the lock in a transaction while another one works: a migration has several
            # transactions, or none, and a lock of the session would get lost in a pooler. Who waits must not wait
            # inside of a statement, for which the building of an index would wait in turn.
            async with connection.transaction():
                if await connection.fetchval(_LOCK):
                    # This also closes the snapshot of the statement before it, for which an index would wait, too.
                    await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                    await _run_migrations(url, schemas)
                    break
            await asyncio.sleep(_POLL)
        async with connection.transaction(readonly=True):
            return bool(await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid())
    finally:
        await _close(connection)


async def _is_missing(db: Connection, schemas: Sequence[schema.Schema]) -> bool:
    async with db.transaction(readonly=True):
        if await db.fetchval(_HAS_NEEDS) is None:
            return True
        return any([each.missing(*await _version(db, each)) for each in schemas])


async def _version(db: Connection, tables: schema.Schema) -> tuple[int, int | None]:
    found = await _rows(db, schema.READ, {"room": tables.name})
    return (found[0][0], found[0][1]) if found else (0, None)


async def _run_migrations(url: str, schemas: Sequence[schema.Schema]) -> None:
    db = await _connected_to(url)
    try:
        async with db.transaction():
            await db.execute(schema.VERSIONS)
            if await db.fetchval(_HAS_NEEDS) is None:
                await db.execute(schema.NEEDS)
        for tables in schemas:
            async with db.transaction(readonly=True):
                version, needs = await _version(db, tables)
            missing = tables.missing(version, needs)
            if version == 0:  # there are no rows yet
                plain = (each.replace("{concurrently}", "") for migration in missing for each in migration)
                await _run_migration(db, tables, tuple(plain), tables.newest)
                continue
            for number, migration in enumerate(missing, version + 1):
                if found := _INDEX.match(migration[0]):
                    await _build_index(db, found[1], migration[0])
                    migration = ()
                await _run_migration(db, tables, migration, number)
    finally:
        await _close(db)


async def _run_migration(db: Connection, tables: schema.Schema, migration: Sequence[str], version: int) -> None:
    async with db.transaction():
        await db.execute("SET LOCAL statement_timeout = 0")
        for statement in migration:
            await _rows(db, statement, {})
        await _rows(db, schema.RECORD, tables.record(version))


async def _build_index(db: Connection, name: str, statement: str) -> None:
    """Build an index beside the work of others. One that an interrupted attempt has left is built again."""
    async with db.transaction(readonly=True):
        is_valid = await db.fetchval(_IS_VALID, name)
    if is_valid is False:
        await db.execute(f"DROP INDEX CONCURRENTLY {name}")
    if not is_valid:
        await db.execute(query(statement).text)


async def _connected_to(url: str, prepared: int = 0, seconds: float | None = None) -> Connection:
    """Return a new connection that keeps so many prepared statements, each of which has so many seconds."""
    try:
        return await asyncpg.connect(url, timeout=_WAIT, command_timeout=seconds, statement_cache_size=prepared)
    except ValueError as error:  # the driver finds a mistake in the URL that `bridge.stores.urls` does not know
        reason = type(error).__name__
    raise asyncpg.InterfaceError(reason)


async def _close(db: Connection) -> None:
    try:
        await db.close(timeout=5)
    except _FAILURES:
        db.terminate()


async def _ready(url: str, prepared: int) -> Connection:
    """Return a new connection for scripts. It keeps the plan of a prepared statement, whatever its values are.

    Each statement finds its rows by a key, also if the table was small when it was planned. For a table that was small
    when it was analyzed, the server plans an append anew at each execution, which costs it 0.5 ms, three times as much
    as the append.
    """
    db = await _connected_to(url, prepared, _ANSWER)
    if prepared:
        try:
            await db.execute("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off")
        except BaseException:
            end(db)
            raise
    return db
