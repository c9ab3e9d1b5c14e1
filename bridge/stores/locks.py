"""One run at a time per conversation, in order of arrival, in one process and across many.

A run takes a numbered ticket in the conversation's queue in the database; the lowest ticket holds the lock. Tickets are
leases: `ConversationLocks` renews all tickets of its process at once, and those of a dead process expire. An expired
ticket can be renewed until another process deletes it, and a process deletes the expired tickets before its own when it
takes the lock, if its own renewals have gone well (`bridge.stores.liveness`). So at most one ticket holds a lock at any
time, whatever the clocks say.

Where the database has no space for a ticket, the run goes on without one, so that its client gets the answer. The
version of the conversation then refuses the later of two commits.

Within a process, the holder hands the lock to the next ticket directly. The database is polled, with one query for all
queues, only while another process holds a lock.

The transaction that creates a ticket also reads the conversation if the ticket comes first, and the commit of the run
deletes the ticket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from bridge.errors import BridgeError
from bridge.model.parts import Message
from bridge.stores import rows
from bridge.stores.conversation_scripts import Key
from bridge.stores.conversation_store import Conversation, HeldConversation, StoreFull, unavailable
from bridge.stores.joint import Joint
from bridge.stores.liveness import Liveness
from bridge.stores.tickets import Read, Tickets

_log = logging.getLogger(__name__)

POLL = 0.05
"""Seconds between two polls for locks that other processes hold."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """A ticket of this process in a queue, and the run that waits for it.

    The result of `let_in` is set when it holds the lock: a function that reads the conversation. `leaving` is True
    while the ticket is being deleted.
    """

    key: Key
    let_in: asyncio.Future[Read]
    ticket: int | None = None
    holds: bool = False
    leaving: bool = False


class _Queue:
    """This process's part of a conversation's queue; `async with` orders its database calls. Dropped when unused."""

    def __init__(self, forget: Callable[[], object]) -> None:
        self.places: dict[int, _Waiter] = {}
        self._forget = forget
        self._lock = asyncio.Lock()
        self._users = 0

    async def __aenter__(self) -> _Queue:
        self._users += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._users -= 1
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
        self._users -= 1
        if not self._users and not self.places:
            self._forget()


class ConversationLocks:
    """The conversation locks of one store in one process, whose `life` gets the result of every renewal."""

    def __init__(self, tickets: Tickets, engine: str, lease: float, life: Liveness) -> None:
        self._tickets = tickets
        self._engine = engine
        self._lease = lease
        self._life = life
        self._queues: dict[Key, _Queue] = {}
        self._left: list[tuple[Key, int]] = []  # tickets that could not be deleted yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._maintainer: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._idle = True  # the maintainer has nothing to wait for
        self._closed = False
        self._failing_since: float | None = None

    def turn(self, key: Key) -> _Held:
        """Return a context manager that waits for the lock and holds it."""
        return _Held(self, _Waiter(key, asyncio.get_running_loop().create_future()))

    async def close(self) -> None:
        """Delete all tickets; runs that still wait get an error."""
        self._closed = True
        if self._maintainer is not None:
            self._maintainer.cancel()
            with suppress(asyncio.CancelledError):
                await self._maintainer
            self._maintainer = None
        while True:
            for waiter in self._waiters():
                self._refuse(waiter, unavailable(self._engine, "closed"))
                self._spawn(self._leave(waiter))
            if not self._tasks:
                break
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._left.clear()

    # -------------------------------------------------------------------- one ticket

    def _queue(self, key: Key) -> _Queue:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(partial(self._queues.pop, key))
        return queue

    async def wait(self, waiter: _Waiter) -> Conversation:
        """Return the conversation once the lock is held."""
        # Calls of the database are separate tasks: a canceled caller must not leave a ticket behind.
        self._spawn(self._enter(waiter))
        try:
            return await (await waiter.let_in)()
        except BaseException:
            self._spawn(self._leave(waiter))
            raise

    async def _enter(self, waiter: _Waiter) -> None:
        try:
            async with self._queue(waiter.key) as queue:
                if waiter.let_in.done():
                    return  # cancelled meanwhile
                waiter.ticket, read = await self._tickets.enter(waiter.key, list(queue.places))
                queue.places[waiter.ticket] = waiter
                if read is not None:
                    self._let_in(waiter, read)
        except StoreFull:
            # Nobody can take a ticket then, and no two runs of a conversation can both be stored: the version decides.
            _log.warning("no space for the lock of a conversation: its run continues without one")
            self._let_in(waiter)
            return
        except Exception as error:
            self._refuse(waiter, error)
            return
        if self._maintainer is None and not self._closed:
            self._maintainer = asyncio.create_task(self._maintain(), name="conversation-locks")
        if self._idle or read is None:
            self._wake.set()

    async def commit(self, waiter: _Waiter, change: rows.Change, joint: Joint | None = None) -> None:
        """Store the change and delete the ticket. After a cancellation or an error, `leave` is still needed, and where
        the `joint` transaction is to store the change.
        """
        work = partial(self._tickets.deferred, waiter.key, waiter.ticket or 0, change)
        if joint is not None and joint.takes(self._tickets.place, work, change.settle):
            return
        async with self._queue(waiter.key) as queue:
            ticket, waiter.leaving = waiter.ticket or 0, True
            try:
                others = [other for other in queue.places if other != ticket]
                first = await self._tickets.commit(waiter.key, ticket, others, change)
            except Exception:
                waiter.leaving = False
                raise
            queue.places.pop(ticket, None)
            waiter.ticket = None
            self._moved_up(queue, first)

    async def leave(self, waiter: _Waiter) -> None:
        """Delete the ticket, unless a commit did."""
        if waiter.ticket is not None:
            await asyncio.shield(self._spawn(self._leave(waiter)))

    async def _leave(self, waiter: _Waiter) -> None:
        async with self._queue(waiter.key) as queue:
            ticket = waiter.ticket
            if ticket is None or queue.places.pop(ticket, None) is None:
                return  # lost, or deleted by `close`
            try:
                first = await self._tickets.leave(waiter.key, ticket, list(queue.places))
            except BridgeError:
                # The caller's run is over, so it is not told. The maintainer tries again until the ticket expires.
                self._left.append((waiter.key, ticket))
                self._wake.set()
                return
            self._moved_up(queue, first)

    def _moved_up(self, queue: _Queue, first: int | None) -> None:
        """Let in the first of the queue, if it is of this process."""
        self._let_in(queue.places.get(first or 0))
        if queue.places and first not in queue.places:
            self._wake.set()  # another process is next

    def _let_in(self, waiter: _Waiter | None, read: Read | None = None) -> None:
        if waiter is not None and not waiter.let_in.done():
            waiter.holds = True
            waiter.let_in.set_result(read or partial(self._tickets.load, waiter.key))

    def _refuse(self, waiter: _Waiter, error: Exception) -> None:
        if not waiter.let_in.done():
            waiter.let_in.set_exception(error)

    # -------------------------------------------------------------------- all tickets

    async def _maintain(self) -> None:
        """Renew tickets, delete those in `_left`, and poll for locks that have become free."""
        clock = asyncio.get_running_loop().time
        failures = 0
        while True:
            self._idle = not self._queues and not self._left
            if self._idle:
                self._life.restart()
            soon = self._left or self._held_elsewhere()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self._idle else POLL if soon else self._life.due_in):
                    await self._wake.wait()
            self._wake.clear()
            try:
                if self._life.due:
                    await self._renew()
                await self._delete_left()
                await self._poll()
                self._failing_since, failures = None, 0
            except Exception as error:
                if not isinstance(error, BridgeError):
                    _log.exception("conversation locks cannot be renewed")
                self._failed(clock())
                failures += 1
                await asyncio.sleep(min(POLL * 2 ** min(failures, 9), self._lease / 6, 1.0))

    async def _delete_left(self) -> None:
        for key, ticket in self._left[:]:
            async with self._queue(key) as queue:
                first = await self._tickets.leave(key, ticket, list(queue.places))
                self._left.remove((key, ticket))
                self._let_in(queue.places.get(first or 0))

    async def _renew(self) -> None:
        waiters = self._waiters()
        try:
            there = set(await self._tickets.renew([p.ticket for p in waiters if p.ticket is not None]))
        except BaseException:
            self._life.failed()
            raise
        self._life.renewed()
        for waiter in waiters:
            known = self._queues[waiter.key].places if waiter.key in self._queues else {}
            if waiter.ticket in there or waiter.leaving or known.get(waiter.ticket or 0) is not waiter:
                continue
            del known[waiter.ticket or 0]
            if waiter.holds:
                _log.warning("a conversation lock was lost: this process was blocked for longer than %g s", self._lease)
            else:
                waiter.ticket = None
                self._spawn(self._enter(waiter))

    async def _poll(self) -> None:
        waiting = self._held_elsewhere()
        if not waiting:
            return
        for ticket in await self._tickets.due(list(waiting)):
            async with self._queue(waiting[ticket].key) as queue:
                if ticket in queue.places:
                    first = await self._tickets.first(waiting[ticket].key, list(queue.places))
                    self._let_in(queue.places.get(first or 0))

    def _failed(self, now: float) -> None:
        if self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since > self._lease:
            # By now the tickets may have expired: an error is better than waiting forever.
            for waiter in self._waiters():
                self._refuse(waiter, unavailable(self._engine, "lost"))

    def _held_elsewhere(self) -> dict[int, _Waiter]:
        """Return the first own ticket of each queue whose lock this process does not hold."""
        out = {}
        for queue in self._queues.values():
            if queue.places and not any(waiter.holds for waiter in queue.places.values()):
                ticket = min(queue.places)
                out[ticket] = queue.places[ticket]
        return out

    def _waiters(self) -> list[_Waiter]:
        return [waiter for queue in self._queues.values() for waiter in queue.places.values()]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Held:
    """See `bridge.stores.conversation_store.HeldConversation`."""

    conversation: Conversation

    def __init__(self, locks: ConversationLocks, waiter: _Waiter) -> None:
        self._locks = locks
        self._waiter = waiter

    async def __aenter__(self) -> HeldConversation:
        self.conversation = await self._locks.wait(self._waiter)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._locks.leave(self._waiter)

    async def commit(
        self,
        new: list[Message],
        *,
        keep: int | None = None,
        digest: str | None = None,
        joint: Joint | None = None,
    ) -> None:
        await self._locks.commit(self._waiter, await rows.change(self.conversation, new, keep, digest), joint)
