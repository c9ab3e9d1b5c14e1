"""Conversations in a database, which several processes may share."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager

from bridge.liveness import Liveness
from bridge.model.parts import Message
from bridge.stores import rows
from bridge.stores.base import LEASE, Bounds, Conversation, HeldConversation, key, plain_id, stored_id
from bridge.stores.conversation_scripts import DELETE, FIND, LATEST, OWNER, commit, fetch, named, prune
from bridge.stores.locks import ConversationLocks
from bridge.stores.memory_budget import charging
from bridge.stores.scripts import Database, execute
from bridge.stores.tickets import PRUNE_TURNS, Tickets


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

    async def load(self, owner: str, scope: str, thread_id: str) -> Conversation | None:
        where, charge = key(owner, scope, thread_id), charging()
        found = await self._database.read(lambda: fetch(where, charge))
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
    ) -> None:
        where = key(owner, scope, conversation.thread_id)
        change = await rows.change(conversation, new, keep, digest)
        grace = self._life.grace
        change.settle(await self._database.write(lambda: commit(where, change, self._bounds, grace)))

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

    async def delete(self, owner: str, scope: str, thread_id: str) -> bool:
        values = named(key(owner, scope, thread_id))
        return bool(await self._database.write(lambda: execute(DELETE, **values)))

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
