"""Writes a run's batches to its log: in order, each before any reader sees it, and each once.

There is one append at a time, and the store takes what waits when it writes for all runs (`RunStore.feed`). Batches
that arrive in the meantime are appended together, and those that arrive within `JOIN` seconds share an entry: a fast
store gets one entry per batch, a slow one fewer and larger entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bridge.errors import BridgeError, ErrorCode, log_unexpected
from bridge.model import Event, Heartbeat
from bridge.model.dump import dump
from bridge.model.events import TERMINAL
from bridge.run.durable.log import to_body
from bridge.stores import LeaseLost, RunKey, RunStore, StoreConflict
from bridge.stores.joint import Joint
from bridge.stores.liveness import LONGEST_OUTAGE
from bridge.stores.rows import write

log = logging.getLogger("bridge.runs")

JOIN = 0.05
PATIENCE = LONGEST_OUTAGE
"""Seconds for which appends to an unavailable store are repeated."""
MAX_PENDING = 10_000
"""Events that may wait to be written before the backend is read on."""
MAX_PENDING_BYTES = 4 * 2**20


@dataclass(slots=True)
class _Group:
    """An entry that is not written yet: the stored texts of its events, and their bytes. `began` is loop time."""

    began: float
    events: list[str]
    lost: list[str]
    size: int = 0


class RunRecorder:
    """Writes the log of one run, which has `position` entries already; `token` holds its lease.

    `given_up` is called when nothing can be written any more: another process has the run, or the store has been
    unavailable for longer than `patience` seconds.
    """

    def __init__(
        self,
        store: RunStore,
        key: RunKey,
        token: str,
        position: int,
        given_up: Callable[[], None],
        patience: float = PATIENCE,
    ) -> None:
        self._store = store
        self.key = key
        self.token = token
        self._position = position
        self._given_up = given_up
        self._patience = patience
        self._clock = asyncio.get_running_loop().time
        self._groups: list[_Group] = []
        self._waiting = 0
        self._waiting_bytes = 0
        self._lost: set[str] = set()
        self._joint: Joint | None = None
        self._has_space = asyncio.Event()
        self._taken: list[_Group] = []
        """What the store is writing."""
        self._has_end = False
        self._is_writing = False
        self._idle: asyncio.Future[None] | None = None
        """Set while `close` waits for the end of writing."""
        self._alone: asyncio.Task[None] | None = None
        self.size = 0
        """Bytes of all events so far."""
        self.ended = False
        """True after the terminal event, or when it can never be written: further events are ignored."""

    def put(self, events: Sequence[Event], lost: Sequence[str] = (), joint: Joint | None = None) -> None:
        """Add a batch. Heartbeats are dropped, as readers make their own. The end is stored with `joint`."""
        if self.ended:
            return
        # One loop, without functions of its own: each delta passes it.
        texts: list[str] = []
        size = 0
        for event in events:
            if type(event) is Heartbeat:
                continue
            text = write(dump(event))
            texts.append(text)
            size += len(text) if text.isascii() else len(text.encode())
            self.ended = type(event) in TERMINAL
        if not texts:
            return
        if self.ended:
            self._joint = joint
        now = self._clock()
        last = self._groups[-1] if self._groups else None
        if last is None or now - last.began > JOIN:
            last = _Group(now, [], [])
            self._groups.append(last)
        if lost and (new := [name for name in lost if name not in self._lost]):
            self._lost.update(new)
            last.lost += new
        last.events += texts
        last.size += size
        self.size += size
        self._waiting_bytes += size
        self._waiting += len(texts)
        if not self._is_writing:
            self._go_on()

    @property
    def is_full(self) -> bool:
        """True while too much is not written yet."""
        return (self._waiting >= MAX_PENDING or self._waiting_bytes >= MAX_PENDING_BYTES) and not self.ended

    async def wait_for_space(self) -> None:
        """Wait while too much is not written yet."""
        while self.is_full:
            self._has_space.clear()
            await self._has_space.wait()

    async def close(self) -> None:
        """Wait until everything is written, or writing has failed for good."""
        while self._is_writing:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def _go_on(self) -> None:
        self._is_writing = bool(self._groups)
        if self._is_writing:
            self._store.feed(self)
        elif self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    # ------------------------------------------------------------------ as a `LogSource`

    def take(self) -> tuple[int, Sequence[str], bool] | None:
        if self._joint is not None:
            self._write_alone()
            return None
        return self._position, self._take(), self.ended

    def stored(self, last: int) -> None:
        self._settle()
        self._go_on()

    def failed(self, error: Exception) -> None:
        self._write_alone(error)

    def _take(self) -> list[str]:
        """Return the entries of all that waits, or of what was taken and is not stored yet."""
        if not self._taken:
            self._taken, self._groups = self._groups, []
            self._has_end = self.ended
        return [to_body(n, group.events, group.lost) for n, group in enumerate(self._taken, self._position)]

    def _settle(self) -> None:
        """What was taken is stored."""
        self._position += len(self._taken)
        for group in self._taken:
            self._waiting -= len(group.events)
            self._waiting_bytes -= group.size
        self._taken = []
        self._has_space.set()

    # ------------------------------------------------------------------ alone: the end, and repeats

    def _write_alone(self, error: Exception | None = None) -> None:
        self._alone = asyncio.create_task(self._write(error), name="run-recorder")

    async def _write(self, error: Exception | None) -> None:
        """Append what was taken, which has failed with `error`, and all that waits."""
        try:
            while self._taken or self._groups:
                await self._append(self._take(), self._has_end, error)
                error = None
                self._settle()
        except Exception as failure:
            if isinstance(failure, BridgeError):
                log.error("run %s: its events cannot be written: %s", self.key.run_id, failure.message)
            else:
                log_unexpected(log, f"run {self.key.run_id}: its events cannot be written", failure)
            self._taken, self._groups, self.ended = [], [], True
            self._has_space.set()
            self._given_up()
        finally:
            self._go_on()

    async def _append(self, bodies: list[str], end: bool, error: Exception | None) -> None:
        """Append, again and again while the store is unavailable. `error` is that of a first attempt."""
        clock = asyncio.get_running_loop().time
        until, pause = clock() + self._patience, 0.05
        joint = self._joint if end else None
        while True:
            try:
                if error is not None:
                    raise error
                await self._store.append(self.key, self.token, self._position, bodies, end=end, joint=joint)
                return
            except BridgeError as failure:
                error = None
                if joint is not None and isinstance(failure, StoreConflict) and not isinstance(failure, LeaseLost):
                    # The conversation was changed by another request.
                    await joint.give_up()
                    joint = None
                    continue
                if failure.code is not ErrorCode.STORE_UNAVAILABLE or clock() > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)
