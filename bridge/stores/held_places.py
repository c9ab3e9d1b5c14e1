"""Places that a process holds while it is alive, in lines that all processes of a database see.

A line has places for a number of holders: the slots of a key, the one run of a session. Who does not get one of them is
refused (`take`), or waits in order of arrival (`wait`): the next turn of a conversation.

A process is alive while its own place in the line `processes` has not expired, so that one row is renewed for all that
it holds. Places of a process that died are free after its lease, to processes that may judge it
(`bridge.stores.liveness`). They are deleted then, so that a process that was only suspended finds its place gone: what
is written under a place is written in the transaction that leaves it (`leaving`).

Within a process, who leaves lets in the next one. The database is asked who is next only while another process is
before it, with one query for all lines.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from secrets import token_hex
from typing import Any, TypeAlias

import orjson

from bridge.errors import BridgeError, FailureLog, log_unexpected
from bridge.stores.conversation_store import LEASE, StoreConflict, StoreFull, StoreUnavailable, unavailable
from bridge.stores.liveness import Liveness
from bridge.stores.scripts import ALONE, UNSYNCED, Database, Script, T, Work, execute

log = logging.getLogger("bridge.places")

LOOK = 0.25
"""Seconds between two looks for what other processes told about places of this one."""
POLL = 0.05
"""Seconds between two looks for turns that come from other processes."""
LOST = "lost"
"""Told of a place that another process has given away: this one was taken for dead."""
_PAUSE = 1.0
"""Seconds for which a database that failed is not asked for a slot again, so that it does not delay every request."""
_APART = "each process counts slots and sessions separately"
_TIDY = 60.0
_HELD = 1e18
"""When a place expires that lives as long as its process does."""
_PROCESSES = "processes"


def lives(table: str) -> str:
    """Return the condition, with `:grace`, that the holder of this row of `places` is alive."""
    return (
        f"EXISTS (SELECT 1 FROM places p WHERE p.line = '{_PROCESSES}' AND p.name = {table}.holder"
        " AND p.expires > {now} - CAST(:grace AS double precision))"
    )


_RENEW = f"""INSERT INTO places (line, name, holder, stamp, expires, value)
    VALUES ('{_PROCESSES}', :holder, :holder, '', {{now}} + CAST(:lease AS double precision), '')
    ON CONFLICT (line, name) DO UPDATE SET expires = excluded.expires"""
_OWN = f"SELECT expires - {{now}} FROM places WHERE line = '{_PROCESSES}' AND name = :holder"
_LINE = f"""SELECT name, stamp, holder, ({_OWN}),
    (SELECT p.expires - {{now}} FROM places p WHERE p.line = '{_PROCESSES}' AND p.name = places.holder)
    FROM places WHERE line = :line"""
_ADD = f"""INSERT INTO places (line, name, holder, stamp, expires, value)
    VALUES (:line, :name, :holder, :stamp, {_HELD}, '')"""
_ADD_FIRST = f"""INSERT INTO places (line, name, holder, stamp, expires, value)
    SELECT :line, :name, :holder, '{1:020}', {_HELD}, ''
    WHERE NOT EXISTS (SELECT 1 FROM places WHERE line = :line) {{changed}}"""
_LEAVE = "DELETE FROM places WHERE line = :line AND name = :name"
_LEAVE_OWN = f"{_LEAVE} {{changed}}"
_FREE = "DELETE FROM places WHERE line = :line AND name {in dead (text)}"
_TELL = f"""UPDATE places SET value = CASE WHEN value = '' THEN :what ELSE value END
    WHERE line = :line AND {lives("places")} RETURNING name"""
_TOLD = """SELECT p.name, p.value FROM {rows w (line text, name text)} JOIN places p
    ON p.line = w.line AND p.name = w.name"""
_DUE = f"""SELECT w.name FROM {{rows w (line text, name text)}}
    JOIN places own ON own.line = w.line AND own.name = w.name WHERE NOT EXISTS
    (SELECT 1 FROM places o WHERE o.line = w.line AND o.stamp < own.stamp AND {lives("o")})"""
_FREE_ALL = f"""DELETE FROM places WHERE (line, name) IN (SELECT line, name FROM places
    WHERE expires = {_HELD} AND holder <> :holder AND NOT {lives("places")} {{skip}})"""
_FORGET = f"""DELETE FROM places WHERE line = '{_PROCESSES}'
    AND expires <= {{now}} - 3600 - CAST(:grace AS double precision)"""
_CLOSE = f"DELETE FROM places WHERE expires = {_HELD} AND holder = :holder"

Read: TypeAlias = Callable[[bool], Script[T]]
"""Makes a script that reads what a line is for. If the argument is true, it may write, and locks what it reads."""


def line_of(kind: str, *parts: str) -> str:
    """Return the name of a line for this user, session and so on, of any length."""
    return f"{kind}/{sha256(orjson.dumps(parts)).hexdigest()}"


def probe() -> Script[None]:
    """Write a place, and delete it."""
    yield UNSYNCED, {}
    name = token_hex(16)
    yield _ADD, {"line": "probe", "name": name, "holder": name, "stamp": ""}
    yield _LEAVE, {"line": "probe", "name": name}


@dataclass(slots=True, eq=False)
class HeldPlace:
    """A place of this process. `leave` it once."""

    line: str
    name: str
    leave: Callable[[], None]
    told: Callable[[str], None] | None = None
    is_stored: bool = False
    """Other processes know of it."""


@dataclass(slots=True, eq=False)
class QueuedPlace:
    """A place of this process in a line where it waits, and then has its turn."""

    line: str
    read: Read[Any]
    turn: asyncio.Future[list[Any]]
    """Done when it is the first: with what was read then, or nothing."""
    name: str = field(default_factory=partial(token_hex, 16))
    is_stored: bool = False
    is_leaving: bool = False
    entering: asyncio.Task[None] | None = None


class HeldPlaces:
    """The held places of one process in this database. `start` and `close` it."""

    def __init__(
        self, database: Database, lease: float = LEASE, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._lease = lease
        self._clock = clock
        self._life = Liveness(lease, clock)
        self._holder = token_hex(16)
        self._places: dict[str, HeldPlace] = {}
        self._queues: dict[str, dict[str, QueuedPlace]] = {}
        """The queued places of each line, in their order."""
        self._entering: dict[str, asyncio.Task[None]] = {}
        """The last one that enters a line at the moment: the next one waits for it."""
        self._leaving: dict[str, asyncio.Task[None]] = {}
        """What gives a place of a line back at the moment: who takes the next one waits for it."""
        self._gone: list[tuple[str, str]] = []
        """Places that could not be given back yet."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._keeping: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._used_at = clock()
        self._closed = False
        self._failed_at: float | None = None
        self._failures = FailureLog(log)
        """When a slot could not be stored, until the database works again."""
        self._failing_since: float | None = None
        self._tidy_at = clock() + _TIDY

    def start(self) -> None:
        """Keep the places from now on. May be called again."""
        if self._keeping is None and not self._closed:
            self._keeping = asyncio.create_task(self._keep(), name="held-places")

    async def close(self) -> None:
        """Give up all places. Those who wait get an error."""
        self._closed = True
        is_known = self._keeping is not None or bool(self._places)
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
            self._keeping = None
        for place in self._queued():
            _refuse(place, unavailable(self._database.engine, "closed"))
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._places.clear()
        self._queues.clear()
        if is_known:
            with suppress(BridgeError):  # what is left is free when the lease is over
                await self._database.write(self._close)
        await self._database.close()

    def grace(self, left: float | None = None, /) -> float:
        """See `bridge.stores.liveness.Grace`."""
        return self._life.grace(left)

    # ------------------------------------------------------------------ slots

    async def take(self, line: str, most: int, told: Callable[[str], None] | None = None) -> HeldPlace | None:
        """Return one of the `most` places of a line; None if all are taken.

        `told` is called with the first word that another process `tell`s, or with `LOST`. While the database is away,
        the place is known to this process only, which does not count it.
        """
        if (leaving := self._leaving.get(line)) is not None:
            await asyncio.wait({leaving})
        name = token_hex(16)
        taking = self._spawn(self._take(line, name, most))
        try:
            is_taken = await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(lambda _: self._spawn(self._give_back([(line, name)])))
            raise
        self._used()
        if is_taken is False:
            return None
        place = HeldPlace(line, name, partial(self._left, line, name), told, is_stored=is_taken is not None)
        self._places[name] = place
        return place

    async def tell(self, line: str, what: str) -> bool:
        """Tell the holders of places of a line. Return whether there is one. Raises `BridgeError`."""
        return bool(await self._database.write(lambda: execute(_TELL, line=line, what=what, grace=self.grace())))

    async def _take(self, line: str, name: str, most: int) -> bool | None:
        """Return whether there was a place; None if the database is away."""
        if self._failed_at is not None and self._clock() < self._failed_at + _PAUSE:
            return None
        try:
            is_taken = await self._database.write(lambda: self._join(line, name, most, waits=False))
        except BridgeError as error:
            self._failed(error)
            self._gone.append((line, name))  # it may have been committed
            return None
        self._worked()
        return is_taken

    def _left(self, line: str, name: str) -> None:
        place = self._places.pop(name, None)
        if place is not None and place.is_stored:
            leaving = self._leaving[line] = self._spawn(self._give_back([(line, name)]))
            leaving.add_done_callback(lambda done: self._leaving.pop(line) if self._leaving[line] is done else None)

    def _failed(self, error: BridgeError) -> None:
        self._failures.failed(_APART, error)
        self._failed_at = self._clock()

    def _worked(self) -> None:
        self._failures.works(_APART)
        self._failed_at = None

    # ------------------------------------------------------------------ turns

    async def wait(self, line: str, read: Read[T]) -> tuple[QueuedPlace, T]:
        """Wait for the turn in a line. Return the place, which is to be left, and what `read` found when it was first.

        `read` may be called several times. Raises `BridgeError`, also what `read` raises. If the database has no space,
        the turn begins at once, with a place that is not stored.
        """
        if self._closed:
            raise unavailable(self._database.engine, "closed")
        self.start()
        place = QueuedPlace(line, read, asyncio.get_running_loop().create_future())
        self._begin(place)
        try:
            found = await place.turn
            return place, found[0] if found else await self._database.read(lambda: read(False))
        except BaseException:
            self._spawn(self._leave(place))
            raise

    async def leave(self, place: QueuedPlace) -> None:
        """Give the turn to the next one, unless that was done."""
        await asyncio.shield(self._spawn(self._leave(place)))

    async def leave_with(self, place: QueuedPlace, work: Work[T]) -> T:
        """Carry out a script and leave the place, in one transaction. Return the script's result.

        Raises `StoreConflict` if the place is lost, and what the script raises. After any error and after a
        cancellation, `leave` is still needed.
        """
        await self._entered(place)
        try:
            result, first = await self._database.write(lambda: self.leaving(place, work))
        except Exception:
            place.is_leaving = False
            raise
        self.left(place, first)
        return result

    def leaving(self, place: QueuedPlace, work: Work[T]) -> Script[tuple[T, str | None]]:
        """Leave the place and carry out a script. Return its result and what `left` is to be called with, once that is
        committed. Raises `StoreConflict` if the place is lost.
        """
        place.is_leaving = True
        # The row is the fence: who takes this process for dead deletes it, and waits for this transaction or is waited
        # for. The line need not be locked: nobody who is in it is passed over, and who comes meanwhile looks again.
        own = {"line": place.line, "name": place.name}
        if place.is_stored and not (yield _LEAVE_OWN, own):
            raise StoreConflict
        result = yield from work()
        first = None
        if len(self._queues.get(place.line, ())) > 1:
            first = next(iter((yield from self._line(place.line))), None)
        return result, first

    def left(self, place: QueuedPlace, first: str | None) -> None:
        """The transaction of `leaving` is committed: let in the next one."""
        self._dropped(place)
        self._moved_up(place.line, first)

    def _begin(self, place: QueuedPlace) -> None:
        """Enter a line, in a task: a canceled caller must not leave a place behind."""
        place.entering = task = self._spawn(self._enter(place, self._entering.get(place.line)))
        self._entering[place.line] = task

    async def _enter(self, place: QueuedPlace, before: asyncio.Task[None] | None) -> None:
        line, found = place.line, list[Any]()
        try:
            if before is not None and not before.done():
                await asyncio.wait({before})
            if place.turn.done():
                return  # canceled meanwhile
            # Known before it is stored: who leaves in between lets it in.
            self._queues.setdefault(line, {})[place.name] = place
            found = await self._database.write(lambda: self._join_and_read(place))
            place.is_stored = True
        except StoreFull:
            # Nobody can take a place then, and no two of a line can both store what they have: the version decides.
            log.warning("no space for the turn of a conversation: its run continues without one")
            self._dropped(place)
            _let_in(place)
        except Exception as error:
            self._dropped(place)
            if isinstance(error, StoreUnavailable):
                self._gone.append((line, place.name))  # it may have been committed
            _refuse(place, error)
        finally:
            if self._entering.get(line) is place.entering:
                del self._entering[line]
        if found:
            _let_in(place, found)
        self._used(wake=not found)

    async def _entered(self, place: QueuedPlace) -> None:
        if place.entering is not None and not place.entering.done():
            await asyncio.wait({place.entering})

    async def _leave(self, place: QueuedPlace) -> None:
        await self._entered(place)
        if self._closed or place.name not in self._queues.get(place.line, ()):
            return  # lost, or left already
        place.is_leaving = True
        self._dropped(place)
        await self._give_back([(place.line, place.name)])

    def _dropped(self, place: QueuedPlace) -> None:
        if (queue := self._queues.get(place.line)) is not None:
            queue.pop(place.name, None)
            if not queue:
                del self._queues[place.line]

    def _moved_up(self, line: str, first: str | None) -> None:
        """Let in the first of a line, if it is of this process."""
        queue = self._queues.get(line)
        if queue and first in queue:
            _let_in(queue[first])
        elif queue:
            self._wake.set()  # another process is next

    # ------------------------------------------------------------------ all places

    async def _keep(self) -> None:
        failures = 0
        while True:
            pause = self._pause()
            if pause is None:
                self._life.restart()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self.look()
                self._failing_since, failures = None, 0
            except Exception as error:
                if not isinstance(error, BridgeError):
                    log_unexpected(log, "places cannot be kept", error)
                elif self._places:
                    self._failed(error)
                self._give_up_waiting()
                failures += 1
                await asyncio.sleep(min(POLL * 2 ** min(failures, 9), self._lease / 6, _PAUSE))

    def _pause(self) -> float | None:
        """Return the seconds until the next look; None if nothing is to be kept."""
        if self._gone or self._next_elsewhere():
            return POLL
        due = self._life.due_in
        if any(place.told is not None for place in self._places.values()):
            return min(LOOK, due)
        # Who has just used places goes on: it soon has the right to judge others.
        is_used = self._places or self._queues or self._clock() < self._used_at + 2 * self._lease
        return due if is_used else None

    def _used(self, *, wake: bool = False) -> None:
        """A place was asked for. The task that keeps places is to look again, if it had nothing to do."""
        was_idle = self._clock() >= self._used_at + self._lease
        self._used_at = self._clock()
        if was_idle or wake:
            self._wake.set()

    async def look(self) -> None:
        """Renew the lease of this process when it is due, hand on what others told, give back what could not be, and
        let in who has a turn. Raises `BridgeError`.
        """
        if self._life.due:
            await self._renew()
        elif heard := [(place.line, name) for name, place in self._places.items() if place.told and place.is_stored]:
            told = await self._database.read(lambda: execute(_TOLD, w=heard), snapshot=False)
            self._hear(heard, dict(told))
        if self._gone:
            gone, self._gone = self._gone, []
            await self._give_back(gone, retries=True)
        if waiting := self._next_elsewhere():
            values = {"w": [(place.line, place.name) for place in waiting.values()], "grace": self.grace()}
            for (name,) in await self._database.read(lambda: execute(_DUE, **values), snapshot=False):
                await self._free(waiting[name].line)

    async def _renew(self) -> None:
        all_places: list[HeldPlace | QueuedPlace] = [*self._places.values(), *self._queued()]
        held = [(place.line, place.name) for place in all_places if place.is_stored]
        tidies = self._clock() >= self._tidy_at

        def work() -> Script[dict[str, str]]:
            yield UNSYNCED, {}
            yield from self._extend()
            if tidies:
                yield _FREE_ALL, {"holder": self._holder, "grace": self.grace()}
                yield _FORGET, {"grace": self.grace()}
            return dict((yield _TOLD, {"w": held})) if held else {}

        try:
            found = await self._database.write(work, first=True)
        except BaseException:
            self._life.failed()
            raise
        self._life.renewed()
        self._worked()
        if tidies:
            self._tidy_at = self._clock() + _TIDY
        self._hear(held, found)

    def _hear(self, asked: list[tuple[str, str]], found: dict[str, str]) -> None:
        """Hand on the words that were found, and that a place was not."""
        for line, name in asked:
            word = found.get(name, LOST)
            if (queued := self._queues.get(line, {}).get(name)) is not None:
                if word == LOST and not queued.is_leaving:
                    self._lost(queued)
            elif word and (place := self._places.get(name)) is not None and place.told is not None:
                told, place.told = place.told, None
                told(word)

    def _lost(self, place: QueuedPlace) -> None:
        """Another process has taken this one for dead. Who waits takes another place."""
        self._dropped(place)
        if place.turn.done():
            log.warning("a turn of a conversation was lost: this process was blocked for longer than %g s", self._lease)
        else:
            place.name, place.is_stored = token_hex(16), False
            self._begin(place)

    def _next_elsewhere(self) -> dict[str, QueuedPlace]:
        """Return, by name, the own next place of each line where another process has the turn."""
        out = {}
        for queue in self._queues.values():
            place = next(iter(queue.values()))
            if place.is_stored and not any(each.turn.done() for each in queue.values()):
                out[place.name] = place
        return out

    def _queued(self) -> list[QueuedPlace]:
        return [place for queue in self._queues.values() for place in queue.values()]

    def _give_up_waiting(self) -> None:
        """After a lease of failures, an error is better than to wait for ever."""
        if self._failing_since is None:
            self._failing_since = self._clock()
        elif self._clock() - self._failing_since > self._lease:
            for place in self._queued():
                _refuse(place, unavailable(self._database.engine, "lost"))

    async def _free(self, line: str) -> None:
        """Delete places of the dead in a line, and let in the first one if it is of this process."""

        def work() -> Script[str | None]:
            yield UNSYNCED, {}
            yield ALONE, _name_of(line)
            return (yield from self._next(line, (yield from self._line(line)), None))

        self._moved_up(line, await self._database.write(work))

    async def _give_back(self, gone: list[tuple[str, str]], *, retries: bool = False) -> None:
        """Delete places. What cannot be deleted is deleted later."""

        def work() -> Script[list[tuple[str, str | None]]]:
            yield UNSYNCED, {}
            first = []
            for line, name in gone:
                if line not in self._queues:
                    yield _LEAVE, {"line": line, "name": name}
                    continue
                yield ALONE, _name_of(line)
                first.append((line, (yield from self._next(line, (yield from self._line(line)), name))))
            return first

        try:
            for line, first in await self._database.write(work):
                self._moved_up(line, first)
        except BridgeError:
            self._gone += gone
            if retries:
                raise
            self._wake.set()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ------------------------------------------------------------------ scripts

    def _extend(self) -> Script[None]:
        """Renew the lease of this process, after a look whether the clock of the database was set meanwhile."""
        own = yield _OWN, {"holder": self._holder}
        self.grace(own[0][0] if own else None)
        yield _RENEW, {"holder": self._holder, "lease": self._lease}

    def _line(self, line: str) -> Script[dict[str, str]]:
        """Delete the places of the dead. Return the stamps of the others by name, in their order."""
        rows = yield _LINE, {"line": line, "holder": self._holder}
        grace = self.grace(rows[0][3] if rows else None)
        there, dead = list[tuple[str, str]](), list[str]()
        for name, stamp, holder, _, left in rows:
            if holder == self._holder or (left is not None and left > -grace):
                there.append((stamp, name))
            else:
                dead.append(name)
        if dead:
            yield _FREE, {"line": line, "dead": dead}
        return {name: stamp for stamp, name in sorted(there)}

    def _next(self, line: str, there: dict[str, str], gone: str | None) -> Script[str | None]:
        """Delete one of the places that are there. Return the first one that is left."""
        if gone is not None:
            yield _LEAVE, {"line": line, "name": gone}
        return next((name for name in there if name != gone), None)

    def _join(self, line: str, name: str, most: int, *, waits: bool) -> Script[bool]:
        """Take a place if there are fewer than `most`, or if it `waits`. Return whether there are fewer."""
        yield UNSYNCED, {}
        yield ALONE, _name_of(line)
        if self._life.due:
            yield from self._extend()
        if most == 1 and (yield _ADD_FIRST, {"line": line, "name": name, "holder": self._holder}):
            return True
        there = yield from self._line(line)
        if is_free := len(there) < most or waits:
            last = max((int(stamp or 0) for stamp in there.values()), default=0)
            yield _ADD, {"line": line, "name": name, "holder": self._holder, "stamp": f"{last + 1:020}"}
        return is_free and len(there) < most

    def _join_and_read(self, place: QueuedPlace) -> Script[list[Any]]:
        if not (yield from self._join(place.line, place.name, 1, waits=True)):
            return []
        return [(yield from place.read(True))]

    def _close(self) -> Script[None]:
        yield UNSYNCED, {}
        yield _CLOSE, {"holder": self._holder}
        yield _LEAVE, {"line": _PROCESSES, "name": self._holder}


def _name_of(line: str) -> dict[str, str]:
    """Return the value of `ALONE`: who changes a line does so alone."""
    return {"name": f"bridge places {line}"}


def _let_in(place: QueuedPlace, found: list[Any] | None = None) -> None:
    if not place.turn.done():
        place.turn.set_result(found or [])


def _refuse(place: QueuedPlace, error: Exception) -> None:
    if not place.turn.done():
        place.turn.set_exception(error)
