"""How often and how soon a call is repeated.

No other layer repeats calls, except once for a kept connection that turned out to be closed (`transports.connections`),
and for a request that may have queued a run (`runs.backend`; where `retry` is configured, only if no answer came).
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from bridge.errors import ErrorCode, Failure
from bridge.model import Event, RunFailed
from bridge.model.events import CONTENT

_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_RESERVE = 10.0

_OURS = frozenset({ErrorCode.BACKEND_AUTH, ErrorCode.BACKEND_PROTOCOL})
"""Failures that persist until the backend's configuration changes, and that no client can fix."""


def failed_at_once(events: list[Event]) -> Failure | None:
    """The failure, when this first batch holds nothing but a failed run: it can still be an HTTP status."""
    last = events[-1] if events else None
    if isinstance(last, RunFailed) and CONTENT.isdisjoint(map(type, events)):
        return last.error
    return None


def may_repeat(failure: Failure) -> bool:
    """Return whether a second call may succeed; a 409 is a lock of the backend (docs/dialects/openai-chat.md)."""
    return failure.may_retry or failure.details.get("backend_status") == 409


def may_ask_elsewhere(failure: Failure) -> bool:
    """Return whether another backend may do better; every backend refuses a faulty request."""
    return may_repeat(failure) or failure.code in _OURS


@dataclass(frozen=True, slots=True)
class Retry:
    """`attempts` tries in all; waits `backoff * 2**n` seconds with jitter, at most `max_backoff`.

    `budget` is the share of requests that may be repeated in the long run.
    """

    attempts: int = 1
    backoff: float = 0.5
    max_backoff: float = 8.0
    budget: float = 0.2

    def pause(self, failure: Failure, attempt: int) -> float | None:
        """Return the seconds until the attempt after this one: as the backend demands, else doubling with jitter.

        None if it demands more than the maximum.
        """
        requested = asked_pause(failure)
        if requested is not None:
            return requested if requested <= self.max_backoff else None
        pause: float = min(self.backoff * 2 ** (attempt - 1), self.max_backoff)
        return pause * random.uniform(0.5, 1.0)


class Budget:
    """Keeps repeated calls a share of all: each request saves `share` of a repetition, up to ten of them.

    It begins full, so that a rare failure is always repeated; a backend that fails all the time is called
    `1 + share` times per request, not `attempts` times.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._saved = _RESERVE if share else 0.0

    def called(self) -> None:
        """A request is sent for the first time."""
        self._saved = min(self._saved + self._share, _RESERVE)

    def take(self) -> bool:
        """Return whether a repeated call is within the budget, and spend it."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True


def asked_pause(failure: Failure, clock: Callable[[], float] = time.time) -> float | None:
    """The seconds to wait in a `Retry-After`, which may also be a date (RFC 9110, section 10.2.3); None without one."""
    header = failure.headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(header):
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - clock())
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
