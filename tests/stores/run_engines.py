"""The engines of the run store for its suites. PostgreSQL is reached through a door that can be shut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from bridge.stores import RunStore, open_runs
from tests.stores.door import SqliteFile

SECRET = "s3cr3t-pa55word"


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

    async def execute(self, statement: str) -> Any:
        """Does something behind the store's back; the first value of the first row."""

    async def backdate(self, what: str, seconds: float) -> None:
        """Makes all leases, ends, threads or cancels older."""


_COLUMNS = {
    "leases": "run_processes SET expires = expires",
    "ended": "runs SET ended_at = ended_at",
    "threads": "run_threads SET updated_at = updated_at",
    "cancels": "run_cancels SET expires = expires",
}


class _Base:
    url: str

    def __init__(self) -> None:
        self._open: list[RunStore] = []

    def store(self) -> RunStore:
        store = open_runs(self.url)
        self._open.append(store)
        return store

    async def execute(self, statement: str) -> Any:
        raise NotImplementedError

    async def backdate(self, what: str, seconds: float) -> None:
        await self.execute(f"UPDATE {_COLUMNS[what]} - {seconds}")

    async def close(self) -> None:
        for store in self._open:
            await store.close()


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

    async def execute(self, statement: str) -> Any:
        return self.file.execute(statement)


class Postgres(_Base):
    """A schema of its own on the session's server."""

    name = "postgresql"

    def __init__(self, server: str) -> None:
        from tests.stores import conftest

        super().__init__()
        self._schema = conftest.Postgres(server)
        self.url = self._schema.url

    async def make(self) -> None:
        await self._schema.make()

    async def down(self) -> None:
        await self._schema.down()

    async def up(self) -> None:
        await self._schema.up()

    async def execute(self, statement: str) -> Any:
        return await self._schema.execute(statement)

    async def close(self) -> None:
        await super().close()
        await self._schema.close()


@pytest.fixture(params=["sqlite", "postgresql"])
async def run_engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunEngine]:
    made: Sqlite | Postgres
    if request.param == "sqlite":
        made = Sqlite(tmp_path)
    else:
        made = Postgres(request.getfixturevalue("postgres"))
        await made.make()
    yield made
    await made.close()


@pytest.fixture
async def run_store(run_engine: RunEngine) -> RunStore:
    store = run_engine.store()
    await store.open()
    return store
