"""A breaker that one process opened is advice to the others: they ask other backends first."""

from __future__ import annotations

import asyncio
from typing import Any

from bridge.engine.breaker_advice import BreakerAdvice
from bridge.engine.bridge import Bridge
from bridge.errors import BackendError, ErrorCode
from bridge.model import Message, Request, Text
from bridge.run.breaker import CircuitBreaker
from bridge.stores import open_places
from bridge.testing import fake_backend
from tests.stores.conftest import Postgres


def config(url: str, *backends: str) -> dict[str, Any]:
    names = [f"b{n}" for n in range(len(backends))]
    breaker = {"failures": 1, "open_for": "60s"}
    return {
        "stores": {"history": "off", "runs": url},
        "backends": {
            name: {"dialect": "openai-chat", "url": backend, "breaker": breaker}
            for name, backend in zip(names, backends, strict=True)
        },
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": names}],
    }


ASKED = Request([Message("user", [Text("Hi")])])


async def test_another_process_asks_the_alternative_first(postgres_schema: Postgres) -> None:
    async with fake_backend("openai-chat") as bad, fake_backend("openai-chat") as good:
        bad.fails(BackendError("down", code=ErrorCode.BACKEND_UNAVAILABLE).failure)
        good.says("fine")
        given = config(postgres_schema.url, bad.url, good.url)
        async with Bridge.from_config(given) as one, Bridge.from_config(given) as other:
            assert (await one.complete(ASKED)).text == "fine"
            assert len(bad.seen) == 1
            breaker = other.route().backends[0].breaker
            assert breaker is not None
            async with asyncio.timeout(20):
                while not breaker.is_open_elsewhere:
                    await asyncio.sleep(0.02)
            assert (await other.complete(ASKED)).text == "fine"
            assert len(bad.seen) == 1
            assert not breaker.is_open, "it would be asked if the alternative failed"


async def test_each_process_tells_for_itself(postgres_schema: Postgres) -> None:
    breakers = [CircuitBreaker("b", 1, 60.0) for _ in range(3)]
    advice = []
    for breaker in breakers:
        places = open_places(postgres_schema.url, "breakers")
        assert places is not None
        advice.append(BreakerAdvice(places, {"b https://backend.example": breaker}))

    async def told() -> list[bool]:
        for _ in range(2):
            for each in advice:
                await each.exchange()
        return [breaker.is_last_choice for breaker in breakers]

    assert await told() == [False] * 3
    breakers[0].failed()
    assert await told() == [True] * 3
    breakers[1].failed()
    assert await told() == [True] * 3
    breakers[0].succeeded()
    assert await told() == [True, True, True], "the second one is open still"
    breakers[1].succeeded()
    assert await told() == [False] * 3
    for each in advice:
        await each.close()


async def test_a_single_backend_shares_nothing(postgres_schema: Postgres) -> None:
    async with Bridge.from_config(config(postgres_schema.url, "http://127.0.0.1:9")) as bridge:
        assert bridge._make_advice() is None


async def test_what_a_dead_process_told_is_forgotten(postgres_schema: Postgres) -> None:
    async def exchange(breaker: CircuitBreaker) -> None:
        places = open_places(postgres_schema.url, "breakers")
        assert places is not None
        advice = BreakerAdvice(places, {"b": breaker})
        await advice.exchange()
        await advice.close()

    breaker = CircuitBreaker("b", 1, 60.0)
    breaker.failed()
    assert breaker.is_open
    await exchange(breaker)
    await postgres_schema.execute("UPDATE places SET expires = expires - 2 * 3600")
    assert await postgres_schema.execute("SELECT count(*) FROM places") == 1
    await exchange(CircuitBreaker("b", 1, 60.0))
    assert await postgres_schema.execute("SELECT count(*) FROM places") == 0
