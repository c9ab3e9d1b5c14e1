"""Which process may call another one dead, and what never keeps a process from renewing its own leases."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bridge.engine.bridge import Bridge
from bridge.errors import ErrorCode
from bridge.model import FinishReason, RunFailed, RunFinished
from bridge.run.durable import RunKey, Runs
from bridge.stores import open_runs
from tests.runs.agents import WORDS
from tests.runs.conftest import MakeRuns
from tests.runs.helpers import begin, events_of, text_of
from tests.stores.conftest import Engine
from tests.stores.run_engines import RunEngine
from tests.stores.test_turns import Visitor, in_line

LEASE = 1.0


async def until(what: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(40):
        while not (found := what()) or (isinstance(found, Awaitable) and not await found):
            await asyncio.sleep(0.01)


def alive(runs: Runs) -> bool:
    return runs._life.grace() == 0


@pytest.fixture
def go_on(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """The backend says half of its words, and the rest when this is set."""
    event = asyncio.Event()

    async def agent(request: object) -> AsyncIterator[str]:
        for word in WORDS[:10]:
            yield word
        await event.wait()
        for word in WORDS[10:]:
            yield word

    monkeypatch.setattr(bridge.routes[0].backends[0], "_agent", agent)
    return event


async def first_words(runs: Runs, key: RunKey) -> None:
    reader = runs.follow(key)
    async with asyncio.timeout(40):
        said = ""
        while not said:
            for _, batch in await reader.read(30):
                said += text_of(batch.events)


async def test_a_store_that_was_away_for_longer_than_a_lease_ends_no_run(
    bridge: Bridge, run_engine: RunEngine, make_runs: MakeRuns, go_on: asyncio.Event
) -> None:
    """Each process finds the lease of the other one expired when the store is back."""
    both, keys = [make_runs(lease=LEASE), make_runs(lease=LEASE)], []
    for runs in both:
        await runs.open()
        keys.append(await begin(bridge, runs, "x", owner=f"owner {len(keys)}"))
        await first_words(runs, keys[-1])
    for runs in both:
        await until(lambda runs=runs: alive(runs))
    await run_engine.down()
    await until(lambda: not any(alive(runs) for runs in both))
    await asyncio.sleep(1.2 * LEASE)
    # One process comes back earlier than the other.
    renew = both[1]._store.renew
    away = asyncio.Event()

    async def late(*arguments: Any, **more: Any) -> object:
        await away.wait()
        return await renew(*arguments, **more)

    both[1]._store.renew = late  # type: ignore[method-assign, assignment]
    await run_engine.up()
    await asyncio.sleep(LEASE / 3)
    away.set()
    await until(lambda: alive(both[0]))
    go_on.set()
    for runs, key in zip(both, keys, strict=True):
        events = await events_of(runs, key)
        assert isinstance(events[-1], RunFinished), events[-1]
        assert events[-1].reason is FinishReason.STOP
        assert text_of(events) == "".join(WORDS)


async def test_a_process_that_is_alive_still_ends_the_runs_of_dead_ones(
    bridge: Bridge, run_engine: RunEngine, make_runs: MakeRuns
) -> None:
    runs, store = make_runs(lease=LEASE), run_engine.store()
    key = await begin(bridge, runs, "hang")
    assert await store.acquire(key, "dead", 0.0) is not None
    await runs.open()
    last = (await events_of(runs, key))[-1]
    assert isinstance(last, RunFailed)
    assert last.error.code is ErrorCode.RUN_LOST


async def test_a_conversation_is_not_taken_from_a_holder_after_an_outage(engine: Engine) -> None:
    """When the database is back, the waiting process does not overtake the holder, whose lease has expired."""
    first, second, entered = engine.history(lease=LEASE), engine.history(lease=LEASE), list[str]()
    holder = Visitor(first, "holder", entered)
    await holder.inside.wait()
    other = Visitor(second, "other", entered)
    await in_line(engine, 2)
    first._places._keeping.cancel()  # type: ignore[attr-defined]
    second._places._life.failed()  # type: ignore[attr-defined]
    dead = first._places._holder  # type: ignore[attr-defined]
    await engine.execute(f"UPDATE places SET expires = expires - 30 WHERE name = '{dead}'")
    await asyncio.sleep(LEASE / 2)
    assert entered == ["holder"]
    async with asyncio.timeout(40):
        await other.inside.wait()
    await other.go()
    await holder.go()


async def test_a_sweep_that_hangs_does_not_hold_renewals_up(
    bridge: Bridge, run_engine: RunEngine, make_runs: MakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, other = make_runs(lease=LEASE), make_runs(lease=LEASE)
    sweeping = asyncio.Event()

    async def endless(events: float, threads: float, **_: object) -> int:
        sweeping.set()
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(runs._store, "sweep", endless)
    await runs.open()
    await sweeping.wait()
    key = await begin(bridge, runs, "hang")
    await first_words(runs, key)
    await other.open()
    await until(lambda: alive(other))
    await asyncio.sleep(LEASE)
    record = await other.status(key)
    assert record is not None
    assert record.ended_at is None
    await runs.cancel(key)
    await events_of(runs, key)


async def test_dead_runs_that_cannot_be_ended_do_not_hold_renewals_up(
    bridge: Bridge, run_engine: RunEngine, make_runs: MakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, other = make_runs(lease=LEASE), make_runs(lease=LEASE)
    monkeypatch.setattr(runs._store, "pulse", lambda **_: asyncio.Event().wait())
    await runs.open()
    key = await begin(bridge, runs, "hang")
    await first_words(runs, key)
    await other.open()
    await until(lambda: alive(other))
    await asyncio.sleep(LEASE)
    record = await other.status(key)
    assert record is not None
    assert record.ended_at is None
    await runs.cancel(key)
    await events_of(runs, key)


async def test_a_sweep_deletes_a_long_run_in_several_transactions(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = open_runs(f"sqlite:///{path}")
    file = store._database.file  # type: ignore[attr-defined]
    keys = [RunKey("o", "s", "t", f"run {number}") for number in range(3)]
    for key in keys:
        await store.create(key, "f", "{}")
        await store.acquire(key, "me", 30)
        await store.append(key, "me", 0, ["entry"] * 6_000)
        await store.append(key, "me", 6_000, ["end"], end=True)
    deleted: list[int] = []
    write = file.write

    async def counted(work: Callable[[sqlite3.Connection], object], *, first: bool = False) -> object:
        def counting(db: sqlite3.Connection) -> object:
            before = db.total_changes
            out = work(db)
            deleted.append(db.total_changes - before)
            return out

        return await write(counting, first=first)

    file.write = counted
    assert await store.sweep(-1, 90 * 86400) == 3
    assert max(deleted) < 6_000
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM run_entries").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM run_plans").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM runs WHERE kept = 0").fetchone() == (3,)
