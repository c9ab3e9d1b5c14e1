"""Readers in the process that writes are handed what it wrote, and nothing that is not so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bridge.stores import LeaseLost, RunStore, open_runs, run_scripts
from bridge.stores.notifier import Listener
from bridge.stores.recent_entries import Tails
from bridge.stores.run_records import LogEntry
from tests.stores.run_engines import RunEngine
from tests.stores.test_run_store import begun, key


def entries(*numbers: int, size: int = 1) -> list[LogEntry]:
    return [LogEntry(n, "x" * size) for n in numbers]


def test_who_stands_in_the_chain_is_served_and_nobody_else() -> None:
    tails: Tails[str] = Tails()
    assert tails.since("r", 0) is None
    tails.add("r", 0, entries(3, 7))
    tails.add("r", 7, entries(8))
    assert tails.since("r", 0) == entries(3, 7, 8)
    assert tails.since("r", 3) == entries(7, 8)
    assert tails.since("r", 8) == []
    assert tails.since("r", 9) is None  # another process wrote it
    tails.add("r", 9, entries(12))  # and what it wrote we do not have
    assert tails.since("r", 8) is None
    assert tails.since("r", 9) == entries(12)
    tails.forget("r")
    assert tails.since("r", 9) is None


def test_it_is_bounded() -> None:
    tails: Tails[str] = Tails(entries=3, characters=5_000)
    tails.add("a", 0, entries(1, 2, 3, 4, 5))
    assert tails.since("a", 2) == entries(3, 4, 5)
    assert tails.since("a", 1) is None
    for name in "bcdef":
        tails.add(name, 0, entries(1, 2, 3))
    assert tails.since("a", 5) is None  # nothing was written to it for longest
    assert tails.since("f", 0) == entries(1, 2, 3)
    tails.add("g", 0, entries(1, size=6_000))  # too large for all
    assert [tails.since(name, 0) for name in "abcdefg"] == [None] * 7
    tails.add("h", 0, entries(1))
    assert tails.since("h", 0) == entries(1)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Behind which entry the engine was asked for more."""
    asked: list[int] = []
    read = run_scripts.read

    def counted(where: Any, after: int, limit: int) -> Any:
        asked.append(after)
        return read(where, after, limit)

    monkeypatch.setattr(run_scripts, "read", counted)
    return asked


class Sleepers:
    """How many wait at a bell now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        wait = Listener.wait

        async def counted(listener: Listener, seconds: float) -> None:
            self.count += 1
            await wait(listener, seconds)
            self.count -= 1

        monkeypatch.setattr(Listener, "wait", counted)

    async def are(self, count: int) -> None:
        async with asyncio.timeout(40):
            while self.count < count:
                await asyncio.sleep(0)


async def test_a_reader_here_asks_the_engine_once(
    run_store: RunStore, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # There is a look for what other processes write when a reader begins to wait, and there shall be no second one.
    monkeypatch.setattr("bridge.stores.run_store.LOOK", 1000)
    sleepers = Sleepers(monkeypatch)
    await begun(run_store, key())
    found: list[str] = []

    async def read() -> None:
        after = 0
        while len(found) < 40:
            for entry in await run_store.read(key(), after, wait=60):
                found.append(entry.body)
                after = entry.number

    reading = asyncio.create_task(read())
    for n in range(40):
        await sleepers.are(1)
        await run_store.append(key(), "me", n, [str(n)])
        async with asyncio.timeout(40):
            while len(found) <= n:
                await asyncio.sleep(0)
    await reading
    assert found == [str(n) for n in range(40)]
    # The first one, and what a look for other processes' entries, late on a busy machine, crosses: not one for each.
    assert len(looks) < 10, looks


class Taker:
    """Takes what a reader is offered, as long as it is `open`."""

    def __init__(self) -> None:
        self.open = True
        self.taken: list[str] = []

    def __call__(self, entries: Sequence[LogEntry]) -> bool:
        if self.open:
            self.taken += [entry.body for entry in entries]
        return self.open


async def test_a_reader_that_waits_takes_what_is_stored_here(
    run_engine: RunEngine, run_store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleepers = Sleepers(monkeypatch)
    await begun(run_store, key())
    last = await run_store.append(key(), "me", 0, ["before"])
    taker = Taker()
    reading = asyncio.create_task(run_store.read(key(), last, wait=60, take=taker))
    await sleepers.are(1)
    await run_store.append(key(), "me", 1, ["a", "b"])
    await run_store.append(key(), "me", 3, ["c"])
    # What is offered is stored: any process finds it.
    assert [entry.body for entry in await run_engine.store().read(key(), last)] == taker.taken == ["a", "b", "c"]
    taker.open = False
    fourth = await run_store.append(key(), "me", 4, ["d"])
    async with asyncio.timeout(40):
        assert await reading == [LogEntry(fourth, "d")]


async def test_the_end_is_left_to_the_reader(run_store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sleepers = Sleepers(monkeypatch)
    await begun(run_store, key())
    last = await run_store.append(key(), "me", 0, ["before"])
    taker = Taker()
    reading = asyncio.create_task(run_store.read(key(), last, wait=60, take=taker))
    await sleepers.are(1)
    end = await run_store.append(key(), "me", 1, ["a", "end"], end=True)
    async with asyncio.timeout(40):
        assert await reading == [LogEntry(end - 1, "a"), LogEntry(end, "end")]
    assert taker.taken == []


async def test_what_a_taker_raises_is_raised_by_its_reader_alone(
    run_store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Sequence[LogEntry]) -> bool:
        raise ValueError("it cannot be encoded")

    sleepers = Sleepers(monkeypatch)
    await begun(run_store, key())
    last = await run_store.append(key(), "me", 0, ["before"])
    taker = Taker()
    readings = [asyncio.create_task(run_store.read(key(), last, wait=60, take=each)) for each in (broken, taker)]
    await sleepers.are(2)
    await run_store.append(key(), "me", 1, ["a"])
    with pytest.raises(ValueError, match="it cannot be encoded"):
        await readings[0]
    assert taker.taken == ["a"]
    end = await run_store.append(key(), "me", 2, ["end"], end=True)
    async with asyncio.timeout(40):
        assert await readings[1] == [LogEntry(end, "end")]


async def test_what_another_process_writes_is_not_missed(
    run_engine: RunEngine, run_store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease goes to another process while a reader here waits behind what was written here."""
    sleepers = Sleepers(monkeypatch)
    await begun(run_store, key(), lease=0.0)
    last = await run_store.append(key(), "me", 0, ["ours"])
    reading = asyncio.create_task(run_store.read(key(), last, wait=60))
    await sleepers.are(1)
    other = run_engine.store()
    assert await other.acquire(key(), "other", 30)
    end = await other.append(key(), "other", 1, ["theirs"], end=True)
    async with asyncio.timeout(40):
        assert await reading == [LogEntry(end, "theirs")]
    with pytest.raises(LeaseLost):
        await run_store.append(key(), "me", 1, ["too late"])
    assert await run_store.read(key(), last, wait=60) == [LogEntry(end, "theirs")]


async def test_a_run_of_the_same_name_is_another_run(run_engine: RunEngine, run_store: RunStore) -> None:
    """It ended here, and another process deleted it and began it anew."""
    await begun(run_store, key())
    await run_store.append(key(), "me", 0, ["old"], end=True)
    other = run_engine.store()
    assert await other.delete(key())
    await begun(other, key(), "other")
    reading = asyncio.create_task(run_store.read(key(), wait=60))
    await other.append(key(), "other", 0, ["new"])
    async with asyncio.timeout(40):
        assert [entry.body for entry in await reading] == ["new"]


async def test_an_append_does_not_read_the_request_of_its_run(tmp_path: Path) -> None:
    """The plan holds it: with a long history that would be megabytes for each event."""
    store: Any = open_runs(f"sqlite:///{tmp_path}/runs.db")
    await begun(store, key())
    told: list[str] = []
    file = store._database.file
    await file.write(lambda db: db.set_trace_callback(told.append))
    await store.append(key(), "me", 0, ["one"])
    await store.renew("me", 30)
    await store.get(key())
    await file.write(lambda db: db.set_trace_callback(None))
    await store.close()
    assert any("INSERT INTO run_entries" in statement for statement in told)
    assert any("INSERT INTO run_processes" in statement for statement in told)
    assert not [statement for statement in told if "plan" in statement]
