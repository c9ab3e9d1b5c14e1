"""Writes a run's batches to its log: in order, each before any reader sees it, and each once.

There is one append at a time. Batches that arrive in the meantime are appended together, and those that arrive within
`JOIN` seconds share an entry: a fast store gets one entry per batch, a slow one fewer and larger entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bridge.errors import BridgeError, ErrorCode
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


class Recorder:
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
        self._key = key
        self._token = token
        self._position = position
        self._given_up = given_up
        self._patience = patience
        self._groups: list[_Group] = []
        self._waiting = 0
        self._waiting_bytes = 0
        self._lost: set[str] = set()
        self._joint: Joint | None = None
        self._has_space = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self.size = 0
        """Bytes of all events so far."""
        self.ended = False
        """True after the terminal event, or when it can never be written: further events are ignored."""

    def put(self, events: Sequence[Event], lost: Sequence[str] = (), joint: Joint | None = None) -> None:
        """Add a batch. Heartbeats are dropped, as readers make their own. The end is stored with `joint`."""
        stored = [event for event in events if type(event) is not Heartbeat]
        if not stored or self.ended:
            return
        self.ended = type(stored[-1]) in TERMINAL
        if self.ended:
            self._joint = joint
        new = [name for name in lost if name not in self._lost]
        self._lost.update(new)
        now = asyncio.get_running_loop().time()
        last = self._groups[-1] if self._groups else None
        if last is None or now - last.began > JOIN:
            last = _Group(now, [], [])
            self._groups.append(last)
        texts = [write(dump(event)) for event in stored]
        size = sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
        last.events += texts
        last.lost += new
        last.size += size
        self.size += size
        self._waiting_bytes += size
        self._waiting += len(stored)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="run-recorder")

    async def wait_for_space(self) -> None:
        """Wait while too much is not written yet."""
        while (self._waiting >= MAX_PENDING or self._waiting_bytes >= MAX_PENDING_BYTES) and not self.ended:
            self._has_space.clear()
            await self._has_space.wait()

    async def close(self) -> None:
        """Wait until everything is written, or writing has failed for good."""
        while self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        try:
            while self._groups:
                groups, self._groups = self._groups, []
                numbers = range(self._position, self._position + len(groups))
                bodies = [to_body(n, group.events, group.lost) for n, group in zip(numbers, groups, strict=True)]
                await self._append(bodies, self.ended)
                self._position += len(groups)
                self._waiting -= sum(len(group.events) for group in groups)
                self._waiting_bytes -= sum(group.size for group in groups)
                self._has_space.set()
        except BridgeError as error:
            log.error("run %s: its events cannot be written: %s", self._key.run_id, error.message)
            self._groups, self.ended = [], True
            self._has_space.set()
            self._given_up()
        finally:
            self._writing = None

    async def _append(self, bodies: list[str], end: bool) -> None:
        clock = asyncio.get_running_loop().time
        until, pause = clock() + self._patience, 0.05
        joint = self._joint if end else None
        while True:
            try:
                await self._store.append(self._key, self._token, self._position, bodies, end=end, joint=joint)
                return
            except BridgeError as error:
                if joint is not None and isinstance(error, StoreConflict) and not isinstance(error, LeaseLost):
                    # The conversation was changed by another request.
                    await joint.give_up()
                    joint = None
                    continue
                if error.code is not ErrorCode.STORE_UNAVAILABLE or clock() > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)
