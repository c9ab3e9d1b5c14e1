"""The run store on Redis 6.2 or newer, for any number of machines.

Each transaction is one script, so that a crash leaves numbers, leases and slots consistent. The queue is a list of runs
for each owner, and owners take turns. A worker leases a run and removes it from the queue in one step; from then on,
its lease shows that the worker is alive.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from bridge.errors import ConfigError
from bridge.liveness import Grace, no_grace
from bridge.stores import redis_scripts as scripts
from bridge.stores.base import plain_id, stored_id, unavailable
from bridge.stores.memory_budget import charging
from bridge.stores.notifier import Notifier
from bridge.stores.runs import (
    CANCEL_QUEUED,
    NONE_BLOCKED,
    Blocked,
    Created,
    LeaseLost,
    LogEntry,
    Ownership,
    QueueLimits,
    RunConflict,
    RunKey,
    RunRecord,
    RunState,
    ThreadBusy,
    fitting,
    leased,
    queue_full,
    stored_key,
)

try:
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.exceptions import RedisError
except ImportError:
    raise ConfigError("redis needs the extra redis: pip install 'dialect-bridge[redis]'", key="stores.runs") from None

from bridge.stores.redis_batches import BatchedScript
from bridge.stores.redis_tail import RedisTail
from bridge.stores.tails import Tails

_LOOK = 1.0
"""Seconds between two polls, in case a message was lost."""
_BATCH = 100
_FAILURES = (RedisError, OSError, TimeoutError)


class RedisRuns:
    """A `RunStore` at `url`. `?prefix=name` separates several bridges in one database; default `bridge`."""

    def __init__(self, url: str, *, connections: int = 50) -> None:
        url, prefix = _without_prefix(url)
        self._base = f"{{{prefix}}}"
        self._queue = self._key("bell", "queue")
        self._client = _client(url, connections)
        self._scripts: dict[str, Any] = {}
        self._notifier: Notifier[str] = Notifier()
        self._tail = RedisTail(self._client, self._notifier)
        self._tails: Tails[str] = Tails()
        self._appends = BatchedScript(self._client, scripts.APPEND)
        self._closed = False
        self._commands: set[asyncio.Future[Any]] = set()

    async def open(self) -> None:
        self._closed = False
        await self._run(self._client.ping)

    async def close(self) -> None:
        self._closed = True
        await self._tail.close()
        self._tails.clear()
        await asyncio.gather(*self._commands, return_exceptions=True)
        await self._client.aclose()

    # ------------------------------------------------------------------ names

    def _key(self, kind: str, *names: str) -> str:
        return ":".join((self._base, kind, *names))

    def _names(self, key: RunKey) -> _Names:
        owner, scope, thread, run = (_quoted(piece) for piece in stored_key(key))
        return _Names(self, owner, scope, thread, run)

    # ------------------------------------------------------------------ runs

    async def create(
        self, key: RunKey, fingerprint: str, plan: str, *, alone: bool = False, limits: QueueLimits | None = None
    ) -> Created:
        n, most = self._names(key), limits or QueueLimits()
        shared = (self._key("threads"), self._key("turns"), self._key("open"))
        keys = [n.run_key, n.thread_key, n.runs_key, n.owners_key, n.line_key, *shared]
        head = (n.run, n.thread, n.owner, fingerprint, plan, uuid.uuid4().hex, int(alone), self._key("run", ""))
        maximums = ["" if limit is None else limit for limit in (most.owner, most.scope, most.all)]
        new, first, fields = await self._call(scripts.CREATE, keys, *head, self._queue, n.base_scope, *maximums)
        if new < 0:
            raise queue_full(("of this user", "of this route", "of this server")[-new - 1])
        if not fields:
            raise ThreadBusy
        if new:
            self._notifier.notify(self._queue)
        record = _record(key, _pairs(fields))
        if record.fingerprint != fingerprint:
            raise RunConflict
        return Created(record, bool(new), bool(first))

    async def get(self, key: RunKey) -> RunRecord | None:
        n, charge = self._names(key), charging()
        charge(("plan", key), int(await self._run(lambda: self._client.hstrlen(n.run_key, "plan"))))
        fields = await self._run(lambda: self._client.hgetall(n.run_key))
        return _record(key, fields) if fields else None

    async def latest(self, owner: str, scope: str, thread_id: str) -> RunRecord | None:
        n = self._names(RunKey(owner, scope, thread_id, ""))
        name = await self._run(lambda: self._client.hget(n.thread_key, "latest"))
        return await self.get(_parse(name)) if name else None

    async def delete(self, key: RunKey) -> bool:
        n = self._names(key)
        keys = [n.run_key, n.events_key, self._key("ended"), n.runs_key]
        self._tails.forget(n.channel)
        return bool(await self._call(scripts.DELETE, keys, n.run))

    async def thread(self, owner: str, scope: str, thread_id: str, *, make: bool = False) -> Ownership:
        n = self._names(RunKey(owner, scope, thread_id, ""))
        keys = [n.thread_key, n.owners_key, self._key("threads")]
        return Ownership(await self._call(scripts.THREAD, keys, n.thread, n.owner, int(make)))

    # ------------------------------------------------------------------ the log

    async def append(self, key: RunKey, token: str, position: int, bodies: Sequence[str], *, end: bool = False) -> int:
        n = self._names(key)
        keys = [n.run_key, n.thread_key, n.events_key, *map(self._key, ("leases", "ended", "threads", "open"))]
        head = (n.run, n.thread, token, position, int(end), n.channel, n.owner, n.base_scope)
        last: int
        last, new, before = await self._run(lambda: self._appends.call(keys, *head, *bodies))
        if last < 0:
            self._tails.forget(n.channel)
            raise LeaseLost
        written = bodies[len(bodies) - new :]
        self._tails.add(n.channel, before, [LogEntry(last - new + 1 + i, body) for i, body in enumerate(written)])
        self._notifier.notify(n.channel)
        return last

    async def read(self, key: RunKey, after: int = 0, *, wait: float = 0.0, limit: int = 500) -> list[LogEntry]:
        n = self._names(key)
        if wait <= 0:
            return await self._range(n, after, limit)
        clock = asyncio.get_running_loop().time
        until = clock() + wait
        # Listen before the first read, so that no entry is missed.
        with self._notifier.listen(n.channel) as listener:
            found = self._tails.since(n.channel, after) if after else None
            if found is None:
                found = await self._read_log(n, after, limit)
            else:
                # This process writes the run: messages of Redis about it are not needed.
                await self._tail.unfollow(n.channel)
            while not found and clock() < until:
                await listener.wait(min(_LOOK, until - clock()))
                found = self._tails.since(n.channel, after) or await self._read_log(n, after, limit)
        return found[:limit]

    async def _read_log(self, n: _Names, after: int, limit: int) -> list[LogEntry]:
        await self._run(lambda: self._tail.follow(n.channel))
        found = await self._range(n, after, limit)
        if not found and not after:
            self._tails.forget(n.channel)
        return found

    async def _range(self, n: _Names, after: int, limit: int) -> list[LogEntry]:
        found = await self._run(lambda: self._client.xrange(n.events_key, f"{after + 1}-0", "+", limit))
        return fitting(LogEntry(int(number.partition("-")[0]), fields["body"]) for number, fields in found)

    # ------------------------------------------------------------------ leases

    async def claim(
        self, token: str, lease: float, *, wait: float = 0.0, blocked: Blocked = NONE_BLOCKED
    ) -> RunRecord | None:
        clock = asyncio.get_running_loop().time
        until = clock() + wait
        with self._notifier.listen(self._queue) as listener:
            if wait > 0:
                await self._run(lambda: self._tail.follow(self._queue))
            while (record := await leased(self, token, self._next(token, lease, blocked))) is None and clock() < until:
                await listener.wait(min(_LOOK, until - clock()))
                await self._run(lambda: self._tail.follow(self._queue))
        return record

    async def _next(self, token: str, lease: float, blocked: Blocked) -> RunRecord | None:
        owners = [_quoted(stored_id(owner, "owner")) for owner in blocked.owners]
        scopes = [_quoted(stored_id(scope, "scope")) for scope in blocked.scopes]
        keys = [self._key("turns"), self._key("leases")]
        prefixes = (self._key("line", ""), self._key("run", ""))
        found = await self._call(scripts.CLAIM, keys, token, lease, *prefixes, len(owners), *owners, *scopes)
        return _record(_parse(found[0]), _pairs(found[1])) if found else None

    async def acquire(self, key: RunKey, token: str, lease: float, *, grace: Grace = no_grace) -> RunRecord | None:
        n = self._names(key)
        fields = await self._call(scripts.LEASE, [n.run_key, self._key("leases")], n.run, token, lease, grace())
        return _record(key, _pairs(fields)) if fields else None

    async def renew(self, keys: Sequence[RunKey], token: str, lease: float) -> set[RunKey]:
        names = [self._names(key) for key in keys]
        places = [self._key("leases"), *(n.run_key for n in names)]
        held = await self._call(scripts.RENEW, places, token, lease, *(n.run for n in names))
        return {key for key, is_held in zip(keys, held, strict=True) if is_held}

    async def release(self, key: RunKey, token: str) -> None:
        n = self._names(key)
        keys = [n.run_key, self._key("leases"), n.line_key, self._key("turns")]
        await self._call(scripts.RELEASE, keys, n.run, token, n.owner, self._queue)
        self._notifier.notify(self._queue)

    async def lost(self, *, grace: Grace = no_grace) -> list[RunKey]:
        return [_parse(name) for name in await self._call(scripts.DUE, [self._key("leases")], grace(), _BATCH)]

    # ------------------------------------------------------------------ cancels

    async def cancel(self, key: RunKey, reason: str = "") -> None:
        name = self._names(key).cancel_key
        await self._run(lambda: self._client.set(name, reason, ex=int(CANCEL_QUEUED)))

    async def canceled(self, keys: Sequence[RunKey]) -> dict[RunKey, str]:
        if not keys:
            return {}
        names = [self._names(key).cancel_key for key in keys]
        found = await self._run(lambda: self._client.mget(names))
        return {key: reason for key, reason in zip(keys, found, strict=True) if reason is not None}

    # ------------------------------------------------------------------ reader slots

    async def enter(self, owner: str, token: str, limit: int, seconds: float, *, grace: Grace = no_grace) -> bool:
        return bool(await self._call(scripts.ENTER, [self._slots_key(owner)], token, limit, seconds, grace()))

    async def leave(self, owner: str, token: str) -> None:
        keys = self._slots_key(owner)
        await self._run(lambda: self._client.zrem(keys, token))

    def _slots_key(self, owner: str) -> str:
        return self._key("places", _quoted(stored_id(owner, "owner")))

    # ------------------------------------------------------------------ retention

    async def sweep(self, events: float, threads: float) -> int:
        self._tails.clear()
        total = 0
        while names := await self._call(scripts.DUE, [self._key("ended")], events, _BATCH):
            for name in names:
                n = self._names(_parse(name))
                keys = [n.run_key, n.events_key, self._key("ended")]
                total += await self._call(scripts.FORGET, keys, n.run)
        for name in await self._call(scripts.DUE, [self._key("threads")], threads, 10 * _BATCH):
            n = self._names(_parse(f"{name}:"))
            keys = [n.thread_key, n.runs_key, n.owners_key, self._key("threads"), self._key("ended")]
            prefixes = (self._key("run", ""), self._key("events", ""))
            await self._call(scripts.FORGET_THREAD, keys, n.thread, n.owner, *prefixes)
        return total

    # ------------------------------------------------------------------ the client

    async def _call(self, script: str, keys: Sequence[str], *arguments: Any) -> Any:
        if script not in self._scripts:
            self._scripts[script] = self._client.register_script(script)
        return await self._run(lambda: self._scripts[script](keys=keys, args=arguments))

    async def _run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        if self._closed:
            raise unavailable("redis", "closed", "run")
        # A separate task: a command that is canceled halfway would lose its connection, and the client may swallow the
        # cancellation (redis-py 8.1 does so while it takes a connection from the pool).
        task = asyncio.ensure_future(work())
        self._commands.add(task)
        task.add_done_callback(self._done)
        try:
            return await asyncio.shield(task)
        except _FAILURES as error:
            reason = type(error).__name__
        # Outside of the handler: the client's own text may name hosts and values.
        raise unavailable("redis", reason, "run")

    def _done(self, command: asyncio.Future[Any]) -> None:
        self._commands.discard(command)
        if not command.cancelled():
            command.exception()  # retrieved, as the caller may be gone


class _Names:
    """The names and keys of one run, quoted pieces that `:` separates."""

    def __init__(self, store: RedisRuns, owner: str, scope: str, thread: str, run: str) -> None:
        self.owner = owner
        self.base_scope = scope.partition("%23")[0]
        self.thread = f"{owner}:{scope}:{thread}"
        self.run = f"{self.thread}:{run}"
        key = store._key
        self.run_key = key("run", self.run)
        self.cancel_key = key("cancel", self.run)
        self.channel = key("bell", self.run)
        self.thread_key = key("thread", self.thread)
        self.events_key = key("events", self.run)
        self.line_key = key("line", owner)
        self.runs_key = key("runs", self.thread)
        self.owners_key = key("owners", scope, thread)


def _quoted(piece: str) -> str:
    return quote(piece, safe="")


def _parse(name: str) -> RunKey:
    return RunKey(*(plain_id(unquote(piece)) for piece in name.split(":")))


def _pairs(flat: Any) -> dict[str, str]:
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))


def _record(key: RunKey, fields: Mapping[str, str]) -> RunRecord:
    ended, last = fields.get("ended_at"), fields.get("last")
    if ended is not None:
        state = RunState.ENDED
    else:
        state = RunState.RUNNING if "token" in fields else RunState.QUEUED
    return RunRecord(
        key,
        fields["task_id"],
        fields["fingerprint"],
        state,
        float(fields["created_at"]),
        None if ended is None else float(ended),
        int(fields["entries"]),
        None if last is None else int(last),
        fields["whole"] == "1",
        fields.get("plan", ""),
    )


def open_client(url: str) -> tuple[Redis, str]:
    """Return a client of the Redis at `url`, and the prefix of all keys. Raises `ConfigError`."""
    url, prefix = _without_prefix(url)
    return _client(url, 10), prefix


def _without_prefix(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    prefix = query.pop("prefix", "bridge")
    return urlunsplit(parts._replace(query=urlencode(query))), prefix


def _client(url: str, connections: int) -> Redis:
    try:
        pool = BlockingConnectionPool.from_url(
            url, max_connections=connections, timeout=10, decode_responses=True, socket_timeout=5, protocol=2
        )
        # This does not connect, and rejects unknown options.
        pool.make_connection()  # type: ignore[no-untyped-call]
        return Redis.from_pool(pool)  # which closes the pool with itself
    except (ValueError, TypeError):
        pass
    raise ConfigError("expected redis://user:password@host:port/database for the run store")
