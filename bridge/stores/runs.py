"""The contract of run stores: event logs, queue, leases, cancellations and reader slots of durable runs.

A run belongs to (owner, scope, thread id, run id), as a conversation does (`bridge.stores.base`). Its log is a sequence
of entries; an entry is one opaque text, and its number grows over all runs of the thread. One process at a time drives
a run, under a lease; a process that lost it cannot write any more, so that a run gets each entry once and one end,
whatever happens to processes and connections.

One test suite checks every engine. Times are seconds since 1970 by the clock of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from bridge.errors import BackendError, ErrorCode
from bridge.stores.base import StoreConflict, stored_id

CANCEL_QUEUED = 3600.0
"""Seconds for which the wish to cancel a run is kept, also of a run that is not known yet."""


@dataclass(frozen=True, slots=True)
class RunKey:
    """Which run. `thread_id` is the run id itself where a protocol has no threads."""

    owner: str
    scope: str
    thread_id: str
    run_id: str

    @property
    def facts(self) -> dict[str, object]:
        """The run as facts of a log line."""
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
    """A run as it is stored."""

    key: RunKey
    task_id: str
    """Names the run in the queue; opaque."""
    fingerprint: str
    state: RunState
    created_at: float
    ended_at: float | None
    entries: int
    """The number of entries ever written."""
    last: int | None
    """The number of the last one; of a run that has ended, the one that holds the terminal event."""
    whole: bool
    """False when its entries are not kept any more: it cannot be replayed."""
    plan: str
    """The plan passed to `create`; empty when only the name of the run is left."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    number: int
    body: str


@dataclass(frozen=True, slots=True)
class Created:
    """The outcome of `create`. `new`: this call made the run. `first`: its thread had none before."""

    record: RunRecord
    new: bool
    first: bool


@dataclass(frozen=True, slots=True)
class Room:
    """How many unfinished runs there may be: of the owner, of the scope, in all. None is no limit."""

    owner: int | None = None
    scope: int | None = None
    all: int | None = None


@dataclass(frozen=True, slots=True)
class Full:
    """Owners, and scopes by their `base_scope`, without a slot for one more run."""

    owners: Collection[str] = frozenset()
    scopes: Collection[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.owners or self.scopes)

    def holds_up(self, key: RunKey) -> bool:
        """Return whether this run has to wait."""
        return key.owner in self.owners or base_scope(key.scope) in self.scopes


NOBODY = Full()


class RunConflict(StoreConflict):
    """Another run has this id."""

    text = "there is a run with this id already, and it was asked for something else"


class ThreadBusy(StoreConflict):
    """Another run of this thread has not ended."""

    text = "another run of this thread has not ended"


class LeaseLost(StoreConflict):
    """The run has ended, or another process drives it now."""

    text = "the run has ended, or another process has taken it over"


class RunStore(Protocol):
    """The runs of one or many processes that share an engine.

    Every method may raise `BridgeError` with `STORE_UNAVAILABLE` when the engine fails, with a message that holds
    neither address nor credentials; later calls try again, and repeating a call that may have happened is harmless.
    Ids longer than `MAX_KEY` bytes are a `RequestError`. A store belongs to the event loop that uses it first.
    """

    async def open(self) -> None:
        """Connects, and makes or migrates the schema. Without it, the first call does so."""

    async def close(self) -> None:
        """Disconnects. May be called twice; `open` opens again."""

    # ------------------------------------------------------------------ runs

    async def create(
        self, key: RunKey, fingerprint: str, plan: str, *, alone: bool = False, room: Room | None = None
    ) -> Created:
        """Puts a run on the queue. A run that is there with the same fingerprint is given as it is.

        Raises `StoreConflict` for one with another fingerprint; with `alone` `ThreadBusy` for a new one while the
        latest one of its thread has not ended; `BackendError` (rate_limited) for a new one when there is no `room`.
        """

    async def get(self, key: RunKey) -> RunRecord | None: ...

    async def latest(self, owner: str, scope: str, thread_id: str) -> RunRecord | None:
        """The run of this thread that was made last; when it was deleted, none or an earlier one."""

    async def delete(self, key: RunKey) -> bool:
        """Forgets a run that has ended, with its entries; False when there is none, or it has not ended."""

    async def thread(self, owner: str, scope: str, thread_id: str, *, make: bool = False) -> Ownership:
        """Return who owns the thread. With `make`, one without an owner becomes this owner's; returns `NONE`."""

    # ------------------------------------------------------------------ the log

    async def append(self, key: RunKey, token: str, position: int, bodies: Sequence[str], *, end: bool = False) -> int:
        """Writes entries, the first of which is the run's entry number `position` (from 0); the number of the last.

        `end`: the last one holds the terminal event; the lease and the place in the queue go with it. What is there
        already from that position on, because an earlier try was cut off, is not written again.

        Raises `LeaseLost` unless `token` holds the run. A lease that is over counts until another one takes it.
        """

    async def read(self, key: RunKey, after: int = 0, *, wait: float = 0.0, limit: int = 500) -> list[LogEntry]:
        """The run's entries with numbers over `after`, in order. When there are none, one is waited for.

        `wait` is in seconds. The run need not exist yet.
        """

    # ------------------------------------------------------------------ who drives it

    async def claim(self, token: str, lease: float, *, wait: float = 0.0, full: Full = NOBODY) -> RunRecord | None:
        """Leases a run from the queue that `full` does not hold up; waits up to `wait` seconds for one.

        Owners take turns. Each has its runs in order, past those whose scope is held up. A call that is cancelled
        gives back what it got.
        """

    async def acquire(self, key: RunKey, token: str, lease: float) -> RunRecord | None:
        """Leases this run, if it has not ended and no other valid lease is on it."""

    async def renew(self, keys: Sequence[RunKey], token: str, lease: float) -> set[RunKey]:
        """Renews these leases; says which are still held."""

    async def release(self, key: RunKey, token: str) -> None:
        """Ends a lease that is held. A run without entries goes back to the queue, any other one is lost at once."""

    async def lost(self) -> list[RunKey]:
        """Some of the runs whose lease ran out before they ended."""

    # ------------------------------------------------------------------ cancels

    async def cancel(self, key: RunKey, reason: str = "") -> None:
        """Notes that the run shall be cancelled, known or not; kept for `CANCEL_QUEUED` seconds.

        `reason` is for who drives the run; the last one counts.
        """

    async def canceled(self, keys: Sequence[RunKey]) -> dict[RunKey, str]:
        """Those of these runs that shall be cancelled, and why."""

    # ------------------------------------------------------------------ readers' places

    async def enter(self, owner: str, token: str, limit: int, seconds: float) -> bool:
        """Takes or renews one of the owner's `limit` places, for so many seconds; False when none is free."""

    async def leave(self, owner: str, token: str) -> None:
        """Gives the place back."""

    # ------------------------------------------------------------------ retention

    async def sweep(self, events: float, threads: float) -> int:
        """Forgets the entries and plans of runs that ended so many seconds ago, and says how many runs.

        Their names stay, so that their readers are told, and nothing runs twice, until their thread was silent for
        `threads` seconds.
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


def stored_key(key: RunKey) -> tuple[str, str, str, str]:
    """The four as engines store them. Raises `RequestError` for one that is too long."""
    return (
        stored_id(key.owner, "owner"),
        stored_id(key.scope, "scope"),
        stored_id(key.thread_id, "thread id"),
        stored_id(key.run_id, "run id"),
    )


def base_scope(scope: str) -> str:
    """The scope, without what keeps several kinds of runs in it apart: `/a` of `/a#tasks`."""
    return scope.partition("#")[0]


def no_room(holder: str) -> BackendError:
    """`whose` the runs are that have not ended, as in "of this user"."""
    return BackendError(
        f"Too many unfinished runs {holder}; try again shortly.",
        code=ErrorCode.RATE_LIMITED,
        headers={"retry-after": "1"},
    )
