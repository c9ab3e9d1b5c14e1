"""Places that a process holds while it is alive, of a number in a line: the slots of a key, the one run of a session.

Processes that share the database count together. A process is alive while its own place in the line `processes` has not
expired, so that one row is renewed for all that it holds; places of a process that died are free after its lease, to
processes that may judge it (`bridge.stores.liveness`). While the database is away, each process counts alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

import orjson

from bridge.errors import BridgeError, log_unexpected
from bridge.stores.conversation_store import LEASE
from bridge.stores.liveness import Liveness
from bridge.stores.scripts import ALONE, UNSYNCED, Database, Script, execute

log = logging.getLogger("bridge.places")

LOOK = 0.25
"""Seconds between two looks for what other processes told about places of this one."""
LOST = "lost"
"""Told of a place that another process has given away: this one was taken for dead."""
_PAUSE = 1.0
"""Seconds for which a database that has failed is not asked again, so that it does not delay every request."""
_TIDY = 60.0
_HELD = 1e18
"""When a place expires that lives as long as its process does."""
_PROCESSES = "processes"

_LIVES = (
    f"EXISTS (SELECT 1 FROM places p WHERE p.line = '{_PROCESSES}' AND p.name = places.holder"
    " AND p.expires > {now} - CAST(:grace AS double precision))"
)
_RENEW = f"""INSERT INTO places (line, name, holder, stamp, expires, value)
    VALUES ('{_PROCESSES}', :holder, :holder, '', {{now}} + CAST(:lease AS double precision), '')
    ON CONFLICT (line, name) DO UPDATE SET expires = excluded.expires"""
_FREE = f"DELETE FROM places WHERE line = :line AND holder <> :holder AND NOT {_LIVES}"
_TAKE = f"""INSERT INTO places (line, name, holder, stamp, expires, value)
    SELECT CAST(:line AS text), CAST(:name AS text), CAST(:holder AS text), '', {_HELD}, ''
    WHERE (SELECT count(*) FROM places WHERE line = :line) < CAST(:most AS bigint) RETURNING name"""
_LEAVE = "DELETE FROM places WHERE line = :line AND name {in gone (text)}"
_TELL = f"""UPDATE places SET value = CASE WHEN value = '' THEN :what ELSE value END
    WHERE line = :line AND {_LIVES} RETURNING name"""
_TOLD = """SELECT p.name, p.value FROM {rows w (line text, name text)} JOIN places p
    ON p.line = w.line AND p.name = w.name"""
_FREE_ALL = f"DELETE FROM places WHERE expires = {_HELD} AND NOT {_LIVES}"
_FORGET = f"DELETE FROM places WHERE line = '{_PROCESSES}' AND expires <= {{now}} - 3600"


def line_of(kind: str, *parts: str) -> str:
    """Return the name of a line for this user, session and so on, of any length."""
    return f"{kind}/{sha256(orjson.dumps(parts)).hexdigest()}"


@dataclass(slots=True, eq=False)
class HeldPlace:
    """A place of this process. `leave` it once."""

    line: str
    name: str
    leave: Callable[[], None]
    told: Callable[[str], None] | None
    is_stored: bool


class HeldPlaces:
    """The held places of one process in this database. `start` and `close` it."""

    def __init__(
        self, database: Database, lease: float = LEASE, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._lease = lease
        self._clock = clock
        self._life = Liveness(lease, clock)
        self._holder = uuid.uuid4().hex
        self._places: dict[str, HeldPlace] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        """What gives a place of a line back at the moment: who takes the next one waits for it."""
        self._gone: list[tuple[str, str]] = []
        """Places that could not be given back yet."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._keeping: asyncio.Task[None] | None = None
        self._failed_at: float | None = None
        self._tidy_at = clock() + _TIDY

    def start(self) -> None:
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep(), name="held-places")

    async def close(self) -> None:
        """Give up all places."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
            self._keeping = None
        await asyncio.gather(*self._tasks, return_exceptions=True)
        gone = [*self._gone, *((place.line, name) for name, place in self._places.items()), (_PROCESSES, self._holder)]
        self._places.clear()
        with suppress(BridgeError):  # what is left is free when the lease is over
            await self._database.write(lambda: _leave(gone))
        await self._database.close()

    async def take(self, line: str, most: int, told: Callable[[str], None] | None = None) -> HeldPlace | None:
        """Return one of the `most` places of a line; None if all are taken.

        `told` is called with the first word that another process `tell`s, or with `LOST`. While the database is away,
        the place is known to this process only, which does not count it.
        """
        if (leaving := self._leaving.get(line)) is not None:
            await asyncio.wait({leaving})
        name = uuid.uuid4().hex
        taking = self._spawn(self._take(line, name, most))
        try:
            is_taken = await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(lambda _: self._spawn(self._give_back([(line, name)])))
            raise
        if is_taken is False:
            return None
        place = HeldPlace(line, name, partial(self._left, line, name), told, is_stored=is_taken is not None)
        self._places[name] = place
        return place

    async def tell(self, line: str, what: str) -> bool:
        """Tell the holders of places of a line. Return whether there is one. Raises `BridgeError`."""
        return bool(await self._database.write(lambda: execute(_TELL, line=line, what=what, grace=self._life.grace())))

    # ------------------------------------------------------------------ one place

    async def _take(self, line: str, name: str, most: int) -> bool | None:
        """Return whether there was a place; None if the database is away."""
        if self._failed_at is not None and self._clock() < self._failed_at + _PAUSE:
            return None

        def work() -> Script[bool]:
            yield UNSYNCED, {}
            yield ALONE, {"name": f"bridge places {line}"}
            if self._life.due:
                yield _RENEW, {"holder": self._holder, "lease": self._lease}
            yield _FREE, {"line": line, "holder": self._holder, "grace": self._life.grace()}
            rows = yield _TAKE, {"line": line, "name": name, "holder": self._holder, "most": most}
            return bool(rows)

        try:
            is_taken = await self._database.write(work)
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

    async def _give_back(self, gone: list[tuple[str, str]]) -> None:
        try:
            await self._database.write(lambda: _leave(gone))
        except BridgeError:
            self._gone += gone

    # ------------------------------------------------------------------ all places

    async def _keep(self) -> None:
        while True:
            try:
                await self.look()
            except BridgeError as error:
                self._failed(error)
            except Exception as error:
                log_unexpected(log, "places cannot be kept", error)
            await asyncio.sleep(LOOK)

    async def look(self) -> None:
        """Renew the lease of this process when it is due, and hand on what others told. Raises `BridgeError`."""
        if self._life.due:
            try:
                await self._database.write(self._renew, first=True)
            except BaseException:
                self._life.failed()
                raise
            self._life.renewed()
            self._worked()
            gone, self._gone = self._gone, []
            if gone:
                self._spawn(self._give_back(gone))
        heard = {name: place for name, place in self._places.items() if place.told is not None and place.is_stored}
        if not heard:
            return
        asked = [(place.line, name) for name, place in heard.items()]
        found: dict[str, str] = dict(await self._database.read(lambda: execute(_TOLD, w=asked)))
        for name, place in heard.items():
            word = found.get(name, LOST)
            if word and place.told is not None and name in self._places:
                told, place.told = place.told, None
                told(word)

    def _renew(self) -> Script[None]:
        yield UNSYNCED, {}
        yield _RENEW, {"holder": self._holder, "lease": self._lease}
        if self._clock() >= self._tidy_at:
            self._tidy_at = self._clock() + _TIDY
            yield _FREE_ALL, {"grace": self._life.grace()}
            yield _FORGET, {}

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _failed(self, error: BridgeError) -> None:
        if self._failed_at is None:
            log.warning("each process counts slots and sessions separately: %s", error.message)
        self._failed_at = self._clock()

    def _worked(self) -> None:
        if self._failed_at is not None:
            log.info("slots and sessions are counted in the database again")
        self._failed_at = None


def _leave(gone: list[tuple[str, str]]) -> Script[None]:
    yield UNSYNCED, {}
    for line, name in gone:
        yield _LEAVE, {"line": line, "gone": [name]}
