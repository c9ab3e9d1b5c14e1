"""The history in PostgreSQL (11 or newer), for bridges on several machines. Needs the extra `postgres`.

Transactions run at READ COMMITTED: a commit locks the row of its conversation, and an advisory lock protects the queue
of a conversation, so that tickets are committed in the order of their numbers. All times are the server's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import asyncpg

from bridge.errors import ConfigError
from bridge.liveness import Grace, Liveness
from bridge.model.parts import Message
from bridge.stores import rows, schema
from bridge.stores.base import (
    LEASE,
    Bounds,
    Conversation,
    HeldConversation,
    StoreConflict,
    key,
    plain_id,
    stored_id,
    unavailable,
)
from bridge.stores.locks import ConversationLocks, Key, Read
from bridge.stores.memory_budget import FREE, Charge, charging
from bridge.stores.postgres import _migrate

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    _Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

_T = TypeVar("_T")
_BATCH = 100

_FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

_NOW = "extract(epoch FROM clock_timestamp())::double precision"
_KEY = "owner = $1 AND scope = $2 AND thread_id = $3"
_LIVE = f"""EXISTS (SELECT 1 FROM history_turns t WHERE t.owner = c.owner AND t.scope = c.scope
    AND t.thread_id = c.thread_id AND t.expires > {_NOW} - {{grace}})"""

# The size, and the rest if it is at most $4.
_LOAD = f"""SELECT s.total, l.* FROM (
        SELECT id, size + octet_length(beside) + coalesce(octet_length(tools), 0) AS total
        FROM history_conversations WHERE {_KEY}
    ) s LEFT JOIN LATERAL (
        SELECT {rows.COLUMNS}, ARRAY(SELECT body FROM history_messages m WHERE m.conversation = c.id ORDER BY seq)
        FROM history_conversations c WHERE c.id = s.id AND s.total <= $4::bigint
    ) l ON true"""
_ANY_SIZE = 2**63 - 1
_FIND = """SELECT thread_id FROM history_conversations WHERE owner = $1 AND scope = $2 AND digest = $3
    ORDER BY updated_at DESC, id DESC LIMIT 1"""
_LATEST = """SELECT thread_id FROM history_conversations WHERE owner = $1 AND scope = $2
    ORDER BY updated_at DESC, id DESC LIMIT 1"""
_OWNER = "SELECT owner FROM history_conversations WHERE scope = $1 AND thread_id = $2 ORDER BY id LIMIT 1"
_DELETE = f"DELETE FROM history_conversations WHERE {_KEY}"
_PRUNE_TURNS = f"""DELETE FROM history_turns WHERE ticket IN (SELECT ticket FROM history_turns
    WHERE expires <= {_NOW} - $1::double precision ORDER BY ticket FOR UPDATE SKIP LOCKED)"""
# A subquery reads the clock once: compared with a volatile function, no row would be found by an index.
_PRUNE = f"""DELETE FROM history_conversations WHERE id IN (SELECT id FROM history_conversations c
    WHERE updated_at <= (SELECT {_NOW} - $1::double precision) AND NOT {_LIVE.format(grace="$2::double precision")}
    ORDER BY updated_at LIMIT {_BATCH} FOR UPDATE SKIP LOCKED)"""
_EVICT = f"""DELETE FROM history_conversations WHERE id IN (SELECT id FROM history_conversations c
    WHERE id = ANY(ARRAY(SELECT id FROM history_conversations WHERE owner = $1
    ORDER BY updated_at DESC, id DESC OFFSET $2)) AND NOT {_LIVE.format(grace="$3::double precision")}
    FOR UPDATE SKIP LOCKED)"""

_LOCK = f"SELECT version, id, dropped, next_seq, messages, size FROM history_conversations WHERE {_KEY} FOR UPDATE"
_CREATE = f"""INSERT INTO history_conversations (version, digest, dropped, next_seq, messages, size, tools, beside,
    owner, scope, thread_id, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, {_NOW})
    ON CONFLICT DO NOTHING RETURNING id, updated_at"""
_UPDATE = f"""UPDATE history_conversations SET version = $1, digest = $2, dropped = $3, next_seq = $4, messages = $5,
    size = $6, tools = $7, beside = $8, updated_at = {_NOW} WHERE id = $9 RETURNING id, updated_at"""
_APPEND = """INSERT INTO history_messages (conversation, commit_version, seq, role, size, links, body)
    SELECT $1, $2, * FROM unnest($3::bigint[], $4::text[], $5::bigint[], $6::text[], $7::text[])"""
_SHRINK = "UPDATE history_conversations SET dropped = $2, messages = $3, size = $4 WHERE id = $1"
_CUT = """WITH gone AS (DELETE FROM history_messages WHERE conversation = $1 AND seq >= (SELECT seq
    FROM history_messages WHERE conversation = $1 ORDER BY seq LIMIT 1 OFFSET $2) RETURNING size)
    SELECT count(*), coalesce(sum(size), 0)::bigint FROM gone"""
_ENTRIES = """SELECT seq, role, size, commit_version, links FROM history_messages
    WHERE conversation = $1 ORDER BY seq"""
_DROP = "DELETE FROM history_messages WHERE conversation = $1 AND seq = ANY($2::bigint[])"

# A crash of the server may lose tickets, whose leases it ends anyway: a transaction that changes nothing else ($2) does
# not wait for the disk.
_LINE = """SELECT pg_advisory_xact_lock(hashtextextended('bridge history ' || $1, 0)),
    CASE WHEN $2 THEN set_config('synchronous_commit', 'off', true) END"""
# Tickets are always locked in the order of their numbers, which prevents deadlocks.
_CLEAN = f"""WITH line AS (SELECT ticket, expires FROM history_turns WHERE {_KEY} ORDER BY ticket FOR UPDATE),
    renewed AS (UPDATE history_turns t SET expires = {_NOW} + $5 FROM line
        WHERE t.ticket = line.ticket AND t.ticket = ANY($4::bigint[])),
    gone AS (DELETE FROM history_turns t USING line WHERE t.ticket = line.ticket
        AND (t.ticket = $6 OR line.expires <= {_NOW} - $7::double precision AND t.ticket <> ALL($4::bigint[]))
        RETURNING t.ticket)
    SELECT min(ticket) FROM line WHERE ticket NOT IN (SELECT ticket FROM gone)"""
_HAS = "SELECT ticket FROM history_turns WHERE ticket = $1"
_ENTER = (
    f"INSERT INTO history_turns (owner, scope, thread_id, expires) VALUES ($1, $2, $3, {_NOW} + $4) RETURNING ticket"
)
_DUE = f"""SELECT t.ticket FROM history_turns t WHERE t.ticket = ANY($1::bigint[]) AND NOT EXISTS (
    SELECT 1 FROM history_turns o WHERE o.owner = t.owner AND o.scope = t.scope AND o.thread_id = t.thread_id
    AND o.ticket < t.ticket AND o.expires > {_NOW} - $2::double precision)"""
_RENEW = f"""UPDATE history_turns SET expires = {_NOW} + $2 WHERE ticket IN (SELECT ticket FROM history_turns
    WHERE ticket = ANY($1::bigint[]) ORDER BY ticket FOR UPDATE) RETURNING ticket"""


class PostgresHistory:
    """A `ConversationStore` in the database at `url`, with any parameters of libpq (`?sslmode=require`)."""

    def __init__(self, url: str, *, bounds: Bounds | None = None, lease: float = LEASE, connections: int = 10) -> None:
        self._url = url
        self._bounds = bounds or Bounds()
        self._lease = lease
        self._life = Liveness(lease)
        self._connections = connections
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._connecting = asyncio.Lock()
        self._turns: ConversationLocks | None = None
        self._closed = False

    async def open(self) -> None:
        self._closed = False
        await self._run(_nothing)

    async def close(self) -> None:
        turns, self._turns = self._turns, None
        if turns is not None:
            await turns.close()
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(5):
                    await pool.close()
            except _FAILURES:
                pool.terminate()

    # -------------------------------------------------------------------- conversations

    async def load(self, owner: str, scope: str, thread_id: str) -> Conversation | None:
        where, charge = key(owner, scope, thread_id), charging()
        return await _loaded(await self._run(lambda db: _fetch(db, where, charge)))

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

        async def work(db: _Connection) -> rows.Outcome:
            async with db.transaction():
                return await _commit(db, where, change, self._bounds, self._life.grace)

        change.settle(await self._run(work))

    async def find(self, owner: str, scope: str, digest: str) -> str | None:
        return await self._id(_FIND, *key(owner, scope, digest))

    async def latest(self, owner: str, scope: str) -> str | None:
        return await self._id(_LATEST, stored_id(owner, "owner"), stored_id(scope, "scope"))

    async def owner(self, scope: str, thread_id: str) -> str | None:
        return await self._id(_OWNER, stored_id(scope, "scope"), stored_id(thread_id, "conversation id"))

    async def _id(self, query: str, *where: str) -> str | None:
        """Return the first id that a query finds."""
        found = await self._run(lambda db: db.fetchval(query, *where))
        return None if found is None else plain_id(found)

    async def delete(self, owner: str, scope: str, thread_id: str) -> bool:
        where = key(owner, scope, thread_id)
        return _count(await self._run(lambda db: db.execute(_DELETE, *where))) > 0

    async def prune(self, older_than: float) -> int:
        await self._run(lambda db: db.execute(_PRUNE_TURNS, self._lease + self._life.grace()))
        total = 0
        while True:
            count = _count(await self._run(lambda db: db.execute(_PRUNE, older_than, self._life.grace())))
            total += count
            if count < _BATCH:
                return total

    def turn(self, owner: str, scope: str, thread_id: str) -> AbstractAsyncContextManager[HeldConversation]:
        if self._closed:
            raise unavailable("postgresql", "closed")
        if self._turns is None:
            tickets = _Tickets(self, self._lease, self._bounds, self._life.grace)
            self._turns = ConversationLocks(tickets, "postgresql", self._lease, self._life)
        return self._turns.turn(key(owner, scope, thread_id))

    # -------------------------------------------------------------------- the pool

    async def _run(self, work: Callable[[_Connection], Awaitable[_T]]) -> _T:
        try:
            pool = self._pool or await self._connect()
            async with pool.acquire(timeout=10) as db:
                return await work(db)
        except _FAILURES as error:
            reason = getattr(error, "sqlstate", None) or type(error).__name__
        # Outside of the handler: the driver's own text may name hosts, users and values.
        raise unavailable("postgresql", reason)

    async def _connect(self) -> asyncpg.Pool[asyncpg.Record]:
        async with self._connecting:
            if self._closed:
                raise unavailable("postgresql", "closed")
            if self._pool is None:
                await _migrate(self._url, (schema.HISTORY,))
                pool = await self._make_pool()
                self._pool = pool
        return self._pool

    async def _make_pool(self) -> asyncpg.Pool[asyncpg.Record]:
        try:
            return await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=self._connections,
                timeout=10,
                command_timeout=30,
                reset=_nothing,  # all settings and locks end with their transaction
            )
        except (asyncpg.ClientConfigurationError, ValueError):
            pass
        raise ConfigError("expected postgresql://user:password@host:port/database for the history store")


async def _commit(db: _Connection, where: Key, change: rows.Change, bounds: Bounds, grace: Grace) -> rows.Outcome:
    found = await db.fetchrow(_LOCK, *where)
    version, row_id, dropped, seq, count, size = found or (0, None, 0, 0, 0, 0)
    if version != change.conversation.version:
        raise StoreConflict
    if row_id is not None and change.keep is not None:
        cut = await db.fetchrow(_CUT, row_id, change.keep)
        assert cut is not None
        count, size, dropped = count - cut[0], size - cut[1], dropped if change.keep else 0
    added = change.rows
    count, size = count + len(added), size + change.size
    state = (version + 1, change.name, dropped, seq + len(added), count, size, change.tools, change.beside)
    written = await (db.fetchrow(_CREATE, *state, *where) if row_id is None else db.fetchrow(_UPDATE, *state, row_id))
    if written is None:
        raise StoreConflict  # another process has just created it
    row_id, now = written
    if added:
        columns = [list(column) for column in zip(*((r.role, r.size, r.links, r.body) for r in added), strict=True)]
        await db.execute(_APPEND, row_id, version + 1, list(range(seq, seq + len(added))), *columns)
    gone: list[int] = []
    if rows.over(count, size, bounds):
        entries = [tuple(row) for row in await db.fetch(_ENTRIES, row_id)]
        gone, seqs = rows.too_many(entries, bounds)
        await db.execute(_DROP, row_id, seqs)
        dropped += len(gone)
        await db.execute(_SHRINK, row_id, dropped, count - len(gone), size - sum(entries[n][2] for n in gone))
    if version == 0 and bounds.evicts_at(row_id):
        await db.execute(_EVICT, where[0], bounds.conversations, grace())
    return rows.Outcome(version + 1, dropped, now, gone)


async def _fetch(db: _Connection, where: Key, charge: Charge) -> asyncpg.Record | None:
    """Return the row of a conversation, with its size in front; a large one by a second query, once it is charged.

    Raises what `charge` raises.
    """
    found = await db.fetchrow(_LOAD, *where, FREE)
    if found is None:
        return None
    charge(("conversation", where), found[0])
    return found if found[1] is not None else await db.fetchrow(_LOAD, *where, _ANY_SIZE)


async def _loaded(found: asyncpg.Record | None) -> Conversation | None:
    if found is None:
        return None
    _, *head, bodies = found
    return await rows.loaded(head, bodies)


class _Tickets:
    """The tickets of `bridge.stores.locks` in the same database."""

    def __init__(self, history: PostgresHistory, lease: float, bounds: Bounds, grace: Grace) -> None:
        self._history = history
        self._lease = lease
        self._bounds = bounds
        self._grace = grace

    async def enter(self, key: Key, own: Sequence[int]) -> tuple[int, Read | None]:
        charge = charging()

        async def work(db: _Connection) -> tuple[int, Read | None]:
            async with db.transaction():
                first = await self._clean(db, key, own)
                ticket: int = await db.fetchval(_ENTER, *key, self._lease)
                return ticket, partial(_conversation, key, await _fetch(db, key, charge)) if first is None else None

        return await self._history._run(work)

    async def load(self, key: Key) -> Conversation:
        charge = charging()
        return await _conversation(key, await self._history._run(lambda db: _fetch(db, key, charge)))

    async def leave(self, key: Key, ticket: int, own: Sequence[int]) -> int | None:
        async def work(db: _Connection) -> int | None:
            async with db.transaction():
                return await self._clean(db, key, own, ticket)

        return await self._history._run(work)

    async def commit(self, key: Key, ticket: int, own: Sequence[int], change: rows.Change) -> int | None:
        async def work(db: _Connection) -> tuple[rows.Outcome, int | None]:
            async with db.transaction():
                await db.execute(_LINE, "\t".join(key), False)
                if ticket and await db.fetchval(_HAS, ticket) is None:
                    raise StoreConflict  # another process has taken the lock, and may have read the conversation
                outcome = await _commit(db, key, change, self._bounds, self._grace)
                return outcome, await self._clean(db, key, own, ticket, lasting=True)

        outcome, first = await self._history._run(work)
        change.settle(outcome)
        return first

    async def first(self, key: Key, own: Sequence[int]) -> int | None:
        return await self.leave(key, 0, own)

    async def due(self, tickets: Sequence[int]) -> list[int]:
        found = await self._history._run(lambda db: db.fetch(_DUE, list(tickets), self._grace()))
        return [row[0] for row in found]

    async def renew(self, tickets: Sequence[int]) -> list[int]:
        found = await self._history._run(lambda db: db.fetch(_RENEW, list(tickets), self._lease))
        return [row[0] for row in found]

    async def _clean(
        self, db: _Connection, key: Key, own: Sequence[int], ticket: int = 0, *, lasting: bool = False
    ) -> int | None:
        """Delete `ticket` and the expired tickets of the queue, but not `own`. Return the first that is left.

        No other process changes the queue until the transaction ends. With `lasting`, a crash cannot undo it.
        """
        await db.execute(_LINE, "\t".join(key), not lasting)
        first: int | None = await db.fetchval(_CLEAN, *key, list(own), self._lease, ticket, self._grace())
        return first


async def _conversation(key: Key, found: asyncpg.Record | None) -> Conversation:
    return await _loaded(found) or Conversation(plain_id(key[2]))


async def _nothing(db: object) -> None:
    pass


def _count(status: Any) -> int:
    """Return the number of rows in a command's status, such as `DELETE 3`."""
    return int(str(status).rpartition(" ")[2])
