"""The contract of run stores: event logs, queue, leases and cancellations of durable runs.

A run belongs to (owner, scope, thread id, run id), as a conversation does (`bridge.stores.conversation_store`). Its log
is a sequence of entries; an entry is one opaque text, and its number grows over all runs of the thread. One process at
a time drives a run, under a lease; a process that lost it cannot write any more, so that a run gets each entry once and
one end, whatever happens to processes and connections.

One test suite checks every engine. Times are seconds since 1970 by the clock of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from bridge.errors import BackendError, ErrorCode
from bridge.stores.conversation_store import LEASE, StoreConflict, stored_id
from bridge.stores.joint import Joint
from bridge.stores.liveness import Grace, no_grace

FIRST_NUMBER = 2**24 + 1
"""The least number of an entry. Smaller ones are from tables that were migrated, and name no entry any more."""
CANCEL_QUEUED = 3600.0
"""Seconds for which a request to cancel a run is stored, even if the run does not exist yet."""


class RunKey(NamedTuple):
    """Identifies a run. In protocols without threads, `thread_id` is the run id."""

    owner: str
    scope: str
    thread_id: str
    run_id: str

    @property
    def facts(self) -> dict[str, object]:
        """The ids as fields of a log line."""
        return {"run": self.run_id, "thread": self.thread_id, "user": self.owner}


class RunState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


class Ownership(StrEnum):
    """The owner of a thread, as seen by the caller."""

    OWN = "own"
    FOREIGN = "foreign"
    NONE = "none"


@dataclass(slots=True)
class RunRecord:
    """A stored run."""

    key: RunKey
    number: int
    """Id of the run in its store; it grows."""
    task_id: str
    """Opaque id of the run in the queue."""
    fingerprint: str
    state: RunState
    created_at: float
    ended_at: float | None
    entries: int
    """The number of entries ever written."""
    last: int | None
    """The number of the last entry, which holds the terminal event if the run has ended."""
    whole: bool
    """False if its entries have expired, so that it cannot be replayed."""
    previous: str | None
    """As passed to `create`."""


class LogEntry(NamedTuple):
    number: int
    body: str


READ_SIZE = 256 * 1024
"""Characters of the entries of one read, if there are several: each reader of a long run holds what it has read, and as
much again as it is encoded, until its client has taken it.
"""


def fitting(entries: Iterable[LogEntry]) -> list[LogEntry]:
    """Return the first of these entries: one, and others while all have at most `READ_SIZE` characters."""
    found: list[LogEntry] = []
    size = 0
    for entry in entries:
        size += len(entry.body)
        if found and size > READ_SIZE:
            break
        found.append(entry)
    return found


@dataclass(frozen=True, slots=True)
class Created:
    """The result of `create`. `new`: this call created the run. `first`: it is the first of its thread.

    `held`: the process that called leases it, so that it does not wait. `canceled`: it was to be canceled before it
    existed, with this reason.
    """

    record: RunRecord
    new: bool
    first: bool
    held: bool = False
    canceled: str | None = None


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Maximum numbers of unfinished runs: of the owner, of the scope, of all. None is no limit."""

    owner: int | None = None
    scope: int | None = None
    all: int | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    """Owners, and scopes by their `base_scope`, without a free slot for a run."""

    owners: Collection[str] = frozenset()
    scopes: Collection[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.owners or self.scopes)

    def blocks(self, key: RunKey) -> bool:
        """Return whether this run has to wait."""
        return key.owner in self.owners or base_scope(key.scope) in self.scopes


NONE_BLOCKED = Blocked()


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a process has to know from time to time: recent requests to cancel any run, and some runs that are lost.

    `waiting` are those of the canceled runs that wait in the queue.
    """

    canceled: dict[RunKey, str]
    lost: list[RunKey]
    waiting: list[RunKey] = field(default_factory=list)


class RunConflict(StoreConflict):
    """Another run has this id."""

    text = "there is already a run with this id, for another request"


class ThreadBusy(StoreConflict):
    """Another run of this thread has not ended."""

    text = "another run of this thread has not ended"


class LeaseLost(StoreConflict):
    """The run has ended, or another process drives it now."""

    text = "the run has ended, or another process has taken it over"


class LogSource(Protocol):
    """What has entries for the log of a run that a process holds; see `RunStore.feed`."""

    key: RunKey
    token: str

    def take(self) -> tuple[int, Sequence[str], bool] | None:
        """Return position, bodies and end of an append, as `RunStore.append` takes them; None for nothing."""

    def stored(self, last: int) -> None:
        """What was taken is committed; `last` is the number of its last entry."""

    def failed(self, error: Exception) -> None:
        """What was taken is not stored, with what `RunStore.append` would have raised."""


Take: TypeAlias = Callable[[Sequence[LogEntry]], bool]
"""Takes entries where they are stored. Returns False, and has done nothing, if their reader has to read them."""


class RunStore(Protocol):
    """The runs of one or many processes that share an engine.

    A process names itself by a `token`. It is alive for `lease` seconds after each call that has one; while it is, it
    holds the runs that it took.

    Every method may raise `BridgeError` with `STORE_UNAVAILABLE` if the engine fails, with a message that contains
    neither address nor credentials; later calls try again. All calls are idempotent. Ids longer than `MAX_KEY` bytes
    raise `RequestError`. A store belongs to the event loop that uses it first.
    """

    async def open(self) -> None:
        """Connect, and create or migrate the schema. Without it, the first call does so."""

    async def close(self) -> None:
        """Disconnect. May be called twice; `open` opens again."""

    # ------------------------------------------------------------------ runs

    async def create(
        self,
        key: RunKey,
        fingerprint: str,
        plan: str,
        *,
        format: int = 0,
        alone: bool = False,
        limits: QueueLimits | None = None,
        token: str | None = None,
        lease: float = LEASE,
        previous: str | None = None,
    ) -> Created:
        """Queue a run. A run that exists with the same fingerprint is returned unchanged.

        With a `token`, that process holds it at once if no other run waits. `format` is the version of the plan's form:
        a process that does not know it leaves the run to others. `previous` is stored as it is.

        Raises `StoreConflict` if it exists with another fingerprint. For a new run, raises `ThreadBusy` if it is to run
        `alone` and the latest run of its thread has not ended, and `BackendError` (rate_limited) beyond the `limits`.
        """

    async def get(self, key: RunKey) -> RunRecord | None: ...

    async def latest(self, owner: str, scope: str, thread_id: str) -> RunRecord | None:
        """Return the newest run of a thread. If it was deleted, return None or an earlier one."""

    async def plan(self, key: RunKey) -> str | None:
        """Return the plan passed to `create`, which is as long as a request; None if it has expired."""

    async def delete(self, key: RunKey) -> bool:
        """Delete a run that has ended, with its entries. Return False if there is none, or it has not ended."""

    async def thread(self, owner: str, scope: str, thread_id: str, *, make: bool = False) -> Ownership:
        """Return who owns the thread. With `make`, one without an owner becomes this owner's; returns `NONE`."""

    # ------------------------------------------------------------------ the log

    def joint(self) -> Joint:
        """Return a transaction for `append`, with a change of another store in the same database."""

    async def append(
        self,
        key: RunKey,
        token: str,
        position: int,
        bodies: Sequence[str],
        *,
        end: bool = False,
        joint: Joint | None = None,
    ) -> int:
        """Append entries, the first of which is the run's entry at `position` (from 0). Return the last one's number.

        With `end`, the last entry holds the terminal event, and the lease ends. Entries that exist already from that
        position on, after an interrupted attempt, are not written again.

        What the `joint` transaction has taken is stored with the end of the run, or neither is. It raises what that
        raises.

        Raises `LeaseLost` unless `token` holds the run, and where an entry before `position` is missing. An expired
        lease is valid until another process acquires one.
        """

    def feed(self, source: LogSource) -> None:
        """Append, once, the entries that this source has when the transaction begins. The source gets the outcome.

        Unlike `append`, this needs no task and no future for each entry.
        """

    async def read(
        self, key: RunKey, after: int = 0, *, wait: float = 0.0, limit: int = 500, take: Take | None = None
    ) -> list[LogEntry]:
        """Return the run's next entries after number `after`, in order: at most `limit`, and no more than `fitting`
        takes. If there are none, wait up to `wait` seconds.

        While it waits, `take` may be called with entries that this process has stored, except the end of the run. Those
        that it takes are not returned, and the wait begins again. What it raises is raised here.

        The run need not exist yet.
        """

    # ------------------------------------------------------------------ leases

    async def claim(
        self, token: str, lease: float, *, wait: float = 0.0, blocked: Blocked = NONE_BLOCKED, format: int = 0
    ) -> RunRecord | None:
        """Lease a queued run that is not `blocked`, of at most this `format`; wait up to `wait` seconds for one.

        Owners take turns. The runs of an owner are leased in order, except those with a blocked scope. A canceled call
        releases its lease.
        """

    async def acquire(
        self,
        key: RunKey,
        token: str,
        lease: float,
        *,
        grace: Grace = no_grace,
        queued: bool = False,
        format: int | None = None,
    ) -> RunRecord | None:
        """Lease this run if it has not ended, and any other process that held it expired `grace()` seconds ago.

        With `queued`, only if nobody holds it, this process neither: a claim may be about to release it. With a
        `format`, only if the plan is of at most this.
        """

    async def renew(self, token: str, lease: float, *, grace: Grace = no_grace) -> set[RunKey]:
        """Renew the lease of this process. Return the runs that it holds.

        `grace` is called with the seconds that the lease had left.

        Also without runs, this raises where the engine cannot be written to.
        """

    async def release(self, key: RunKey, token: str) -> None:
        """Give up a run. One without entries returns to the queue; any other run is lost at once."""

    async def lost(self, token: str = "", *, grace: Grace = no_grace) -> list[RunKey]:
        """Return some of the runs that have not ended and whose process expired `grace()` seconds ago.

        `token` is that of the process that asks, whose own lease tells whether the clock of the store was set.
        """

    async def take_lost(self, token: str, lease: float, *, grace: Grace = no_grace) -> list[RunRecord]:
        """Lease some of the runs of other processes that are `lost`; none if there is none left."""

    # ------------------------------------------------------------------ cancels

    async def cancel(self, key: RunKey, reason: str = "") -> None:
        """Request the cancellation of a run, which need not exist; stored for `CANCEL_QUEUED` seconds.

        The process that drives the run receives `reason`; the last one counts.
        """

    async def canceled(self, keys: Sequence[RunKey]) -> dict[RunKey, str]:
        """Return those of these runs that are to be canceled, with the reasons."""

    async def pulse(self, token: str = "", *, grace: Grace = no_grace) -> Pulse:
        """Return what was canceled since the last call, all that is stored with the first one, and what is `lost`."""

    # ------------------------------------------------------------------ retention

    async def sweep(self, events: float, threads: float, *, grace: Grace = no_grace) -> int:
        """Delete entries and plans of runs that ended `events` seconds ago. Return the number of runs.

        Their ids stay until their thread was unused for `threads` seconds, so that readers get an error and no run is
        repeated.
        """


async def leased(store: RunStore, token: str, leasing: Awaitable[RunRecord | None]) -> RunRecord | None:
    """Return the result of `leasing`. If the caller is canceled meanwhile, the lease is released."""
    task = asyncio.ensure_future(leasing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        record = await task
        if record is not None:
            await store.release(record.key, token)
        raise


@lru_cache(1024)
def stored_key(key: RunKey) -> tuple[str, str, str, str]:
    """Return the four ids as engines store them. Raises `RequestError` for one that is too long."""
    return (
        stored_id(key.owner, "owner"),
        stored_id(key.scope, "scope"),
        stored_id(key.thread_id, "thread id"),
        stored_id(key.run_id, "run id"),
    )


def base_scope(scope: str) -> str:
    """Return the scope without the suffix that separates kinds of runs: `/a` of `/a#tasks`."""
    return scope.partition("#")[0]


def queue_full(holder: str) -> BackendError:
    """Return the error when too many runs have not ended; `holder` tells whose, as in "of this user"."""
    return BackendError(
        f"Too many unfinished runs {holder}; try again shortly.",
        code=ErrorCode.RATE_LIMITED,
        headers={"retry-after": "1"},
    )
