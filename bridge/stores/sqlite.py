"""The history in one SQLite file, which several processes of one machine may share."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from bridge.model.parts import Message
from bridge.stores import rows, schema
from bridge.stores.base import LEASE, Bounds, Conversation, conflict, key, plain_id, stored_id
from bridge.stores.sqlite_file import SQLiteFile
from bridge.stores.turns import Key, Turns

_BATCH = 100

_KEY = "owner = ? AND scope = ? AND thread_id = ?"
_LIVE = """EXISTS (SELECT 1 FROM history_turns t WHERE t.owner = c.owner AND t.scope = c.scope
    AND t.thread_id = c.thread_id AND t.expires > ?)"""


class SQLiteHistory:
    """A `History` in the file at `path`; its folder is made. `:memory:` is forgotten on close.

    `busy` is how many seconds a write waits for another process before it is `STORE_UNAVAILABLE`.
    """

    def __init__(self, path: str, *, bounds: Bounds | None = None, lease: float = LEASE, busy: float = 5.0) -> None:
        self._file = SQLiteFile(path, schema.HISTORY, busy)
        self._bounds = bounds or Bounds()
        self._lease = lease
        self._turns: Turns | None = None

    async def open(self) -> None:
        await self._file.open()

    async def close(self) -> None:
        turns, self._turns = self._turns, None
        if turns is not None:
            await turns.close()
        await self._file.close()

    # -------------------------------------------------------------------- talks

    async def load(self, owner: str, scope: str, thread_id: str) -> Conversation | None:
        where = key(owner, scope, thread_id)
        return await self._file.read(lambda db: load(db, where))

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
        name = None if digest is None else stored_id(digest, "digest")

        def work(db: sqlite3.Connection) -> rows.Outcome:
            return commit(db, where, conversation, new, keep, name, self._bounds)

        rows.settle(conversation, keep, new, digest, await self._file.write(work))

    async def find(self, owner: str, scope: str, digest: str) -> str | None:
        where = key(owner, scope, digest)

        def work(db: sqlite3.Connection) -> str | None:
            found = db.execute(
                "SELECT thread_id FROM history_conversations WHERE owner = ? AND scope = ? AND digest = ?"
                " ORDER BY updated_at DESC, id DESC LIMIT 1",
                where,
            ).fetchone()
            return plain_id(found[0]) if found else None

        return await self._file.read(work)

    async def latest(self, owner: str, scope: str) -> str | None:
        where = (stored_id(owner, "owner"), stored_id(scope, "scope"))

        def work(db: sqlite3.Connection) -> str | None:
            found = db.execute(
                "SELECT thread_id FROM history_conversations WHERE owner = ? AND scope = ?"
                " ORDER BY updated_at DESC, id DESC LIMIT 1",
                where,
            ).fetchone()
            return plain_id(found[0]) if found else None

        return await self._file.read(work)

    async def delete(self, owner: str, scope: str, thread_id: str) -> bool:
        where = key(owner, scope, thread_id)
        return await self._file.write(
            lambda db: db.execute(f"DELETE FROM history_conversations WHERE {_KEY}", where).rowcount > 0
        )

    async def prune(self, older_than: float) -> int:
        def work(db: sqlite3.Connection) -> int:
            now = time.time()
            db.execute("DELETE FROM history_turns WHERE expires <= ?", (now - self._lease,))
            return db.execute(
                "DELETE FROM history_conversations WHERE id IN (SELECT id FROM history_conversations c"
                f" WHERE updated_at <= ? AND NOT {_LIVE} ORDER BY updated_at LIMIT {_BATCH})",
                (now - older_than, now),
            ).rowcount

        total = 0
        while True:
            count = await self._file.write(work)
            total += count
            if count < _BATCH:
                return total

    def turn(self, owner: str, scope: str, thread_id: str) -> AbstractAsyncContextManager[None]:
        self._file.check_open()
        if self._turns is None:
            self._turns = Turns(_Tickets(self._file, self._lease), "sqlite", self._lease)
        return self._turns.turn(key(owner, scope, thread_id))


def head(db: sqlite3.Connection, where: Key) -> tuple[int, Conversation] | None:
    """Its row and the conversation without its messages; None when there is none."""
    found = db.execute(f"SELECT id, {rows.COLUMNS} FROM history_conversations WHERE {_KEY}", where).fetchone()
    return (found[0], rows.to_conversation(found[1:], ())) if found is not None else None


def load(db: sqlite3.Connection, where: Key) -> Conversation | None:
    """The whole of it; None when there is none."""
    found = head(db, where)
    if found is None:
        return None
    place, conversation = found
    bodies = db.execute("SELECT body FROM history_messages WHERE conversation = ? ORDER BY seq", (place,))
    conversation.messages = rows.from_bodies(body for (body,) in bodies)
    return conversation


def commit(
    db: sqlite3.Connection,
    where: Key,
    conversation: Conversation,
    new: list[Message],
    keep: int | None,
    digest: str | None,
    bounds: Bounds,
) -> rows.Outcome:
    """See `History.commit`; `rows.settle` tells the conversation of the outcome. Raises `StoreConflict`."""
    now = time.time()
    found = db.execute(
        f"SELECT version, id, dropped, next_seq, messages, size FROM history_conversations WHERE {_KEY}", where
    ).fetchone()
    if (found[0] if found else 0) != conversation.version:
        raise conflict()
    version, dropped, seq, count, size = conversation.version + 1, 0, 0, 0, 0
    tools, beside = rows.beside(conversation)
    if found is None:
        place = db.execute(
            "INSERT INTO history_conversations (owner, scope, thread_id, version, updated_at, dropped, next_seq,"
            " messages, size, beside) VALUES (?, ?, ?, 0, ?, 0, 0, 0, 0, '')",
            (*where, now),
        ).lastrowid
    else:
        _, place, dropped, seq, count, size = found
        if keep is not None:
            cut_count, cut_size = _cut(db, place, keep)
            count, size, dropped = count - cut_count, size - cut_size, dropped if keep else 0
    added = rows.to_rows(new)
    db.executemany(
        "INSERT INTO history_messages (conversation, seq, role, size, commit_version, links, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        ((place, seq + n, row.role, row.size, version, row.links, row.body) for n, row in enumerate(added)),
    )
    count, size = count + len(added), size + sum(row.size for row in added)
    gone: list[int] = []
    if rows.over(count, size, bounds):
        gone, cut_size = _drop(db, place, bounds)
        count, size, dropped = count - len(gone), size - cut_size, dropped + len(gone)
    db.execute(
        "UPDATE history_conversations SET version = ?, updated_at = ?, digest = ?, dropped = ?, next_seq = ?,"
        " messages = ?, size = ?, tools = ?, beside = ? WHERE id = ?",
        (version, now, digest, dropped, seq + len(added), count, size, tools, beside, place),
    )
    if found is None and place is not None and bounds.evicts_at(place):
        db.execute(
            "DELETE FROM history_conversations AS c WHERE id IN (SELECT id FROM history_conversations WHERE owner = ?"
            f" ORDER BY updated_at DESC, id DESC LIMIT -1 OFFSET ?) AND NOT {_LIVE}",
            (where[0], bounds.conversations, now),
        )
    return rows.Outcome(version, dropped, now, gone)


def _cut(db: sqlite3.Connection, place: int, keep: int) -> tuple[int, int]:
    """Deletes all messages behind the first `keep`; says how many and how large they were."""
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
    """Deletes what is over the bounds; says which places and how large they were."""
    all_rows = db.execute(
        "SELECT seq, role, size, commit_version, links FROM history_messages WHERE conversation = ? ORDER BY seq",
        (place,),
    ).fetchall()
    places, seqs = rows.too_many(all_rows, bounds)
    db.executemany("DELETE FROM history_messages WHERE conversation = ? AND seq = ?", ((place, seq) for seq in seqs))
    return places, sum(all_rows[n][2] for n in places)


class _Tickets:
    """The tickets of `bridge.stores.turns` in the same file."""

    def __init__(self, file: SQLiteFile, lease: float) -> None:
        self._file = file
        self._lease = lease

    async def enter(self, key: Key, mine: Sequence[int]) -> tuple[int, bool]:
        def work(db: sqlite3.Connection) -> tuple[int, bool]:
            first = self._clean(db, key, mine)
            ticket = db.execute(
                "INSERT INTO history_turns (owner, scope, thread_id, expires) VALUES (?, ?, ?, ?)",
                (*key, time.time() + self._lease),
            ).lastrowid
            assert ticket is not None
            return ticket, first is None

        return await self._file.write(work)

    async def leave(self, key: Key, ticket: int, mine: Sequence[int]) -> int | None:
        def work(db: sqlite3.Connection) -> int | None:
            db.execute("DELETE FROM history_turns WHERE ticket = ?", (ticket,))
            return self._clean(db, key, mine)

        return await self._file.write(work)

    async def first(self, key: Key, mine: Sequence[int]) -> int | None:
        return await self._file.write(lambda db: self._clean(db, key, mine))

    async def due(self, tickets: Sequence[int]) -> list[int]:
        def work(db: sqlite3.Connection) -> list[int]:
            now = time.time()
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

        return await self._file.write(work)

    def _renew(self, db: sqlite3.Connection, ticket: int) -> bool:
        until = time.time() + self._lease
        return db.execute("UPDATE history_turns SET expires = ? WHERE ticket = ?", (until, ticket)).rowcount > 0

    def _clean(self, db: sqlite3.Connection, key: Key, mine: Sequence[int]) -> int | None:
        """Takes away expired tickets of the line, but not `mine`; the first that is left."""
        for ticket in mine:
            self._renew(db, ticket)
        db.execute(f"DELETE FROM history_turns WHERE {_KEY} AND expires <= ?", (*key, time.time()))
        found: int | None = db.execute(f"SELECT min(ticket) FROM history_turns WHERE {_KEY}", key).fetchone()[0]
        return found
