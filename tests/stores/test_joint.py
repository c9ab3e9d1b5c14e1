"""The answer of a run and the end of the run are one transaction where they are in one database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bridge.model import Message, Text
from bridge.stores import Conversation, LeaseLost, RunState, RunStore, StoreConflict, open_conversations
from bridge.stores.joint import Joint
from tests.stores.run_engines import RunEngine
from tests.stores.test_run_store import begun, bodies, key, there


@pytest.fixture
async def history(run_engine: RunEngine) -> AsyncIterator[Any]:
    history = open_conversations(run_engine.url)
    yield history
    await history.close()


def says(text: str) -> list[Message]:
    return [Message("assistant", [Text(text)])]


async def said(history: Any) -> int:
    found = await history.load("o", "s", "t")
    return 0 if found is None else len(found.messages)


async def test_both_or_neither(run_engine: RunEngine, run_store: RunStore, history: Any) -> None:
    await begun(run_store, key(), "me")
    joint = run_store.joint()
    async with history.turn("o", "s", "t") as held:
        await held.commit(says("answer"), joint=joint)
        assert await said(history) == 0, "it waits for the end of the run"
        waiting = asyncio.create_task(history.turn("o", "s", "t").__aenter__())
        await run_store.append(key(), "me", 0, ["a"])
        assert not waiting.done()
        with pytest.raises(LeaseLost):
            await run_store.append(key(), "another", 1, ["z"], end=True, joint=joint)
        assert (await said(history), (await there(run_store, key())).state) == (0, RunState.RUNNING)
        assert await run_store.append(key(), "me", 1, ["z"], end=True, joint=joint)
        assert (await said(history), (await there(run_store, key())).state) == (1, RunState.ENDED)
        assert held.conversation.version == 1
        # The next one goes on when both are stored.
        assert len((await waiting).conversation.messages) == 1
    assert await bodies(run_store, key()) == ["a", "z"]


async def test_a_repeat_after_an_unknown_commit_does_neither_twice(run_store: RunStore, history: Any) -> None:
    await begun(run_store, key(), "me")
    joint, repeated = run_store.joint(), run_store.joint()
    conversation = Conversation("t")
    await history.commit("o", "s", conversation, says("answer"), joint=joint)
    repeated.work = joint.work
    await run_store.append(key(), "me", 0, ["z"], end=True, joint=joint)
    await run_store.append(key(), "me", 0, ["z"], end=True, joint=repeated)
    assert (await said(history), conversation.version) == (1, 1)
    assert await bodies(run_store, key()) == ["z"]


async def test_a_conversation_that_was_changed_meanwhile(run_store: RunStore, history: Any) -> None:
    """Neither is stored; the run ends without it, and what is to be done otherwise is done."""
    await begun(run_store, key(), "me")
    joint = run_store.joint()
    done: list[str] = []

    async def otherwise() -> None:
        done.append("alone")

    joint.otherwise = otherwise
    await history.commit("o", "s", Conversation("t"), says("answer"), joint=joint)
    await history.commit("o", "s", Conversation("t"), says("another"))
    with pytest.raises(StoreConflict):
        await run_store.append(key(), "me", 0, ["z"], end=True, joint=joint)
    assert (await there(run_store, key())).state is RunState.RUNNING
    await joint.give_up()
    await run_store.append(key(), "me", 0, ["z"], end=True, joint=joint)
    assert (done, await said(history)) == (["alone"], 1)


async def test_a_lock_that_was_lost_is_no_right_to_store(
    run_engine: RunEngine, run_store: RunStore, history: Any
) -> None:
    await begun(run_store, key(), "me")
    joint = run_store.joint()
    async with history.turn("o", "s", "t") as held:
        await held.commit(says("answer"), joint=joint)
        await run_engine.execute("DELETE FROM places")
        with pytest.raises(StoreConflict):
            await run_store.append(key(), "me", 0, ["z"], end=True, joint=joint)
    assert await said(history) == 0


async def test_others_in_the_same_transaction_do_not_suffer(run_store: RunStore, history: Any) -> None:
    joints = [run_store.joint() for _ in range(3)]
    for n, joint in enumerate(joints):
        await begun(run_store, key(f"r{n}", f"t{n}"), "me")
        await history.commit("o", "s", Conversation("t" if n == 1 else f"t{n}"), says("answer"), joint=joint)
    await history.commit("o", "s", Conversation("t"), says("another"))
    ends = [run_store.append(key(f"r{n}", f"t{n}"), "me", 0, ["z"], end=True, joint=j) for n, j in enumerate(joints)]
    results = await asyncio.gather(*ends, return_exceptions=True)
    assert [isinstance(result, StoreConflict) for result in results] == [False, True, False]
    assert await history.load("o", "s", "t2") is not None


async def test_another_database_stores_at_once(run_store: RunStore, tmp_path: Any) -> None:
    for joint in (run_store.joint(), Joint(None)):
        history = open_conversations(f"sqlite:///{tmp_path}/other{id(joint)}.db")
        await history.commit("o", "s", Conversation("t"), says("answer"), joint=joint)
        assert (joint.work, await said(history)) == (None, 1)
        async with history.turn("o", "s", "t") as held:
            await held.commit(says("more"), joint=joint)
        assert (joint.work, await said(history)) == (None, 2)
        await history.close()
