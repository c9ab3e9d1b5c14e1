"""Rates of requests, counted in this process, or in PostgreSQL for all that share it.

The algorithm is GCRA (ITU-T I.371), a leaky bucket in one number: the time at which the bucket is empty again. After a
minute without requests, a minute's worth is allowed at once. Budgets of a day are
counted from midnight to midnight, UTC.

Why not `limits` (5.8, MIT): its in-memory storage starts a task for each request that visits every key in a thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from bridge.errors import BridgeError, FailureLog
from bridge.stores.scripts import UNSYNCED, Database, Script

log = logging.getLogger("bridge.rates")

MINUTE = 60.0
DAY = 86_400
_MANY = 10_000
_PAUSE = 1.0
"""Seconds for which a database that has failed is not asked again, so that it does not delay every request."""
_APART = "each process counts requests separately"


class Rates(Protocol):
    """Rate limits of many names."""

    async def acquire(self, name: str, per_minute: int) -> float:
        """Count a request of this name and return 0, or return the seconds until it is allowed."""

    async def spend(self, name: str, amount: int, per_day: int) -> float:
        """Count an amount of this name's budget of today and return 0, or return the seconds until midnight.

        The last amount may exceed the budget; the next day begins at zero. With an amount of 0 it only looks.
        """

    async def close(self) -> None: ...


class LocalRates:
    """Counted in this process."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._wall = wall
        self._due: dict[str, float] = {}
        self._tidy_at = _MANY
        self._day = 0
        self._spent: dict[str, int] = {}

    async def acquire(self, name: str, per_minute: int) -> float:
        now, every = self._clock(), MINUTE / per_minute
        due = max(self._due.get(name, now), now)
        wait = due - now - (MINUTE - every)
        # A rounding error is no wait.
        if wait > 1e-6:
            return wait
        self._due[name] = due + every
        if len(self._due) > self._tidy_at:
            self._due = {n: d for n, d in self._due.items() if d > now}
            self._tidy_at = max(_MANY, 2 * len(self._due))
        return 0.0

    async def spend(self, name: str, amount: int, per_day: int) -> float:
        day, gone = divmod(self._wall(), DAY)
        if day != self._day:
            self._day, self._spent = int(day), {}
        spent = self._spent.get(name, 0)
        if spent >= per_day:
            return DAY - gone
        if amount:
            self._spent[name] = spent + amount
        return 0.0

    async def close(self) -> None:
        self._due.clear()
        self._spent.clear()


class SharedRates:
    """Counted in a database, by its clock. While it is unavailable, each process counts separately."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._here = LocalRates()
        self._failed_at: float | None = None
        self._failures = FailureLog(log)

    async def acquire(self, name: str, per_minute: int) -> float:
        return await self._shared(
            lambda: _count(name, MINUTE / per_minute), lambda: self._here.acquire(name, per_minute)
        )

    async def spend(self, name: str, amount: int, per_day: int) -> float:
        part = min(1.0, amount / per_day) * DAY
        return await self._shared(lambda: _spend(name, part), lambda: self._here.spend(name, amount, per_day))

    async def _shared(self, work: Callable[[], Script[float]], here: Callable[[], Awaitable[float]]) -> float:
        if self._failed_at is not None and time.monotonic() < self._failed_at + _PAUSE:
            return await here()
        try:
            wait = await self._database.write(work)
        except BridgeError as error:
            self._failures.failed(_APART, error)
            self._failed_at = time.monotonic()
            return await here()
        self._failures.works(_APART)
        self._failed_at = None
        return wait

    async def close(self) -> None:
        await self._database.close()


def _count(name: str, every: float) -> Script[float]:
    """Count a request and return 0, or return the seconds until it is allowed."""
    yield UNSYNCED, {}
    ahead = MINUTE - every
    values = {"name": name, "every": every, "ahead": ahead}
    counted = yield (
        "INSERT INTO request_rates AS r (name, due) VALUES (:name, {now} + :every) ON CONFLICT (name) DO UPDATE"
        " SET due = {greatest}(r.due, {now}) + :every WHERE r.due <= {now} + :ahead RETURNING due",
        values,
    )
    if counted:
        # What is due says nothing any more; a few at a time, so that nobody waits for it.
        yield (
            "DELETE FROM request_rates WHERE name IN (SELECT name FROM request_rates WHERE due < {now} - 60"
            " ORDER BY due LIMIT 2 {skip})",
            {},
        )
        return 0.0
    rows = yield "SELECT due - {now} - :ahead FROM request_rates WHERE name = :name", values
    return max(0.001, rows[0][0]) if rows else 0.0


_MIDNIGHT = f"((floor({{wall}} / {DAY}) + 1) * {DAY})"
"""The end of today. The column `due` is that time and, after it, the part of a day that the budget is spent to."""


def _spend(name: str, part: float) -> Script[float]:
    """Count a part of the budget, in seconds of a day, and return 0, or return the seconds until midnight."""
    yield UNSYNCED, {}
    values = {"name": name, "part": part}
    most = f"{_MIDNIGHT} + {DAY}"
    sooner = f"{{greatest}}(r.due, {_MIDNIGHT}) + :part"
    counted = yield (
        f"INSERT INTO request_rates AS r (name, due) VALUES (:name, {_MIDNIGHT} + :part) ON CONFLICT (name) DO UPDATE"
        f" SET due = CASE WHEN {sooner} > {most} THEN {most} ELSE {sooner} END WHERE r.due < {most} - 0.001"
        " RETURNING due",
        values,
    )
    if counted:
        return 0.0
    rows = yield f"SELECT {_MIDNIGHT} - {{wall}}", {}
    return max(0.001, float(rows[0][0]))
