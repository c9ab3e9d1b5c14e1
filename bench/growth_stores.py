"""What one look into a store costs as it fills. Rows come by SQL in bulk, into the store's own tables."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bridge.model import Message, Text
from bridge.server.auth.api_keys import Key, Keys
from bridge.stores import Conversation, RunKey, open_conversations, open_runs

THREADS = (1_000, 10_000, 100_000, 1_000_000)
KEYS = (1, 1_000, 10_000, 100_000)
OWNERS = 1_000
CALLS = 150
NOW = 1_700_000_000

# From the thread {low} to before {high}; engines differ in how a series is written.
HISTORY = (
    """INSERT INTO history_conversations (owner, scope, thread_id, version, updated_at, digest, dropped, next_seq,
        messages, size, beside)
        SELECT 'u' || (n % {owners}), 's', 't' || n, 1, {now} + n, 'd' || n, 0, 2, 2, 200, '[null,[],{{}}]'
        FROM {series}""",
    """INSERT INTO history_messages (conversation, seq, role, size, commit_version, links, body)
        SELECT c.id, k, CASE k WHEN 0 THEN 'user' ELSE 'assistant' END, 100, 1, NULL, '{body}'
        FROM {series} JOIN history_conversations c ON c.thread_id = 't' || n AND c.owner = 'u' || (n % {owners})
        AND c.scope = 's' CROSS JOIN (SELECT 0 AS k UNION ALL SELECT 1) m""",
)
_RUNS = (
    """INSERT INTO run_threads (owner, scope, thread_id, updated_at)
        SELECT 'u' || (n % {owners}), 's', 't' || n, {now} + n FROM {series}""",
    """INSERT INTO runs (thread, run_id, task_id, fingerprint, created_at, holder, ended_at, entries, kept, owner,
        route)
        SELECT t.id, 'r0', 'x' || n, 'f', {now}, 'gone', {now} + n, 2, 2, t.owner, 's' FROM {series}
        JOIN run_threads t ON t.thread_id = 't' || n AND t.owner = 'u' || (n % {owners}) AND t.scope = 's'""",
    """INSERT INTO run_plans (run, body) SELECT r.id, '{{}}' FROM {series}
        JOIN run_threads t ON t.thread_id = 't' || n AND t.owner = 'u' || (n % {owners}) AND t.scope = 's'
        JOIN runs r ON r.thread = t.id""",
    """INSERT INTO run_entries (run, position, body) SELECT r.id, k, '[0,[]]' FROM {series}
        JOIN run_threads t ON t.thread_id = 't' || n AND t.owner = 'u' || (n % {owners}) AND t.scope = 's'
        JOIN runs r ON r.thread = t.id CROSS JOIN (SELECT 0 AS k UNION ALL SELECT 1) m""",
)


def filled(statement: str, low: int, high: int, series: str) -> str:
    body = sizes_body()
    return statement.format(owners=OWNERS, now=NOW, body=body, series=series.format(low=low, high=high - 1))


def sizes_body() -> str:
    """A message as the store writes it."""
    from bridge.stores.rows import to_row

    return to_row(Message("user", [Text("Some words of a user, about as many as he says.")])).body.replace("'", "''")


SQLITE = "(WITH RECURSIVE s(n) AS (SELECT {low} UNION ALL SELECT n + 1 FROM s WHERE n < {high}) SELECT n FROM s) x"
POSTGRES = "generate_series({low}, {high}) AS x(n)"


async def timed(work: Callable[[int], Awaitable[Any]]) -> dict[str, float]:
    """Microseconds of one call: the median by the clock, and the mean of this process's CPU."""
    await work(0)
    walls, cpu = [], time.process_time()
    for n in range(CALLS):
        began = time.perf_counter()
        await work(n + 1)
        walls.append(time.perf_counter() - began)
    return {
        "us": round(statistics.median(walls) * 1e6, 1),
        "cpu_us": round((time.process_time() - cpu) / CALLS * 1e6, 1),
    }


def conversations(store: Any, count: int) -> dict[str, Callable[[int], Awaitable[Any]]]:
    pick = random.Random(count)

    def one() -> tuple[str, str, str]:
        n = pick.randrange(count)
        return f"u{n % OWNERS}", "s", f"t{n}"

    async def commit(_: int) -> None:
        owner, scope, thread = one()
        conversation = await store.load(owner, scope, thread)
        await store.commit(owner, scope, conversation, [Message("user", [Text("x")])])

    async def digest(_: int) -> None:
        n = pick.randrange(count)
        await store.find(f"u{n % OWNERS}", "s", f"d{n}")

    async def begin(n: int) -> None:
        await store.commit(one()[0], "s", Conversation(f"new-{count}-{n}"), [Message("user", [Text("x")])])

    return {
        "load a conversation": lambda _: store.load(*one()),
        "load and append": commit,
        "find a conversation by digest": digest,
        "latest conversation of an owner": lambda _: store.latest(*one()[:2]),
        "begin a conversation": begin,
        "prune with nothing to delete": lambda _: store.prune(10 * 365 * 86400.0),
    }


def kept_runs(store: Any, count: int) -> dict[str, Callable[[int], Awaitable[Any]]]:
    pick = random.Random(count)

    def one(run: str = "r0") -> RunKey:
        n = pick.randrange(count)
        return RunKey(f"u{n % OWNERS}", "s", f"t{n}", run)

    mine = RunKey("u1", "s", f"mine-{count}", "r")

    async def append(n: int) -> None:
        if not n:
            await store.create(mine, "f", "{}")
            await store.acquire(mine, "me", 3600)
        await store.append(mine, "me", n, ["[0,[]]"])

    async def start(n: int) -> None:
        thread = count // 2 + n * (count // 2 // (CALLS + 1))  # none that a smaller store had
        await store.create(RunKey(f"u{thread % OWNERS}", "s", f"t{thread}", f"r-{count}"), "f", "{}", alone=True)

    async def whole_life(n: int) -> None:
        await store.create(RunKey("u2", "s", f"life-{count}-{n}", "r"), "f", "{}")
        record = await store.claim("me", 3600)
        await store.append(record.key, "me", 0, ["[0,[]]"], end=True)

    return {
        "append an entry": append,
        "load a run": lambda _: store.get(one()),
        "read the entries of a run": lambda _: store.read(one()),
        "latest run of a thread": lambda _: store.latest(one().owner, "s", one().thread_id),
        "find the owner of a thread": lambda _: store.thread("nobody", "s", one().thread_id),
        "start, claim and end a run": whole_life,
        "start a run in an existing thread": start,
        "find lost runs": lambda _: store.lost(),
        "cancel": lambda _: store.cancel(one()),
    }


async def _grow(engine: str, store: Any, operations: Any, fill: Callable[[int, int], Any]) -> list[dict[str, Any]]:
    await store.open()
    rows: dict[str, dict[str, Any]] = {}
    before = 0
    for count in THREADS:
        done = fill(before, count)
        if asyncio.iscoroutine(done):
            await done
        before = count
        for name, work in operations(store, count).items():
            found = await timed(work)
            row = rows.setdefault(name, {"engine": engine, "what": name, "n": [], "us": [], "cpu_us": []})
            row["n"].append(count)
            row["us"].append(found["us"])
            row["cpu_us"].append(found["cpu_us"])
        print(f"  {engine}: {count:,} threads", flush=True)
    await store.close()
    return list(rows.values())


async def sqlite(folder: Path) -> list[dict[str, Any]]:
    path = folder / "growth.db"

    def filler(statements: tuple[str, ...]) -> Callable[[int, int], None]:
        def fill(low: int, high: int) -> None:
            with sqlite3.connect(path, timeout=60) as db:
                for statement in statements:
                    db.execute(filled(statement, low, high, SQLITE))
            db.close()

        return fill

    found = await _grow("sqlite", open_conversations(f"sqlite:///{path}"), conversations, filler(HISTORY))
    return found + await _grow("sqlite", open_runs(f"sqlite:///{path}"), kept_runs, filler(_RUNS))


async def postgresql() -> list[dict[str, Any]]:
    """On a server of its own, which the tests know how to start."""
    import asyncpg

    from tests.stores.conftest import Server

    server = Server()
    try:

        def filler(statements: tuple[str, ...]) -> Callable[[int, int], Awaitable[None]]:
            return partial(fill, statements)

        async def fill(statements: tuple[str, ...], low: int, high: int) -> None:
            db = await asyncpg.connect(server.url)
            for statement in statements:
                await db.execute(filled(statement, low, high, POSTGRES), timeout=600)
            await db.execute("ANALYZE", timeout=600)
            await db.close()

        found = await _grow("postgresql", open_conversations(server.url), conversations, filler(HISTORY))
        return found + await _grow("postgresql", open_runs(server.url), kept_runs, filler(_RUNS))
    finally:
        server.remove()


def keys() -> list[dict[str, Any]]:
    """API keys: one request's look for its own."""
    out: dict[str, Any] = {"engine": "memory", "what": "find an API key", "n": [], "us": [], "cpu_us": []}
    for count in KEYS:
        known = Keys([Key(f"user{n}", Keys.digest(f"key{n}"), frozenset("*")) for n in range(count)])
        sent = [f"key{random.randrange(count)}" for _ in range(2000)]
        began, cpu = time.perf_counter(), time.process_time()
        for key in sent:
            known.find(key)
        out["n"].append(count)
        out["us"].append(round((time.perf_counter() - began) / len(sent) * 1e6, 2))
        out["cpu_us"].append(round((time.process_time() - cpu) / len(sent) * 1e6, 2))
    return [out]


def measure() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="growth-") as folder:
        found = asyncio.run(sqlite(Path(folder)))
    return keys() + found + asyncio.run(postgresql())
