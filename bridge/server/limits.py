"""Limits: concurrent runs, request rates, sizes and durations of requests.

A request with a waiting client and a stored run that is driven take a slot of their user, their route and the server.
Reading a stored run takes a slot from a pool of its own of the same size, as its run has one already.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from bridge.errors import BackendError, ErrorCode
from bridge.server.bodies import Bodies
from bridge.stores import Rates, open_rates
from bridge.stores.runs import Blocked, QueueLimits, RunKey, base_scope

if TYPE_CHECKING:
    from bridge.config import Config
    from bridge.engine import Route


class SlotPool:
    """At most `concurrent` places and `queue` waiting for one; None = no limit. Users who wait take turns."""

    def __init__(
        self, concurrent: int | None, queue: int | None, what: str = "The bridge", of: str = "runs at once"
    ) -> None:
        """`what` is at its limit `of` something, in the refusal."""
        self._most = concurrent
        self._queue = queue
        self._what = f"{what} is at its limit of {of}"
        self._taken = 0
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        self.waiting = 0
        """How many wait for a slot now."""

    @property
    def is_full(self) -> bool:
        """True if the next caller has to wait."""
        return self._most is not None and (self._taken >= self._most or self.waiting > 0)

    @property
    def is_idle(self) -> bool:
        """True if no slot is taken or waited for."""
        return not (self._taken or self.waiting)

    @property
    def room(self) -> int | None:
        """How many may have a slot or wait for one; None is no limit."""
        return None if self._most is None or self._queue is None else self._most + self._queue

    def take(self) -> None:
        """A place, without waiting: only while it is not full."""
        self._taken += 1

    async def enter(self, user: str) -> None:
        """Takes a place. Raises `BackendError` (overloaded) when the queue is full."""
        if self._most is None or (self._taken < self._most and not self.waiting):
            self._taken += 1
            return
        if self._queue is not None and self.waiting >= self._queue:
            raise self._refusal()
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(user, deque()).append(turn)
        self.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(user, turn)
            else:
                self.leave()
            raise

    def leave(self) -> bool:
        """Gives a place back, to the one whose turn it is; whether it became free by that."""
        if not self._queues:
            self._taken -= 1
            return self._most is not None and self._taken == self._most - 1
        user = next(iter(self._queues))
        queue = self._queues.pop(user)
        turn = queue.popleft()
        if queue:
            self._queues[user] = queue
        self.waiting -= 1
        if turn.done():
            return self.leave()  # who waited has gone, and is about to say so
        turn.set_result(None)
        return False

    def _forget(self, user: str, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(user)
        if queue is not None and turn in queue:
            queue.remove(turn)
            self.waiting -= 1
            if not queue:
                del self._queues[user]

    def _refusal(self) -> BackendError:
        text = f"{self._what}; try again in a moment."
        return BackendError(text, code=ErrorCode.OVERLOADED, headers={"retry-after": "1"})


class _UserSlots(SlotPool):
    """The places of one user; entering raises rate_limited."""

    def _refusal(self) -> BackendError:
        return _limited(f"This key has reached its limit of {self._most} concurrent requests.", 1)


class Limits:
    """The limits of a server, and of its users. `close` it when the server ends."""

    def __init__(
        self,
        pool: SlotPool,
        each: int | None = None,
        rates: Rates | None = None,
        *,
        each_queue: int = 0,
        bodies: int | None = None,
        workers: int = 1,
    ) -> None:
        """`each`: how many requests of one user at the same time; `each_queue`: how many more of them may wait.

        `bodies`: bytes of request bodies that are being read. `workers`: processes that have these limits.
        """
        self.pool = pool
        self._each = each
        self._rates = rates
        self._each_queue = each_queue
        self._workers = workers
        self._users: dict[str, _UserSlots] = {}
        self._routes: dict[str, dict[str, SlotPool]] = {}
        self.freed = asyncio.Event()
        """Set when a place became free at a limit that was reached."""
        # A body is read before its request has a place: nobody waits for who sends slowly.
        self.bodies = Bodies(bodies, None if each is None else each + each_queue)
        self.readers: Limits | None = None
        """Limits of the same size for who reads kept runs; None = these."""
        self.sockets: Limits | None = None
        """Limits of open WebSocket connections; None = these."""

    @classmethod
    def of(cls, config: Config) -> Limits:
        """Return the configured limits. Raises `ConfigError` if Redis is to count and its package is missing."""
        limits, workers = config.server.limits, config.server.workers
        pool, per_key = SlotPool(limits.concurrent, limits.queue), limits.per_key
        each, queue, per_minute = None, 0, None
        if per_key is not None:
            each, queue, per_minute = per_key.concurrent, per_key.queue, per_key.requests_per_minute
        rates = open_rates(config.stores.runs, per_minute) if per_minute else None
        made = cls(pool, each, rates, each_queue=queue, bodies=limits.bodies, workers=workers)
        made.readers = cls(SlotPool(limits.concurrent, limits.queue), each, each_queue=queue)
        made.sockets = cls(SlotPool(limits.sockets, 0, of="WebSocket connections"), each)
        return made

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot of the server, a route or a user."""
        routes = [pool for pools in self._routes.values() for pool in pools.values()]
        readers = self.readers.waiting if self.readers is not None else 0
        return readers + sum(pool.waiting for pool in (self.pool, *routes, *self._users.values()))

    @property
    def has_rates(self) -> bool:
        """True if there are rate limits."""
        return self._rates is not None

    async def check_rate(self, user: str) -> None:
        """Counts a request of this user. Raises `BackendError` (rate_limited) when it came too soon."""
        if self._rates is None:
            return
        wait = await self._rates.acquire(user)
        if wait:
            raise _limited("This key has sent too many requests within a minute.", wait)

    async def close(self) -> None:
        if self._rates is not None:
            await self._rates.close()

    def at(self, route: Route) -> RouteLimiter:
        """The way in of one route, which may have limits of its own."""
        if route.limits is not None:
            pools = self._routes.setdefault(route.path, {})
            pools.setdefault(route.dialect.name, SlotPool(route.limits.concurrent, route.limits.queue, "This route"))
        if self.readers is not None:
            self.readers.at(route)
        return RouteLimiter(self, route)

    # ------------------------------------------------------------------ places

    def own(self, user: str) -> SlotPool | None:
        """The places of this user, to be entered at once: it is forgotten when it is idle."""
        if self._each is None:
            return None
        own = self._users.get(user)
        if own is None:
            own = self._users[user] = _UserSlots(self._each, self._each_queue)
        return own

    def leave(self, user: str, pool: SlotPool) -> None:
        """Gives back a place that was taken for this user."""
        if pool.leave():
            self.freed.set()
        if pool is self._users.get(user):
            self.forget(user)

    def forget(self, user: str) -> None:
        """Forgets the places of a user who needs none."""
        if user in self._users and self._users[user].is_idle:
            del self._users[user]

    def of_route(self, path: str, dialect: str) -> SlotPool | None:
        return self._routes.get(path, {}).get(dialect)

    # ------------------------------------------------------------------ runs that are kept

    def blocked(self) -> Blocked | None:
        """See `bridge.runs.RunSlots`."""
        if self.pool.is_full:
            return None
        users = {user for user, pool in self._users.items() if pool.is_full}
        return Blocked(users, {path for path, pools in self._routes.items() if any(g.is_full for g in pools.values())})

    def take(self, key: RunKey) -> Callable[[], None] | None:
        """See `bridge.runs.RunSlots`."""
        own = self.own(key.owner)
        pools = [*self._routes.get(base_scope(key.scope), {}).values(), self.pool]
        if own is not None:
            pools.insert(0, own)
        if any(pool.is_full for pool in pools):
            self.forget(key.owner)
            return None
        for pool in pools:
            pool.take()

        def leave() -> None:
            for pool in reversed(pools):
                self.leave(key.owner, pool)

        return leave

    def queue_limits(self, key: RunKey) -> QueueLimits:
        """See `bridge.runs.RunSlots`. The store has the runs of all workers."""
        rooms = [pool.room for pool in self._routes.get(base_scope(key.scope), {}).values()]
        route = sum(room for room in rooms if room is not None) if rooms else None
        own = None if self._each is None else self._each + self._each_queue
        owner, scope, everything = (None if n is None else n * self._workers for n in (own, route, self.pool.room))
        return QueueLimits(owner, scope, everything)


class RouteLimiter:
    """The way in of one route."""

    def __init__(self, limits: Limits, route: Route) -> None:
        path, dialect = route.path, route.dialect.name
        self._runs = limits, limits.of_route(path, dialect)
        readers, sockets = limits.readers or limits, limits.sockets or limits
        self._readers = readers, readers.of_route(path, dialect)
        self._sockets = sockets, sockets.of_route(path, dialect)

    def slot(self, user: str) -> AbstractAsyncContextManager[None]:
        """A place for one run of this user: within the user's own limit, then the route's, then the server's.

        Entering raises `BackendError`: rate_limited for the user's limit, overloaded for the others.
        """
        return _slot(user, *self._runs)

    def reader_slot(self, user: str) -> AbstractAsyncContextManager[None]:
        """A place for one reader of a kept run; as `slot`."""
        return _slot(user, *self._readers)

    def socket_slot(self, user: str) -> AbstractAsyncContextManager[None]:
        """A place for one WebSocket connection; as `slot`."""
        return _slot(user, *self._sockets)


@asynccontextmanager
async def _slot(user: str, limits: Limits, route: SlotPool | None) -> AsyncIterator[None]:
    held: list[SlotPool] = []
    is_in = False
    try:
        for pool in (limits.own(user), route, limits.pool):
            if pool is not None:
                await pool.enter(user)
                held.append(pool)
        is_in = True
        yield
    finally:
        while held:
            limits.leave(user, held.pop())
        if not is_in:
            limits.forget(user)
            limits.freed.set()


def _limited(message: str, wait: float) -> BackendError:
    headers = {"retry-after": str(math.ceil(wait))}
    return BackendError(message, code=ErrorCode.RATE_LIMITED, headers=headers)
