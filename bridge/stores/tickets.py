"""The tickets of `bridge.stores.locks`, in the database of the conversations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

from bridge.stores import rows
from bridge.stores.conversation_scripts import KEY, Key, Stored, commit, fetch, named
from bridge.stores.conversation_store import Bounds, Conversation, StoreConflict, plain_id
from bridge.stores.liveness import Grace
from bridge.stores.memory_budget import charging
from bridge.stores.scripts import ALONE, UNSYNCED, Database, Script, execute

Read: TypeAlias = Callable[[], Awaitable[Conversation]]
"""Builds the conversation from the rows that an engine has read."""

PRUNE_TURNS = """DELETE FROM history_turns WHERE ticket IN (SELECT ticket FROM history_turns
    WHERE expires <= {now} - CAST(:age AS double precision) ORDER BY ticket {skip})"""
_LINE = f"""SELECT ticket, expires <= {{now}} - CAST(:grace AS double precision) FROM history_turns
    WHERE {KEY} ORDER BY ticket {{lock}}"""
_LEAVE = "DELETE FROM history_turns WHERE ticket IN (SELECT ticket FROM {rows gone (ticket bigint)})"
_HAS = "SELECT ticket FROM history_turns WHERE ticket = :ticket"
_ENTER = """INSERT INTO history_turns (owner, scope, thread_id, expires)
    VALUES (:owner, :scope, :thread, {now} + CAST(:lease AS double precision)) RETURNING ticket"""
_DUE = """SELECT t.ticket FROM {rows own (ticket bigint)} JOIN history_turns t ON t.ticket = own.ticket
    WHERE NOT EXISTS (SELECT 1 FROM history_turns o WHERE o.owner = t.owner AND o.scope = t.scope
    AND o.thread_id = t.thread_id AND o.ticket < t.ticket AND o.expires > {now} - CAST(:grace AS double precision))"""
# Tickets are always locked in the order of their numbers, which prevents deadlocks.
_OWN = """SELECT t.ticket FROM history_turns t WHERE t.ticket IN (SELECT ticket FROM {rows own (ticket bigint)})
    ORDER BY t.ticket {lock}"""
_RENEW = """UPDATE history_turns SET expires = {now} + CAST(:lease AS double precision)
    WHERE ticket IN (SELECT ticket FROM {rows own (ticket bigint)}) RETURNING ticket"""


def probe() -> Script[None]:
    """Write a ticket, and delete it."""
    yield UNSYNCED, {}
    ((ticket,),) = yield _ENTER, {"owner": "", "scope": "", "thread": "%0000probe", "lease": 0.0}
    yield _LEAVE, {"gone": [(ticket,)]}


class Tickets:
    """The tickets of `bridge.stores.locks`, in the database of the conversations. Each method is one transaction.

    `own` are other tickets of this process in the same queue: they are renewed before expired ones are deleted. Tickets
    of other processes count as expired after the grace of this process (`bridge.stores.liveness`).
    """

    def __init__(self, database: Database, lease: float, bounds: Bounds, grace: Grace) -> None:
        self._database = database
        self._lease = lease
        self._bounds = bounds
        self._grace = grace

    async def enter(self, key: Key, own: Sequence[int]) -> tuple[int, Read | None]:
        """Delete expired tickets and append one. If it is the first, return the conversation with it."""
        charge = charging()

        def work() -> Script[tuple[int, Read | None]]:
            yield from self._alone(key, lasting=False)
            first = yield from self._first(key, own)
            ((ticket,),) = yield _ENTER, {**named(key), "lease": self._lease}
            if first is not None:
                return ticket, None
            stored = yield from fetch(key, charge, lock=True)
            return ticket, partial(_conversation, key, stored)

        return await self._database.write(work)

    async def load(self, key: Key) -> Conversation:
        """Return the conversation as of the last commit; a new one if there is none."""
        charge = charging()
        return await _conversation(key, await self._database.read(lambda: fetch(key, charge)))

    async def leave(self, key: Key, ticket: int, own: Sequence[int]) -> int | None:
        """Delete this ticket and expired ones. Return the first ticket of the queue."""

        def work() -> Script[int | None]:
            yield from self._alone(key, lasting=False)
            return (yield from self._first(key, own, ticket))

        return await self._database.write(work)

    async def commit(self, key: Key, ticket: int, own: Sequence[int], change: rows.Change) -> int | None:
        """Do the work of `ConversationStore.commit` and `leave` in one transaction.

        Raises `StoreConflict` for a ticket that another process has deleted: it has taken the lock, and may have read
        the conversation. 0 is no ticket.
        """

        def work() -> Script[tuple[rows.CommitOutcome, int | None]]:
            yield from self._alone(key, lasting=True)
            if ticket and not (yield _HAS, {"ticket": ticket}):
                raise StoreConflict
            outcome = yield from commit(key, change, self._bounds, self._grace)
            return outcome, (yield from self._first(key, own, ticket))

        outcome, first = await self._database.write(work)
        change.settle(outcome)
        return first

    @property
    def place(self) -> str | None:
        return self._database.place

    def deferred(self, key: Key, ticket: int, change: rows.Change) -> Script[rows.CommitOutcome]:
        """Return the script of a commit alone: the ticket is still to be left."""
        yield from self._alone(key, lasting=True)
        if ticket and not (yield _HAS, {"ticket": ticket}):
            raise StoreConflict
        return (yield from commit(key, change, self._bounds, self._grace))

    async def first(self, key: Key, own: Sequence[int]) -> int | None:
        """Delete expired tickets. Return the first ticket of the queue."""
        return await self.leave(key, 0, own)

    async def due(self, tickets: Sequence[int]) -> list[int]:
        """Return those of these tickets that have no valid ticket before them. Changes nothing."""
        values = {"own": [(ticket,) for ticket in tickets], "grace": self._grace()}
        return [ticket for (ticket,) in await self._database.read(lambda: execute(_DUE, **values))]

    async def renew(self, tickets: Sequence[int]) -> list[int]:
        """Renew these tickets. Return those that still exist. Also without tickets, this raises if it cannot write."""

        def work() -> Script[list[int]]:
            own = {"own": [(ticket,) for ticket in tickets]}
            yield UNSYNCED, {}
            yield _OWN, own
            found = yield _RENEW, {**own, "lease": self._lease}
            return [ticket for (ticket,) in found]

        return await self._database.write(work, first=True)

    def _alone(self, key: Key, *, lasting: bool) -> Script[None]:
        """No other process changes the queue until the script ends. Unless it is `lasting`, a crash may undo it.

        A crash ends the leases anyway.
        """
        yield ALONE, {"name": "bridge history " + "\t".join(key)}
        if not lasting:
            yield UNSYNCED, {}

    def _first(self, key: Key, own: Sequence[int], ticket: int = 0) -> Script[int | None]:
        """Delete `ticket` and the expired tickets of the queue, but not `own`. Return the first that is left."""
        line = yield _LINE, {**named(key), "grace": self._grace()}
        gone = {each for each, is_over in line if each == ticket or (is_over and each not in own)}
        if gone:
            yield _LEAVE, {"gone": [(each,) for each in gone]}
        if own:
            yield _RENEW, {"own": [(each,) for each in own], "lease": self._lease}
        return next((each for each, _ in line if each not in gone), None)


async def _conversation(key: Key, found: Stored | None) -> Conversation:
    return await rows.loaded(*found) if found is not None else Conversation(plain_id(key[2]))
