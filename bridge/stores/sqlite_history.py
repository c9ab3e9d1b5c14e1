"""The history in one SQLite file, which several processes of one machine may share."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeAlias

from bridge.liveness import Grace, Liveness, no_grace
from bridge.model.parts import Message
from bridge.stores import machine, rows, schema
from bridge.stores.base import LEASE, Bounds, Conversation, HeldConversation, StoreConflict, key, plain_id, stored_id
from bridge.stores.locks import ConversationLocks, Key, Read
from bridge.stores.memory_budget import Charge, charging
from bridge.stores.sqlite_file import SQLiteFile

_Stored: TypeAlias = tuple[tuple[Any, ...], list[str]]
"""A conversation's row and its messages' bodies, as `rows.to_conversation` takes them."""

_BATCH = 100

_KEY = "owner = ? AND scope = ? AND thread_id = ?"
_LIVE = """EXISTS (SELECT 1 FROM history_turns t WHERE t.owner = c.owner AND t.scope = c.scope
    AND t.thread_id = c.thread_id AND t.expires > ?)"""

_ROW = f"SELECT id, {rows.COLUMNS} FROM history_conversations WHERE {_KEY}"
_SIZE = f"""SELECT size + length(CAST(beside AS BLOB)) + ifnull(length(CAST(tools AS BLOB)), 0)
    FROM history_conversations WHERE {_KEY}"""
_STATE = f"SELECT version, id, dropped, next_seq, messages, size FROM history_conversations WHERE {_KEY}"
_FIND = """SELECT thread_id FROM history_conversations WHERE owner = ? AND scope = ? AND digest = ?
    ORDER BY updated_at DESC, id DESC LIMIT 1"""
_LATEST = """SELECT thread_id FROM history_conversations WHERE owner = ? AND scope = ?
    ORDER BY updated_at DESC, id DESC LIMIT 1"""
_OWNER = "SELECT owner FROM history_conversations WHERE scope = ? AND thread_id = ? ORDER BY id LIMIT 1"
_CREATE = """INSERT INTO history_conversations (version, updated_at, digest, dropped, next_seq, messages, size, tools,
    beside, owner, scope, thread_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_UPDATE = """UPDATE history_conversations SET version = ?, updated_at = ?, digest = ?, dropped = ?, next_seq = ?,
    messages = ?, size = ?, tools = ?, beside = ? WHERE id = ?"""
_APPEND = """INSERT INTO history_messages (conversation, seq, role, size, commit_version, links, body)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_SHRINK = "UPDATE history_conversations SET dropped = ?, messages = ?, size = ? WHERE id = ?"
_EVICT = f"""DELETE FROM history_conversations AS c WHERE id IN (SELECT id FROM history_conversations WHERE owner = ?
    ORDER BY updated_at DESC, id DESC LIMIT -1 OFFSET ?) AND NOT {_LIVE}"""
_ENTER = "INSERT INTO history_turns (owner, scope, thread_id, expires) VALUES (?, ?, ?, ?)"
_HAS = "SELECT 1 FROM history_turns WHERE ticket = ?"
_LEAVE = "DELETE FROM history_turns WHERE ticket = ?"
_FIRST = f"SELECT ticket, expires FROM history_turns WHERE {_KEY} ORDER BY ticket LIMIT 1"
_RENEW = "UPDATE history_turns SET expires = ? WHERE ticket = ?"


class SQLiteHistory:
    """A `ConversationStore` in the file at `path`, whose folder is created. `:memory:` is lost on close.

    A write waits up to `busy` seconds for another process before it raises `STORE_UNAVAILABLE`.
    """

    def __init__(self, path: str, *, bounds: Bounds | None = None, lease: float = LEASE, busy: float = 5.0) -> None:
        self._file = SQLiteFile(path, (schema.HISTORY,), busy)
        self._bounds = bounds or Bounds()
        self._lease = lease
        self._life = Liveness(lease)
        self._turns: ConversationLocks | None = None

    async def open(self) -> None:
        await self._file.open()

    async def close(self) -> None:
        turns, self._turns = self._turns, None
        if turns is not None:
            await turns.close()
        await self._file.close()

    # -------------------------------------------------------------------- conversations

    async def load(self, owner: str, scope: str, thread_id: str) -> Conversation | None:
        where = key(owner, scope, thread_id)
        charge = charging()
        found = await self._file.read(lambda db: _fetch(db, where, charge))
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
        change.settle(await self._file.write(lambda db: commit(db, where, change, self._bounds, grace)))

    async def find(self, owner: str, scope: str, digest: str) -> str | None:
        return await self._id(_FIND, *key(owner, scope, digest))

    async def latest(self, owner: str, scope: str) -> str | None:
        return await self._id(_LATEST, stored_id(owner, "owner"), stored_id(scope, "scope"))

    async def owner(self, scope: str, thread_id: str) -> str | None:
        return await self._id(_OWNER, stored_id(scope, "scope"), stored_id(thread_id, "conversation id"))

    async def _id(self, query: str, *where: str) -> str | None:
        """Return the first id that a query finds."""
        found = await self._file.read(lambda db: db.execute(query, where).fetchone())
        return plain_id(found[0]) if found is not None else None

    async def delete(self, owner: str, scope: str, thread_id: str) -> bool:
        where = key(owner, scope, thread_id)
        return await self._file.write(
            lambda db: db.execute(f"DELETE FROM history_conversations WHERE {_KEY}", where).rowcount > 0
        )

    async def prune(self, older_than: float) -> int:
        def work(db: sqlite3.Connection) -> int:
            now = machine.now() - self._life.grace()
            db.execute("DELETE FROM history_turns WHERE expires <= ?", (now - self._lease,))
            return db.execute(
                "DELETE FROM history_conversations WHERE id IN (SELECT id FROM history_conversations c"
                f" WHERE updated_at <= ? AND NOT {_LIVE} ORDER BY updated_at LIMIT {_BATCH})",
                (time.time() - older_than, now),
            ).rowcount

        total = 0
        while True:
            count = await self._file.write(work)
            total += count
            if count < _BATCH:
                return total

    def turn(self, owner: str, scope: str, thread_id: str) -> AbstractAsyncContextManager[HeldConversation]:
        self._file.check_open()
        if self._turns is None:
            tickets = _Tickets(self._file, self._lease, self._bounds, self._life.grace)
            self._turns = ConversationLocks(tickets, "sqlite", self._lease, self._life)
        return self._turns.turn(key(owner, scope, thread_id))


def head(db: sqlite3.Connection, where: Key) -> Conversation | None:
    """Return the conversation without its messages; None if there is none."""
    found = db.execute(_ROW, where).fetchone()
    return rows.to_conversation(found[1:], ()) if found is not None else None


def load(db: sqlite3.Connection, where: Key) -> Conversation | None:
    """Return the conversation with its messages; None if there is none."""
    found = _fetch(db, where, charging())
    return rows.to_conversation(*found) if found is not None else None


def _fetch(db: sqlite3.Connection, where: Key, charge: Charge) -> _Stored | None:
    """Return the stored texts, which are parsed after the transaction. Raises what `charge` raises."""
    size = db.execute(_SIZE, where).fetchone()
    if size is None:
        return None
    charge(("conversation", where), size[0])
    found = db.execute(_ROW, where).fetchone()
    if found is None:
        return None
    row_id, *row = found
    bodies = db.execute("SELECT body FROM history_messages WHERE conversation = ? ORDER BY seq", (row_id,))
    return tuple(row), [body for (body,) in bodies]


def commit(
    db: sqlite3.Connection, where: Key, change: rows.Change, bounds: Bounds, grace: Grace = no_grace
) -> rows.Outcome:
    """See `ConversationStore.commit`; pass the outcome to `change.settle`. Raises `StoreConflict`."""
    now = time.time()
    version, place, dropped, seq, count, size = db.execute(_STATE, where).fetchone() or (0, None, 0, 0, 0, 0)
    if version != change.conversation.version:
        raise StoreConflict
    if place is not None and change.keep is not None:
        cut_count, cut_size = _cut(db, place, change.keep)
        count, size, dropped = count - cut_count, size - cut_size, dropped if change.keep else 0
    added = change.rows
    count, size = count + len(added), size + change.size
    state = (version + 1, now, change.name, dropped, seq + len(added), count, size, change.tools, change.beside)
    if place is None:
        place = db.execute(_CREATE, (*state, *where)).lastrowid
    else:
        db.execute(_UPDATE, (*state, place))
    db.executemany(
        _APPEND,
        ((place, seq + n, row.role, row.size, version + 1, row.links, row.body) for n, row in enumerate(added)),
    )
    gone: list[int] = []
    if rows.over(count, size, bounds):
        gone, cut_size = _drop(db, place, bounds)
        dropped += len(gone)
        db.execute(_SHRINK, (dropped, count - len(gone), size - cut_size, place))
    if version == 0 and place is not None and bounds.evicts_at(place):
        db.execute(_EVICT, (where[0], bounds.conversations, machine.now() - grace()))
    return rows.Outcome(version + 1, dropped, now, gone)


def _cut(db: sqlite3.Connection, place: int, keep: int) -> tuple[int, int]:
    """Delete all messages after the first `keep`. Return their number and size."""
    first = db.execute(
        "SELECT seq FROM history_messages WHERE conversation = ? ORDER BY seq LIMIT 1 OFFSET ?", (place, keep)
    ).fetchone()
    if first is None:
        return 0, 0
    behind = (place, first[0])
    count, size = db.execute(
        "SELECT count(*), sum(size) FROM history_messages WHERE conversation = ? AND seq >= ?", behind
    ).fetchone()
    db.execute("DELETE FROM history_messages WHERE conversation = ? AND seq >= ?", behind)
    return count, size


def _drop(db: sqlite3.Connection, place: int | None, bounds: Bounds) -> tuple[list[int], int]:
    """Delete what exceeds the bounds. Return the positions and the total size."""
    all_rows = db.execute(
        "SELECT seq, role, size, commit_version, links FROM history_messages WHERE conversation = ? ORDER BY seq",
        (place,),
    ).fetchall()
    indexes, seqs = rows.too_many(all_rows, bounds)
    db.executemany("DELETE FROM history_messages WHERE conversation = ? AND seq = ?", ((place, seq) for seq in seqs))
    return indexes, sum(all_rows[n][2] for n in indexes)


class _Tickets:
    """The tickets of `bridge.stores.locks` in the same file."""

    def __init__(self, file: SQLiteFile, lease: float, bounds: Bounds, grace: Grace) -> None:
        self._file = file
        self._lease = lease
        self._bounds = bounds
        self._grace = grace

    async def enter(self, key: Key, own: Sequence[int]) -> tuple[int, Read | None]:
        charge = charging()

        def work(db: sqlite3.Connection) -> tuple[int, Read | None]:
            first = self._first(db, key, own)
            ticket = db.execute(_ENTER, (*key, machine.now() + self._lease)).lastrowid
            assert ticket is not None
            return ticket, partial(_conversation, key, _fetch(db, key, charge)) if first is None else None

        return await self._file.write(work)

    async def load(self, key: Key) -> Conversation:
        charge = charging()
        return await _conversation(key, await self._file.read(lambda db: _fetch(db, key, charge)))

    async def leave(self, key: Key, ticket: int, own: Sequence[int]) -> int | None:
        return await self._file.write(lambda db: self._leave(db, key, ticket, own))

    async def commit(self, key: Key, ticket: int, own: Sequence[int], change: rows.Change) -> int | None:
        def work(db: sqlite3.Connection) -> tuple[rows.Outcome, int | None]:
            if ticket and not db.execute(_HAS, (ticket,)).fetchone():
                raise StoreConflict  # another process has taken the lock, and may have read the conversation
            return commit(db, key, change, self._bounds, self._grace), self._leave(db, key, ticket, own)

        outcome, first = await self._file.write(work)
        change.settle(outcome)
        return first

    async def first(self, key: Key, own: Sequence[int]) -> int | None:
        return await self._file.write(lambda db: self._first(db, key, own))

    async def due(self, tickets: Sequence[int]) -> list[int]:
        def work(db: sqlite3.Connection) -> list[int]:
            now = machine.now() - self._grace()
            return [
                ticket
                for ticket in tickets
                if db.execute(
                    "SELECT NOT EXISTS (SELECT 1 FROM history_turns o WHERE o.owner = t.owner AND o.scope = t.scope"
                    " AND o.thread_id = t.thread_id AND o.ticket < t.ticket AND o.expires > ?)"
                    " FROM history_turns t WHERE t.ticket = ?",
                    (now, ticket),
                ).fetchone()
                == (1,)
            ]

        return await self._file.read(work)

    async def renew(self, tickets: Sequence[int]) -> list[int]:
        def work(db: sqlite3.Connection) -> list[int]:
            return [ticket for ticket in tickets if self._renew(db, ticket)]

        return await self._file.write(work, first=True)

    def _renew(self, db: sqlite3.Connection, ticket: int) -> bool:
        return db.execute(_RENEW, (machine.now() + self._lease, ticket)).rowcount > 0

    def _leave(self, db: sqlite3.Connection, key: Key, ticket: int, own: Sequence[int]) -> int | None:
        db.execute(_LEAVE, (ticket,))
        return self._first(db, key, own) if own else None

    def _first(self, db: sqlite3.Connection, key: Key, own: Sequence[int]) -> int | None:
        """Delete expired tickets before the first valid one. Return it."""
        for ticket in own:
            self._renew(db, ticket)
        now = machine.now() - self._grace()
        while (found := db.execute(_FIRST, key).fetchone()) is not None and found[1] <= now:
            db.execute(_LEAVE, found[:1])
        return found[0] if found is not None else None


async def _conversation(key: Key, found: _Stored | None) -> Conversation:
    return await rows.loaded(*found) if found is not None else Conversation(plain_id(key[2]))
