"""Batches of events as entries of a log, and reading them back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from operator import methodcaller

from bridge.errors import BridgeError, ErrorCode, RequestError
from bridge.model import Event
from bridge.model.dump import load
from bridge.model.events import TERMINAL
from bridge.run.durable.plan import RunPlan
from bridge.stores import RunKey, RunRecord, RunState, RunStore
from bridge.stores.liveness import LONGEST_OUTAGE
from bridge.stores.rows import read, write
from bridge.stores.run_records import LogEntry, Take

_POLL = 15.0
"""Seconds of one wait for entries."""
_PAUSE = 0.5
"""Seconds between two attempts to reach a store that is away."""
UNREADABLE = "The bridge cannot read what it kept of this run."
"""It was written by another version of the bridge."""


@dataclass(slots=True)
class Batch:
    """One entry. `position` counts the entries of its run, `lost` names the features lost towards the backend."""

    position: int
    events: list[Event]
    lost: list[str]

    @property
    def ends(self) -> bool:
        """True if the batch has the terminal event."""
        return bool(self.events) and type(self.events[-1]) in TERMINAL


def to_body(position: int, events: Sequence[str], lost: Sequence[str]) -> str:
    """Return the stored text of a batch of events, given by their stored texts."""
    # `write` marks text that only the slower parser reads by a leading space, which has to lead the whole entry.
    mark = " " if any(map(_is_marked, events)) else ""
    names = f",{write(list(lost))}" if lost else ""
    return f"{mark}[{position},[{','.join(events)}]{names}]"


_is_marked = methodcaller("startswith", " ")


def from_body(body: str) -> Batch:
    position, events, *rest = read(body)
    return Batch(position, [load(event) for event in events], rest[0] if rest else [])


def expired() -> RequestError:
    """The error for a reader that would otherwise miss events."""
    message = "The events of this run have expired."
    return RequestError(message, code=ErrorCode.NOT_FOUND, status=410, backend_code="not_found")


class LogReader:
    """Reads the log of one run from its first entry on.

    `plan` is None until the run exists, if it is not given; `done` is True after the terminal event.
    """

    def __init__(self, store: RunStore, key: RunKey, plan: RunPlan | None = None) -> None:
        self._store = store
        self._key = key
        self._after = 0
        self._position = 0
        self._away_since: float | None = None
        self._take: Take | None = None
        self.plan = plan
        self.done = False

    async def open(self) -> RunRecord | None:
        """Return the run's record; None if there is none yet. Raises `RequestError` (410) if entries have expired."""
        record = await self._store.get(self._key)
        if record is not None:
            if not record.whole and not self._position:
                raise expired()
            if self.plan is None:
                plan = await self._store.plan(self._key)
                if plan is None:
                    raise expired()
                try:
                    self.plan = RunPlan.load(plan)
                except ValueError:
                    raise BridgeError(UNREADABLE) from None
        return record

    async def read(self, wait: float) -> list[tuple[int, Batch]]:
        """Return the next entries and their numbers; none after `wait` seconds of silence.

        Raises `RequestError` (410) if entries expired before they were read, so that there is no silent gap. Once the
        run is known, a store that is away counts as silence, as long as the run itself waits for it.
        """
        if self.done:
            return []
        try:
            found = await self._read(wait)
        except BridgeError as error:
            if error.code is not ErrorCode.STORE_UNAVAILABLE or not wait or not self._waits():
                raise
            await asyncio.sleep(min(wait, _PAUSE))
            return []
        self._away_since = None
        return found

    def _waits(self) -> bool:
        """Return whether to try the store again that has just failed."""
        now = asyncio.get_running_loop().time()
        if self._away_since is None:
            self._away_since = now
        return self.plan is not None and now - self._away_since < LONGEST_OUTAGE

    async def _read(self, wait: float) -> list[tuple[int, Batch]]:
        entries = await self._store.read(self._key, self._after, wait=wait, take=self._take)
        if not entries or self.plan is None:
            record = await self.open()
            if record is None and self._position:
                raise expired()
            if not entries and record is not None and record.state is RunState.ENDED:
                # It has ended: the missing entries were written in this moment, or have expired.
                entries = await self._store.read(self._key, self._after)
                if not entries:
                    raise expired()
        return self.decode(entries)

    async def so_far(self) -> list[Event]:
        """Return the events that are written by now and were not read yet."""
        events: list[Event] = []
        while found := await self.read(0):
            events += [event for _, batch in found for event in batch.events]
        return events

    async def to_end(self) -> tuple[list[Event], list[str]]:
        """Wait for the end of the run. Return its events, and the features that its backend could not be sent."""
        events: list[Event] = []
        lost: dict[str, None] = {}
        while not self.done:
            for _, batch in await self.read(_POLL):
                events += batch.events
                lost.update(dict.fromkeys(batch.lost))
        return events, list(lost)

    def pass_on(self, take: Take) -> None:
        """Call `take` with entries that arrive while `read` waits; it is to `decode` those that it takes."""
        self._take = take

    def decode(self, entries: Sequence[LogEntry]) -> list[tuple[int, Batch]]:
        """Return the next entries as numbers and batches. Raises `RequestError` (410) if some are missing."""
        return [self._next(entry) for entry in entries]

    def _next(self, entry: LogEntry) -> tuple[int, Batch]:
        batch = from_body(entry.body)
        if batch.position != self._position:
            raise expired()
        self._after, self._position = entry.number, self._position + 1
        self.done = batch.ends
        return entry.number, batch
