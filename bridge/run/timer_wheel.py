"""`TimerWheel`: one timer of the event loop for the deadlines of all runs and streams.

An open stream has two of them, for its timeouts and its keepalive. Nearly all are dropped before they pass, and none
has to be exact.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextvars import Context
from heapq import heappop, heappush
from typing import Protocol

from bridge.errors import log_unexpected

log = logging.getLogger("bridge.run")

_PARTS = 8
"""Powers of two in which a delay is divided: a deadline is late by at most 1/128 of its delay."""
_EARLY = 0.001
"""Seconds by which a timer of the event loop may be early, as it counts milliseconds."""


class Timed(Protocol):
    """What waits for a deadline."""

    def expire(self) -> None:
        """The deadline has passed."""


class TimerWheel:
    """Calls `expire` of what was added when its deadline has passed, in a context without variables.

    Deadlines are rounded up to slots, so that many share one: adding and removing one are two lookups, where a timer of
    the event loop takes 550 bytes and as much work as twenty calls.
    """

    __slots__ = ("_context", "_due", "_next", "_slots", "_timer")

    def __init__(self) -> None:
        # By the time of each slot, in monotonic seconds. An empty slot is kept until its time: there are few of them.
        self._slots: dict[float, dict[Timed, None]] = {}
        self._due: list[float] = []
        self._timer: asyncio.TimerHandle | None = None
        self._next = math.inf
        self._context = Context()  # that of the first caller would hold what its request has loaded

    def add(self, timed: Timed, delay: float) -> float:
        """Call `timed.expire` once, after `delay` seconds, which are more than 0. Return the slot, for `remove`."""
        part = math.ldexp(1.0, math.frexp(delay)[1] - _PARTS)
        at = math.ceil((time.monotonic() + delay) / part) * part
        slot = self._slots.get(at)
        if slot is None:
            slot = self._slots[at] = {}
            heappush(self._due, at)
            if at < self._next:
                self._wait(at)
        slot[timed] = None
        return at

    def remove(self, timed: Timed, at: float) -> None:
        """Take something out of its slot, unless its deadline has passed."""
        slot = self._slots.get(at)
        if slot is not None:
            slot.pop(timed, None)

    def close(self) -> None:
        """Forget everything."""
        self._slots.clear()
        self._due.clear()
        self._stop()

    def _wait(self, at: float) -> None:
        self._stop()
        self._next = at
        pause = max(0.0, at - time.monotonic()) + _EARLY
        self._timer = asyncio.get_running_loop().call_later(pause, self._turn, context=self._context)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next = None, math.inf

    def _turn(self) -> None:
        self._timer, self._next = None, math.inf
        now = time.monotonic()
        while self._due and self._due[0] <= now:
            slot = self._slots[self._due[0]]
            while slot:
                timed, _ = slot.popitem()
                try:
                    timed.expire()
                except Exception as error:
                    log_unexpected(log, "what follows a deadline broke", error)
            del self._slots[heappop(self._due)]
        if self._due and self._due[0] < self._next:
            self._wait(self._due[0])
