"""How much is served at the same time, how often somebody may ask, how large and how slow a request may be."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.errors import BackendError, ErrorCode
from bridge.server.bodies import Bodies
from bridge.stores import Rates, open_rates

if TYPE_CHECKING:
    from bridge.config import Config, Places


@dataclass(frozen=True, slots=True)
class Rules:
    """What the server asks of every run. Sizes in bytes, times in seconds, None = no limit."""

    max_body: int
    body_time: float
    keepalive: float | None
    slow_reader: float | None


class Gate:
    """At most `concurrent` runs at once and `queue` waiting; None = no limit. Used as an async context manager."""

    def __init__(self, concurrent: int | None, queue: int | None, what: str = "The bridge") -> None:
        """`what` is at its limit, in the refusal."""
        self._places = asyncio.Semaphore(concurrent) if concurrent else None
        self._queue = queue
        self._what = what
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """How many wait for a place now."""
        return self._waiting

    async def __aenter__(self) -> None:
        """Takes a place. Raises `BackendError` (overloaded) when the queue is full."""
        places = self._places
        if places is None:
            return
        if places.locked():
            if self._queue is not None and self._waiting >= self._queue:
                raise self._refusal()
            self._waiting += 1
            try:
                await places.acquire()
            finally:
                self._waiting -= 1
        else:
            await places.acquire()

    async def __aexit__(self, *exc: object) -> None:
        if self._places is not None:
            self._places.release()

    def _refusal(self) -> BackendError:
        text = f"{self._what} is at its limit of runs at once; try again in a moment."
        return BackendError(text, code=ErrorCode.OVERLOADED, headers={"retry-after": "1"})


class _OwnGate(Gate):
    """The places of one user; entering raises rate_limited. `requests`: how many of his are served or wait."""

    def __init__(self, concurrent: int, queue: int) -> None:
        super().__init__(concurrent, queue)
        self._concurrent = concurrent
        self.requests = 0

    def _refusal(self) -> BackendError:
        return _limited(f"This key has {self._concurrent} requests at the same time already, its limit.", 1)


class Limits:
    """The limits of a server, and of its users. `close` it when the server ends."""

    def __init__(
        self,
        gate: Gate,
        each: int | None = None,
        rates: Rates | None = None,
        *,
        each_queue: int = 0,
        bodies: int | None = None,
    ) -> None:
        """`each`: how many requests of one user at the same time; `each_queue`: how many more of them may wait.

        `bodies`: bytes of request bodies that are being read.
        """
        self.gate = gate
        self._each = each
        self._rates = rates
        self._each_queue = each_queue
        self._users: dict[str, _OwnGate] = {}
        self._gates = [gate]
        # A body is read before its request has a place: nobody waits for who sends slowly.
        self.bodies = Bodies(bodies, None if each is None else each + each_queue)

    @classmethod
    def of(cls, config: Config) -> Limits:
        """What the configuration says. Raises `ConfigError` when Redis is to count and its package is missing."""
        limits = config.server.limits
        gate, per_key = Gate(limits.concurrent, limits.queue), limits.per_key
        if per_key is None:
            return cls(gate, bodies=limits.bodies)
        per_minute = per_key.requests_per_minute
        rates = open_rates(config.stores.runs, per_minute) if per_minute else None
        return cls(gate, per_key.concurrent, rates, each_queue=per_key.queue, bodies=limits.bodies)

    @property
    def waiting(self) -> int:
        """How many requests wait for a place, at the limit of the server, a route or a user."""
        return sum(gate.waiting for gate in (*self._gates, *self._users.values()))

    @property
    def has_rates(self) -> bool:
        """Whether requests are counted at all."""
        return self._rates is not None

    async def asked(self, user: str) -> None:
        """Counts a request of this user. Raises `BackendError` (rate_limited) when it came too soon."""
        if self._rates is None:
            return
        wait = await self._rates.ask(user)
        if wait:
            raise _limited("There were too many requests with this key in a minute.", wait)

    @asynccontextmanager
    async def one_of(self, user: str) -> AsyncIterator[None]:
        """A request of this user, while it is served or waits. Raises `BackendError` (rate_limited)."""
        if self._each is None:
            yield
            return
        own = self._users.get(user)
        if own is None:
            own = self._users[user] = _OwnGate(self._each, self._each_queue)
        own.requests += 1
        try:
            async with own:
                yield
        finally:
            own.requests -= 1
            if not own.requests:
                del self._users[user]

    async def close(self) -> None:
        if self._rates is not None:
            await self._rates.close()

    def at(self, places: Places | None) -> Door:
        """The way in of one route, which may have limits of its own."""
        own = Gate(places.concurrent, places.queue, "This route") if places is not None else None
        if own is not None:
            self._gates.append(own)
        return Door(self, own, each=self._each is not None)


class Door:
    """The way in of one route."""

    def __init__(self, limits: Limits, own: Gate | None, *, each: bool) -> None:
        self.limits = limits
        self._own = own
        self._plain = own is None and not each

    def place(self, user: str) -> AbstractAsyncContextManager[None]:
        """A place for one run of this user: within his own limit, then the route's, then the server's.

        Entering raises `BackendError`: rate_limited for the user's limit, overloaded for the others.
        """
        return self.limits.gate if self._plain else self._places(user)

    @asynccontextmanager
    async def _places(self, user: str) -> AsyncIterator[None]:
        async with self.limits.one_of(user):
            if self._own is None:
                async with self.limits.gate:
                    yield
            else:
                async with self._own, self.limits.gate:
                    yield


def _limited(message: str, wait: float) -> BackendError:
    headers = {"retry-after": str(math.ceil(wait))}
    return BackendError(message, code=ErrorCode.RATE_LIMITED, headers=headers)
