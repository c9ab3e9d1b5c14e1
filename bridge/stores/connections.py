"""Open connections to one PostgreSQL server."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

if TYPE_CHECKING:
    Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_IDLE = 300.0
"""Seconds for which a connection is kept that nobody uses."""


class Connections:
    """At most `most` connections, which `connect` opens; each has one user at a time.

    The driver's own pool has a task, two timers and a wrapper for each use: 55 microseconds of CPU, where a small
    statement takes 22 and this takes 3.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]], most: int) -> None:
        self._connect = connect
        self._most = most
        self._opening = 0
        self._used: set[Connection] = set()
        self._idle: list[tuple[float, Connection]] = []
        """Those that nobody uses, and since when; the one that was used last is the next to be used."""
        self._expired: set[Connection] = set()
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        """Futures of those who wait: they get a connection, or None where one may be opened."""
        self._retired = False
        self._closed = False
        self._left: asyncio.Future[None] | None = None
        """Set while `close` waits for those that are used."""

    async def take(self, seconds: float) -> Connection:
        """Return a connection that is to be given back, after at most so many seconds.

        Raises `TimeoutError`, and what `connect` raises.
        """
        if (db := self._take_idle()) is not None:
            return db
        async with asyncio.timeout(seconds):
            while db is None:
                if self._closed:
                    raise asyncpg.InterfaceError("closed")
                if self._opening + len(self._used) < self._most:
                    return await self._open()
                db = await self._wait() or self._take_idle()
        return db

    def _take_idle(self) -> Connection | None:
        while self._idle and not self._closed:
            _, db = self._idle.pop()
            if not db.is_closed():
                self._used.add(db)
                return db
        return None

    async def _open(self) -> Connection:
        self._opening += 1
        try:
            db = await self._connect()
        except BaseException:
            self._opening -= 1
            self._hand_on(None)
            raise
        self._opening -= 1
        self._used.add(db)
        if self._closed:
            self.give_back(db)
            raise asyncpg.InterfaceError("closed")
        return db

    async def _wait(self) -> Connection | None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            db: Connection | None = await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():  # canceled when it had got one
                self._hand_on(waiter.result())
            raise
        return db

    def give_back(self, db: Connection) -> None:
        """End the use of a connection. One that a canceled call has left in a transaction is closed."""
        is_expired = db in self._expired
        self._expired.discard(db)
        if db.is_closed() or db.is_in_transaction() or is_expired or self._retired:
            end(db)
            self._used.discard(db)
            self._hand_on(None)
        else:
            self._hand_on(db)

    def _hand_on(self, db: Connection | None) -> None:
        """Give a used connection, or the place of one, to who waits for longest."""
        if self._left is not None and not self._left.done():
            self._left.set_result(None)
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(db)
                return
        if db is not None:
            self._used.discard(db)
            now = time.monotonic()
            self._idle.append((now, db))
            if self._idle[0][0] < now - _IDLE:
                end(self._idle.pop(0)[1])

    def expire(self) -> None:
        """Close all connections, those that are used when they are given back."""
        idle, self._idle = self._idle, []
        for _, db in idle:
            end(db)
        self._expired |= self._used

    def retire(self) -> None:
        """Close all connections, and from now on each when it is given back. Those who wait still get one."""
        self._retired = True
        self.expire()

    async def close(self, seconds: float) -> None:
        """Close all connections, those that are used after so many seconds at the latest. Nobody gets one any more."""
        self._closed = self._retired = True
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            async with asyncio.timeout(seconds):
                while self._used or self._opening:
                    self._left = asyncio.get_running_loop().create_future()
                    await self._left
                for _, db in self._idle:
                    await db.close()
        for db in (*self._used, *(db for _, db in self._idle)):
            end(db)
        self._idle.clear()


def end(db: Connection) -> None:
    """Close a connection without a word to the server."""
    with suppress(asyncpg.InterfaceError):  # it has ended already
        db.terminate()
