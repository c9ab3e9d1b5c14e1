"""Scripts in one SQLite file, which several processes of one machine may share; see `bridge.stores.sqlite_file`."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from bridge.stores.schema import Schema
from bridge.stores.scripts import T, Values, Work
from bridge.stores.sqlite_file import SQLiteFile, run_counted, run_script


class SQLite:
    """A `Database` in the file at `path`, whose folder is created. `:memory:` is lost on close.

    A write waits up to `busy` seconds for another process before it raises `STORE_UNAVAILABLE`. Writes that wait share
    a transaction.
    """

    engine = "sqlite"

    def __init__(self, path: str, schemas: Sequence[Schema], *, busy: float = 5.0) -> None:
        self.file = SQLiteFile(path, schemas, busy)
        self.place = None if path == ":memory:" else os.path.realpath(path)

    async def open(self) -> None:
        await self.file.open()

    async def close(self) -> None:
        await self.file.close()

    def check_open(self) -> None:
        self.file.check_open()

    def read(self, work: Work[T], *, snapshot: bool = True) -> Coroutine[Any, Any, T]:
        return self.file.read(partial(run_script, work))

    def write(self, work: Work[T], *, first: bool = False) -> Coroutine[Any, Any, T]:
        return self.file.write(partial(run_script, work), first=first)

    async def change(self, statement: str, values: Values) -> int | None:
        return await self.file.write(partial(run_counted, statement, values))

    async def shrink(self) -> None:
        await self.file.shrink()
