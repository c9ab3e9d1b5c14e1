"""When a call is repeated, and where: all that decides what follows a failed try.

Other layers repeat a call once at most: over a kept connection that turned out to be closed
(`run.backends.connector`), with a new token after a 401 (`run.backends.credentials`), and for a request that may have
queued a run (`run.backends.queued_backend`; where `retry` is configured, only if no answer came).
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from bridge.errors import BridgeError, ErrorCode, Failure
from bridge.model import Event, RunFailed
from bridge.model.events import CONTENT
from bridge.toolkit.redact import explained

if TYPE_CHECKING:
    from bridge.run.attempt import BackendAttempt, NextAttempt
    from bridge.run.breaker import Pass

log = logging.getLogger("bridge.run")

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
class RetryPolicy:
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


class RetryBudget:
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


class Tries:
    """The tries of one run: at its backend, as the `retry` of that says, then at the others.

    A try ends with the first content that is passed on; what fails later is continued elsewhere, or not at all.

    Attributes:
        attempt: The backend that is asked now, and the call to it.
        backends: Names of the backends that were asked, in order.
        repeated: Tries at a backend after its first one.
    """

    __slots__ = ("_number", "_others", "_pass", "attempt", "backends", "repeated")

    def __init__(self, attempt: BackendAttempt, others: Sequence[NextAttempt]) -> None:
        """`others`: where to ask instead, in order."""
        self.attempt = attempt
        self.backends = [attempt.backend.name]
        self.repeated = 0
        self._others = list(others) or None
        self._number = 1
        self._pass: Pass | None = None
        attempt.backend.budget.called()

    def begin(self) -> None:
        """Let the backend's breaker admit the call. Raises `BackendError` if it does not."""
        breaker = self.attempt.backend.breaker
        if breaker is not None and not self.attempt.asks_nobody:
            self._pass = breaker.admit()

    def answered(self) -> None:
        """Note that content came: this backend took the request, as it was amended."""
        self.attempt.answered()
        if self._pass is not None:
            self._pass.answered()

    def ended(self, failure: Failure | None) -> None:
        """Tell the backend's breaker how the call came out."""
        admitted, self._pass = self._pass, None
        if admitted is not None:
            admitted.ended(failure)

    def dropped(self) -> None:
        """Note that the call ends for a reason of ours, which says nothing of the backend."""
        admitted, self._pass = self._pass, None
        if admitted is not None:
            admitted.dropped()

    def give_up(self) -> None:
        """Ask no other backend from now on."""
        self._others = None

    async def next(self, failure: Failure, text: str = "") -> bool:
        """Make the next call after a failed one, here or at another backend; return False if there is none.

        First a conversation that the backend has lost is sent whole, then the call is repeated, then a refused request
        is amended; then the others are asked. `text`: of an answer that another backend is to continue.
        """
        self.ended(failure)
        if await self.attempt.in_new_thread(failure):
            self.repeated += 1
            return True
        pause = self._pause(failure)
        if pause is not None:
            await asyncio.sleep(pause)
            await self.attempt.again()
            self._number += 1
        elif not await self.attempt.amended(failure):
            return may_ask_elsewhere(failure) and await self.elsewhere(failure, text)
        self.repeated += 1
        return True

    def _pause(self, failure: Failure) -> float | None:
        """Return the seconds until this backend is asked once more; None if it is not."""
        backend = self.attempt.backend
        if not may_repeat(failure) or self._number >= backend.retry.attempts:
            return None
        if backend.breaker is not None and backend.breaker.refuses:
            return None
        pause = backend.retry.pause(failure, self._number)
        return pause if pause is not None and backend.budget.take() else None

    async def elsewhere(self, failure: Failure, text: str) -> bool:
        """Go on to the next backend that can be sent the request; return False if there is none."""
        while self._others:
            failed, prepare = self.attempt.backend.name, self._others.pop(0)
            run_id = self.attempt.info.run_id
            # Before the next one is prepared: it has to have the conversation.
            await self.attempt.abandon()
            try:
                self.attempt = await prepare(text)
            except BridgeError as error:
                log.warning("run %s: the next backend cannot be called: %s", run_id, error.message)
                continue
            name, self._number = self.attempt.backend.name, 1
            self.backends.append(name)
            self.attempt.backend.budget.called()
            log.warning("run %s: %s failed, trying %s: %s", run_id, failed, name, explained(failure))
            return True
        return False
