"""One suite for every engine of the run store: log, queue, leases, cancels, places, retention."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.errors import BackendError, BridgeError, ConfigError, ErrorCode, RequestError
from bridge.stores import (
    LeaseLost,
    Ownership,
    RunKey,
    RunRecord,
    RunState,
    RunStore,
    StoreConflict,
    ThreadBusy,
    open_runs,
    run_scripts,
)
from bridge.stores.notifier import Listener
from bridge.stores.run_records import CANCEL_QUEUED, NONE_BLOCKED, Blocked, Pulse, QueueLimits
from bridge.stores.scripts import Script
from tests.stores.run_engines import SECRET, RunEngine
from tests.strategies import AWKWARD

DAY = 86400.0
BLOCKED = "WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
"""Sessions that wait for a lock."""


def key(run: str = "r", thread: str = "t", owner: str = "o", scope: str = "s") -> RunKey:
    return RunKey(owner, scope, thread, run)


async def begun(store: RunStore, run: RunKey, token: str = "me", lease: float = 30.0) -> RunRecord:
    await store.create(run, "f", "plan")
    record = await store.acquire(run, token, lease)
    assert record is not None
    return record


async def there(store: RunStore, run: RunKey) -> RunRecord:
    record = await store.get(run)
    assert record is not None
    return record


async def bodies(store: RunStore, run: RunKey, after: int = 0) -> list[str]:
    return [entry.body for entry in await store.read(run, after)]


async def test_a_canceled_run_that_a_claim_gives_back_is_found_in_the_queue(run_store: RunStore) -> None:
    await run_store.create(key(), "f", "plan")
    assert await run_store.claim("me", 30.0) is not None
    await run_store.cancel(key())
    assert (await run_store.pulse()).waiting == []
    assert await run_store.acquire(key(), "me", 30.0, queued=True) is None, "the claim may be about to give it back"
    await run_store.release(key(), "me")
    assert (await run_store.pulse()).waiting == [key()]
    assert await run_store.acquire(key(), "me", 30.0, queued=True) is not None
    assert await run_store.acquire(key(), "me", 30.0, queued=True) is None
    assert (await run_store.pulse()).waiting == []


async def test_nothing_is_there_at_first(run_store: RunStore) -> None:
    assert await run_store.get(key()) is None
    assert await run_store.read(key()) == []
    assert await run_store.claim("me", 1) is None
    assert await run_store.acquire(key(), "me", 1) is None
    assert await run_store.lost() == []
    assert await run_store.renew("me", 1) == set()
    assert await run_store.pulse() == Pulse({}, [])
    assert await run_store.plan(key()) is None
    assert await run_store.canceled([]) == await run_store.canceled([key()]) == {}
    assert await run_store.delete(key()) is False
    assert await run_store.sweep(0, 0) == 0
    assert await run_store.thread("o", "s", "t") is Ownership.NONE
    await run_store.release(key(), "me")
    with pytest.raises(LeaseLost):
        await run_store.append(key(), "me", 0, ["x"])


async def test_a_run_is_made_once(run_store: RunStore) -> None:
    made = await run_store.create(key(), "f", "the plan")
    assert (made.new, made.first) == (True, True)
    record = made.record
    assert (record.key, record.fingerprint, await run_store.plan(key())) == (key(), "f", "the plan")
    assert (record.state, record.entries, record.last, record.whole) == (RunState.QUEUED, 0, None, True)
    again = await run_store.create(key(), "f", "another plan")
    assert (again.new, again.first, again.record) == (False, False, record)
    assert await run_store.get(key()) == record
    with pytest.raises(StoreConflict) as caught:
        await run_store.create(key(), "g", "the plan")
    assert caught.value.code is ErrorCode.CONFLICT
    other = await run_store.create(key("r2"), "f", "p")
    assert (other.new, other.first) == (True, False)
    assert other.record.task_id != record.task_id
    assert (await run_store.create(key("r", "t2"), "g", "p")).first
    assert (await run_store.create(key("r", "t", "o2"), "g", "p")).first


async def test_entries_of_a_later_run_have_greater_numbers(run_store: RunStore) -> None:
    one, two = key("r1"), key("r2")
    await begun(run_store, one)
    await begun(run_store, two)
    numbers = [
        await run_store.append(one, "me", 0, ["a"]),
        await run_store.append(two, "me", 0, ["A", "B"]),
        await run_store.append(one, "me", 1, ["b", "c"], end=True),
    ]
    assert numbers[0] < numbers[2] < numbers[1]
    assert await bodies(run_store, two, numbers[2]) == ["A", "B"]
    assert await bodies(run_store, one, numbers[1]) == []
    assert await bodies(run_store, one) == ["a", "b", "c"]
    assert await bodies(run_store, two) == ["A", "B"]
    assert await bodies(run_store, one, numbers[0]) == ["b", "c"]
    assert await bodies(run_store, one, numbers[2]) == []
    assert await bodies(run_store, one, 2**63 - 2) == []
    first, *rest = await run_store.read(one, limit=1)
    assert (first.number, first.body, rest) == (numbers[0], "a", [])
    ended, running = await there(run_store, one), await there(run_store, two)
    assert (ended.state, ended.entries, ended.last) == (RunState.ENDED, 3, numbers[2])
    assert (running.state, running.entries, running.last) == (RunState.RUNNING, 2, numbers[1])
    assert ended.ended_at is not None
    assert running.ended_at is None


async def test_many_entries_between_those_of_another_run(run_store: RunStore) -> None:
    one, two = key("r1"), key("r2")
    await begun(run_store, one)
    await begun(run_store, two)
    await run_store.append(one, "me", 0, ["first"])
    await run_store.append(two, "me", 0, [str(n) for n in range(700)])
    await run_store.append(one, "me", 1, ["last"])
    assert await bodies(run_store, one) == ["first", "last"]
    assert len(await run_store.read(two)) == 500
    assert len(await run_store.read(two, limit=1000)) == 700


async def test_only_who_holds_the_lease_writes(run_store: RunStore, run_engine: RunEngine) -> None:
    await run_store.create(key(), "f", "p")
    with pytest.raises(LeaseLost):
        await run_store.append(key(), "me", 0, ["x"])
    await begun(run_store, key())
    assert await run_store.acquire(key(), "you", 30) is None
    with pytest.raises(LeaseLost):
        await run_store.append(key(), "you", 0, ["x"])
    await run_store.append(key(), "me", 0, ["a"])
    await run_engine.backdate("leases", 31)
    await run_store.append(key(), "me", 1, ["b"])
    assert await run_store.acquire(key(), "you", 30) is not None
    with pytest.raises(LeaseLost):
        await run_store.append(key(), "me", 2, ["c"])
    await run_store.append(key(), "you", 2, ["lost"], end=True)
    assert await bodies(run_store, key()) == ["a", "b", "lost"]
    with pytest.raises(LeaseLost):
        await run_store.append(key(), "you", 3, ["more"])
    assert await run_store.acquire(key(), "me", 30) is None


async def test_a_repeated_append_writes_nothing_twice(run_store: RunStore) -> None:
    await begun(run_store, key())
    assert await run_store.append(key(), "me", 0, ["a"]) == await run_store.append(key(), "me", 0, ["a"])
    last = await run_store.append(key(), "me", 0, ["a", "b", "c"], end=True)
    assert await run_store.append(key(), "me", 1, ["b", "c"], end=True) == last
    assert await bodies(run_store, key()) == ["a", "b", "c"]
    with pytest.raises(LeaseLost):
        await run_store.append(key(), "me", 4, ["d"])


async def test_two_ends_at_once(run_engine: RunEngine) -> None:
    stores = [run_engine.store() for _ in range(4)]
    await stores[0].create(key(), "f", "p")

    async def end(store: RunStore, token: str) -> int | None:
        if await store.acquire(key(), token, 0.0) is None:
            return None
        try:
            return await store.append(key(), token, 0, [token], end=True)
        except LeaseLost:
            return None

    ends = await asyncio.gather(*(end(store, f"w{n}") for n, store in enumerate(stores)))
    assert sum(number is not None for number in ends) == 1
    assert len(await bodies(stores[0], key())) == 1


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    pieces=st.lists(st.text(st.characters() | st.sampled_from(f"%:/{AWKWARD}"), max_size=30), min_size=4, max_size=4)
)
async def test_ids_may_be_anything(run_store: RunStore, pieces: list[str]) -> None:
    run = RunKey(*pieces)
    other = RunKey(*pieces[:3], pieces[3] + ":")
    await run_store.create(run, "f", "p")
    await run_store.acquire(run, "me", 0)
    assert run in await run_store.lost()
    await run_store.cancel(run)
    assert await run_store.canceled([run, other]) == {run: ""}
    await run_store.append(run, "me", 0, ["x\u2028é"], end=True)
    assert (await there(run_store, run)).key == run
    assert await bodies(run_store, run) == ["x\u2028é"]
    assert await run_store.get(other) is None
    assert await run_store.delete(run)


async def test_ids_that_are_too_long(run_store: RunStore) -> None:
    for run in (key("r" * 513), key("r", "t" * 513), key(owner="o" * 513), key(scope="s" * 513)):
        with pytest.raises(RequestError, match="of at most 512 bytes"):
            await run_store.create(run, "f", "p")


# ---------------------------------------------------------------------- the live tail


@pytest.mark.parametrize("other_process", [False, True])
async def test_a_reader_is_woken(
    run_engine: RunEngine, run_store: RunStore, other_process: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another store on the same data is what another process is. Nobody looks from time to time who can be told."""
    if not other_process:
        monkeypatch.setattr("bridge.stores.run_store.LOOK", 1000)
    asleep = 0
    sleep = Listener.wait

    async def counted(listener: Listener, seconds: float) -> None:
        nonlocal asleep
        asleep += 1
        await sleep(listener, seconds)
        asleep -= 1

    monkeypatch.setattr(Listener, "wait", counted)
    writer = run_engine.store() if other_process else run_store
    await begun(writer, key())
    last = 0
    for n in range(5):
        reading = [asyncio.create_task(run_store.read(key(), last, wait=60)) for _ in range(3)]
        while asleep < 3:
            await asyncio.sleep(0)
        last = await writer.append(key(), "me", n, [f"b{n}"])
        async with asyncio.timeout(40):
            for found in await asyncio.gather(*reading):
                assert [(entry.number, entry.body) for entry in found] == [(last, f"b{n}")]


async def test_a_reader_of_a_run_that_is_not_there_yet(run_engine: RunEngine, run_store: RunStore) -> None:
    reading = asyncio.create_task(run_store.read(key(), wait=60))
    other = run_engine.store()
    await begun(other, key())
    await other.append(key(), "me", 0, ["x"])
    async with asyncio.timeout(40):
        assert [entry.body for entry in await reading] == ["x"]


async def test_waiting_ends(run_store: RunStore) -> None:
    await begun(run_store, key())
    assert await run_store.read(key(), wait=0.05) == []
    reading = asyncio.create_task(run_store.read(key(), wait=60))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_many_readers_miss_nothing(run_engine: RunEngine) -> None:
    stores = [run_engine.store() for _ in range(3)]
    await begun(stores[0], key())
    count = 60

    async def reader(store: RunStore) -> list[str]:
        found: list[str] = []
        after = 0
        while len(found) < count:
            for entry in await store.read(key(), after, wait=30, limit=random.randint(1, 5)):
                after = entry.number
                found.append(entry.body)
        return found

    readers = [asyncio.create_task(reader(stores[n % 3])) for n in range(9)]
    for n in range(count):
        await stores[0].append(key(), "me", n, [str(n)])
        if n % 7 == 0:
            await asyncio.sleep(0)
    async with asyncio.timeout(30):
        assert await asyncio.gather(*readers) == [[str(n) for n in range(count)]] * 9


# ---------------------------------------------------------------------- queue and leases


async def test_the_queue_is_in_order_and_each_run_is_claimed_once(run_engine: RunEngine) -> None:
    stores = [run_engine.store() for _ in range(3)]
    runs = [key(f"r{n}") for n in range(12)]
    for run in runs:
        await stores[0].create(run, "f", f"plan of {run.run_id}")
    first = await stores[1].claim("w1", 30)
    assert first is not None
    assert (first.key, first.state) == (runs[0], RunState.RUNNING)
    assert await stores[2].plan(first.key) == "plan of r0"

    async def work(store: RunStore, token: str) -> list[RunKey]:
        mine = []
        while (record := await store.claim(token, 30)) is not None:
            mine.append(record.key)
        return mine

    claimed = await asyncio.gather(*(work(store, f"w{n}") for n, store in enumerate(stores)))
    assert sorted(run.run_id for mine in claimed for run in mine) == sorted(run.run_id for run in runs[1:])


@pytest.mark.parametrize("other_process", [False, True])
async def test_who_waits_at_the_queue_is_woken(run_engine: RunEngine, run_store: RunStore, other_process: bool) -> None:
    waiting = asyncio.create_task(run_store.claim("me", 30, wait=60))
    await asyncio.sleep(0)
    await (run_engine.store() if other_process else run_store).create(key(), "f", "p")
    async with asyncio.timeout(40):
        record = await waiting
    assert record is not None
    assert record.key == key()


async def test_a_run_that_somebody_took_is_not_claimed(run_store: RunStore) -> None:
    """As a cancel does with a run that waits."""
    await begun(run_store, key("taken"))
    await run_store.create(key("free"), "f", "p")
    record = await run_store.claim("you", 30, wait=1)
    assert record is not None
    assert record.key == key("free")
    assert await run_store.claim("you", 30) is None


async def claimed(store: RunStore, blocked: Blocked = NONE_BLOCKED) -> str | None:
    """The id of the run that is claimed now."""
    record = await store.claim("me", 30, blocked=blocked)
    return record.key.run_id if record is not None else None


async def test_owners_take_turns(run_store: RunStore) -> None:
    """However many runs of one owner wait, a run of another waits for one of them only."""
    for n in range(5):
        await run_store.create(key(f"a{n}", "t", "ann"), "f", "p")
    assert await claimed(run_store) == "a0"
    for n in range(2):
        await run_store.create(key(f"b{n}", "t2", "bob"), "f", "p")
    await run_store.create(key("c0", "t3", "cay"), "f", "p")
    turns = [await claimed(run_store) for _ in range(8)]
    assert sorted(turns[:3], key=str)[-1] == "c0", "each of the three within the first three"
    assert {name[0] for name in turns[:3] if name} == set("abc")
    assert [name for name in turns if name and name[0] == "a"] == ["a1", "a2", "a3", "a4"]
    assert [name for name in turns if name and name[0] == "b"] == ["b0", "b1"]
    assert turns[-1] is None


async def test_who_has_no_place_is_passed_over(run_store: RunStore) -> None:
    await run_store.create(key("a", "t", "ann"), "f", "p")
    await run_store.create(RunKey("bob", "/x#tasks", "t", "b"), "f", "p")
    await run_store.create(RunKey("bob", "/y", "t", "c"), "f", "p")
    assert await claimed(run_store, Blocked({"ann", "bob"})) is None
    assert await claimed(run_store, Blocked({"ann"}, {"/x"})) == "c"
    assert await claimed(run_store, Blocked({"ann"}, {"/x"})) is None
    assert await claimed(run_store, Blocked({"ann"})) == "b"
    assert await claimed(run_store) == "a"


async def test_a_claimed_run_that_is_given_back_is_the_next(run_store: RunStore) -> None:
    for n in range(2):
        await run_store.create(key(f"r{n}"), "f", "p")
    assert await claimed(run_store) == "r0"
    await run_store.release(key("r0"), "me")
    assert [await claimed(run_store) for _ in range(3)] == ["r0", "r1", None]


async def full_of(store: RunStore, run: RunKey, limits: QueueLimits) -> str:
    with pytest.raises(BackendError) as caught:
        await store.create(run, "f", "p", limits=limits)
    assert caught.value.failure.http_status == 429
    assert caught.value.failure.headers == {"retry-after": "1"}
    return caught.value.message


async def test_the_queue_is_bounded(run_store: RunStore) -> None:
    """Runs that have not ended count, those that are driven included."""
    limits = QueueLimits(owner=2, scope=3, all=4)

    async def create(name: str, owner: str, scope: str) -> None:
        await run_store.create(RunKey(owner, scope, name, name), "f", "p", limits=limits)

    await create("1", "ann", "/x")
    await create("2", "ann", "/x#tasks")
    assert "of this user" in await full_of(run_store, RunKey("ann", "/y", "3", "3"), limits)
    await create("1", "ann", "/x")  # it is there
    await create("4", "bob", "/x")
    assert "of this route" in await full_of(run_store, RunKey("cay", "/x#tasks", "5", "5"), limits)
    await create("6", "bob", "/xy")
    assert "of this server" in await full_of(run_store, RunKey("cay", "/z", "7", "7"), limits)
    ended = RunKey("ann", "/x", "1", "1")
    assert await run_store.acquire(ended, "me", 30)
    await run_store.append(ended, "me", 0, ["x"])
    assert "of this user" in await full_of(run_store, RunKey("ann", "/y", "8", "8"), limits)
    await run_store.append(ended, "me", 1, ["end"], end=True)
    await run_store.append(ended, "me", 1, ["end"], end=True)  # tried again
    await create("8", "ann", "/x")
    assert "of this server" in await full_of(run_store, RunKey("cay", "/z", "9", "9"), limits)
    await run_store.create(RunKey("cay", "/z", "9", "9"), "f", "p")


async def test_leases(run_store: RunStore, run_engine: RunEngine) -> None:
    """A process holds all of its runs or none."""
    runs = [key(f"r{n}") for n in range(3)]
    for run in runs:
        await begun(run_store, run)
    assert await run_store.renew("me", 30) == set(runs)
    assert await run_store.renew("you", 30) == set()
    assert await run_store.lost() == []
    await run_engine.backdate("leases", 31)
    assert set(await run_store.lost()) == set(runs)
    assert await run_store.lost(grace=lambda _=None: 10) == []
    assert await run_store.renew("me", 30) == set(runs)
    assert await run_store.lost() == []
    await run_engine.backdate("leases", 31)
    assert await run_store.acquire(runs[1], "you", 30) is not None
    assert await run_store.acquire(runs[0], "you", 30, grace=lambda _=None: 10) is None
    assert set(await run_store.lost()) == {runs[0], runs[2]}
    assert await run_store.renew("me", 30) == {runs[0], runs[2]}
    await run_store.append(runs[0], "me", 0, ["end"], end=True)
    assert await run_store.renew("me", 30) == {runs[2]}
    assert await run_store.lost() == []


async def test_a_process_that_nobody_remembers_holds_nothing_new(run_store: RunStore, run_engine: RunEngine) -> None:
    """Its row is kept as long as there is a run of it."""
    await begun(run_store, key())
    await run_engine.backdate("leases", 10_000)
    await run_store.sweep(DAY, DAY)
    assert await run_store.lost() == [key()]
    assert await run_store.acquire(key(), "you", 30)
    await run_engine.backdate("leases", 10_000)
    await run_store.append(key(), "you", 0, ["end"], end=True)
    await run_store.sweep(DAY, DAY)
    assert await run_engine.execute("SELECT count(*) FROM run_processes") == 0


async def test_a_run_is_held_by_the_process_that_creates_it(run_store: RunStore) -> None:
    """Unless others wait, which come first."""
    made = await run_store.create(key("a"), "f", "p", token="me", lease=30)
    assert (made.held, made.record.state) == (True, RunState.RUNNING)
    assert (await run_store.create(key("a"), "f", "p", token="you", lease=30)).held is False
    assert await run_store.claim("you", 30) is None
    await run_store.append(key("a"), "me", 0, ["x"])
    await run_store.create(key("b"), "f", "p")
    made = await run_store.create(key("c", "t2", "you"), "f", "p", token="me", lease=30)
    assert (made.held, made.record.state) == (False, RunState.QUEUED)
    assert [await claimed(run_store) for _ in range(3)] == ["b", "c", None]


async def test_a_plan_of_a_newer_version_waits_for_it(run_store: RunStore) -> None:
    await run_store.create(key("new"), "f", "p", format=2)
    await run_store.create(key("old"), "f", "p", format=1)
    record = await run_store.claim("old process", 30, format=1)
    assert record is not None
    assert record.key == key("old")
    assert await run_store.claim("old process", 30, format=1) is None
    # Nor is it taken to be ended there when it is canceled.
    assert await run_store.acquire(key("new"), "old process", 30, queued=True, format=1) is None
    record = await run_store.claim("new process", 30, format=2)
    assert record is not None
    assert record.key == key("new")


async def test_a_gap_is_never_written(run_store: RunStore, run_engine: RunEngine) -> None:
    """The store lost entries that it acknowledged, as in a failover to a standby that was behind."""
    await begun(run_store, key())
    await run_store.append(key(), "me", 0, ["a", "b", "c"])
    await run_engine.execute("DELETE FROM run_entries WHERE position > 0")
    with pytest.raises(LeaseLost):
        await run_store.append(key(), "me", 3, ["d"])
    assert await bodies(run_store, key()) == ["a"]


async def test_appends_of_many_runs_are_one_transaction(run_store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [key(f"r{n}") for n in range(50)]
    for run in runs:
        await begun(run_store, run)
    await begun(run_store, key("other"), "you")
    sizes: list[int] = []
    append = run_scripts.append

    def counted(appends: Any, token: str) -> Any:
        sizes.append(len(appends))
        return append(appends, token)

    monkeypatch.setattr(run_scripts, "append", counted)
    work = [run_store.append(run, "me", 0, [run.run_id, "end"], end=True) for run in runs]
    lost, *numbers = await asyncio.gather(run_store.append(key("other"), "me", 0, ["x"]), *work, return_exceptions=True)
    assert isinstance(lost, LeaseLost), "which costs the others nothing"
    assert len(set(numbers)) == 50
    assert sizes == [51]
    for run in runs:
        assert await bodies(run_store, run) == [run.run_id, "end"]


async def test_a_released_lease(run_store: RunStore) -> None:
    idle, busy = key("idle"), key("busy")
    await begun(run_store, idle)
    await begun(run_store, busy)
    await run_store.append(busy, "me", 0, ["x"])
    await run_store.release(idle, "you")
    await run_store.release(idle, "me")
    await run_store.release(busy, "me")
    assert await run_store.lost() == [busy]
    record = await run_store.claim("you", 30, wait=1)
    assert record is not None
    assert record.key == idle
    assert await run_store.claim("you", 30) is None


# ---------------------------------------------------------------------- cancels, places, threads


async def test_alone_in_its_thread(run_engine: RunEngine) -> None:
    one, two = run_engine.store(), run_engine.store()
    assert await one.latest("o", "s", "t") is None
    await one.create(key("a"), "f", "plan", alone=True)
    with pytest.raises(ThreadBusy):
        await two.create(key("b"), "f", "plan", alone=True)
    assert await two.get(key("b")) is None, "a run that was refused is not there"
    again = await two.create(key("a"), "f", "plan", alone=True)
    assert (again.new, again.record.key) == (False, key("a"))
    with pytest.raises(StoreConflict, match="for another request"):
        await two.create(key("a"), "g", "plan", alone=True)
    for other in (key("b", thread="u"), key("b", owner="you"), key("b", scope="z")):
        assert (await two.create(other, "f", "plan", alone=True)).new
    record = await two.acquire(key("a"), "me", 30)
    assert record is not None
    with pytest.raises(ThreadBusy):
        await one.create(key("b"), "f", "plan", alone=True)
    await two.append(key("a"), "me", 0, ["x"], end=True)
    assert (await one.create(key("b"), "f", "plan", alone=True)).new
    assert (await one.create(key("c"), "f", "plan")).new, "who need not be alone is not"
    latest = await two.latest("o", "s", "t")
    assert latest is not None
    assert (latest.key, latest.state) == (key("c"), RunState.QUEUED)


async def test_two_processes_want_to_be_alone_at_once(run_engine: RunEngine) -> None:
    stores = [run_engine.store() for _ in range(4)]
    tries = (store.create(key(f"r{n}"), "f", "plan", alone=True) for n, store in enumerate(stores))
    came = await asyncio.gather(*tries, return_exceptions=True)
    assert sorted(type(each).__name__ for each in came) == ["Created", *["ThreadBusy"] * 3]


async def test_the_limit_of_an_owner_is_exact_however_many_ask_at_once(run_engine: RunEngine) -> None:
    """Processes with another configuration count nothing, but create no run a second time."""
    stores = [run_engine.store() for _ in range(3)]
    limits = QueueLimits(owner=5)
    tries = (stores[n % 3].create(key("r", f"t{n}"), "f", "plan", limits=limits) for n in range(15))
    came = await asyncio.gather(*tries, return_exceptions=True)
    assert [type(each).__name__ for each in came].count("Created") == 5
    same = (stores[n % 3].create(key("r", "u"), "f", "p", limits=(None, QueueLimits(9))[n % 2]) for n in range(9))
    assert [each.new for each in await asyncio.gather(*same)].count(True) == 1


@pytest.mark.parametrize("run_engine", ["postgresql"], indirect=True)
async def test_an_end_that_repeats_one_that_is_under_way(run_engine: Any, run_store: RunStore) -> None:
    """As after an attempt of unknown outcome. It waits for that, and finds that nothing is left to do."""
    record = await begun(run_store, key())
    server = run_engine._schema
    db = await asyncpg.connect(server.server, server_settings={"search_path": server.schema})
    try:
        async with db.transaction():
            await db.execute(f"INSERT INTO run_entries (run, position, body) VALUES ({record.number}, 0, 'z')")
            await db.execute(f"UPDATE runs SET ended_at = 1e9, entries = 1 WHERE id = {record.number}")
            ending = asyncio.create_task(run_store.append(key(), "me", 0, ["z"], end=True))
            async with asyncio.timeout(40):
                while not await db.fetchval(f"SELECT 1 FROM pg_stat_activity {BLOCKED}"):
                    await asyncio.sleep(0.01)
        assert await ending == record.number << 24 | 1
    finally:
        await db.close()
    assert await bodies(run_store, key()) == ["z"]


async def test_the_latest_run_is_deleted(run_store: RunStore) -> None:
    await begun(run_store, key())
    await run_store.append(key(), "me", 0, ["x"], end=True)
    assert await run_store.delete(key())
    assert await run_store.latest("o", "s", "t") is None
    assert (await run_store.create(key("b"), "f", "plan", alone=True)).new


async def test_why_a_run_is_cancelled(run_store: RunStore) -> None:
    await run_store.cancel(key(), "first")
    await run_store.cancel(key("b"))
    assert await run_store.canceled([key(), key("b"), key("c")]) == {key(): "first", key("b"): ""}
    await run_store.cancel(key(), "then")
    assert await run_store.canceled([key()]) == {key(): "then"}
    assert (await run_store.create(key(), "f", "plan", token="me")).canceled == "then"
    assert (await run_store.create(key("c"), "f", "plan", token="me")).canceled is None


async def test_cancels(run_store: RunStore, run_engine: RunEngine) -> None:
    await run_store.cancel(key("unknown"))
    await run_store.cancel(key("unknown"))
    assert await run_store.canceled([key("unknown"), key("other")]) == {key("unknown"): ""}
    assert await run_store.canceled([key("unknown", owner="you")]) == {}
    await run_engine.backdate("cancels", CANCEL_QUEUED - 60)
    assert await run_store.canceled([key("unknown")]) == {key("unknown"): ""}
    await run_engine.backdate("cancels", 61)
    while await run_store.canceled([key("unknown")]):
        await asyncio.sleep(0.01)


async def test_whose_a_thread_is(run_store: RunStore) -> None:
    await run_store.create(key(), "f", "p")
    assert await run_store.thread("o", "s", "t") is Ownership.OWN
    assert await run_store.thread("you", "s", "t") is Ownership.FOREIGN
    assert await run_store.thread("you", "s", "t", make=True) is Ownership.FOREIGN
    assert await run_store.thread("you", "other scope", "t") is Ownership.NONE
    assert await run_store.thread("you", "s", "new") is Ownership.NONE
    assert await run_store.thread("you", "s", "new", make=True) is Ownership.NONE
    assert await run_store.thread("you", "s", "new") is Ownership.OWN
    assert await run_store.thread("o", "s", "new", make=True) is Ownership.FOREIGN
    created = await run_store.create(key("r", "new", "you"), "f", "p")
    assert created.first, "a thread without runs"


# ---------------------------------------------------------------------- retention


async def test_a_long_run_is_kept_whole(run_store: RunStore) -> None:
    """What bounds a log are its bytes, which whoever drives the run counts, not the number of its entries."""
    run, size = key("long"), 2_000
    await begun(run_store, run)
    for position in range(0, 6 * size, size):
        await run_store.append(run, "me", position, [str(n) for n in range(position, position + size)])
    await run_store.append(run, "me", 6 * size, ["end"], end=True)
    assert (await there(run_store, run)).whole
    found: list[str] = []
    after = 0
    while entries := await run_store.read(run, after):
        found += [entry.body for entry in entries]
        after = entries[-1].number
    assert found == [*(str(n) for n in range(6 * size)), "end"]


async def test_runs_are_forgotten_after_their_time(run_engine: RunEngine, run_store: RunStore) -> None:
    ended, running = key("ended"), key("running")
    for run in (ended, running):
        await begun(run_store, run)
        await run_store.append(run, "me", 0, ["a", "b"])
    number = await run_store.append(ended, "me", 2, ["c"], end=True)
    assert await run_store.sweep(DAY, 90 * DAY) == 0
    await run_engine.backdate("ended", DAY + 1)
    assert await run_store.sweep(DAY, 90 * DAY) == 1
    assert await run_store.sweep(DAY, 90 * DAY) == 0
    record = await there(run_store, ended)
    assert (record.whole, record.last, record.state) == (False, number, RunState.ENDED)
    assert await run_store.plan(ended) is None
    assert await bodies(run_store, ended) == []
    assert await bodies(run_store, running) == ["a", "b"]
    assert await run_store.plan(running) == "plan"
    assert (await run_store.create(ended, "f", "plan")).new is False, "it does not run again"
    assert await run_store.append(running, "me", 2, ["c"], end=True) > number
    await run_engine.backdate("threads", 91 * DAY)
    await run_store.sweep(DAY, 90 * DAY)
    assert await run_store.get(ended) is None
    assert await run_store.thread("o", "s", "t") is Ownership.NONE
    assert (await run_store.create(ended, "f", "plan")).first


async def test_many_runs_are_forgotten_with_few_statements(
    run_engine: RunEngine, run_store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also entries of runs too long for one transaction; what is behind them is forgotten, too."""
    lengths = [3, 10, 1, *[2] * 40]
    runs = [key(f"r{n}") for n in range(len(lengths))]
    await asyncio.gather(*(run_store.create(run, "f", "plan", token="me", lease=30) for run in runs))
    for run, entries in zip(runs[:3], lengths, strict=False):
        await run_store.append(run, "me", 0, [str(n) for n in range(entries)], end=True)
    await asyncio.gather(*(run_store.append(run, "me", 0, ["a", "b"], end=True) for run in runs[3:]))
    await run_engine.backdate("ended", DAY + 1)
    monkeypatch.setattr(run_scripts, "_ENTRIES", 5)
    statements: list[str] = []
    forget = run_scripts.forget

    def noted(seconds: float) -> Script[tuple[int, int]]:
        script, rows = forget(seconds), None
        while True:
            try:
                statement = script.send(rows)  # type: ignore[arg-type]
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            statements.append(statement[0])
            rows = yield statement

    monkeypatch.setattr(run_scripts, "forget", noted)
    assert await run_store.sweep(DAY, 90 * DAY) == len(runs)
    assert await run_engine.execute("SELECT count(*) FROM run_entries") == 0
    assert await run_engine.execute("SELECT count(*) FROM run_plans") == 0
    statements.clear()
    monkeypatch.setattr(run_scripts, "_ENTRIES", 5_000)
    more = [key(f"m{n}") for n in range(90)]
    await asyncio.gather(*(run_store.create(run, "f", "plan", token="me", lease=30) for run in more))
    await asyncio.gather(*(run_store.append(run, "me", 0, ["a", "b"], end=True) for run in more))
    await run_engine.backdate("ended", DAY + 1)
    assert await run_store.sweep(DAY, 90 * DAY) == 90
    assert len(statements) < 8, statements
    assert await run_engine.execute("SELECT count(*) FROM run_entries") == 0


async def test_a_thread_with_a_run_that_goes_on_is_kept(run_engine: RunEngine, run_store: RunStore) -> None:
    await begun(run_store, key())
    await run_store.append(key(), "me", 0, ["a"])
    await run_engine.backdate("threads", 91 * DAY)
    await run_store.sweep(DAY, 90 * DAY)
    assert await bodies(run_store, key()) == ["a"]
    await run_store.append(key(), "me", 1, ["b"], end=True)


async def test_a_run_is_deleted(run_store: RunStore) -> None:
    gone, kept = key("gone"), key("kept")
    for run in (gone, kept):
        await begun(run_store, run)
        await run_store.append(run, "me", 0, ["a"])
    assert await run_store.delete(gone) is False, "it has not ended"
    await run_store.append(gone, "me", 1, ["b"], end=True)
    assert await run_store.delete(gone) is True
    assert await run_store.delete(gone) is False
    assert await run_store.get(gone) is None
    assert await bodies(run_store, gone) == []
    assert await bodies(run_store, kept) == ["a"]
    assert (await run_store.create(gone, "g", "p")).new


# ---------------------------------------------------------------------- faults


def operations(store: RunStore) -> dict[str, Callable[[], Awaitable[object]]]:
    return {
        "open": store.open,
        "create": lambda: store.create(key(), "f", "p"),
        "get": lambda: store.get(key()),
        "delete": lambda: store.delete(key()),
        "thread": lambda: store.thread("o", "s", "t", make=True),
        "append": lambda: store.append(key(), "me", 0, ["x"]),
        "read": lambda: store.read(key()),
        "tail": lambda: store.read(key(), wait=0.01),
        "claim": lambda: store.claim("me", 1),
        "acquire": lambda: store.acquire(key(), "me", 1),
        "renew": lambda: store.renew("me", 1),
        "plan": lambda: store.plan(key()),
        "pulse": store.pulse,
        "release": lambda: store.release(key(), "me"),
        "lost": store.lost,
        "cancel": lambda: store.cancel(key()),
        "canceled": lambda: store.canceled([key()]),
        "sweep": lambda: store.sweep(1, 1),
    }


async def refused(work: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(BridgeError) as caught:
        async with asyncio.timeout(40):
            await work()
    error = caught.value
    assert error.code is ErrorCode.STORE_UNAVAILABLE
    assert error.message.startswith("the run store is not available (")
    assert error.__context__ is None, "nothing for a log to dig out"
    assert SECRET not in repr(error.failure)
    assert "127.0.0.1" not in repr(error.failure)


async def test_an_engine_that_went_away_and_came_back(run_engine: RunEngine, run_store: RunStore) -> None:
    await begun(run_store, key())
    await run_store.append(key(), "me", 0, ["a"])
    await run_engine.down()
    for name, work in operations(run_store).items():
        if name != "open":  # it is open
            await refused(work)
    await run_engine.up()
    await run_store.append(key(), "me", 1, ["b"])
    assert await bodies(run_store, key()) == ["a", "b"]
    last = (await there(run_store, key())).last or 0
    reading = asyncio.create_task(run_store.read(key(), last, wait=60))
    await asyncio.sleep(0)
    await run_store.append(key(), "me", 2, ["c"], end=True)
    async with asyncio.timeout(40):
        assert [entry.body for entry in await reading] == ["c"]


async def test_a_closed_store(run_store: RunStore) -> None:
    await run_store.create(key(), "f", "p")
    await run_store.close()
    await run_store.close()
    for name, work in operations(run_store).items():
        if name != "open":
            await refused(work)
    await run_store.open()
    assert await run_store.claim("me", 1) is not None


async def test_a_cancelled_claim_leaves_the_queue_as_it_was(run_store: RunStore) -> None:
    """Wherever in its work it is cancelled."""
    for steps in range(12):
        await run_store.create(key(f"r{steps}"), "f", "p")
        claiming = asyncio.create_task(run_store.claim("me", 30))
        for _ in range(steps):
            await asyncio.sleep(0)
        claiming.cancel()
        try:
            record = await claiming
        except asyncio.CancelledError:
            async with asyncio.timeout(30):
                record = await run_store.claim("you", 30, wait=30)
        assert record is not None
        assert record.key == key(f"r{steps}")


@pytest.mark.parametrize("url", ["", "x", "sqlite:", "sqlite:///", f"redis://:{SECRET}@h", f"mysql://u:{SECRET}@h/d"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_runs(url)
    assert SECRET not in str(caught.value)


async def test_a_read_takes_no_more_than_a_reader_may_hold(run_store: RunStore) -> None:
    """Readers that take nothing hold what they have read: a page of a long run, not all of it."""
    run, sent = key(), [*("x" * 100_000 for _ in range(9)), "y" * 600_000, "z"]
    await begun(run_store, run)
    await run_store.append(run, "me", 0, sent, end=True)
    for wait in (0.0, 0.1):
        pages, after = [], 0
        while page := await run_store.read(run, after, wait=wait if len(pages) < 6 else 0.0):
            pages.append([entry.body for entry in page])
            after = page[-1].number
        assert [body for page in pages for body in page] == sent
        assert all(len(page) == 1 or sum(map(len, page)) <= 256 * 1024 for page in pages)
