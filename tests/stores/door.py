"""Engines that cannot be reached for a while: a door in front of a server, a SQLite file that is put away."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class SqliteFile:
    """A database of this test's own. Its folder is named by `secret`, which no error may tell.

    The folder is reached through a link, so that it goes and comes back in one step each: a store that tries again in
    between finds either the folder or nothing, and has no moment to make one of its own.
    """

    def __init__(self, folder: Path, secret: str) -> None:
        self._here, self._away = folder / f"{secret}-here", folder / f"{secret}-away"
        self._here.mkdir()
        link = folder / secret
        link.symlink_to(self._here, target_is_directory=True)
        self.path = link / "bridge.db"
        self.url = f"sqlite:///{self.path}"

    def away(self) -> None:
        self._here.rename(self._away)

    def back(self) -> None:
        self._away.rename(self._here)

    def execute(self, statement: str, *values: Any) -> Any:
        """Does something behind the store's back; the first value of the first row."""
        with closing(sqlite3.connect(self.path)) as db, db:
            found = db.execute(statement, values).fetchone()
            return found[0] if found else None


class RouteLimiter:
    """`enter` is the handler of an asyncio server; `connect` reaches the server behind."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._inside: set[asyncio.Task[None]] = set()
        self.is_open = True

    async def shut(self) -> None:
        """Who is inside is cut off, and who knocks is sent away."""
        self.is_open = False
        for task in self._inside:
            task.cancel()
        await asyncio.gather(*self._inside, return_exceptions=True)

    async def enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        ends = [writer]
        self._inside.add(task)
        try:
            if not self.is_open:
                return  # knocked just when the door was shut
            answers, there = await self._connect()
            ends.append(there)
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, there))
                both.create_task(_copy(answers, writer))
        except asyncio.CancelledError:
            pass
        finally:
            self._inside.discard(task)
            for end in ends:
                end.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.write_eof()
