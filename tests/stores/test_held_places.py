"""Places of a number in a line, which processes that share a database hold while they are alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bridge.stores import lease_clock, open_held_places
from bridge.stores.held_places import LOST, HeldPlace, HeldPlaces, line_of
from tests.stores.run_engines import RunEngine, Sqlite

LINE = line_of("runs", "ann")
LEASE = 10.0


class Clock:
    """The monotonic clock of a process, as its liveness sees it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Process:
    """One of the processes; `look` is what it does from time to time."""

    def __init__(self, engine: RunEngine) -> None:
        self.clock = Clock()
        self.places: HeldPlaces = open_held_places(engine.url, LEASE)
        self.places._clock = self.places._life._clock = self.clock
        self.words: list[str] = []

    async def take(self, most: int = 1, line: str = LINE) -> HeldPlace | None:
        return await self.places.take(line, most, self.words.append)

    async def lives_for(self, seconds: float) -> None:
        """Its renewals go well for so long, by its own clock."""
        for _ in range(int(seconds / (LEASE / 3)) + 1):
            self.clock.now += LEASE / 3
            await self.places.look()

    async def leave(self, place: HeldPlace) -> None:
        place.leave()
        await asyncio.gather(*self.places._tasks)


@pytest.fixture
async def two(run_engine: RunEngine) -> AsyncIterator[tuple[Process, Process]]:
    processes = Process(run_engine), Process(run_engine)
    yield processes
    for process in processes:
        await process.places.close()


async def age(engine: RunEngine, seconds: float, *others: Process) -> None:
    """The leases of all processes are older by so much, or those of some of them."""
    names = "', '".join(process.places._holder for process in others)
    which = f" AND name IN ('{names}')" if others else ""
    await engine.execute(f"UPDATE places SET expires = expires - {seconds} WHERE line = 'processes'{which}")


async def test_processes_count_together(two: tuple[Process, Process]) -> None:
    one, other = two
    first = await one.take(2)
    assert first is not None
    assert await other.take(2) is not None
    assert await one.take(2) is None
    assert await other.take(2) is None
    assert await other.take(1, line_of("runs", "bob")) is not None, "another line"
    await one.leave(first)
    assert await other.take(2) is not None


async def test_no_place_is_given_twice(run_engine: RunEngine) -> None:
    processes = [Process(run_engine) for _ in range(3)]
    got = await asyncio.gather(*(processes[n % 3].take(5) for n in range(21)))
    assert sum(place is not None for place in got) == 5
    for process in processes:
        await process.places.close()
    after = Process(run_engine)
    assert await after.take(1) is not None, "who stops gives all back"
    await after.places.close()


async def test_places_of_a_dead_process_are_free_after_its_lease(
    run_engine: RunEngine, two: tuple[Process, Process]
) -> None:
    dead, alive = two
    assert await dead.take() is not None
    await alive.lives_for(2 * LEASE)
    assert await alive.take() is None, "its lease is not over"
    await age(run_engine, LEASE + 1, dead)
    await alive.lives_for(1)
    assert await alive.take() is not None
    await dead.places.look()
    assert dead.words == [LOST], "it was not dead, and hears that its place is another's now"


async def test_who_was_away_itself_takes_no_place_of_others(
    run_engine: RunEngine, two: tuple[Process, Process]
) -> None:
    """The database was away for longer than a lease: nobody could renew anything."""
    first, second = two
    assert await first.take() is not None
    await second.lives_for(2 * LEASE)
    await age(run_engine, LEASE + 1)
    second.clock.now += 2 * LEASE
    await second.places.look()
    assert await second.take() is None
    await first.lives_for(1)
    await second.lives_for(2 * LEASE)
    assert await second.take() is None, "it has renewed its lease meanwhile"


async def test_after_hours_without_the_database_nobody_is_forgotten(
    run_engine: RunEngine, two: tuple[Process, Process]
) -> None:
    """Who comes back first deletes neither the lease of the other one nor what it holds."""
    first, second = two
    assert await first.take() is not None
    await second.lives_for(2 * LEASE)
    await age(run_engine, 2 * 3600)
    second.clock.now += 2 * 3600
    second.places._tidy_at = 0
    await second.places.look()
    assert await second.take() is None
    await first.places.look()
    assert first.words == []


async def test_who_holds_a_place_is_told(two: tuple[Process, Process]) -> None:
    holder, other = two
    assert not await other.places.tell(LINE, "stop"), "nobody is there"
    assert await holder.take() is not None
    assert await other.places.tell(LINE, "stop")
    assert await other.places.tell(LINE, "supersede")
    await holder.places.look()
    await holder.places.look()
    assert holder.words == ["stop"], "the first word, once"


async def test_without_the_database_each_process_counts_alone(
    run_engine: RunEngine, two: tuple[Process, Process], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bridge.places")
    one, other = two
    before = await one.take()
    assert before is not None
    await run_engine.down()
    assert await other.take() is not None
    assert await other.take() is not None, "not even asked"
    await one.leave(before)
    await run_engine.up()
    for process in two:
        process.clock.now += LEASE
        await process.places.look()
        await asyncio.gather(*process.places._tasks)
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "each process counts slots and sessions separately",
        "resolved",
    ]
    assert await other.take() is not None, "what could not be given back then is free now"
    assert other.words == [], "a place that was never in the database is not lost"


async def test_a_canceled_call_holds_nothing(two: tuple[Process, Process]) -> None:
    one, other = two
    taking = asyncio.create_task(one.take())
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    while one.places._tasks:
        await asyncio.gather(*one.places._tasks)
    assert taking.cancelled()
    assert await other.take() is not None


async def test_what_the_dead_leave_is_deleted(run_engine: RunEngine, two: tuple[Process, Process]) -> None:
    dead, alive = two
    await dead.take()
    await age(run_engine, 2 * 3600)
    await alive.lives_for(2 * LEASE)
    alive.clock.now += 61 - 2 * LEASE
    await alive.lives_for(2 * LEASE)
    alive.places._tidy_at = 0
    await alive.lives_for(1)
    assert await run_engine.execute("SELECT count(*) FROM places") == 1, "its own lease"


async def test_a_reboot_frees_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = Sqlite(tmp_path)
    before = Process(engine)
    assert await before.take() is not None
    await before.places._database.close()
    monkeypatch.setattr(lease_clock, "boot", lambda: "another")
    after = Process(engine)
    assert await after.take() is not None
    await after.places.close()
