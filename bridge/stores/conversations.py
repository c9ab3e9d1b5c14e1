"""Conversations in a database, which several processes may share."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from functools import partial

from bridge.model.parts import Message
from bridge.stores import rows
from bridge.stores.conversation_scripts import (
    FIND,
    LATEST,
    OWNER,
    Key,
    Stored,
    commit,
    delete,
    fetch,
    head,
    prune,
    turn_line,
)
from bridge.stores.conversation_store import (
    LEASE,
    Bounds,
    Conversation,
    RemoveFiles,
    key,
    plain_id,
    stored_id,
)
from bridge.stores.file_scripts import drop, idle, mark, note, plain
from bridge.stores.held_places import HeldPlaces, QueuedPlace, probe
from bridge.stores.joint import Joint
from bridge.stores.memory_budget import charging
from bridge.stores.scripts import Database, Script, execute


class ConversationStore:
    """Conversations, identified by owner, scope and thread id.

    An `owner` never finds another owner's conversations. `scope` separates equal thread ids of one owner, such as those
    of two routes. Both may be empty.

    Every method may raise `BridgeError` with `STORE_UNAVAILABLE` if the engine fails, with a message that contains
    neither address nor credentials; later calls try again. Ids longer than `MAX_KEY` bytes raise `RequestError`. A
    store belongs to the event loop in which it is first used; several stores, in one or many processes, may share one
    database.
    """

    def __init__(self, database: Database, *, bounds: Bounds | None = None, lease: float = LEASE) -> None:
        self._database = database
        self._bounds = bounds or Bounds()
        self._lease = lease
        self._places = HeldPlaces(database, lease)

    async def open(self) -> None:
        """Connect, and create or migrate the schema. Without it, the first call does so.

        Raises `ConfigError` if a newer version created the database.
        """
        await self._database.open()

    async def close(self) -> None:
        """Release all locks and disconnect. May be called twice; `open` opens again."""
        places, self._places = self._places, HeldPlaces(self._database, self._lease)
        await places.close()

    async def load(self, owner: str, scope: str, thread_id: str, *, messages: bool = True) -> Conversation | None:
        """Return the conversation as of the last commit; None if there is none. Without `messages`, it has none."""
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
        """Append `new` and store the conversation's other fields, in one transaction.

        With `keep`, only that many of `conversation.messages` stay: an edited or regenerated conversation replaces the
        old one. `find` finds the conversation by `digest`.

        With `after`, a new conversation begins with the messages of that one of this owner and scope, which must not
        change any more, and which are not stored again: `new` follows them. They stay when that conversation is
        deleted, and do not become those of `conversation`. Raises `BaseGone`, and stores nothing, if that one does not
        exist, or if both together exceed the bounds.

        Raises `StoreConflict`, and stores nothing, unless the stored version is `conversation.version`. Afterwards
        `conversation` is what `load` would return, so that it may be committed again.

        If the conversation exceeds the bounds, its oldest turns are dropped as a whole (`bridge.stores.bounds`); with
        `headroom`, until it has half of what they allow, so that others may begin with it. If
        this is its first commit and the owner has too many, those unused for longest are deleted.

        A canceled commit has happened completely or not at all. With a `joint` transaction of a store in the same
        database, the commit is a part of that.
        """
        where = key(owner, scope, conversation.thread_id)
        base = None if after is None else key(owner, scope, after)
        change = await rows.change(conversation, new, keep, digest)
        grace = self._places.grace

        def work() -> Script[rows.CommitOutcome]:
            return commit(where, change, self._bounds, grace, base, headroom)

        if joint is not None:
            await self._database.open()  # the other store does not know these tables
        if joint is None or not joint.takes(self._database.place, work, change.settle):
            change.settle(await self._database.write(work))

    async def find(self, owner: str, scope: str, digest: str) -> str | None:
        """Return the thread id of the conversation whose last commit has this digest; of several, the newest.

        It may change before it is locked: compare `Conversation.digest` while holding the lock.
        """
        owner, scope, digest = key(owner, scope, digest)
        return await self._id(FIND, owner=owner, scope=scope, digest=digest)

    async def latest(self, owner: str, scope: str) -> str | None:
        """Return the thread id of the conversation with the newest commit; None if there is none."""
        return await self._id(LATEST, owner=stored_id(owner, "owner"), scope=stored_id(scope, "scope"))

    async def owner(self, scope: str, thread_id: str) -> str | None:
        """Return the owner of the conversation with this id; of several, the oldest. None if there is none."""
        thread = stored_id(thread_id, "conversation id")
        return await self._id(OWNER, scope=stored_id(scope, "scope"), thread=thread)

    async def _id(self, statement: str, **values: str) -> str | None:
        """Return the first id that a statement finds."""
        found = await self._database.read(lambda: execute(statement, **values), snapshot=False)
        return plain_id(found[0][0]) if found else None

    async def delete(self, owner: str, scope: str, thread_id: str, *, files: bool = True) -> bool:
        """Delete a conversation. Return False if there is none. With `files`, the next `prune_files` deletes these."""
        where = key(owner, scope, thread_id)

        def work() -> Script[bool]:
            was_there = yield from delete(where)
            if files:
                yield from mark(where)
            return was_there

        return await self._database.write(work)

    async def note_file(self, owner: str, scope: str, thread_id: str) -> None:
        """A thread, which need not have a conversation, is about to get a file in the store of attachments."""
        where = key(owner, scope, thread_id)
        await self._database.write(lambda: note(where))

    async def prune_files(self, older_than: float, remove: RemoveFiles) -> None:
        """Call `remove` for each thread that got no file for `older_than` seconds and has no conversation any more."""
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
        """Write something, which is undone at once. Raises if the engine cannot be written to."""
        await self._database.write(probe)

    async def prune(self, older_than: float) -> int:
        """Delete conversations without a commit for `older_than` seconds. Return how many.

        Locked ones stay. It uses small transactions, so that other calls do not wait for it.
        """
        grace = self._places.grace
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
        """Lock a conversation, which need not exist, for one run: `async with history.turn(...) as held`.

        There is one holder at a time in all processes that share the store, in order of arrival; different
        conversations do not wait for each other. Waiting may be canceled without side effects. The lock is not
        reentrant.

        The lock is a lease: renewed while it is held, expired some seconds after its process died. A process that was
        suspended for longer may have lost it to another one; then its commit raises `StoreConflict`. The lock
        determines the order; the version alone guarantees consistency.
        """
        self._database.check_open()
        return HeldConversation(self._database, self._places, key(owner, scope, thread_id), self._bounds)


class HeldConversation:
    """A locked conversation: its turn is a place in its line."""

    conversation: Conversation
    """The conversation as it was when it was locked; a new one if there was none."""

    def __init__(self, database: Database, places: HeldPlaces, where: Key, bounds: Bounds) -> None:
        self._database = database
        self._places = places
        self._where = where
        self._bounds = bounds
        self._place: QueuedPlace | None = None

    async def __aenter__(self) -> HeldConversation:
        where, charge = self._where, charging()

        def read(lock: bool) -> Script[Stored | None]:
            return fetch(where, charge, lock=lock)

        self._place, found = await self._places.wait(turn_line(where), read)
        try:
            self.conversation = await rows.loaded(*found) if found is not None else Conversation(plain_id(where[2]))
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    async def _leave(self) -> None:
        if self._place is not None:
            await self._places.leave(self._place)

    async def commit(
        self,
        new: list[Message],
        *,
        keep: int | None = None,
        digest: str | None = None,
        joint: Joint | None = None,
    ) -> None:
        """Commit `conversation` like `ConversationStore.commit` and release the lock, in one transaction.

        If the `joint` transaction takes the commit, the lock is released by that. If it raises, the lock is held until
        the context manager exits. A further commit is made without a lock.
        """
        change = await rows.change(self.conversation, new, keep, digest)
        where, places, place = self._where, self._places, self._place

        def work() -> Script[rows.CommitOutcome]:
            return commit(where, change, self._bounds, places.grace)

        def released(result: tuple[rows.CommitOutcome, str | None]) -> None:
            assert place is not None
            change.settle(result[0])
            places.left(place, result[1])
            self._place = None

        if place is None:
            if joint is None or not joint.takes(self._database.place, work, change.settle):
                change.settle(await self._database.write(work))
        elif joint is None or not joint.takes(self._database.place, partial(places.leaving, place, work), released):
            change.settle(await places.leave_with(place, work))
            self._place = None
