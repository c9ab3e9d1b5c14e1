"""What the store of durable runs takes and returns: keys, records, log entries, limits and errors.

Times are seconds since 1970 by the clock of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from bridge.errors import BackendError, ErrorCode
from bridge.stores.conversation_store import StoreConflict, stored_id

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
