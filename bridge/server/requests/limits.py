"""Limits: concurrent runs, request rates, sizes and durations of requests.

A request with a waiting client and a stored run that is driven take a slot of their user, their route and the server.
Reading a stored run takes a slot from a pool of its own of the same size, as its run has one already.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bridge.engine.config.schema.server import PerKeySection
from bridge.errors import BackendError, ErrorCode
from bridge.model import UsageReported
from bridge.server.auth.api_keys import Allowance, Reason, refused
from bridge.server.requests.bodies import Bodies
from bridge.stores import open_rates
from bridge.stores.held_places import HeldPlace, HeldPlaces, line_of
from bridge.stores.memory_budget import MemoryBudget
from bridge.stores.run_records import Blocked, QueueLimits, RunKey, base_scope

if TYPE_CHECKING:
    from bridge.engine.config import Config
    from bridge.engine.route import Route
    from bridge.server.auth.identity import Identity

_NONE = Allowance()
_RETRY = 0.1
"""Seconds between two attempts to take a slot that other processes may have given back."""
_PATIENCE = 0.4
"""Seconds for which a request without a queue tries: another process may be about to give a slot back."""


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

    def entered(self) -> bool:
        """Take a place if there is one; return whether there was."""
        if self._most is None or (self._taken < self._most and not self.waiting):
            self._taken += 1
            return True
        return False

    async def enter(self, user: str) -> None:
        """Takes a place. Raises `BackendError` (overloaded) when the queue is full."""
        if self.entered():
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
        return _at_limit(self._most)


class SharedSlots:
    """The slots of users over all processes, of one kind: at most `each` of a user. `queue`: requests may wait."""

    def __init__(self, places: HeldPlaces, kind: str, each: int, queue: bool) -> None:
        self._places = places
        self._kind = kind
        self._each = each
        self._queue = queue

    async def take(self, user: str) -> HeldPlace | None:
        """Return a slot of this user; None if other processes have them all."""
        return await self._places.take(line_of(self._kind, user), self._each)

    async def enter(self, user: str) -> HeldPlace:
        """Return a slot, once there is one. Raises `BackendError` (rate_limited) where no request may wait."""
        clock = asyncio.get_running_loop().time
        until = clock() + _PATIENCE
        while (place := await self.take(user)) is None:
            if not self._queue and clock() >= until:
                raise _at_limit(self._each)
            await asyncio.sleep(_RETRY)
        return place


class Slots:
    """Slots for one purpose: each use takes one of its user, one of its route and one of the server."""

    def __init__(self, pool: SlotPool, each: int | None, each_queue: int, places: HeldPlaces | None, kind: str) -> None:
        """`pool`: those of the server; `each`: how many of one user; `each_queue`: how many of it may wait.

        With `places`, the user's slots of this `kind` are counted over all processes.
        """
        self.pool = pool
        self.each = each
        self.each_queue = each_queue
        self.shared = SharedSlots(places, kind, each, each_queue > 0) if places is not None and each else None
        self.used_up: set[str] = set()
        """Users whose slots are taken by other processes, until they are asked again."""
        self.users: dict[str, _UserSlots] = {}
        self.routes: dict[str, dict[str, SlotPool]] = {}
        """By mount path and dialect."""
        self.freed = asyncio.Event()
        """Set when a slot became free at a limit that was reached."""

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        routes = [pool for pools in self.routes.values() for pool in pools.values()]
        return sum(pool.waiting for pool in (self.pool, *routes, *self.users.values()))

    def pools(self, route: Route) -> Sequence[SlotPool]:
        """The pools that all users of a route share: its own, if it has one, and that of the server."""
        own = self.routes.get(route.path, {}).get(route.dialect.name)
        return [self.pool] if own is None else [own, self.pool]

    def own(self, user: str) -> SlotPool | None:
        """The slots of this user, to be entered at once: it is forgotten when it is idle."""
        if self.each is None:
            return None
        own = self.users.get(user)
        if own is None:
            own = self.users[user] = _UserSlots(self.each, self.each_queue)
        return own

    def is_used_up(self, user: str) -> None:
        """Other processes have all slots of this user: it is not asked again for a moment."""
        self.used_up.add(user)

        def ask_again() -> None:
            self.used_up.discard(user)
            self.freed.set()

        asyncio.get_running_loop().call_later(_RETRY, ask_again)

    def leave(self, user: str, pool: SlotPool) -> None:
        """Gives back a slot that was taken for this user."""
        if pool.leave():
            self.freed.set()
        if pool is self.users.get(user):
            self.forget(user)

    def forget(self, user: str) -> None:
        """Forgets the slots of a user who needs none."""
        if user in self.users and self.users[user].is_idle:
            del self.users[user]


class Slot:
    """A place in the pools of a user, of a route and of the server. `enter` waits for it, `leave` gives it back."""

    __slots__ = ("_own", "_pools", "_shared", "_slots", "_taken", "_user")

    def __init__(self, slots: Slots, user: str, pools: Sequence[SlotPool]) -> None:
        """`pools`: those of the route and of the server."""
        self._slots = slots
        self._user = user
        self._pools = pools
        self._taken = 0  # how many of them were entered
        self._own: SlotPool | None = None  # of the user, once it was entered
        self._shared: HeldPlace | None = None

    async def enter(self) -> None:
        """Raises `BackendError`: rate_limited for the user's limit, or overloaded."""
        slots, user = self._slots, self._user
        try:
            if slots.each is not None and (own := slots.own(user)) is not None:
                await own.enter(user)
                self._own = own
                if slots.shared is not None:
                    self._shared = await slots.shared.enter(user)
            for pool in self._pools:
                if not pool.entered():
                    await pool.enter(user)
                self._taken += 1
        except BaseException:
            self.leave()
            slots.forget(user)
            slots.freed.set()
            raise

    def leave(self) -> None:
        """Give back what was entered. Calling it again has no effect."""
        if self._shared is not None:
            self._shared.leave()
            self._shared = None
        while self._taken:
            self._taken -= 1
            if self._pools[self._taken].leave():
                self._slots.freed.set()
        own, self._own = self._own, None
        if own is not None:
            self._slots.leave(self._user, own)

    async def __aenter__(self) -> None:
        await self.enter()

    async def __aexit__(self, *_: object) -> None:
        self.leave()


class ServerLimits:
    """The limits of a server, and of its users. `close` it when the server ends.

    `runs`, `readers` (of stored runs) and `sockets` (open connections) are slots.
    """

    def __init__(self, config: Config, memory: MemoryBudget, identity: Identity, places: HeldPlaces | None) -> None:
        """`memory`: what requests may hold in memory. `identity` knows what single users may use. `places` counts the
        slots of users over all processes; None is in this one.

        Raises `ConfigError` if PostgreSQL is to count and its package is missing.
        """
        limits, per_key = config.server.limits, config.server.limits.per_key or PerKeySection()
        each, queue = per_key.concurrent, per_key.queue
        self.runs = Slots(SlotPool(limits.concurrent, limits.queue), each, queue, places, "runs")
        self.readers = Slots(SlotPool(limits.concurrent, limits.queue), each, queue, places, "readers")
        self.sockets = Slots(SlotPool(limits.sockets, 0, of="WebSocket connections"), each, 0, places, "sockets")
        # A body is read before its request has a slot: nobody waits for who sends slowly.
        server = config.server
        self.bodies = Bodies(server.max_body, server.body_time, memory, None if each is None else each + queue)
        self.freed = self.runs.freed
        self._workers = server.workers
        self._identity = identity
        self._usual = per_key
        has_rates = per_key.requests_per_minute or per_key.requests_per_day or per_key.tokens_per_day
        self._rates = open_rates(config.stores.runs) if has_rates or identity.may_have_allowances else None
        self._spending: set[asyncio.Task[float]] = set()

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot of the server, a route or a user."""
        return self.runs.waiting + self.readers.waiting

    @property
    def has_rates(self) -> bool:
        """True if there are rate limits."""
        return self._rates is not None

    async def check_rate(self, user: str, *, runs: bool = True) -> None:
        """Counts a request of this user. Raises `BackendError` (rate_limited) when it came too soon, or today no more.

        Without `runs` the request needs no tokens.
        """
        if self._rates is None:
            return
        own, usual = self._identity.allowance(user) or _NONE, self._usual
        per_minute = own.requests_per_minute or usual.requests_per_minute
        if per_minute and (wait := await self._rates.acquire(user, per_minute)):
            raise _limited("This key has sent too many requests within a minute.", wait)
        if runs:
            await self.check_tokens(user)
        per_day = own.requests_per_day or usual.requests_per_day
        if per_day and (wait := await self._rates.spend(f"requests\t{user}", 1, per_day)):
            raise _limited(f"This key has sent its {per_day} requests of today (UTC).", wait)

    async def check_tokens(self, user: str) -> None:
        """Raise `BackendError` (rate_limited) when this user has used its tokens of today."""
        tokens = (self._identity.allowance(user) or _NONE).tokens_per_day or self._usual.tokens_per_day
        if self._rates is None or not tokens:
            return
        if wait := await self._rates.spend(f"tokens\t{user}", 0, tokens):
            raise _limited(f"This key has used its {tokens} tokens of today (UTC).", wait)

    def check_model(self, user: str, model: str | None) -> None:
        """Check that this user may name this model. Raises `RequestError` (forbidden)."""
        own = self._identity.allowance(user)
        if own is not None and model is not None and not own.allows(model):
            raise refused(f"This API key does not allow the model {model[:80]!r}.", Reason.MODEL, user=user)

    def allows(self, user: str, model: str) -> bool:
        """Return whether this user may name this model."""
        own = self._identity.allowance(user)
        return own is None or own.allows(model)

    def is_limited_to_models(self, user: str) -> bool:
        """Return whether this user may name some models only."""
        own = self._identity.allowance(user)
        return own is not None and own.models is not None

    def spent(self, user: str, usage: UsageReported | None) -> None:
        """Counts the tokens of a run of this user that has ended."""
        if self._rates is None or usage is None:
            return
        per_day = (self._identity.allowance(user) or _NONE).tokens_per_day or self._usual.tokens_per_day
        tokens = (usage.input or 0) + (usage.output or 0)
        if per_day is None or not tokens:
            return
        task = asyncio.get_running_loop().create_task(self._rates.spend(f"tokens\t{user}", tokens, per_day))
        self._spending.add(task)
        task.add_done_callback(self._spending.discard)

    async def close(self) -> None:
        if self._rates is not None:
            if self._spending:
                await asyncio.wait(self._spending, timeout=1)
            await self._rates.close()

    def at(self, route: Route) -> RouteLimiter:
        """The way in of one route, which may have limits of its own."""
        if (limits := route.limits) is not None:
            for slots in (self.runs, self.readers):
                pool = SlotPool(limits.concurrent, limits.queue, "This route")
                slots.routes.setdefault(route.path, {}).setdefault(route.dialect.name, pool)
        return RouteLimiter(self, route)

    # ------------------------------------------------------------------ stored runs: see `bridge.run.durable.RunSlots`

    def blocked(self) -> Blocked | None:
        runs = self.runs
        if runs.pool.is_full:
            return None
        users = {user for user, pool in runs.users.items() if pool.is_full} | runs.used_up
        return Blocked(users, {path for path, pools in runs.routes.items() if any(g.is_full for g in pools.values())})

    async def take(self, key: RunKey) -> Callable[[], None] | None:
        runs = self.runs
        own = runs.own(key.owner)
        pools = [*runs.routes.get(base_scope(key.scope), {}).values(), runs.pool]
        if own is not None:
            pools.insert(0, own)
        if any(pool.is_full for pool in pools):
            runs.forget(key.owner)
            return None
        for pool in pools:
            pool.take()

        def leave() -> None:
            if shared is not None:
                shared.leave()
            for pool in reversed(pools):
                runs.leave(key.owner, pool)

        shared: HeldPlace | None = None
        if runs.shared is not None:
            try:
                shared = await runs.shared.take(key.owner)
            except BaseException:
                leave()
                raise
            if shared is None:
                leave()
                runs.is_used_up(key.owner)
                return None
        return leave

    def queue_limits(self, key: RunKey) -> QueueLimits:
        """The store has the runs of all workers."""
        runs = self.runs
        rooms = [pool.room for pool in runs.routes.get(base_scope(key.scope), {}).values()]
        route = sum(room for room in rooms if room is not None) if rooms else None
        own = None if runs.each is None else runs.each + runs.each_queue
        owner, scope, everything = (None if n is None else n * self._workers for n in (own, route, runs.pool.room))
        if runs.shared is not None and runs.each is not None:
            owner = runs.each + runs.each_queue * self._workers
        return QueueLimits(owner, scope, everything)


class RouteLimiter:
    """The way in of one route. What users may name is asked of `ServerLimits`."""

    def __init__(self, limits: ServerLimits, route: Route) -> None:
        self._runs, self._run_pools = limits.runs, limits.runs.pools(route)
        self._readers, self._reader_pools = limits.readers, limits.readers.pools(route)
        self._sockets, self._socket_pools = limits.sockets, limits.sockets.pools(route)
        self.check_model = limits.check_model
        self.is_limited_to_models = limits.is_limited_to_models
        self.allows = limits.allows

    def slot(self, user: str) -> Slot:
        """A slot for one run of this user, to be entered."""
        return Slot(self._runs, user, self._run_pools)

    def reader_slot(self, user: str) -> Slot:
        """A slot for one reader of a stored run."""
        return Slot(self._readers, user, self._reader_pools)

    def socket_slot(self, user: str) -> Slot:
        """A slot for one WebSocket connection."""
        return Slot(self._sockets, user, self._socket_pools)


def _at_limit(most: int | None) -> BackendError:
    return _limited(f"This key has reached its limit of {most} concurrent requests.", 1)


def _limited(message: str, wait: float) -> BackendError:
    headers = {"retry-after": str(math.ceil(wait))}
    return BackendError(message, code=ErrorCode.RATE_LIMITED, headers=headers)
