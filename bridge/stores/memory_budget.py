"""One budget of bytes for what the requests of a process hold in memory: bodies that are read, and what is loaded.

A small request may load a large conversation, a stored answer, the plan of a run, pictures or media from URLs. Whoever
loads says the size first, by the function that `charging` returns: it charges the budget on behalf of the request that
is served (`LoadedBytes`), and refuses what does not fit. Outside of a request nothing is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from threading import Lock
from typing import ClassVar, Self

from bridge.errors import BackendError, ErrorCode

FREE = 64 * 1024
"""Bytes of each body, and of what each request loads, outside the budget. Small requests are served while the budget is
taken by large ones.
"""
COPIES = 2
"""How often loaded bytes count: as they are loaded, and as they are encoded for a backend or a client."""

Charge = Callable[[Hashable, int], None]
"""Charges a thing with its size in bytes, in any thread. Charged again, only what it has grown by counts."""


class MemoryBudget:
    """At most `limit` bytes; None = no limit. May be used in any thread."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._lock = Lock()
        self.taken = 0
        """Bytes in use."""

    @property
    def is_spent(self) -> bool:
        """Return whether nothing more fits."""
        return self._limit is not None and self.taken >= self._limit

    def take(self, size: int) -> bool:
        """Take `size` bytes; return False, and take none, if they do not fit."""
        with self._lock:
            if size > 0 and self._limit is not None and self.taken + size > self._limit:
                return False
            self.taken += size
            return True

    def take_alone(self, size: int, own: int) -> bool:
        """As `take`; whatever the size, it fits if only the `own` bytes of the same request are taken: what is larger
        than the whole budget would never be loaded otherwise.
        """
        with self._lock:
            if self._limit is not None and self.taken + size > self._limit and self.taken > own:
                return False
            self.taken += size
            return True

    def give_back(self, size: int) -> None:
        """Give back bytes that were taken, or, with a negative size, take them whatever the limit is."""
        with self._lock:
            self.taken -= size


class MemorySpent(BackendError):
    """What a request needs does not fit now."""

    def __init__(self) -> None:
        super().__init__(
            "Other requests hold too much in memory (server.limits.bodies) to load what this one needs; try again "
            "shortly.",
            code=ErrorCode.OVERLOADED,
            headers={"retry-after": "1"},
        )


class LoadedBytes:
    """What one request has loaded. `close` gives its bytes back; what is charged afterwards is not counted.

    Serve a request in a block of it: what is loaded there counts until the end of the block.
    """

    __slots__ = ("_budget", "_sizes", "_taken", "_token", "_total", "is_open")
    _lock: ClassVar = Lock()
    """Of all requests: it is held for moments, and most of them load nothing."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._sizes: dict[Hashable, int] | None = None
        self._total = 0
        self._taken = 0
        self.is_open = True

    def charge(self, what: Hashable, size: int, *, is_loaded: bool = False) -> None:
        """Charge `what` with its size in bytes, before it is loaded; with `is_loaded`, it is not refused.

        Raises `MemorySpent` if it does not fit.
        """
        with self._lock:
            sizes = self._sizes or {}
            grown = COPIES * size - sizes.get(what, 0)
            if not self.is_open or grown <= 0:
                return
            more = max(0, self._total + grown - FREE) - self._taken
            if is_loaded:
                self._budget.give_back(-more)
            elif more and not self._budget.take_alone(more, self._taken):
                raise MemorySpent
            sizes[what], self._sizes = COPIES * size, sizes
            self._total += grown
            self._taken += more

    def close(self) -> None:
        """Give back what was charged."""
        with self._lock:
            self.is_open = False
            if self._taken:
                self._budget.give_back(self._taken)
                self._taken = 0

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
        self.close()


def base64_size(size: int) -> int:
    """Return the size of so many bytes in base64."""
    return -(-size // 3) * 4


_current: ContextVar[LoadedBytes | None] = ContextVar("loaded_bytes", default=None)


def current() -> LoadedBytes | None:
    """Return what the request that is served has loaded; None outside of one."""
    loaded = _current.get()
    return loaded if loaded is not None and loaded.is_open else None


def charging() -> Charge:
    """Return the function that charges the request that is served. It may be called in other threads."""
    loaded = current()
    return loaded.charge if loaded is not None else _nothing


def _nothing(what: Hashable, size: int) -> None:
    """Outside of a request."""
