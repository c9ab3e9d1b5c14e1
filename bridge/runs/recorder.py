"""Writes a run's batches to its log: in order, each before any reader sees it, and each once.

One append at a time. What comes meanwhile waits and goes with the next one, where batches that came within `JOIN`
seconds share an entry: a fast store gets one entry for each batch, a slow one fewer and larger ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bridge.errors import BridgeError, ErrorCode
from bridge.model import Event, Heartbeat
from bridge.model.events import TERMINAL
from bridge.runs.log import to_body, to_text
from bridge.stores import RunKey, RunStore

log = logging.getLogger("bridge.runs")

JOIN = 0.05
PATIENCE = 60.0
"""Seconds for which a store that is not available is tried again."""
MOST = 10_000
"""Events that may wait; beyond them the backend is not read on."""
MOST_BYTES = 4 * 2**20
"""Bytes that may wait; likewise."""


@dataclass(slots=True)
class _Group:
    """One entry in the making: events as they are stored, and their bytes. `began` is by the clock of the loop."""

    began: float
    events: list[str]
    lost: list[str]
    size: int = 0


class Recorder:
    """The writing end of one run's log, which has `position` entries already; `token` holds its lease.

    `given_up` is called when nothing can be written any more: another process has the run, or the store was away for
    longer than `patience`.
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
        self._told: set[str] = set()
        self._room = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self.size = 0
        """Bytes of all events that were given."""
        self.ended = False
        """Whether the terminal event was given, or can never be written: whatever comes now is not wanted."""

    def put(self, events: Sequence[Event], lost: Sequence[str] = ()) -> None:
        """Hands over a batch. Readers make their own heartbeats, so that none is kept."""
        kept = [event for event in events if type(event) is not Heartbeat]
        if not kept or self.ended:
            return
        self.ended = type(kept[-1]) in TERMINAL
        new = [name for name in lost if name not in self._told]
        self._told.update(new)
        now = asyncio.get_running_loop().time()
        last = self._groups[-1] if self._groups else None
        if last is None or now - last.began > JOIN:
            last = _Group(now, [], [])
            self._groups.append(last)
        texts = [to_text(event) for event in kept]
        size = sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
        last.events += texts
        last.lost += new
        last.size += size
        self.size += size
        self._waiting_bytes += size
        self._waiting += len(kept)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="run-recorder")

    async def room(self) -> None:
        """Waits while too much is not written yet."""
        while (self._waiting >= MOST or self._waiting_bytes >= MOST_BYTES) and not self.ended:
            self._room.clear()
            await self._room.wait()

    async def close(self) -> None:
        """Waits until all is written, or given up."""
        while self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        try:
            while self._groups:
                groups, self._groups = self._groups, []
                places = range(self._position, self._position + len(groups))
                bodies = [to_body(n, group.events, group.lost) for n, group in zip(places, groups, strict=True)]
                await self._append(bodies, self.ended)
                self._position += len(groups)
                self._waiting -= sum(len(group.events) for group in groups)
                self._waiting_bytes -= sum(group.size for group in groups)
                self._room.set()
        except BridgeError as error:
            log.error("run %s: its events cannot be written: %s", self._key.run_id, error.message)
            self._groups, self.ended = [], True
            self._room.set()
            self._given_up()
        finally:
            self._writing = None

    async def _append(self, bodies: list[str], end: bool) -> None:
        clock = asyncio.get_running_loop().time
        until, pause = clock() + self._patience, 0.05
        while True:
            try:
                await self._store.append(self._key, self._token, self._position, bodies, end=end)
                return
            except BridgeError as error:
                if error.code is not ErrorCode.STORE_UNAVAILABLE or clock() > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)
