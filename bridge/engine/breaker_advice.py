"""What processes that share a database know of each other's open circuit breakers.

It is advice: a backend whose breaker is open in another process is asked after its alternatives. It is not refused, as
it may be out of reach for that process only. Without alternatives nothing is shared.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from hashlib import sha256

from bridge.errors import BridgeError, FailureLog, log_unexpected
from bridge.run.breaker import CircuitBreaker
from bridge.stores.places import Places

log = logging.getLogger("bridge.breaker")

EVERY = 1.0
"""Seconds between two exchanges."""
_LONGEST = 30.0
_UNKNOWN = "breakers of other processes are not known"
"""Seconds for which a process tells of an open breaker at a time."""


class BreakerAdvice:
    """Shares the state of these breakers, each by a name that is the same in all processes."""

    def __init__(self, places: Places, breakers: Mapping[str, CircuitBreaker]) -> None:
        self._places = places
        # Digests, as names may contain the URLs of backends.
        self._breakers = {_digest(name): breaker for name, breaker in breakers.items()}
        self._token = uuid.uuid4().hex
        self._told: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._failures = FailureLog(log)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="breaker-advice")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._places.close()

    async def _run(self) -> None:
        while True:
            try:
                await self.exchange()
                self._failures.works(_UNKNOWN)
            except BridgeError as error:
                self._failures.failed(_UNKNOWN, error)
            except Exception as error:
                log_unexpected(log, "breakers cannot be shared", error)
            await asyncio.sleep(EVERY)

    async def exchange(self) -> None:
        """Tell which breakers are open here, and note those that are open elsewhere. Raises `BridgeError`."""
        is_open = {name for name, breaker in self._breakers.items() if breaker.is_open}
        new = {self._place(name): name for name in is_open - self._told}
        kept = [self._place(name) for name in is_open & self._told]
        closed = [self._place(name) for name in self._told - is_open]
        found = await self._places.exchange(new, kept, closed, _LONGEST)
        self._told = is_open
        there = {place.value for place in found if not place.is_own}
        for name, breaker in self._breakers.items():
            breaker.is_open_elsewhere = name in there

    def _place(self, name: str) -> str:
        """Return the name of this process's place: several may have a breaker open for one backend."""
        return f"{name} {self._token}"


def _digest(name: str) -> str:
    return sha256(name.encode()).hexdigest()
