"""One suite for every engine: a turn begins with its talk, and its commit gives it back in the same transaction."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from bridge.errors import BridgeError, ErrorCode
from bridge.model import Message, Text
from bridge.stores import Conversation, ConversationStore, StoreConflict
from tests.stores.conftest import Engine
from tests.stores.test_turns import COUNT, Visitor, in_line, process, spy


def says(text: str) -> Message:
    return Message("user", [Text(text)])


@pytest.fixture
def history(engine: Engine) -> ConversationStore:
    """Its lease is long: nobody may wait for its renewal."""
    return engine.history(lease=100)


@pytest.fixture(params=["the same store", "another store"])
def other(request: pytest.FixtureRequest, engine: Engine, history: ConversationStore) -> ConversationStore:
    """Who waits for the turns of `history`."""
    return history if request.param == "the same store" else engine.history(lease=100)


async def test_a_turn_begins_with_its_talk(history: ConversationStore) -> None:
    async with history.turn("o", "s", "%\0t") as held:
        assert held.conversation == Conversation("%\0t")
        held.conversation.extra["seen"] = True
        await held.commit([says("1"), says("2")], digest="d")
        assert held.conversation == await history.load("o", "s", "%\0t")
    async with history.turn("o", "s", "%\0t") as held:
        assert held.conversation == await history.load("o", "s", "%\0t")
        assert (held.conversation.version, held.conversation.digest, held.conversation.extra) == (
            1,
            "d",
            {"seen": True},
        )
        await held.commit([says("3")], keep=1)
        assert held.conversation.messages == [says("1"), says("3")]
        assert held.conversation == await history.load("o", "s", "%\0t")


async def test_a_long_talk_is_read_whole(history: ConversationStore) -> None:
    async with history.turn("o", "s", "t") as held:
        await held.commit([says(str(n)) for n in range(120)])
    async with history.turn("o", "s", "t") as held:
        assert held.conversation.messages == [says(str(n)) for n in range(120)]


async def test_who_waited_gets_what_was_committed_meanwhile(
    history: ConversationStore, other: ConversationStore, engine: Engine
) -> None:
    async def say(text: str) -> None:
        async with other.turn("o", "s", "t") as held:
            await held.commit([says(text)])

    async with history.turn("o", "s", "t") as held:
        waiting = [asyncio.create_task(say("2"))]
        await in_line(engine, 2)
        waiting.append(asyncio.create_task(say("3")))
        await in_line(engine, 3)
        await held.commit([says("1")])
        async with asyncio.timeout(40):
            await asyncio.gather(*waiting)
    conversation = await history.load("o", "s", "t")
    assert conversation is not None
    assert conversation.messages == [says("1"), says("2"), says("3")]
    await in_line(engine, 0)


async def test_a_commit_lets_the_next_one_in(
    history: ConversationStore, other: ConversationStore, engine: Engine
) -> None:
    entered: list[str] = []
    async with history.turn("o", "s", "t") as held:
        visitor = Visitor(other, "next", entered)
        await in_line(engine, 2)
        await history.commit("o", "s", held.conversation, [says("1")])
        assert await engine.execute(COUNT) == 2, "only the turn's own commit ends it"
        await held.commit([says("2")])
        async with asyncio.timeout(40):
            await visitor.inside.wait()
        await held.commit([says("3")])
    await in_line(engine, 1)
    await visitor.go()
    await in_line(engine, 0)
    conversation = await history.load("o", "s", "t")
    assert conversation is not None
    assert conversation.messages == [says("1"), says("2"), says("3")]


async def test_a_refused_commit_keeps_the_turn(history: ConversationStore, engine: Engine) -> None:
    entered: list[str] = []
    async with history.turn("o", "s", "t") as held:
        visitor = Visitor(history, "next", entered)
        await in_line(engine, 2)
        await history.commit("o", "s", Conversation("t"), [says("theirs")])
        with pytest.raises(StoreConflict):
            await held.commit([says("ours")])
        assert await engine.execute(COUNT) == 2
        assert entered == []
    await visitor.inside.wait()
    await visitor.go()
    conversation = await history.load("o", "s", "t")
    assert conversation is not None
    assert conversation.messages == [says("theirs")]


async def test_neither_without_the_other(history: ConversationStore, engine: Engine) -> None:
    """The talk cannot be kept when the turn cannot be given back."""
    async with history.turn("o", "s", "t") as held:
        await engine.execute("ALTER TABLE places RENAME TO away")
        with pytest.raises(BridgeError) as caught:
            await held.commit([says("1")])
        assert caught.value.code is ErrorCode.STORE_UNAVAILABLE
        assert held.conversation == Conversation("t")
        assert await history.load("o", "s", "t") is None
        await engine.execute("ALTER TABLE away RENAME TO places")
        await in_line(engine, 1)
        await held.commit([says("2")])
        await in_line(engine, 0)
    assert await history.load("o", "s", "t") == held.conversation


async def test_a_commit_that_is_cancelled_at_any_moment(history: ConversationStore, engine: Engine) -> None:
    outcomes = set()
    for moment in range(40):
        began = asyncio.Event()
        thread = f"t{moment}"

        async def run(thread: str = thread, began: asyncio.Event = began) -> None:
            async with history.turn("o", "s", thread) as held:
                began.set()
                await held.commit([says("1"), says("2")])

        task = asyncio.create_task(run())
        await began.wait()
        for _ in range(moment):
            await asyncio.sleep(0.0002 if moment % 2 else 0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(40), history.turn("o", "s", thread) as held:
            assert held.conversation.messages in ([], [says("1"), says("2")])
            outcomes.add(bool(held.conversation.messages))
    assert outcomes == {False, True}
    await in_line(engine, 0)


async def test_a_turn_in_its_commit_is_not_lost(
    engine: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ticket is gone in the database before this process knows that."""
    history: Any = engine.history(lease=0.6)
    async with history.turn("o", "s", "t") as held:
        renewals = spy(history, monkeypatch)
        write = history._database.write

        async def slow(work: Any, **how: Any) -> Any:
            out = await write(work, **how)
            if not how:
                await renewals.get()
                await renewals.get()
            return out

        monkeypatch.setattr(history._database, "write", slow)
        with caplog.at_level(logging.WARNING, "bridge.places"):
            async with asyncio.timeout(40):
                await held.commit([says("1")])
            await asyncio.sleep(0)
        assert caplog.text == ""
    await in_line(engine, 0)


async def test_a_process_that_is_killed_while_it_commits(engine: Engine) -> None:
    history = engine.history(lease=0.8)
    async with process(engine, 0.8, "append", "a", "1000000") as worker:
        assert worker.stdin
        worker.stdin.write(b"go\n")
        async with asyncio.timeout(40):
            while (conversation := await history.load("o", "s", "shared")) is None or conversation.version < 20:
                await asyncio.sleep(0.005)
        worker.kill()
    async with asyncio.timeout(40), history.turn("o", "s", "shared") as held:
        roles = [message.role for message in held.conversation.messages]
        assert roles == [("user", "assistant")[n % 2] for n in range(len(roles))]
        assert held.conversation.version == len(roles)
        await held.commit([says("on it goes")])
    await in_line(engine, 0)
