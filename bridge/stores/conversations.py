"""Conversations in a database, which several processes may share."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from functools import partial

from bridge.model.parts import Message
from bridge.stores import rows
from bridge.stores.conversation_scripts import FIND, LATEST, OWNER, commit, delete, fetch, head, prune
from bridge.stores.conversation_store import (
    LEASE,
    Bounds,
    Conversation,
    HeldConversation,
    RemoveFiles,
    key,
    plain_id,
    stored_id,
)
from bridge.stores.file_scripts import drop, idle, mark, note, plain
from bridge.stores.joint import Joint
from bridge.stores.liveness import Liveness
from bridge.stores.locks import ConversationLocks
from bridge.stores.memory_budget import charging
from bridge.stores.scripts import Database, Script, execute
from bridge.stores.tickets import PRUNE_TURNS, Tickets, probe


class Conversations:
    """A `ConversationStore` in a database."""

    def __init__(self, database: Database, *, bounds: Bounds | None = None, lease: float = LEASE) -> None:
        self._database = database
        self._bounds = bounds or Bounds()
        self._lease = lease
        self._life = Liveness(lease)
        self._turns: ConversationLocks | None = None

    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        turns, self._turns = self._turns, None
        if turns is not None:
            await turns.close()
        await self._database.close()

    async def load(self, owner: str, scope: str, thread_id: str, *, messages: bool = True) -> Conversation | None:
        where, charge = key(owner, scope, thread_id), charging()
        found = await self._database.read(lambda: (fetch if messages else head)(where, charge))
        return await rows.loaded(*found) if found is not None else None

    async def commit(
        self,
        owner: str,
        scope: str,
        conversation: Conversation,
        new: list[Message],
        *,
        keep: int | None = None,
        digest: str | None = None,
        after: str | None = None,
        headroom: bool = False,
        joint: Joint | None = None,
    ) -> None:
        where = key(owner, scope, conversation.thread_id)
        base = None if after is None else key(owner, scope, after)
        change = await rows.change(conversation, new, keep, digest)
        grace = self._life.grace

        def work() -> Script[rows.CommitOutcome]:
            return commit(where, change, self._bounds, grace, base, headroom)

        if joint is not None:
            await self._database.open()  # the other store does not know these tables
        if joint is None or not joint.takes(self._database.place, work, change.settle):
            change.settle(await self._database.write(work))

    async def find(self, owner: str, scope: str, digest: str) -> str | None:
        owner, scope, digest = key(owner, scope, digest)
        return await self._id(FIND, owner=owner, scope=scope, digest=digest)

    async def latest(self, owner: str, scope: str) -> str | None:
        return await self._id(LATEST, owner=stored_id(owner, "owner"), scope=stored_id(scope, "scope"))

    async def owner(self, scope: str, thread_id: str) -> str | None:
        thread = stored_id(thread_id, "conversation id")
        return await self._id(OWNER, scope=stored_id(scope, "scope"), thread=thread)

    async def _id(self, statement: str, **values: str) -> str | None:
        """Return the first id that a statement finds."""
        found = await self._database.read(lambda: execute(statement, **values))
        return plain_id(found[0][0]) if found else None

    async def delete(self, owner: str, scope: str, thread_id: str, *, files: bool = True) -> bool:
        where = key(owner, scope, thread_id)

        def work() -> Script[bool]:
            was_there = yield from delete(where)
            if files:
                yield from mark(where)
            return was_there

        return await self._database.write(work)

    async def note_file(self, owner: str, scope: str, thread_id: str) -> None:
        where = key(owner, scope, thread_id)
        await self._database.write(lambda: note(where))

    async def prune_files(self, older_than: float, remove: RemoveFiles) -> None:
        more = True
        while more:
            began = time.monotonic()
            found, more = await self._database.write(lambda: idle(older_than))
            for where, age in found:
                left = await remove(*plain(where), age or 0.0)
                more = more and not left
                if not left:
                    await self._database.write(partial(drop, where, older_than))
            if more:
                await asyncio.sleep(time.monotonic() - began)

    async def probe(self) -> None:
        await self._database.write(probe)

    async def prune(self, older_than: float) -> int:
        grace = self._life.grace
        await self._database.write(lambda: execute(PRUNE_TURNS, age=self._lease + grace()))
        total, more = 0, True
        while more:
            began = time.monotonic()
            count, more = await self._database.write(lambda: prune(older_than, grace))
            total += count
            if more:
                # Idle for as long as it took, so that nobody waits for it.
                await asyncio.sleep(time.monotonic() - began)
        if total:
            await self._database.shrink()
        return total

    def turn(self, owner: str, scope: str, thread_id: str) -> AbstractAsyncContextManager[HeldConversation]:
        self._database.check_open()
        if self._turns is None:
            tickets = Tickets(self._database, self._lease, self._bounds, self._life.grace)
            self._turns = ConversationLocks(tickets, self._database.engine, self._lease, self._life)
        return self._turns.turn(key(owner, scope, thread_id))
