"""Connections to one server: never more than allowed, none lost, none used that is not in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bridge.stores import connections
from bridge.stores.connections import Connections

SOON = 5.0


class Db:
    """What `Connections` needs of a connection."""

    def __init__(self) -> None:
        self.closed = False
        self.transaction = False

    def is_closed(self) -> bool:
        return self.closed

    def is_in_transaction(self) -> bool:
        return self.transaction

    def terminate(self) -> None:
        self.closed = True

    async def close(self) -> None:
        self.closed = True


class Server:
    """Opens connections, or does not."""

    def __init__(self) -> None:
        self.opened: list[Db] = []
        self.refuses = False

    async def connect(self) -> Any:
        await asyncio.sleep(0)
        if self.refuses:
            raise OSError
        self.opened.append(Db())
        return self.opened[-1]

    @property
    def open(self) -> int:
        return sum(not db.closed for db in self.opened)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def pool(server: Server) -> AsyncIterator[Connections]:
    pool = Connections(server.connect, 2)
    yield pool
    await pool.close(0.01)
    assert server.open == 0


async def test_many_users_of_few_connections(server: Server, pool: Connections) -> None:
    used: set[Any] = set()

    async def use() -> None:
        db = await pool.take(SOON)
        assert db not in used
        used.add(db)
        await asyncio.sleep(0)
        used.remove(db)
        pool.give_back(db)

    await asyncio.gather(*(use() for _ in range(50)))
    assert len(server.opened) == 2


async def test_who_waits_for_longest_is_next(pool: Connections) -> None:
    held = [await pool.take(SOON) for _ in range(2)]
    order: list[int] = []

    async def use(number: int) -> None:
        db = await pool.take(SOON)
        order.append(number)
        pool.give_back(db)

    waiting = [asyncio.create_task(use(n)) for n in range(5)]
    await asyncio.sleep(0)
    for db in held:
        pool.give_back(db)
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3, 4]


async def test_who_may_open_one_takes_what_others_have_given_back_meanwhile(pool: Connections) -> None:
    first, second = [await pool.take(SOON) for _ in range(2)]
    waiting = asyncio.create_task(pool.take(SOON))
    await asyncio.sleep(0)

    async def gives_back() -> None:
        pool.give_back(second)

    # The place that the waiting one may use is used by another one, before a connection comes back that is in order.
    other = asyncio.create_task(pool.take(SOON))
    giving = asyncio.create_task(gives_back())
    first.terminate()
    pool.give_back(first)
    await asyncio.gather(giving, other)
    assert await waiting is second


async def test_waiting_ends(pool: Connections) -> None:
    for _ in range(2):
        await pool.take(SOON)
    with pytest.raises(TimeoutError):
        await pool.take(0.01)


@pytest.mark.parametrize("is_handed", [False, True])
async def test_who_is_canceled_while_he_waits_takes_nothing_with_him(pool: Connections, is_handed: bool) -> None:
    first, second = [await pool.take(SOON) for _ in range(2)]
    waiting = [asyncio.create_task(pool.take(SOON)) for _ in range(2)]
    await asyncio.sleep(0)
    if is_handed:
        pool.give_back(first)
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    if not is_handed:
        pool.give_back(first)
    assert await waiting[1] is first
    pool.give_back(second)
    assert await pool.take(SOON) is second


async def test_connections_that_are_not_in_order_are_replaced(server: Server, pool: Connections) -> None:
    ended, open_in_transaction = [await pool.take(SOON) for _ in range(2)]
    waiting = [asyncio.create_task(pool.take(SOON)) for _ in range(2)]
    await asyncio.sleep(0)
    ended.terminate()
    open_in_transaction.transaction = True  # type: ignore[attr-defined]
    for db in (ended, open_in_transaction):
        pool.give_back(db)
    fresh = await asyncio.gather(*waiting)
    assert not {ended, open_in_transaction} & set(fresh)
    assert server.open == 2
    idle = fresh[0]
    pool.give_back(idle)
    idle.terminate()
    assert not (await pool.take(SOON)).is_closed()


async def test_expired_connections_are_used_no_more(server: Server, pool: Connections) -> None:
    idle, used = [await pool.take(SOON) for _ in range(2)]
    pool.give_back(idle)
    pool.expire()
    assert (idle.is_closed(), used.is_closed()) == (True, False)
    pool.give_back(used)
    assert used.is_closed()
    again = await pool.take(SOON)
    pool.give_back(again)
    assert await pool.take(SOON) is again
    pool.give_back(again)
    pool.retire()
    pool.give_back(await pool.take(SOON))
    assert server.open == 0


async def test_a_server_that_refuses_blocks_nobody(server: Server, pool: Connections) -> None:
    server.refuses = True
    for _ in range(5):
        with pytest.raises(OSError):
            await pool.take(SOON)
    attempts = [asyncio.create_task(pool.take(SOON)) for _ in range(5)]
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {OSError}
    server.refuses = False
    assert not (await pool.take(SOON)).is_closed()


async def test_what_nobody_needs_is_closed(server: Server, pool: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = [await pool.take(SOON) for _ in range(2)]
    pool.give_back(one)
    monkeypatch.setattr(connections, "_IDLE", -1.0)
    pool.give_back(other)
    assert (one.is_closed(), other.is_closed()) == (True, False)


async def test_closing_waits_for_those_that_are_used(server: Server, pool: Connections) -> None:
    db = await pool.take(SOON)
    pool.give_back(await pool.take(SOON))
    closing = asyncio.create_task(pool.close(SOON))
    await asyncio.sleep(0)
    assert not db.is_closed()
    with pytest.raises(Exception, match="closed"):
        await pool.take(SOON)
    pool.give_back(db)
    await closing
    assert server.open == 0
