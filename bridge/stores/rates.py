"""Rates of requests, counted in this process, or in Redis for all that share it.

The algorithm is GCRA (ITU-T I.371), a leaky bucket in one number: the time at which the bucket is empty again. After a
minute without requests, a minute's worth is allowed at once.

Why not `limits` (5.8, MIT): its in-memory storage starts a task for each request that visits every key in a thread, and
its Redis storage allows no client newer than 7; the bridge uses 8.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

log = logging.getLogger("bridge.rates")

MINUTE = 60.0
_MANY = 10_000

_SCRIPT = """
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local due = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now)
local wait = due - now - tonumber(ARGV[2])
if wait > 0 then return math.ceil(wait) end
due = due + tonumber(ARGV[1])
redis.call('SET', KEYS[1], string.format('%.3f', due), 'PX', math.ceil(due - now) + 1)
return 0
"""
"""KEYS: the name. ARGV: milliseconds between two requests, and how many milliseconds of burst are allowed."""


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


class RedisRates:
    """Counted in Redis, by its clock. While Redis is unavailable, each process counts separately."""

    def __init__(self, client: Any, prefix: str, per_minute: int) -> None:
        from redis.exceptions import RedisError

        self._failures = (RedisError, OSError, TimeoutError)
        self._client = client
        self._prefix = prefix
        self._every = MINUTE / per_minute
        self._script = client.register_script(_SCRIPT)
        self._here = LocalRates(per_minute)
        self._lost = False

    async def acquire(self, name: str) -> float:
        every = self._every * 1000
        try:
            wait = await self._script(keys=[f"{self._prefix}:rate:{name}"], args=[every, MINUTE * 1000 - every])
        except self._failures as error:
            if not self._lost:
                log.warning("each process counts requests separately: Redis: %s", type(error).__name__)
            self._lost = True
            return await self._here.acquire(name)
        if self._lost:
            log.info("requests are counted in Redis again")
        self._lost = False
        return float(wait) / 1000

    async def close(self) -> None:
        await self._client.aclose()
