"""Appends of many runs share a transaction, and processes that share a file take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from bridge.stores import LeaseLost, RunKey, RunStore, run_scripts
from bridge.stores.run_records import LogEntry
from tests.stores.run_engines import run_engine, run_store  # noqa: F401


def key(number: int) -> RunKey:
    return RunKey("o", "/x", f"t{number}", f"r{number}")


async def begun(store: RunStore, number: int) -> RunKey:
    await store.create(key(number), "f", "plan", token="me", lease=600)
    return key(number)


class Said:
    """A source that has one entry for each word that waits when it is asked."""

    def __init__(self, key: RunKey, token: str = "me") -> None:
        self.key = key
        self.token = token
        self.words: list[str] = []
        self.position = 0
        self.outcomes: asyncio.Queue[int | Exception] = asyncio.Queue()

    def take(self) -> tuple[int, Sequence[str], bool] | None:
        words, self.words = self.words, []
        return (self.position, words, False) if words else None

    def stored(self, last: int) -> None:
        self.outcomes.put_nowait(last)

    def failed(self, error: Exception) -> None:
        self.outcomes.put_nowait(error)


@pytest.fixture
def written(run_store: RunStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:  # noqa: F811
    """How many runs each transaction appended to."""
    counts: list[int] = []
    store: Any = run_store
    append_all = store._append_all

    async def counted(appends: list[run_scripts.Append], token: str) -> set[int]:
        counts.append(len(appends))
        found: set[int] = await append_all(appends, token)
        return found

    monkeypatch.setattr(store, "_append_all", counted)
    return counts


async def test_what_arrives_while_others_are_gathered_shares_their_transaction(
    run_store: RunStore,  # noqa: F811
    written: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = [await begun(run_store, n) for n in range(4)]
    monkeypatch.setattr("bridge.stores.run_store.GATHER", 1.0)
    await run_store.append(keys[0], "me", 0, ["at once"])

    async def later(number: int) -> int:
        await asyncio.sleep(0.02 * number)
        return await run_store.append(keys[number], "me", 0, ["later"])

    await asyncio.gather(*(later(n) for n in (1, 2, 3)))
    assert written == [1, 3]


async def test_nothing_more_is_waited_for_when_many_wait(
    run_store: RunStore,  # noqa: F811
    written: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bridge.stores.run_store.GATHER", 1000.0)
    keys = [await begun(run_store, n) for n in range(100)]
    async with asyncio.timeout(60):
        for position in range(3):
            await asyncio.gather(*(run_store.append(key, "me", position, ["x"]) for key in keys))
    assert written == [100, 100, 100]


async def test_a_source_is_asked_when_the_transaction_begins(
    run_store: RunStore,  # noqa: F811
    written: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bridge.stores.run_store.GATHER", 0.2)
    first, second = Said(await begun(run_store, 1)), Said(await begun(run_store, 2))
    first.words.append("a")
    run_store.feed(first)
    await first.outcomes.get()
    second.words.append("b")
    run_store.feed(second)
    await asyncio.sleep(0.05)
    second.words.append("c")
    last = await second.outcomes.get()
    assert isinstance(last, int)
    assert written == [1, 1]
    assert await run_store.read(second.key) == [LogEntry(last - 1, "b"), LogEntry(last, "c")]


async def test_of_those_that_share_a_transaction_each_hears_its_own_outcome(run_store: RunStore) -> None:  # noqa: F811
    """One is held, one was never there, one repeats an append of unknown outcome, one leaves an entry out."""
    held, gone, again, ahead = (Said(key(n)) for n in range(4))
    for n in (0, 2, 3):
        await begun(run_store, n)
    for source in (held, gone, again, ahead):
        source.words = ["one", "two"]
    number = await run_store.append(again.key, "me", 0, ["one"])
    ahead.position = 1
    for source in (held, gone, again, ahead):
        run_store.feed(source)
    outcomes = [await source.outcomes.get() for source in (held, gone, again, ahead)]
    assert isinstance(outcomes[1], LeaseLost)
    assert isinstance(outcomes[3], LeaseLost)
    assert outcomes[2] == number + 1
    for source in (held, again):
        assert [entry.body for entry in await run_store.read(source.key)] == ["one", "two"]
    assert await run_store.read(ahead.key) == []
