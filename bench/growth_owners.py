"""A million conversations of one owner, and of many: what a turn costs, and what their deletion costs others."""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import growth_stores
from growth_stores import NOW, filled
from run_store import database, ms, quantile

from bridge.model import Message, Text
from bridge.stores import Conversation, open_conversations

COUNT = 1_000_000
OWNERS = (1, 100_000)
OLD = 100_000
"""Conversations that are deleted."""
CALLS = 200
TURNS = 100
LEASE = 3.0


async def fill(url: str, owners: int, count: int) -> None:
    growth_stores.OWNERS = owners
    statements, path = growth_stores.HISTORY, url.removeprefix("sqlite:///")
    if path != url:
        with closing(sqlite3.connect(path, timeout=60)) as db, db:
            for statement in statements:
                db.execute(filled(statement, 0, count, growth_stores.SQLITE))
        return
    import asyncpg

    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(filled(statement, 0, count, growth_stores.POSTGRES), timeout=3600)
    await connection.execute("ANALYZE", timeout=600)
    await connection.close()


async def timed(work: Callable[[int], Awaitable[Any]]) -> float:
    """The median of one call in milliseconds."""
    found = []
    for n in range(CALLS):
        began = time.perf_counter()
        await work(n)
        found.append(time.perf_counter() - began)
    return ms(statistics.median(found))


async def one(engine: str, url: str, owners: int, count: int = COUNT, old: int = OLD) -> dict[str, Any]:
    """Fill the database, and measure."""
    store: Any = open_conversations(url, lease=LEASE)
    other: Any = open_conversations(url, lease=LEASE)
    await store.open()
    await fill(url, owners, count)
    pick = random.Random(count)

    def place() -> tuple[str, str, str]:
        n = pick.randrange(old, count)
        return f"u{n % owners}", "s", f"t{n}"

    async def turn(owner: str, scope: str, thread: str) -> None:
        async with store.turn(owner, scope, thread) as held:
            await held.commit([Message("user", [Text("x")])])

    async def find(_: int) -> None:
        n = pick.randrange(old, count)
        await store.find(f"u{n % owners}", "s", f"d{n}")

    row: dict[str, Any] = {"engine": engine, "conversations": count, "owners": owners, "deleted": old}
    row["turn_ms"] = await timed(lambda _: turn(*place()))
    row["begin_ms"] = await timed(lambda n: turn(place()[0], "s", f"new{n}"))
    row["find_ms"] = await timed(find)
    row["latest_ms"] = await timed(lambda _: store.latest(*place()[:2]))

    # Another process holds turns and goes on with its conversations while this one deletes.
    times: list[float] = []
    renewals: list[float] = []
    renew = other._places._renew

    async def renewed() -> None:
        await renew()
        renewals.append(time.perf_counter())

    other._places._renew = renewed

    async def held(n: int) -> None:
        async with other.turn("holder", "s", f"h{n}"):
            await asyncio.Event().wait()

    async def talk() -> None:
        conversation = Conversation("talk")
        while True:
            began = time.perf_counter()
            async with other.turn("holder", "s", conversation.thread_id) as mine:
                await mine.commit([Message("user", [Text("x")])])
            times.append(time.perf_counter() - began)
            await asyncio.sleep(0.02)

    tasks = [asyncio.create_task(held(n)) for n in range(TURNS)] + [asyncio.create_task(talk())]
    await asyncio.sleep(3 * LEASE)
    quiet, times[:] = list(times), []
    began = time.perf_counter()
    row["pruned"] = await store.prune(time.time() - NOW - old)
    row["prune_s"] = round(time.perf_counter() - began, 1)
    lost = len([task for task in tasks if task.done()])
    row["turns_held"] = sum(place.turn.done() for place in other._places._queued()) if not lost else 0
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.close()
    await other.close()
    row["longest_time_between_renewals_s"] = round(max(b - a for a, b in itertools.pairwise(renewals)), 2)
    row["turn_p99_ms_before"] = ms(quantile(quiet, 0.99))
    row["turn_p99_ms_meanwhile"] = ms(quantile(times, 0.99))
    return row


def measure(engines: tuple[str, ...] = ("sqlite", "postgresql")) -> list[dict[str, Any]]:
    found = []
    for engine in engines:
        for owners in OWNERS:
            with database(engine) as url:
                found.append(asyncio.run(one(engine, url, owners)))
                print(f"  {found[-1]}", flush=True)
    return found


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        measure(tuple(sys.argv[1:]) or ("sqlite", "postgresql"))
