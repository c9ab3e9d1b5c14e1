"""A circuit breaker: pauses calls of a failing backend, then lets one request probe whether it has recovered.

Why not a library: purgatory 3.0, pybreaker 1.4 and aiobreaker 1.2 wrap a call and take its return for success and its
exception for failure. A stream has returned long before it is cut, and its failures are events. aiobreaker has had no
release since 2021, pybreaker is asynchronous with Tornado only, and none of them holds back other calls while the first
one probes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from bridge.errors import BackendError, ErrorCode, Failure

log = logging.getLogger("bridge.breaker")

_FAULTS = frozenset(
    {
        ErrorCode.BACKEND_UNAVAILABLE,
        ErrorCode.BACKEND_TIMEOUT,
        ErrorCode.BACKEND_ERROR,
        ErrorCode.BACKEND_PROTOCOL,
        ErrorCode.OVERLOADED,
        ErrorCode.TRUNCATED_STREAM,
    }
)

_OURS = frozenset({ErrorCode.RUN_TIMEOUT, ErrorCode.INTERNAL, ErrorCode.CANCELED})
"""Codes of runs that ended for reasons that are not the backend's."""


def is_fault(failure: Failure) -> bool:
    """Return whether a failure means that the backend is broken: unreachable, silent, a 5xx, invalid data, a cut
    stream.

    A 4xx never does, whatever its code.
    """
    return failure.code in _FAULTS and not 400 <= failure.details.get("backend_status", 0) < 500


class CircuitBreaker:
    """Opens after `failures` in a row, for `open_for` seconds. Then it is half open: one call at a time, until one of
    them is answered.

    It lives in one process. Others may be told that it is open (`bridge.engine.breaker_advice`), and then ask other
    backends first, if there are any.
    """

    def __init__(
        self, name: str, failures: int, open_for: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._most = failures
        self._open_for = open_for
        self._clock = clock
        self._failures = 0
        self._since: float | None = None
        self.changes = 0
        """Number of changes of state: calls that were admitted before one reveal nothing about the time after it."""
        self.probe: Pass | None = None
        self.is_open_elsewhere = False
        """Another process has opened its breaker for the same backend."""

    @property
    def is_last_choice(self) -> bool:
        """Return whether other backends are to be asked first."""
        return self.refuses or (self.is_open_elsewhere and not self.is_open)

    @property
    def is_open(self) -> bool:
        """True while calls are refused, except for the one that probes."""
        return self._since is not None

    @property
    def refuses(self) -> bool:
        """Return whether `admit` would raise now."""
        return self._since is not None and (self._left(self._since) > 0 or self.probe is not None)

    def _left(self, since: float) -> float:
        return since + self._open_for - self._clock()

    def admit(self) -> Pass:
        """Admit a call. Raises `BackendError` (overloaded) while the breaker is open."""
        if self._since is None:
            return Pass(self)
        if self.refuses:
            raise BackendError(
                "The backend failed several times in a row; its circuit breaker is open.",
                code=ErrorCode.OVERLOADED,
                headers={"retry-after": str(max(1, math.ceil(self._left(self._since))))},
            )
        self.probe = Pass(self)
        return self.probe

    def failed(self) -> None:
        """One more failure, of a call that counts."""
        self._failures += 1
        if self.is_open or self._failures >= self._most:
            log.warning(
                "backend %s: breaker open for %g s after %d failures", self.name, self._open_for, self._failures
            )
            self._change(self._clock())

    def succeeded(self) -> None:
        """A call that counts went well."""
        self._failures = 0
        if self.is_open:
            log.info("backend %s: breaker closed", self.name)
            self._change(None)

    def _change(self, since: float | None) -> None:
        self._since, self.probe = since, None
        self.changes += 1


class Pass:
    """Reports the outcome of one admitted call. After `ended` or `dropped` further reports are ignored."""

    def __init__(self, breaker: CircuitBreaker) -> None:
        self._breaker = breaker
        self._changes = breaker.changes
        self._over = False

    @property
    def _counts(self) -> bool:
        return self._changes == self._breaker.changes

    def answered(self) -> None:
        """The first content came. The one that probes has found out what it was to find out."""
        if self._breaker.probe is self:
            self._breaker.succeeded()
            self._changes = self._breaker.changes

    def ended(self, failure: Failure | None) -> None:
        """Report the end of the call. A failure that is not the backend's fault neither counts nor resets the count,
        but a 4xx ends the probing, as the backend answered.
        """
        if self._over or not self._counts:
            return
        self._over = True
        if failure is not None and is_fault(failure):
            self._breaker.failed()
        elif failure is None:
            self._breaker.succeeded()
        elif self._breaker.probe is self:
            if failure.code in _OURS:
                self._breaker.probe = None
            else:
                self._breaker.succeeded()

    def dropped(self) -> None:
        """Report that the call was abandoned. That reveals nothing about the backend, and another call may probe."""
        self._over = True
        if self._breaker.probe is self:
            self._breaker.probe = None
