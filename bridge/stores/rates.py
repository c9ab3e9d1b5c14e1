"""Rates of requests, counted in this process, or in PostgreSQL for all that share it.

The algorithm is GCRA (ITU-T I.371), a leaky bucket in one number: the time at which the bucket is empty again. After a
minute without requests, a minute's worth is allowed at once.

Why not `limits` (5.8, MIT): its in-memory storage starts a task for each request that visits every key in a thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from bridge.errors import BridgeError
from bridge.stores.scripts import UNSYNCED, Database, Script

log = logging.getLogger("bridge.rates")

MINUTE = 60.0
_MANY = 10_000
_PAUSE = 1.0
"""Seconds for which a database that has failed is not asked again, so that it does not delay every request."""


class Rates(Protocol):
    """Rate limits of many names, the same for each."""

    async def acquire(self, name: str) -> float:
        """Count a request of this name and return 0, or return the seconds until it is allowed."""

    async def close(self) -> None: ...


class LocalRates:
    """Counted in this process."""

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._every = MINUTE / per_minute
        self._ahead = MINUTE - self._every
        self._clock = clock
        self._due: dict[str, float] = {}
        self._tidy_at = _MANY

    async def acquire(self, name: str) -> float:
        now = self._clock()
        due = max(self._due.get(name, now), now)
        wait = due - now - self._ahead
        # A rounding error is no wait.
        if wait > 1e-6:
            return wait
        self._due[name] = due + self._every
        if len(self._due) > self._tidy_at:
            self._due = {n: d for n, d in self._due.items() if d > now}
            self._tidy_at = max(_MANY, 2 * len(self._due))
        return 0.0

    async def close(self) -> None:
        self._due.clear()


class SharedRates:
    """Counted in a database, by its clock. While it is unavailable, each process counts separately."""

    def __init__(self, database: Database, per_minute: int) -> None:
        self._database = database
        self._every = MINUTE / per_minute
        self._here = LocalRates(per_minute)
        self._failed_at: float | None = None

    async def acquire(self, name: str) -> float:
        if self._failed_at is not None and time.monotonic() < self._failed_at + _PAUSE:
            return await self._here.acquire(name)
        try:
            wait = await self._database.write(lambda: _count(name, self._every))
        except BridgeError as error:
            if self._failed_at is None:
                log.warning("each process counts requests separately: %s", error.message)
            self._failed_at = time.monotonic()
            return await self._here.acquire(name)
        if self._failed_at is not None:
            log.info("requests are counted in the database again")
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
