"""What only PostgreSQL can do to a bridge: failovers, poolers, migrations that take long."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import asyncpg
import pytest

from bridge.errors import BridgeError
from bridge.stores import postgres as driver
from bridge.stores.postgres import Postgres
from bridge.stores.schema import Schema
from bridge.stores.scripts import Script, execute
from tests.server.harness import free_port
from tests.stores.conftest import ACCOUNT, Server
from tests.stores.conftest import Postgres as Engine
from tests.stores.door import RouteLimiter
from tests.stores.test_scripts import THINGS, add, names


@pytest.fixture
async def things(postgres_schema: Engine) -> AsyncIterator[Postgres]:
    made = Postgres(postgres_schema.url, None, (THINGS,))
    await made.open()
    yield made
    await made.close()


async def pids(database: Postgres) -> set[int]:
    """The servers of as many open connections as it may have, which are open afterwards."""

    def mine() -> Script[int]:
        ((pid,),) = yield "SELECT pg_backend_pid()", {}
        yield "SELECT pg_sleep(0.1)", {}
        return int(pid)

    return set(await asyncio.gather(*(database.read(mine) for _ in range(driver.CONNECTIONS))))


# ---------------------------------------------------------------------- connections that became useless


class Address:
    """A Unix socket that leads to one server, and later to another one: those inside stay where they are."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.folder = Path(tempfile.mkdtemp(prefix="bridge-address-"))
        self.url = server.url.replace(urlencode({"host": str(server.folder)}), urlencode({"host": str(self.folder)}))
        self._door = RouteLimiter(lambda: asyncio.open_unix_connection(f"{self.server.folder}/.s.PGSQL.5432"))

    async def __aenter__(self) -> Address:
        self._listening = await asyncio.start_unix_server(self._door.enter, self.folder / ".s.PGSQL.5432")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        await self._door.shut()
        shutil.rmtree(self.folder)


@pytest.fixture
async def failing_over() -> AsyncIterator[tuple[Address, Callable[[], Awaitable[None]]]]:
    """An address, and what makes it lead to a standby that takes over. The old primary stays up, read-only, and keeps
    its open connections.
    """
    old = Server()
    new = Server(old)

    async def fail_over() -> None:
        await asyncio.to_thread(new.promote)
        old.execute("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
        address.server = new

    try:
        async with Address(old) as address:
            yield address, fail_over
    finally:
        old.remove()
        new.remove()


async def test_after_a_failover_everything_is_written_to_the_new_primary(
    failing_over: tuple[Address, Callable[[], Awaitable[None]]],
) -> None:
    address, fail_over = failing_over
    things = Postgres(address.url, None, (THINGS,))
    await things.write(lambda: add("before"))
    assert len(await pids(things)) == driver.CONNECTIONS
    await fail_over()
    for n in range(2 * driver.CONNECTIONS):
        await things.write(lambda n=n: add(f"n{n}"))  # type: ignore[misc]
    assert len(await things.read(names)) == 2 * driver.CONNECTIONS + 1
    await things.close()


async def test_after_a_failover_a_process_that_only_reads_finds_the_new_primary(
    failing_over: tuple[Address, Callable[[], Awaitable[None]]],
) -> None:
    """The old one answers all that it asks, but has nothing new."""
    address, fail_over = failing_over
    things, reader = Postgres(address.url, None, (THINGS,)), Postgres(address.url, None, (THINGS,))
    await things.write(lambda: add("before"))
    assert len(await pids(reader)) == driver.CONNECTIONS
    await fail_over()
    await things.write(lambda: add("after"))
    async with asyncio.timeout(30):
        while await reader.read(names) != ["before", "after"]:
            await asyncio.sleep(0.01)
    await asyncio.gather(things.close(), reader.close())


async def test_connections_that_the_server_ends_are_replaced(things: Postgres, postgres_schema: Engine) -> None:
    before = await pids(things)
    await postgres_schema.execute(f"SELECT count(pg_terminate_backend(n)) FROM unnest(ARRAY{sorted(before)}) n")
    await things.write(lambda: add("a"))
    assert await things.read(names) == ["a"]
    assert not before & await pids(things)


async def test_plans_are_kept_where_statements_are_prepared(things: Postgres) -> None:
    """Planning an append costs the server three times as much as the append."""
    assert await things.read(lambda: execute("SELECT current_setting('plan_cache_mode')")) == [("force_generic_plan",)]


async def test_what_was_undone_for_others_is_done_again(things: Postgres) -> None:
    """Two scripts that lock the same rows in opposite orders: the server ends one of them."""
    for name in "ab":
        await things.write(lambda name=name: add(name, "0"))  # type: ignore[misc]
    attempts = 0

    def crosses(first: str, second: str) -> Script[None]:
        nonlocal attempts
        attempts += 1
        for name in (first, second):
            yield "UPDATE things SET note = CAST(CAST(note AS bigint) + 1 AS text) WHERE name = :name", {"name": name}
            if name == first:
                yield "SELECT pg_sleep(0.3)", {}

    async with asyncio.timeout(60):
        await asyncio.gather(things.write(lambda: crosses("a", "b")), things.write(lambda: crosses("b", "a")))
    assert attempts == 3
    assert await things.read(lambda: execute("SELECT note FROM things")) == [("2",), ("2",)]


# ---------------------------------------------------------------------- poolers


class Pooler:
    """PgBouncer in transaction mode, with fewer connections than its clients."""

    def __init__(self, server: Server) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bridge-pooler-"))
        self._port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
        (self.folder / "users").write_text('"postgres" ""\n')
        (self.folder / "ini").write_text(
            f"[databases]\npostgres = host={server.folder} dbname=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {self.folder}/users\npool_mode = transaction\ndefault_pool_size = 3\n"
            f"logfile = {self.folder}/log\n"
        )
        if ACCOUNT:
            for path in (self.folder, *self.folder.iterdir()):
                shutil.chown(path, ACCOUNT)

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            str(PGBOUNCER), "-q", self.folder / "ini", user=ACCOUNT, cwd=self.folder, stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(20):
            while True:
                with suppress(OSError, asyncpg.PostgresError):
                    await (await asyncpg.connect(self.url)).close()
                    return
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        self._process.terminate()
        await self._process.wait()
        shutil.rmtree(self.folder)


PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@pytest.fixture
async def pooled() -> AsyncIterator[tuple[Server, str]]:
    """A server, and its address behind a pooler."""
    if not PGBOUNCER:
        pytest.fail("no PgBouncer: apt-get install pgbouncer")
    server = Server()
    pooler = Pooler(server)
    try:
        await pooler.start()
        yield server, pooler.url
    finally:
        await pooler.stop()
        server.remove()


@pytest.mark.slow
async def test_behind_a_pooler_of_transactions(pooled: tuple[Server, str]) -> None:
    """Two processes, with more connections together than the pooler has to the server."""
    _, url = pooled
    stores = [Postgres(url, None, (THINGS,)) for _ in range(2)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(stores[n % 2].write(lambda n=n: add(f"n{n}")) for n in range(60)))  # type: ignore[misc]
    found = await asyncio.gather(*(stores[n % 2].read(names) for n in range(60)))
    assert {len(each) for each in found} == {60}
    await asyncio.gather(*(store.close() for store in stores))


@pytest.mark.slow
async def test_a_pooler_that_comes_in_between_later(
    pooled: tuple[Server, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the connections had prepared gets lost: they are replaced by some that prepare nothing."""
    _, url = pooled
    things, other = Postgres(url, None, (THINGS,)), Postgres(url, None, (THINGS,))
    migrate = driver._migrate

    async def takes_it_for_a_server(url: str, schemas: Sequence[Schema]) -> bool:
        await migrate(url, schemas)
        return False

    with monkeypatch.context() as patched:
        patched.setattr(driver, "_migrate", takes_it_for_a_server)
        await asyncio.gather(things.open(), other.open())
    works = [(things, other)[n % 2].write(lambda n=n: add(f"n{n}")) for n in range(60)]  # type: ignore[misc]
    await asyncio.gather(*works)
    assert things._is_pooled
    assert len(await things.read(names)) == 60
    await asyncio.gather(things.close(), other.close())


# ---------------------------------------------------------------------- migrations


INDEXED = Schema(
    "test",
    (
        *THINGS.migrations,
        ("CREATE INDEX{concurrently} things_by_note ON things (note)",),
        ("CREATE TABLE more (n int)",),
    ),
    (),
    needs=1,
)


async def test_an_index_is_built_beside_the_work_of_others(things: Postgres, postgres_schema: Engine) -> None:
    """Old processes write while it waits for a transaction that is older, new ones wait for their turn."""
    await things.write(lambda: add("old", "note"))
    older = await asyncpg.connect(postgres_schema.server, server_settings={"search_path": postgres_schema.schema})
    async with older.transaction(isolation="repeatable_read"):
        await older.fetch("SELECT * FROM things")
        new = [Postgres(postgres_schema.url, None, (INDEXED,)) for _ in range(3)]
        opening = [asyncio.create_task(store.open()) for store in new]
        async with asyncio.timeout(60):
            while await postgres_schema.execute("SELECT to_regclass('things_by_note')") is None:
                await asyncio.sleep(0.02)
        await things.write(lambda: add("meanwhile"))
        assert not any(task.done() for task in opening)
        with pytest.raises(BridgeError, match="TimeoutError"):
            await new[0]._run(names, readonly=True, wait=0.1)
    await older.close()
    async with asyncio.timeout(60):
        await asyncio.gather(*opening)
    assert await new[0].read(names) == await things.read(names) == ["old", "meanwhile"]
    assert await postgres_schema.execute(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = 'things_by_note'::regclass"
    )
    assert await postgres_schema.execute("SELECT version FROM schema_version") == 3
    await asyncio.gather(*(store.close() for store in new))


async def test_an_index_that_an_interrupted_migration_left_is_built_anew(
    things: Postgres, postgres_schema: Engine
) -> None:
    for n in range(2):
        await things.write(lambda n=n: add(f"n{n}", "the same"))  # type: ignore[misc]
    db = await asyncpg.connect(postgres_schema.server, server_settings={"search_path": postgres_schema.schema})
    with pytest.raises(asyncpg.UniqueViolationError):
        await db.execute("CREATE UNIQUE INDEX CONCURRENTLY things_by_note ON things (note)")
    await db.close()
    valid = "SELECT indisvalid AND NOT indisunique FROM pg_index WHERE indexrelid = 'things_by_note'::regclass"
    assert await postgres_schema.execute(valid) is False
    new = Postgres(postgres_schema.url, None, (INDEXED,))
    await new.open()
    assert await postgres_schema.execute(valid) is True
    await new.close()


async def test_a_role_that_may_not_create_tables_can_use_them(things: Postgres, postgres_schema: Engine) -> None:
    role = f"guest_{postgres_schema.schema}"
    try:
        for statement in (
            f"CREATE ROLE {role} LOGIN",
            f"GRANT USAGE ON SCHEMA {postgres_schema.schema} TO {role}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {postgres_schema.schema} TO {role}",
        ):
            await postgres_schema.execute(statement)
        parts = urlsplit(postgres_schema.url)
        guest = Postgres(parts._replace(netloc=f"{role}@").geturl(), None, (THINGS,))
        await guest.write(lambda: add("a"))
        assert await things.read(names) == ["a"]
        await guest.close()
    finally:
        for statement in (f"DROP OWNED BY {role}", f"DROP ROLE {role}"):
            await postgres_schema.execute(statement)
