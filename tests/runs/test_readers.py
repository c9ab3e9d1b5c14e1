"""Readers: the bytes after any cut are those of a reader who never left, in every dialect, from every process."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from bridge.contract import registry
from bridge.engine.bridge import Bridge
from bridge.errors import BridgeError, ErrorCode, RequestError
from bridge.model import RunFailed, RunFinished
from bridge.run.durable import Cursor, RunKey, Runs
from bridge.run.durable import recorder as recording
from bridge.run.durable.log import from_body
from bridge.stores import RunStore
from bridge.stores.run_records import LogSource
from bridge.translation.framing import sse
from tests.runs.agents import WORDS
from tests.runs.conftest import MakeRuns
from tests.runs.helpers import (
    begin,
    bridge_of,
    cursor_of,
    events_of,
    frames_of,
    process,
    runs_of,
    subscribe,
    text_of,
)
from tests.stores.run_engines import RunEngine

LEASE = 1.0


def after(frames: Sequence[bytes], cursor: Cursor) -> list[bytes]:
    """What a reader at this cursor does not have."""
    places = [n for n, frame in enumerate(frames) if (c := cursor_of(frame)) is not None and c <= cursor]
    return list(frames[places[-1] + 1 :]) if places else list(frames)


@pytest.mark.parametrize("front", [name for name in registry.over_http() if registry.get(name).event_ids])
async def test_after_every_cut_the_same_bytes(make_runs: MakeRuns, front: str) -> None:
    async with bridge_of(front) as bridge:
        runs, others = make_runs(bridge), make_runs(bridge)
        await runs.open()
        key = await begin(bridge, runs, "all kinds")
        live = await frames_of(subscribe(runs, key, front=front))
        cursors = [cursor for frame in live if (cursor := cursor_of(frame)) is not None]
        assert cursors == sorted(set(cursors))
        assert len(cursors) > 3
        assert await frames_of(subscribe(others, key, front=front)) == live
        for cursor in cursors:
            assert await frames_of(subscribe(others, key, cursor, front)) == after(live, cursor)
        await runs.close()


async def test_any_dialect_reads_any_run(bridge: Bridge, runs: Runs) -> None:
    key = await begin(bridge, runs, "count")
    for front in registry.over_http():
        body = b"".join(await frames_of(subscribe(runs, key, front=front)))
        assert b"w19 " in body, front


async def test_readers_who_come_before_the_run(bridge: Bridge, runs: Runs, make_runs: MakeRuns) -> None:
    key = RunKey("o", "/x", "t", "soon")
    readers = [asyncio.create_task(frames_of(subscribe(r, key))) for r in (runs, make_runs())]
    await asyncio.sleep(0)
    await begin(bridge, runs, "count", "soon")
    one, two = await asyncio.gather(*readers)
    assert one == two
    assert b"".join(one).count(b"TEXT_MESSAGE_CONTENT") == len(WORDS)


async def test_an_unknown_run_is_waited_for(runs: Runs) -> None:
    subscription = subscribe(runs, RunKey("o", "/x", "t", "never"), Cursor(7, 0))
    assert await subscription.open()
    assert await subscription.read(0.05) == []
    assert not subscription.done


async def test_behind_the_end_there_is_nothing(bridge: Bridge, runs: Runs) -> None:
    key = await begin(bridge, runs, "count")
    frames = await frames_of(subscribe(runs, key))
    last = cursor_of(frames[-1])
    assert last is not None
    for cursor in (last, Cursor(last.entry, last.frame + 1)):
        subscription = subscribe(runs, key, cursor)
        assert await subscription.open() is False
        assert await subscription.read(0) == []
    subscription = subscribe(runs, key, cursor_of(frames[-2]) or last)
    assert await subscription.open() is True
    assert [sse.join([frame]) for frame in await subscription.read(0)] == frames[-1:]
    assert subscription.reason == "stop"


@pytest.mark.parametrize("cursor", [None, Cursor(2**64 - 1, 2**64 - 1)])
async def test_a_reader_of_what_was_lost_hears_the_end(bridge: Bridge, runs: Runs, cursor: Cursor | None) -> None:
    """Its cursor is beyond the end: the store has lost entries that it acknowledged."""
    key = await begin(bridge, runs, "count")
    last = cursor_of((frames := await frames_of(subscribe(runs, key)))[-1])
    assert last is not None
    end = [frame for frame in frames if (c := cursor_of(frame)) is not None and c.entry == last.entry]
    subscription = subscribe(runs, key, cursor or Cursor(last.entry + 1, 0))
    assert await subscription.open() is True
    assert await frames_of(subscription) == end
    assert subscription.done


async def test_a_cursor_of_tables_that_were_migrated_has_expired(bridge: Bridge, runs: Runs) -> None:
    """Nobody knows which entries its reader has: it would get some of them twice."""
    key = await begin(bridge, runs, "count")
    with pytest.raises(RequestError) as caught:
        await subscribe(runs, key, Cursor(12, 0)).open()
    assert caught.value.failure.http_status == 410


async def test_only_the_frames_of_this_run(bridge: Bridge, runs: Runs) -> None:
    keys = [await begin(bridge, runs, "count") for _ in range(5)]
    bodies = [b"".join(frames) for frames in await asyncio.gather(*(frames_of(subscribe(runs, k)) for k in keys))]
    for key, body in zip(keys, bodies, strict=True):
        assert key.run_id.encode() in body
        assert not any(other.run_id.encode() in body for other in keys if other != key)


@pytest.mark.parametrize("text", ["$", "-", "12", "1-2-3", "1-", "-1", "a-b", "+1-0", " 1-0", "١-٠", f"{2**64}-0",
                                  f"0-{2**64}", "1" * 21 + "-0", "1_0-0"])  # fmt: skip
def test_what_is_no_cursor(text: str) -> None:
    with pytest.raises(RequestError) as caught:
        Cursor.parse(text)
    assert caught.value.failure.param == "Last-Event-ID"


def test_cursors() -> None:
    assert Cursor.parse("12-3") == Cursor(12, 3)
    assert str(Cursor(12, 3)) == "12-3"
    assert Cursor(9, 9) < Cursor(10, 0) < Cursor(10, 1)
    assert Cursor.parse("00012-0003") == Cursor(12, 3)


# ---------------------------------------------------------------------- what is not kept


async def test_a_run_that_was_forgotten(bridge: Bridge, run_engine: RunEngine, runs: Runs) -> None:
    key = await begin(bridge, runs, "count")
    frames = await frames_of(subscribe(runs, key))
    await run_engine.backdate("ended", 100)
    assert await runs._store.sweep(99, 1000) == 1
    for cursor in (Cursor(), cursor_of(frames[3]) or Cursor()):
        subscription = subscribe(runs, key, cursor)
        with pytest.raises(RequestError) as caught:
            await subscription.open()
        assert caught.value.failure.http_status == 410
        with pytest.raises(RequestError):
            await subscription.read(0)


async def test_a_run_that_is_forgotten_under_its_reader(bridge: Bridge, run_engine: RunEngine, runs: Runs) -> None:
    key = await begin(bridge, runs, "count")
    reader = runs.follow(key)
    await reader.read(30)
    await events_of(runs, key)
    if reader.done:
        pytest.fail("the agent's pace should have let us see a part only")
    await run_engine.backdate("ended", 100)
    await runs._store.sweep(99, 1000)
    with pytest.raises(RequestError) as caught:
        await reader.read(0.05)
    assert caught.value.failure.http_status == 410


# ---------------------------------------------------------------------- how it is written


class Slow:
    """A store each of whose appends waits to be let go."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self.pool = asyncio.Semaphore(0)
        self.appends = 0
        self._feeding: set[asyncio.Task[None]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def feed(self, source: LogSource) -> None:
        self.appends += 1
        self._feeding.add(task := asyncio.get_running_loop().create_task(self._feed(source)))
        task.add_done_callback(self._feeding.discard)

    async def _feed(self, source: LogSource) -> None:
        await self.pool.acquire()
        self._store.feed(source)


@pytest.mark.parametrize(("join", "most"), [(10.0, 3), (-1.0, 1000)])
async def test_what_a_slow_store_could_not_take_is_joined_in_order(
    bridge: Bridge, run_engine: RunEngine, monkeypatch: pytest.MonkeyPatch, join: float, most: int
) -> None:
    """Within `join` seconds; otherwise each batch is an entry, and many are written at once."""
    monkeypatch.setattr(recording, "JOIN", join)
    slow = Slow(run_engine.store())
    said = asyncio.Event()

    async def agent(request: object) -> AsyncIterator[str]:
        yield WORDS[0]
        while not slow.appends:
            await asyncio.sleep(0)
        for word in WORDS[1:]:
            yield word
            await asyncio.sleep(0)
        said.set()

    monkeypatch.setattr(bridge.routes[0].backends[0], "_agent", agent)
    runs = runs_of(bridge, slow)  # type: ignore[arg-type]
    await runs.open()
    key = await begin(bridge, runs, "x")
    await said.wait()
    assert await runs.follow(key).read(0) == [], "nothing is seen that is not written"
    for _ in range(3):
        slow.pool.release()
    assert text_of(await events_of(runs, key)) == "".join(WORDS)
    entries = await slow.read(key)
    # The first batch, what came while it was written, and perhaps the end.
    assert len(entries) <= most
    assert join > 0 or len(entries) > len(WORDS)
    await runs.close()


async def test_a_slow_store_holds_the_backend_up_in_the_end(
    bridge: Bridge, run_engine: RunEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_PENDING", 3)
    said = 0

    async def agent(request: object) -> Any:
        nonlocal said
        for word in WORDS:
            said += 1
            yield word

    monkeypatch.setattr(bridge.routes[0].backends[0], "_agent", agent)
    slow = Slow(run_engine.store())
    runs = runs_of(bridge, slow)  # type: ignore[arg-type]
    await runs.open()
    key = await begin(bridge, runs, "x")
    while not slow.appends:
        await asyncio.sleep(0)
    for _ in range(200):
        await asyncio.sleep(0)
    assert said < len(WORDS)
    for _ in range(200):
        slow.pool.release()
    assert text_of(await events_of(runs, key)) == "".join(WORDS)
    await runs.close()


async def test_entries_are_compact_events(bridge: Bridge, runs: Runs) -> None:
    key = await begin(bridge, runs, "count")
    await events_of(runs, key)
    entries = await runs._store.read(key)
    batches = [from_body(entry.body) for entry in entries]
    assert [batch.position for batch in batches] == list(range(len(batches)))
    assert any(',"w3 "]' in entry.body for entry in entries), "a delta is a short array"


# ---------------------------------------------------------------------- many at once


async def _restless(runs: Sequence[Runs], key: RunKey, dice: random.Random, begun: asyncio.Event) -> list[bytes]:
    """Reads a run with many cuts, each time from another process and from the last id that was seen."""
    frames: list[bytes] = []
    cursor = Cursor()
    while True:
        subscription = subscribe(dice.choice(runs), key, cursor)
        for _ in range(dice.randint(1, 3)):
            got = await subscription.read(30)
            begun.set()
            kept = got[: dice.randint(0, len(got))] if dice.random() < 0.5 else got
            frames += [sse.join([frame]) for frame in kept]
            cursor = next((Cursor.parse(f.id) for f in reversed(kept) if f.id), cursor)
            if len(kept) < len(got):
                break
        else:
            if subscription.done:
                return frames


async def test_a_hundred_runs_with_cuts_and_a_killed_worker(
    bridge: Bridge, run_engine: RunEngine, make_runs: MakeRuns
) -> None:
    """Every event once and in order, every run with one end, each reader the bytes of one who never left."""
    dice = random.Random(7)
    lost = 0
    async with process(run_engine.url, LEASE) as other:
        ours = make_runs(lease=LEASE, concurrent=10)
        readers = [ours, make_runs(lease=LEASE)]
        # The first one hangs, so that the worker holds it whenever it is killed.
        keys = [await begin(bridge, ours, "hang" if n == 0 else "count") for n in range(100)]
        begun = [asyncio.Event() for _ in keys]
        reading = [
            asyncio.create_task(_restless(readers, key, random.Random(dice.random()), event))
            for key, event in zip(keys, begun, strict=True)
        ]
        await begun[0].wait()
        other.send_signal(signal.SIGKILL)
        await asyncio.to_thread(other.wait)
        await ours.open()
        async with asyncio.timeout(90):
            read = await asyncio.gather(*reading)
        for key, frames in zip(keys, read, strict=True):
            events = await events_of(readers[1], key)
            text = text_of(events)
            match events[-1]:
                case RunFinished():
                    assert text == "".join(WORDS)
                case RunFailed(error=error):
                    assert error.code is ErrorCode.RUN_LOST
                    assert "".join(WORDS).startswith(text)
                    lost += 1
                case _:
                    pytest.fail("no end")
            assert frames == await frames_of(subscribe(readers[1], key))
    assert 0 < lost < 100


async def test_a_reader_waits_for_a_store_that_is_away(
    bridge: Bridge, run_engine: RunEngine, runs: Runs, make_runs: MakeRuns
) -> None:
    key = await begin(bridge, runs, "hang")
    subscription = subscribe(runs, key)
    assert await subscription.read(30)
    await run_engine.down()
    assert await subscription.read(30) == []
    assert not subscription.done
    with pytest.raises(BridgeError) as caught:
        await subscribe(make_runs(), key).open()
    assert caught.value.code is ErrorCode.STORE_UNAVAILABLE, "one of another process that has not begun does not wait"
    await run_engine.up()
    await runs.cancel(key)
    assert (await frames_of(subscription))[-1]
    assert subscription.done


async def test_a_reader_is_told_when_the_store_stays_away(
    bridge: Bridge, run_engine: RunEngine, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.run.durable.log.LONGEST_OUTAGE", 0.2)
    key = await begin(bridge, runs, "hang")
    subscription = subscribe(runs, key)
    await subscription.read(30)
    await run_engine.down()
    with pytest.raises(BridgeError) as caught:
        await frames_of(subscription)
    assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
    await run_engine.up()
    await runs.cancel(key)
    assert (await frames_of(subscription))[-1]
