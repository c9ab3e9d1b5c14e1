"""One suite for every engine: one run at a time per conversation, in order, across processes, whatever happens."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import BridgeError, ErrorCode
from bridge.model import Message, Text
from bridge.stores import Conversation, ConversationStore, StoreConflict, held_places
from bridge.stores.conversation_store import unavailable
from bridge.stores.held_places import POLL
from bridge.stores.memory_budget import LoadedBytes, MemoryBudget, MemorySpent
from tests.stores.conftest import Engine

WORKER = Path(__file__).with_name("worker.py")
ROOT = Path(__file__).parents[2]


COUNT = "SELECT count(*) FROM places WHERE line LIKE 'turn/%'"
EXPIRE = "UPDATE places SET expires = 0 WHERE line = 'processes'"


async def in_line(engine: Engine, count: int) -> None:
    """Waits until so many have taken their place in a line."""
    async with asyncio.timeout(40):
        while await engine.execute(COUNT) != count:
            await asyncio.sleep(0.005)


class Visitor:
    """A task that enters a turn, says so, and leaves when it may."""

    def __init__(self, history: ConversationStore, name: str, entered: list[str], thread_id: str = "t") -> None:
        self.inside = asyncio.Event()
        self.may_go = asyncio.Event()
        self.task = asyncio.create_task(self._visit(history, name, entered, thread_id))

    async def _visit(self, history: ConversationStore, name: str, entered: list[str], thread_id: str) -> None:
        async with history.turn("o", "s", thread_id):
            entered.append(name)
            self.inside.set()
            await self.may_go.wait()

    async def go(self) -> None:
        self.may_go.set()
        await self.task


async def test_one_at_a_time_in_order_of_arrival(history: ConversationStore, engine: Engine) -> None:
    inside = 0
    order = []

    async def run(n: int) -> None:
        nonlocal inside
        async with history.turn("o", "s", "t"):
            inside += 1
            order.append(n)
            for _ in range(n % 5):
                await asyncio.sleep(0)
                assert inside == 1
            inside -= 1

    await asyncio.gather(*(run(n) for n in range(30)))
    assert order == list(range(30))
    await in_line(engine, 0)


async def test_different_conversations_do_not_wait(history: ConversationStore) -> None:
    places = [("o", "s", "t"), ("o", "s", "t2"), ("o", "s2", "t"), ("o2", "s", "t")]
    together = asyncio.Barrier(len(places))

    async def run(owner: str, scope: str, thread_id: str) -> None:
        async with history.turn(owner, scope, thread_id):
            await together.wait()

    async with asyncio.timeout(40):
        await asyncio.gather(*(run(*place) for place in places))


async def test_stores_take_turns_in_order_of_arrival(engine: Engine) -> None:
    """Two stores know no more of each other than two processes. The lease is long: nobody may wait for its renewal."""
    stores = [engine.history(lease=100), engine.history(lease=100)]
    entered: list[str] = []
    visitors = []
    for n in range(6):
        visitors.append(Visitor(stores[(n % 3) % 2], str(n), entered))
        await (in_line(engine, n + 1) if n else visitors[0].inside.wait())
    assert entered == ["0"]
    async with asyncio.timeout(40):
        for visitor in visitors:
            await visitor.inside.wait()
            await visitor.go()
    assert entered == ["0", "1", "2", "3", "4", "5"]
    await in_line(engine, 0)


async def test_many_stores_at_the_same_time(engine: Engine) -> None:
    stores = [engine.history() for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    inside: dict[str, int] = {}

    async def run(store: ConversationStore, thread_id: str) -> None:
        async with store.turn("o", "s", thread_id):
            inside[thread_id] = inside.get(thread_id, 0) + 1
            assert inside[thread_id] == 1
            await asyncio.sleep(0)
            inside[thread_id] -= 1

    for n in range(10):
        await asyncio.gather(*(run(store, f"{n}-{k}") for k in range(5) for store in stores))
    await in_line(engine, 0)


async def test_who_stops_waiting_leaves_nothing(engine: Engine) -> None:
    first, second = engine.history(), engine.history()
    entered: list[str] = []
    holder = Visitor(first, "holder", entered)
    await holder.inside.wait()
    waiting = [Visitor((first, second)[n % 2], str(n), entered) for n in range(4)]
    await in_line(engine, 5)
    for visitor in waiting[:3]:
        visitor.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await visitor.task
    await in_line(engine, 2)
    await holder.go()
    await waiting[3].inside.wait()
    await waiting[3].go()
    assert entered == ["holder", "3"]
    await in_line(engine, 0)


async def test_cancelling_at_any_moment_leaves_nothing(history: ConversationStore, engine: Engine) -> None:
    async with asyncio.timeout(30):
        for moment in range(40):
            entered: list[str] = []
            visitors = [Visitor(history, str(n), entered) for n in range(3)]
            for _ in range(moment):
                await asyncio.sleep(0.0002 if moment % 2 else 0)
            visitors[0].task.cancel()
            visitors[1].task.cancel()
            await visitors[2].inside.wait()
            await visitors[2].go()
            await asyncio.gather(*(v.task for v in visitors), return_exceptions=True)
        await in_line(engine, 0)


async def test_an_error_inside_gives_the_turn_back(history: ConversationStore) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            async with history.turn("o", "s", "t"):
                raise ZeroDivisionError
    async with history.turn("o", "s", "t"):
        pass


async def test_a_lease_is_renewed_while_it_is_held(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = engine.history(lease=0.6), engine.history(lease=0.6)
    async with first.turn("o", "s", "t"):
        renewals = spy(first, monkeypatch)
        entered: list[str] = []
        other = Visitor(second, "other", entered)
        for _ in range(6):
            await renewals.get()
        assert entered == [], "twice the time of a lease has passed"
    await other.inside.wait()
    await other.go()


def spy(history: Any, monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[int]:
    """A queue that gets, after every renewal, how many places are left."""
    places = history._places
    done: asyncio.Queue[int] = asyncio.Queue()
    renew = places._renew

    async def renewed() -> None:
        await renew()
        done.put_nowait(len(places._queued()))

    monkeypatch.setattr(places, "_renew", renewed)
    return done


def stand_still(history: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process renews nothing, and does not know it."""

    async def never() -> None:
        history._places._life.renewed()

    monkeypatch.setattr(history._places, "_renew", never)


def go_on(history: Any, monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[int]:
    monkeypatch.delattr(history._places, "_renew")
    return spy(history, monkeypatch)


async def test_who_stood_still_is_overtaken_and_loses_nothing_of_others(
    engine: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = engine.history(lease=0.6), engine.history(lease=0.6)
    async with slow.turn("o", "s", "t"):
        conversation = Conversation("t")
        await slow.commit("o", "s", conversation, [Message("user", [Text("slow")])])
        stand_still(slow, monkeypatch)
        await engine.execute(EXPIRE)
        async with other.turn("o", "s", "t"):
            theirs = await other.load("o", "s", "t")
            assert theirs is not None
            await other.commit("o", "s", theirs, [Message("user", [Text("other")])])
        with pytest.raises(StoreConflict):
            await slow.commit("o", "s", conversation, [Message("assistant", [Text("late")])])
        with caplog.at_level(logging.WARNING, "bridge.places"):
            assert await go_on(slow, monkeypatch).get() == 0
        assert "a turn of a conversation was lost" in caplog.text
    async with slow.turn("o", "s", "t"):
        await in_line(engine, 1)


async def test_who_was_overtaken_does_not_commit_before_the_holder(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = engine.history(lease=0.6), engine.history(lease=0.6)
    async with slow.turn("o", "s", "t") as late:
        stand_still(slow, monkeypatch)
        await engine.execute(EXPIRE)
        async with other.turn("o", "s", "t") as holder:
            with pytest.raises(StoreConflict):
                await late.commit([Message("user", [Text("late")])])
            await holder.commit([Message("user", [Text("in turn")])])
    conversation = await other.load("o", "s", "t")
    assert conversation is not None
    assert [part.text for m in conversation.messages for part in m.parts if isinstance(part, Text)] == ["in turn"]


async def test_an_expired_lease_that_nobody_wants_is_kept(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    history, other = engine.history(lease=0.6), engine.history(lease=0.6)
    entered: list[str] = []
    async with history.turn("o", "s", "t"):
        renewals = spy(history, monkeypatch)
        await renewals.get()
        await engine.execute(EXPIRE)
        assert await renewals.get() == 1
        visitor = Visitor(other, "other", entered)
        await in_line(engine, 2)
        assert entered == []
    await visitor.inside.wait()
    await visitor.go()


async def test_one_process_does_not_overtake_itself(history: ConversationStore, engine: Engine) -> None:
    """Even when it stood still so long that the lease ran out, and comes to renew it only after a new arrival."""
    entered: list[str] = []
    async with history.turn("o", "s", "t"):
        await engine.execute(EXPIRE)
        visitor = Visitor(history, "next", entered)
        await in_line(engine, 2)
        assert entered == []
        await engine.execute(EXPIRE)
    await visitor.inside.wait()
    await visitor.go()


async def test_who_lost_his_place_while_waiting_takes_another(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = engine.history(lease=0.6), engine.history(lease=0.6)
    entered: list[str] = []
    async with first.turn("o", "s", "t"):
        visitor = Visitor(second, "waiting", entered)
        await in_line(engine, 2)
        await engine.execute("DELETE FROM places WHERE line LIKE 'turn/%' AND stamp = (SELECT max(stamp) FROM places)")
        await in_line(engine, 2)
        assert entered == []
    await visitor.inside.wait()
    await visitor.go()
    await in_line(engine, 0)


async def test_closing_gives_turns_back(engine: Engine) -> None:
    first, second = engine.history(), engine.history()
    entered: list[str] = []
    holder = Visitor(first, "holder", entered)
    await holder.inside.wait()
    waiting, other = Visitor(first, "waiting", entered), Visitor(second, "other", entered)
    await in_line(engine, 3)
    await first.close()
    with pytest.raises(BridgeError) as caught:
        await waiting.task
    assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
    await other.inside.wait()
    await holder.go()
    await other.go()
    assert entered == ["holder", "other"]
    with pytest.raises(BridgeError):
        first.turn("o", "s", "t")
    await in_line(engine, 0)


async def test_a_database_that_goes_away_is_no_trap(engine: Engine) -> None:
    history = engine.history(lease=0.5)
    entered: list[str] = []
    holder = Visitor(history, "holder", entered)
    await holder.inside.wait()
    waiting = Visitor(history, "waiting", entered)
    await in_line(engine, 2)
    await engine.down()
    with pytest.raises(BridgeError) as caught:
        await Visitor(history, "new", entered).task
    assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
    with pytest.raises(BridgeError) as caught:
        async with asyncio.timeout(40):
            await waiting.task
    assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
    await holder.go()
    await engine.up()
    await in_line(engine, 0)
    again = Visitor(history, "again", entered)
    await again.inside.wait()
    await again.go()
    assert entered == ["holder", "again"]


async def test_a_short_failure_is_waited_out(engine: Engine) -> None:
    history = engine.history()
    entered: list[str] = []
    holder = Visitor(history, "holder", entered)
    await holder.inside.wait()
    waiting = Visitor(history, "waiting", entered)
    await in_line(engine, 2)
    await engine.down()
    await holder.go()
    await engine.up()
    async with asyncio.timeout(40):
        await waiting.inside.wait()
    await waiting.go()
    await in_line(engine, 0)


@asynccontextmanager
async def process(engine: Engine, lease: float, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker that is ready."""
    made = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", str(WORKER), engine.url, str(lease), *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert made.stdin
    assert made.stdout
    try:
        assert await made.stdout.readline() == b"ready\n"
        yield made
    finally:
        if made.returncode is None:
            made.kill()
        await made.wait()
        made._transport.close()  # type: ignore[attr-defined]


async def test_two_processes_on_one_conversation(engine: Engine) -> None:
    async with process(engine, 10, "append", "a", "20") as one, process(engine, 10, "append", "b", "20") as two:
        for worker in (one, two):
            assert worker.stdin
            worker.stdin.write(b"go\n")
        assert [await one.wait(), await two.wait()] == [0, 0]
    conversation = await engine.history().load("o", "s", "shared")
    assert conversation is not None
    said = [(m.role, p.text) for m in conversation.messages for p in m.parts if isinstance(p, Text)]
    turns = [said[n][1] for n in range(0, len(said), 2)]
    assert said == [(role, turn) for turn in turns for role in ("user", "assistant")]
    for name in "ab":
        assert [turn for turn in turns if turn.startswith(name)] == [f"{name} {n}" for n in range(20)]
    assert conversation.version == 80
    await in_line(engine, 0)


async def test_the_turn_of_a_killed_process_goes_on(engine: Engine) -> None:
    history = engine.history(lease=0.8)
    entered: list[str] = []
    async with process(engine, 0.8, "hold") as worker:
        assert worker.stdin
        assert worker.stdout
        worker.stdin.write(b"go\n")
        assert await worker.stdout.readline() == b"holds\n"
        visitors = [Visitor(history, str(n), entered, "shared") for n in range(2)]
        await in_line(engine, 3)
        assert entered == []
        worker.kill()
        for visitor in visitors:
            async with asyncio.timeout(40):
                await visitor.inside.wait()
            await visitor.go()
    assert entered == ["0", "1"]
    await in_line(engine, 0)


def reads(history: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the store asks its database without changing anything."""
    found: list[str] = []
    read = history._database.read

    async def noted(work: Any, *, snapshot: bool = True) -> Any:
        found.append(next(iter(work()))[0])
        return await read(work, snapshot=snapshot)

    monkeypatch.setattr(history._database, "read", noted)
    return found


async def test_within_a_process_nobody_asks_the_database_who_is_next(
    history: ConversationStore, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[str] = []
    asked = reads(history, monkeypatch)
    visitors = [Visitor(history, str(n), entered) for n in range(5)]
    await in_line(engine, 5)
    await asyncio.sleep(5 * POLL)
    assert asked == []
    for visitor in visitors:
        await visitor.inside.wait()
        await visitor.go()
    assert entered == ["0", "1", "2", "3", "4"]
    assert not any("places" in statement for statement in asked), "those who waited read their conversation"
    assert len(asked) == 4


async def test_who_waits_for_another_process_asks_for_all_lines_at_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = engine.history(lease=100), engine.history(lease=100)
    entered: list[str] = []
    holders = [Visitor(first, f"h{n}", entered, f"t{n}") for n in range(3)]
    for holder in holders:
        await holder.inside.wait()
    places = second._places  # type: ignore[attr-defined]
    looked: list[int] = []
    waiting = places._next_elsewhere

    def noted() -> Any:
        found = waiting()
        looked.append(len(found))
        return found

    visitors = [Visitor(second, f"v{n}", entered, f"t{n}") for n in range(3)]
    async with asyncio.timeout(40):
        while len(waiting()) < 3:
            await asyncio.sleep(0.005)
    monkeypatch.setattr(places, "_next_elsewhere", noted)
    asked = reads(second, monkeypatch)
    async with asyncio.timeout(40):
        while len(asked) < 3:
            await asyncio.sleep(0.005)
    assert set(asked) == {held_places._DUE}
    assert set(looked) == {3}
    for holder, visitor in zip(holders, visitors, strict=True):
        await holder.go()
        async with asyncio.timeout(40):
            await visitor.inside.wait()
        await visitor.go()


async def test_an_idle_store_renews_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    history: Any = engine.history(lease=0.3)
    async with history.turn("o", "s", "t"):
        pass
    places = history._places
    async with asyncio.timeout(40):
        while places._pause() is not None:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    renewals = spy(history, monkeypatch)
    await asyncio.sleep(0.6)
    assert renewals.empty()
    async with history.turn("o", "s", "t"):
        assert await renewals.get() == 1, "who has been idle renews its lease again"
        assert await renewals.get() == 1


async def test_a_place_of_which_nobody_knows_whether_it_was_stored_is_given_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks after the commit. The process lives on, so that its lease does not free the place."""
    history: Any = engine.history()
    entered: list[str] = []
    await history.open()
    write, was_broken = history._database.write, False

    async def broken(work: Any, **how: Any) -> Any:
        nonlocal was_broken
        done = await write(work, **how)
        if not how and not was_broken:
            was_broken = True
            raise unavailable(engine.name, "ConnectionResetError")
        return done

    monkeypatch.setattr(history._database, "write", broken)
    with pytest.raises(BridgeError) as caught:
        await Visitor(history, "first", entered).task
    assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
    async with asyncio.timeout(40):
        again = Visitor(history, "again", entered)
        await again.inside.wait()
        await again.go()
    assert entered == ["again"]
    await in_line(engine, 0)


async def test_a_conversation_that_cannot_be_read_gives_the_turn_back(
    history: ConversationStore, engine: Engine
) -> None:
    await history.commit("o", "s", Conversation("t"), [Message("user", [Text("x" * 100_000)])])
    entered: list[str] = []
    budget = MemoryBudget(1)
    budget.take(1)
    for _ in range(2):
        with LoadedBytes(budget), pytest.raises(MemorySpent):
            async with history.turn("o", "s", "t"):
                pass
    with LoadedBytes(budget):
        async with history.turn("o", "s", "other"):
            holder = Visitor(history, "holder", entered, "other")
            waiting = Visitor(history, "waiting", entered, "other")
            await in_line(engine, 3)
            await history.commit("o", "s", Conversation("other"), [Message("user", [Text("x" * 100_000)])])
        for visitor in (holder, waiting):
            with pytest.raises(MemorySpent):
                await visitor.task
    assert entered == []
    await in_line(engine, 0)


async def test_a_conversation_that_somebody_waits_for_is_not_pruned(engine: Engine) -> None:
    """Whatever separates its ids."""
    history, other = engine.history(), engine.history()
    for owner, scope, thread in (("o", "/s", "t%/"), ("o%", "", "/s%/t"), ("o", "s", "t")):
        await history.commit(owner, scope, Conversation(thread), [Message("user", [Text("x")])])
    async with history.turn("o", "/s", "t%/"):
        await engine.execute("UPDATE history_conversations SET updated_at = updated_at - 100")
        assert await other.prune(50) == 2
        assert await other.load("o", "/s", "t%/") is not None
    assert await other.prune(50) == 1


async def test_tables_of_the_version_before_are_extended(engine: Engine) -> None:
    """Its processes go on with theirs."""
    before = engine.history()
    await before.open()
    await before.close()
    await engine.execute("DROP TABLE places")
    await engine.execute("DELETE FROM schema_version WHERE room = 'place'")
    after = engine.history()
    async with after.turn("o", "s", "t"):
        await in_line(engine, 1)
    assert await engine.execute("SELECT count(*) FROM history_turns") == 0
