"""What requests load counts against one budget, on every engine, before it is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.errors import BackendError, ErrorCode
from bridge.model import Message, Text
from bridge.stores import Conversation, ConversationStore, RunKey, RunStore
from bridge.stores.memory_budget import COPIES, FREE, LoadedBytes, MemoryBudget, base64_size, charging
from tests.stores.run_engines import run_engine, run_store  # noqa: F401

SIZE = 300_000
KEY = RunKey("ann", "/r", "t", "r1")


def counted_size(size: int) -> int:
    return COPIES * size - FREE


async def store_talk(history: ConversationStore, thread: str, **extra: Any) -> None:
    talk = Conversation(thread, extra=extra)
    await history.commit("ann", "/r", talk, [Message("user", [Text("x" * SIZE)])])


async def load(history: ConversationStore, thread: str, locked: bool) -> Conversation | None:
    if not locked:
        return await history.load("ann", "/r", thread)
    async with history.turn("ann", "/r", thread) as held:
        return held.conversation


@pytest.mark.parametrize("locked", [False, True])
async def test_a_conversation_counts_until_its_request_ends(history: ConversationStore, locked: bool) -> None:
    await store_talk(history, "t")
    budget = MemoryBudget(10 * SIZE)
    with LoadedBytes(budget):
        for _ in range(2):  # the same one counts once
            found = await load(history, "t", locked)
            assert found is not None
            assert found.messages[0].parts == [Text("x" * SIZE)]
            assert counted_size(SIZE) < budget.taken < counted_size(SIZE) + 1000
    assert budget.taken == 0


@pytest.mark.parametrize("locked", [False, True])
async def test_a_conversation_that_does_not_fit_is_refused(history: ConversationStore, locked: bool) -> None:
    await store_talk(history, "t")
    budget = MemoryBudget(counted_size(SIZE))
    assert budget.take(SIZE)  # of another request
    with LoadedBytes(budget), pytest.raises(BackendError) as caught:
        await load(history, "t", locked)
    assert (caught.value.code, caught.value.failure.headers) == (ErrorCode.OVERLOADED, {"retry-after": "1"})
    assert budget.taken == SIZE
    # The refused request has not kept the lock, and nothing counts outside of a request.
    assert await load(history, "t", True) is not None
    assert budget.taken == SIZE


async def test_what_is_stored_beside_the_messages_counts(history: ConversationStore) -> None:
    await store_talk(history, "t", body="y" * SIZE)
    budget = MemoryBudget(None)
    with LoadedBytes(budget):
        await history.load("ann", "/r", "t")
        assert budget.taken >= counted_size(2 * SIZE)


async def test_a_request_alone_loads_what_exceeds_the_budget(history: ConversationStore) -> None:
    """It would never be served otherwise; while it is, others are refused."""
    await store_talk(history, "t")
    budget = MemoryBudget(FREE)
    with LoadedBytes(budget):
        assert await history.load("ann", "/r", "t") is not None
        assert budget.is_spent
        with LoadedBytes(budget), pytest.raises(BackendError, match="in memory"):
            await history.load("ann", "/r", "t")
    assert (budget.taken, budget.is_spent) == (0, False)


async def test_a_plan_counts(run_store: RunStore) -> None:  # noqa: F811
    await run_store.create(KEY, "f", "p" * SIZE)
    budget = MemoryBudget(counted_size(SIZE))
    with LoadedBytes(budget):
        assert (len(await run_store.plan(KEY) or ""), budget.taken) == (SIZE, counted_size(SIZE))
        with LoadedBytes(budget), pytest.raises(BackendError) as caught:
            await run_store.plan(KEY)
        assert caught.value.code is ErrorCode.OVERLOADED
        await run_store.get(KEY)
    assert budget.taken == 0


def test_small_things_are_free_and_growth_counts() -> None:
    budget = MemoryBudget(FREE)
    with LoadedBytes(budget) as loaded:
        charge = charging()
        charge("a", FREE // COPIES)
        assert budget.taken == 0
        charge("b", 100)
        charge("b", 50)
        assert budget.taken == 100 * COPIES
        charge("b", 150)
        assert budget.taken == 150 * COPIES
        loaded.charge("c", FREE, is_loaded=True)
        assert budget.taken == 150 * COPIES + FREE * COPIES
    charge("b", FREE)  # the request has ended
    assert budget.taken == 0


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 3000])
def test_sizes_in_base64(size: int, tmp_path: Path) -> None:
    import base64

    assert base64_size(size) == len(base64.b64encode(bytes(size)))
