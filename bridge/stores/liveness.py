"""When one process may call another one dead.

A lease, a heartbeat or a place that has expired shows that its holder is dead, or that nobody could renew anything: the
store was away, or this process itself did not run. So a process judges others only after its own renewals have gone
well for the time of a whole lease. By then every process that is alive has renewed, too. The store has to agree: where
its clock was set, what it says of this process's own lease is as wrong as what it says of all others.

The same rule holds for runs, locks of conversations, places of readers, agents at a gateway and worker processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

LONGEST_OUTAGE = 60.0
"""Seconds for which a run survives a store that is away. A lease that expired earlier than that is nobody's."""
NEVER = 1e9
"""A grace that no lease reaches: about 30 years of seconds."""


class Grace(Protocol):
    """Returns for how many seconds the lease of another process must have been expired for it to count as dead.

    It is called when the lease is looked at, as the answer changes while a transaction waits. `left` is how long the
    lease of this process is still valid by the clock of the store; None if it has none, or the store was not asked.
    """

    def __call__(self, left: float | None = None, /) -> float: ...


def no_grace(left: float | None = None, /) -> float:
    """A lease of another process is over when it expires."""
    return 0.0


class Liveness:
    """How well this process has renewed its own leases, each of which lasts `lease` seconds.

    Call `renewed` after every renewal that went well, also where nothing is leased at the moment, and `failed` after
    any other. `clock` returns seconds that only grow.
    """

    def __init__(self, lease: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lease = lease
        self._clock = clock
        self._since = 0.0
        """Since when the renewals have gone well."""
        self._last: float | None = None
        """When the last one was; None after a failure, and before the first."""
        self._interrupted = False
        """A renewal has failed or was late, and no whole lease of good ones has followed."""

    @property
    def due(self) -> bool:
        """True if a renewal is needed now: a third of a lease has passed, or the last attempt failed."""
        return self.due_in <= 0

    @property
    def due_in(self) -> float:
        """Seconds until the next renewal is due; 0 if it is."""
        if self._last is None:
            return 0.0
        return max(0.0, self._last + self._lease / 3 - self._clock())

    def renewed(self) -> None:
        now = self._clock()
        if self._last is None or self._is_late(now):
            self._interrupted = self._interrupted or self._last is not None
            self._since = now
        self._last = now

    def failed(self) -> None:
        self._last = None
        self._interrupted = True

    def restart(self) -> None:
        """Begin as a new process does: nothing was leased, so that nothing was renewed either."""
        self._last = None
        self._interrupted = False

    def grace(self, left: float | None = None, /) -> float:
        """See `Grace`. 0 when this process may judge.

        A process that has just begun cannot know of an outage before it. What expired before the longest one is dead.
        """
        now = self._clock()
        if left is not None and self._last is not None:
            expected = self._last + self._lease - now
            # Set on, or far back. A little back harms nobody, and looks like a renewal that is not told yet.
            if left < expected - self._lease / 3 or left > self._lease * 4 / 3:
                self._interrupted, self._since = True, now
        if self._last is not None and not self._is_late(now):
            if now - self._since >= self._lease:
                self._interrupted = False
                return 0.0
        elif self._last is not None:
            self._interrupted = True
        return NEVER if self._interrupted else LONGEST_OUTAGE

    def _is_late(self, now: float) -> bool:
        """Return whether a lease that was renewed a third of its time before ours may have expired meanwhile."""
        return self._last is not None and now - self._last > self._lease * 2 / 3
