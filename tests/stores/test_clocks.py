"""A wall clock that is set in one of several processes ends nothing that lives, and keeps nothing that is dead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.stores import RunStore, lease_clock
from bridge.stores.liveness import LONGEST_OUTAGE, Liveness
from tests.stores.conftest import Engine
from tests.stores.run_engines import RunEngine, Sqlite
from tests.stores.test_run_store import DAY, begun, key
from tests.stores.test_turns import Visitor, in_line
from tests.unit.test_liveness import Clock

WALL = time.time

AHEAD_AND_BACK = pytest.mark.parametrize("jump", [DAY, -DAY, 365 * DAY], ids=["a day on", "a day back", "a year on"])


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the wall clock of whatever asks it from then on."""
    return lambda jump: monkeypatch.setattr(time, "time", lambda: WALL() + jump)


async def until(what: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not await what():
            await asyncio.sleep(0.01)


@AHEAD_AND_BACK
async def test_no_live_run_ends(run_engine: RunEngine, wall: Callable[[float], None], jump: float) -> None:
    ours, theirs, run = run_engine.store(), run_engine.store(), key()
    await begun(ours, run, lease=30)
    wall(jump)
    assert await theirs.lost() == []
    assert await theirs.acquire(run, "you", 30) is None
    # What the process with the other clock begins and renews is as safe from the rest.
    other = key("other", "elsewhere")
    await begun(theirs, other, "you", lease=30)
    assert await theirs.renew("you", 30) == {other}
    wall(0)
    assert await ours.lost() == []
    assert await ours.acquire(other, "me", 30) is None
    assert await ours.append(run, "me", 0, ["one"]) > 0


@AHEAD_AND_BACK
async def test_no_place_is_given_twice_and_no_cancel_is_forgotten(
    run_engine: RunEngine, wall: Callable[[float], None], jump: float
) -> None:
    ours, theirs, run = run_engine.store(), run_engine.store(), key()
    await ours.cancel(run, "enough")
    wall(jump)
    await theirs.cancel(key("other"))
    assert await theirs.canceled([run]) == {run: "enough"}
    wall(0)
    assert await ours.canceled([run, key("other")]) == {run: "enough", key("other"): ""}


@pytest.mark.parametrize("judge", ["the first to renew", "one that looks before"])
async def test_a_clock_of_the_store_that_is_set_on_ends_no_live_run(run_engine: RunEngine, judge: str) -> None:
    """All leases are over then, and each process is the first that renews its own."""
    clock = Clock()
    ours, theirs, run, life = run_engine.store(), run_engine.store(), key(), Liveness(30, clock)
    await begun(ours, run, lease=30)
    for _ in range(5):
        await theirs.renew("you", 30, grace=life.grace)
        life.renewed()
        clock.now += 9
    await run_engine.backdate("leases", DAY)
    if judge == "the first to renew":
        await theirs.renew("you", 30, grace=life.grace)
        life.renewed()
    assert await theirs.lost() == [run]
    assert (await theirs.pulse("you", grace=life.grace)).lost == []
    assert await theirs.take_lost("you", 30, grace=life.grace) == []
    assert await theirs.acquire(run, "you", 30, grace=life.grace) is None
    assert await ours.append(run, "me", 0, ["one"]) > 0


async def test_a_clock_of_the_store_that_is_set_back_keeps_no_dead_process_alive(run_engine: RunEngine) -> None:
    dead, store, run, life = run_engine.store(), run_engine.store(), key(), Liveness(1)
    await begun(dead, run, lease=1)
    await store.renew("you", 1, grace=life.grace)
    life.renewed()
    await run_engine.backdate("leases", -DAY)
    await store.renew("you", 1, grace=life.grace)
    await run_engine.backdate("leases", LONGEST_OUTAGE + 1)
    assert await store.lost() == [run]


async def test_a_dead_holder_loses_its_run(run_engine: RunEngine, wall: Callable[[float], None]) -> None:
    """Also where the wall clock was set back by a year meanwhile."""
    dead, store, run = run_engine.store(), run_engine.store(), key()
    await begun(dead, run, lease=0.2)
    wall(-365 * DAY)

    async def lost() -> bool:
        return await store.lost() == [run]

    await until(lost)
    assert await store.acquire(run, "you", 30) is not None


@AHEAD_AND_BACK
async def test_no_turn_is_taken_away(
    engine: Engine, wall: Callable[[float], None], jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, entered = engine.history(lease=30), engine.history(lease=30), list[str]()
    holder = Visitor(first, "holder", entered)
    await holder.inside.wait()
    wall(jump)
    other = Visitor(second, "other", entered)
    await in_line(engine, 2)
    looks = asyncio.Semaphore(0)
    places = second._places  # type: ignore[attr-defined]
    look = places.look

    async def looked() -> None:
        await look()
        looks.release()

    monkeypatch.setattr(places, "look", looked)
    for _ in range(3):
        await looks.acquire()
    assert await second.prune(10 * 365 * DAY) == 0
    assert entered == ["holder"]
    await holder.go()
    await other.inside.wait()
    await other.go()


@pytest.mark.parametrize("judge", ["one that renews first", "one that looks before"])
async def test_a_clock_of_the_store_that_is_set_on_takes_no_turn_away(engine: Engine, judge: str) -> None:
    clock, entered = Clock(), list[str]()
    first, second, life = engine.history(lease=30), engine.history(lease=30), Liveness(30, clock)
    holder = Visitor(first, "holder", entered)
    await holder.inside.wait()
    other = Visitor(second, "other", entered)
    await in_line(engine, 2)
    for _ in range(5):
        life.renewed()
        clock.now += 9
    places = second._places  # type: ignore[attr-defined]
    places._life = life
    await engine.execute(f"UPDATE places SET expires = expires - {DAY} WHERE line = 'processes'")
    if judge == "one that renews first":
        clock.now += 2
    for _ in range(3):
        await places.look()
    await in_line(engine, 2)
    assert entered == ["holder"]
    places._life = Liveness(30)
    await holder.go()
    await other.inside.wait()
    await other.go()


async def test_the_turn_of_a_dead_holder_goes_on(engine: Engine, wall: Callable[[float], None]) -> None:
    first, second, entered = engine.history(lease=0.3), engine.history(lease=0.3), list[str]()
    holder = Visitor(first, "holder", entered)
    await holder.inside.wait()
    first._places._keeping.cancel()  # type: ignore[attr-defined]  # nobody renews
    wall(-365 * DAY)
    other = Visitor(second, "other", entered)
    async with asyncio.timeout(30):
        await other.inside.wait()
    await other.go()
    await holder.go()


async def test_a_reboot_ends_every_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock begins anew then, and what was stored lies far ahead."""
    monkeypatch.setattr(lease_clock, "now", lambda: 1_000_000.0)
    engine, run = Sqlite(tmp_path), key()
    before: RunStore = engine.store()
    await begun(before, run, lease=30)
    await before.cancel(run, "enough")
    await before.close()
    monkeypatch.setattr(lease_clock, "now", lambda: 5.0)
    same = engine.store()
    assert await same.lost() == [], "no reboot, no end"
    await same.close()
    monkeypatch.setattr(lease_clock, "boot", lambda: "another")
    after = engine.store()
    assert await after.lost() == [run]
    assert await after.canceled([run]) == {run: "enough"}, "nobody took it back"
    assert await after.acquire(run, "you", 30) is not None
    beside = engine.store()
    assert await beside.lost() == [], "those of this boot are nobody else's to end"
    await engine.close()


async def test_a_reboot_ends_every_turn(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn of a machine that lost its power; PostgreSQL has a clock that goes on."""
    first = engine.history(lease=0.3)
    await first.open()
    ends = 1e9 if engine.name == "sqlite" else 0
    for line, name in (("turn/o%/s%/t", "1"), ("turn/o%/s%/u", "2"), ("processes", "dead")):
        expires = ends if line == "processes" else 1e18
        await engine.execute(
            "INSERT INTO places (line, name, holder, stamp, expires, value)"
            f" VALUES ('{line}', '{name}', 'dead', '1', {expires}, '')"
        )
    await first.close()
    monkeypatch.setattr(lease_clock, "boot", lambda: "another")
    second, entered = engine.history(lease=0.3), list[str]()
    visitors = [Visitor(second, thread, entered, thread) for thread in ("t", "u")]
    for visitor in visitors:
        await visitor.inside.wait()
        await visitor.go()


def test_the_boot_has_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def named() -> str:
        lease_clock.boot.cache_clear()
        return lease_clock.boot()

    file = tmp_path / "boot_id"
    file.write_text("on-linux\n")
    monkeypatch.setattr(lease_clock, "_LINUX", file)
    assert named() == "on-linux"
    monkeypatch.setattr(lease_clock, "_LINUX", tmp_path / "missing")
    monkeypatch.setattr(lease_clock, "_MACOS", ("/bin/echo", "on-macos"))
    assert named() == "on-macos"
    monkeypatch.setattr(lease_clock, "_MACOS", (str(tmp_path / "missing"),))
    assert named() == ""
    lease_clock.boot.cache_clear()
