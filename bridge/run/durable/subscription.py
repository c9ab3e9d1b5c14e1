"""One reader of a run: its log through the encoder of a front dialect, from any cursor on.

Encoders are pure and the run's context is stored, so a reader that resumes is served by replaying the run from its
beginning and skipping what it has: the bytes after any interruption are those of an uninterrupted stream.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from bridge.contract import KEEPALIVE, Context, Dialect, Frame, FrameLike, Options
from bridge.errors import Failure, RequestError, shortened
from bridge.model import Event, Heartbeat, RunFailed, RunFinished, RunStarted
from bridge.model.events import CONTENT, UsageReported
from bridge.run.durable.log import Batch, LogReader, expired
from bridge.run.durable.plan import RunPlan
from bridge.stores import RunKey, RunState, RunStore
from bridge.stores.run_records import FIRST_NUMBER, LogEntry, Take
from bridge.translation import Writer
from bridge.translation.framing import sse

_FORM = re.compile(r"(\d{1,20})-(\d{1,20})", re.ASCII)
_POLL = 15.0
"""Seconds of one wait in `async for`."""


class Cursor(NamedTuple):
    """One frame of a thread's log: `<log entry>-<frame within that entry>`. `0-0` is before everything."""

    entry: int = 0
    frame: int = 0

    def __str__(self) -> str:
        return f"{self.entry}-{self.frame}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Raises `RequestError` for anything but two decimal numbers of at most 64 bits."""
        found = _FORM.fullmatch(text)
        if found is None or max(pieces := [int(piece) for piece in found.groups()]) >= 2**64:
            raise RequestError(
                f"Last-Event-ID: expected two numbers such as 12-0, got {shortened(text)!r}.", param="Last-Event-ID"
            )
        return cls(*pieces)


START = Cursor()


class Subscription:
    """Call `open`, then `read` until `done`; or use `async for cursor, frames in subscription`.

    For reports: `lost`, `usage`, and after the end `failure` or `reason`. `spoke` is True once content has been read.
    """

    def __init__(
        self,
        store: RunStore,
        key: RunKey,
        dialect: Dialect,
        options: object,
        cursor: Cursor = START,
        *,
        plan: RunPlan | None = None,
    ) -> None:
        """`plan`: that of the run, if it is known."""
        self._log = LogReader(store, key, plan)
        self._dialect = dialect
        self._options = options
        self._cursor = cursor
        self._context: Context | None = None
        self._writer: Writer | None = None
        self._names: dict[str, None] = {}
        self._pending: list[Frame] = []
        self.done = False
        self.spoke = False
        self.usage: UsageReported | None = None
        self.failure: Failure | None = None
        self.reason: str | None = None

    @property
    def cursor(self) -> Cursor:
        """The last frame that was returned."""
        return self._cursor

    @property
    def lost(self) -> list[str]:
        """The features that have been lost so far on the way from the client to the backend and back."""
        names = self._context.lost.names if self._context is not None else []
        return list({**self._names, **dict.fromkeys(names)})

    async def open(self) -> bool:
        """Return False if the cursor is at the end of the run, else True, also for a run that does not exist yet.

        A reader with a cursor beyond the end of a run gets the run's last entry.

        Raises `RequestError`: 410 for a run or a cursor that has expired, 400 for a cursor behind the last event of one
        that has not ended.
        """
        if self._log.plan is not None and self._cursor == START:
            return True  # nothing can be wrong with this cursor, or have expired
        record = await self._log.open()
        if record is not None and 0 < self._cursor.entry < FIRST_NUMBER:
            raise expired()
        if record is not None and record.state is RunState.ENDED:
            last = record.last or 0
            if self._cursor.entry > last:
                # What this reader got is lost, with the power or with a primary of the database: it hears how the run
                # ended, not that it has everything.
                self._cursor = Cursor(last, -1)
            if self._cursor.entry == last:
                # Only the encoder knows how many frames the last entry has; all of the log is there.
                self._pending = await self.read(0)
        elif record is not None and record.last is not None and self._cursor.entry > record.last:
            text = f"expected the id of an event of this run, got {self._cursor}, which is beyond its last event"
            raise RequestError(f"Last-Event-ID: {text}.", param="Last-Event-ID")
        return not self.done or bool(self._pending)

    async def read(self, wait: float) -> list[Frame]:
        """Return the next frames, each with its cursor as id; none after `wait` seconds of silence, or at the end.

        Raises `RequestError` (410) instead of skipping expired events, and `BridgeError` when the store fails.
        """
        if self._pending:
            pending, self._pending = self._pending, []
            return pending
        frames: list[Frame] = []
        while not frames and not self.done:
            found = await self._log.read(wait)
            if not found:
                break
            frames = self._frames(found)
        return frames

    def pass_on(self, writing: Callable[[Callable[[Sequence[LogEntry]], bytes]], Take]) -> None:
        """Write entries where they arrive while `read` waits: `writing(make)` returns a function that writes what
        `make(entries)` returns, or returns False, and `read` returns them.
        """
        self._log.pass_on(writing(self._bytes))

    def _bytes(self, entries: Sequence[LogEntry]) -> bytes:
        return sse.join(self._frames(self._log.decode(entries)))

    def _frames(self, found: list[tuple[int, Batch]]) -> list[Frame]:
        frames: list[Frame] = []
        for number, batch in found:
            frames += self._new(number, self._encode(batch))
        self.done = self._log.done
        return frames

    def _encode(self, batch: Batch) -> list[FrameLike]:
        if self._writer is None:
            assert self._log.plan is not None
            self._context = self._log.plan.context(self._options)
            self._writer = Writer(self._dialect, self._context)
        self._names.update(dict.fromkeys(batch.lost))
        self._note(batch.events)
        return self._writer.frames(batch.events)

    def _note(self, events: list[Event]) -> None:
        self.spoke = self.spoke or not CONTENT.isdisjoint(map(type, events))
        for event in events:
            match event:
                case UsageReported():
                    self.usage = event
                case RunFailed():
                    self.failure = event.error
                case RunFinished():
                    self.reason = str(event.reason)
                case _:
                    pass

    def _new(self, number: int, frames: Sequence[FrameLike]) -> list[Frame]:
        """Return the frames of an entry that the reader does not have, with their ids where its dialect has such."""
        entry, last = self._cursor
        had = last + 1 if number == entry else 0 if number > entry else len(frames)
        if had >= len(frames):
            return []
        self._cursor = Cursor(number, len(frames) - 1)
        named = self._dialect.event_ids
        return [_with_id(frame, f"{number}-{n}" if named else None) for n, frame in enumerate(frames[had:], had)]

    def keepalive(self) -> list[FrameLike]:
        """Return what keeps the connection open: comments, where the dialect's clients read them.

        They come from an encoder of their own, so that heartbeats neither change the bytes of the stream nor count as
        frames of it.
        """
        plan = self._log.plan
        context = plan.context(self._options) if plan is not None else Context("", options=self._options)
        if isinstance(self._options, Options) and not self._options.keeps_alive:
            return []
        encoder = self._dialect.encoder(context)
        frames = encoder.encode([Heartbeat()])
        if frames:
            comments = [frame for frame in frames if isinstance(frame, Frame) and frame.comment is not None]
            return [*comments] or [KEEPALIVE]
        return [*encoder.encode([RunStarted(context.run_id, model=context.model), Heartbeat()])]

    async def __aiter__(self) -> AsyncIterator[tuple[Cursor, list[Frame]]]:
        while not self.done or self._pending:
            if frames := await self.read(_POLL):
                yield self._cursor, frames


def _with_id(frame: FrameLike, cursor: str | None) -> Frame:
    if isinstance(frame, bytes):
        return Frame(frame, None, cursor)
    return frame if frame.comment is not None else Frame(frame.data, frame.event, cursor)
