"""The timeouts of a run: of a silent backend before its first content and after it, and in total; and how regular its
reads are.

`asyncio.timeout` around each read would cost 8-9 us per event. Reads only store the time, and one deadline per run
checks whether a limit has passed; if so, it cancels the waiting read, which converts the cancellation into an error.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import current_task

from bridge.errors import ErrorCode, Failure
from bridge.run.backend import Timeouts
from bridge.run.retries import Tries
from bridge.run.timer_wheel import TimerWheel

_SOON = 0.02
"""Seconds between two looks at a run at least."""


class Clock:
    """Watches the reads of one run. All times are monotonic seconds.

    Attributes:
        expired: Why the waiting read was cancelled, until `late` takes that back.
        opened: The backend's content has come, so that its silence counts from now on.
        waiting: Since when the backend is waited for; None while it is not. Set to None when a read is over.
        reads: How many reads there were after the first content.
        waited: The seconds for which they waited in all.
        longest: The longest wait among them.
    """

    __slots__ = (
        "_began", "_cancellations", "_due_at", "_heard", "_limits", "_loop", "_reader", "_refused", "_slot", "_tries",
        "_wheel", "expired", "longest", "opened", "reads", "waited", "waiting",
    )  # fmt: skip

    def __init__(self, now: float, tries: Tries, wheel: TimerWheel) -> None:
        """`tries`: those of the run. To an answer that is expected in one piece, only the limit in total applies."""
        self._limits = tries.attempt.backend.timeouts
        self._tries = tries
        self._loop = asyncio.get_running_loop()
        self._wheel = wheel
        self._slot: float | None = None  # of the wheel; None while nothing is waited for
        self._due_at = 0.0
        self._reader: asyncio.Task[object] | None = None
        self._cancellations = 0
        self.expired: Failure | None = None
        self._began = now
        # Since when nothing has arrived in this try; None between two tries.
        self._heard: float | None = now
        self._refused: Failure | None = None
        self.opened = False
        self.waiting: float | None = None
        self.reads = 0
        self.waited = self.longest = 0.0

    # ------------------------------------------------------------------ a read

    def enter(self) -> None:
        """This task begins to wait for the backend."""
        # With its loop given, the task is one dictionary lookup; without, Python 3.11 makes a system call.
        self._reader = reader = current_task(self._loop)
        self._cancellations = reader.cancelling() if reader is not None else 0
        self.waiting = time.monotonic()

    def go_on(self) -> None:
        """Note how long this read has waited; the next one begins to wait."""
        now = time.monotonic()
        if self.waiting is not None:
            wait = now - self.waiting
            self.reads += 1
            self.waited += wait
            if wait > self.longest:
                self.longest = wait
        self.waiting = now

    def late(self) -> Failure | None:
        """Return the limit by which this read was canceled; None if it was not, or was also canceled by something
        else.
        """
        late, self.expired = self.expired, None
        if late is None or (self._reader is not None and self._reader.uncancel() > self._cancellations):
            return None
        return late

    # ------------------------------------------------------------------ the tries

    def between_tries(self, refused: Failure) -> None:
        """A try has failed so, and another may come."""
        self._refused, self._heard = refused, None

    def try_again(self) -> None:
        """Another try begins, of which content is awaited."""
        self._heard = self.waiting = time.monotonic()
        self.watch()

    def hear(self) -> None:
        """Something has arrived before the first content: the head of the answer, a comment, an event."""
        self._heard = time.monotonic()

    def elsewhere(self, limits: Timeouts) -> None:
        """Switch to another backend, whose limits count from now."""
        self._limits = limits
        self._began = time.monotonic()

    def start_over(self) -> None:
        """Wait for the first content again, as after a change of the backend."""
        self.opened, self._refused, self._heard = False, None, time.monotonic()

    # ------------------------------------------------------------------ the deadline

    def watch(self) -> None:
        """Set the deadline for the next limit."""
        due = self._due()
        if due is None or (self._slot is not None and self._due_at <= due):
            return
        if self._slot is not None:
            self.stop()
        self._look_at(due)

    def stop(self) -> None:
        """The run is over."""
        if self._slot is not None:
            self._wheel.remove(self, self._slot)
            self._slot = None

    def _look_at(self, due: float) -> None:
        self._due_at = due
        self._slot = self._wheel.add(self, max(_SOON, due - time.monotonic()))

    def _due(self, awaits_whole: bool = False) -> float | None:
        """When the next limit passes. Only waiting for the backend counts as its silence."""
        limits = self._limits
        wait, since = (limits.idle, self.waiting) if self.opened else (limits.first_event, self._heard)
        if since is None or awaits_whole:
            since = time.monotonic()
        if not limits.total:
            return since + wait if wait else None
        end = self._began + limits.total
        return min(end, since + wait) if wait else end

    def expire(self) -> None:
        """Gives the backend up when a limit has passed, else comes back when the next one does."""
        due, now = self._due(self._tries.attempt.call.awaits_whole), time.monotonic()
        self._slot = None
        if due is None:
            return
        if due > now:
            self._look_at(due)
            return
        if self._reader is not None and self.waiting is not None and self.expired is None:
            self.expired = self._lateness(due)
            self._reader.cancel()
        # A busy reader, or an agent that does not let go, is looked at again.
        self._look_at(now + 1.0)

    def _lateness(self, due: float) -> Failure:
        limits = self._limits
        if limits.total and due == self._began + limits.total:
            late = Failure(ErrorCode.RUN_TIMEOUT, f"The run took longer than {limits.total:g} s (timeouts.total).")
            # Between two attempts, the backend's own failure is more informative than a timeout.
            return self._refused if self._refused is not None and self._heard is None else late
        if self.opened:
            text = f"The backend sent nothing for {limits.idle:g} s (timeouts.idle)."
        else:
            text = f"The backend sent nothing for {limits.first_event:g} s before its first content"
            text += " (timeouts.first_event)."
        return Failure(ErrorCode.BACKEND_TIMEOUT, text)
