"""How much is served at once and how often: for each user, each route, the server; in one process and in several."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from bridge.engine.bridge import Bridge
from bridge.engine.config import parse
from bridge.errors import ConfigError
from bridge.server import make_app
from bridge.server.requests.bodies import FREE, Bodies
from bridge.server.requests.limits import SlotPool
from bridge.server.requests.state import STATE
from bridge.stores import open_rates
from bridge.stores.rates import LocalRates
from tests.server.harness import Exchange, FakeBackend, Reply, ask, bound_socket, fake_backend, post, serving
from tests.stores.conftest import Postgres, postgres, postgres_schema  # noqa: F401
from tests.stores.run_engines import RunEngine, run_engine  # noqa: F401

HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
ANN, BOB = {"authorization": "Bearer key-ann"}, {"x_api_key": "key-bob"}
KEYS = [{"name": "ann", "key": "key-ann"}, {"name": "bob", "key": "key-bob"}]


def config(url: str | None = None, *, route: dict[str, Any] | None = None, **limits: Any) -> dict[str, Any]:
    backend = {"dialect": "openai-chat", "url": url} if url else {"dialect": "demo"}
    return {
        "server": {"auth": {"keys": KEYS}, "limits": limits},
        "backends": {"it": backend},
        "routes": [
            {"dialect": "openai-chat", "path": "/v1", "backend": "it", **(route or {})},
            {"dialect": "anthropic-messages", "path": "/claude/v1", "backend": "it"},
        ],
    }


class Busy:
    """A backend that answers when it is told to."""

    def __init__(self, backend: FakeBackend) -> None:
        self.backend = backend
        self.release = asyncio.Event()
        self.arrived = asyncio.Queue[None]()
        backend.says("done")
        self._speak = backend.script
        backend.plays(self._play)

    async def _play(self, exchange: Exchange) -> None:
        self.arrived.put_nowait(None)
        await self.release.wait()
        assert self._speak is not None
        await self._speak(exchange)


@asynccontextmanager
async def busy() -> AsyncIterator[Busy]:
    async with fake_backend("openai-chat") as backend:
        yield Busy(backend)


# ---------------------------------------------------------------------- how often


async def test_requests_of_a_key_in_a_minute() -> None:
    async with serving(config(per_key={"requests_per_minute": 3})) as base:
        url = f"{base}/v1/chat/completions"
        assert [(await post(url, HELLO, **ANN)).status for _ in range(3)] == [200] * 3
        refused = await post(url, HELLO, **ANN)
        assert (refused.status, refused.json["error"]["code"]) == (429, "rate_limit_exceeded")
        assert refused.json["error"]["message"] == "This key has sent too many requests within a minute."
        assert 1 <= int(refused.headers["retry-after"]) <= 20
        # Another key has its own; another dialect its own words.
        assert (await post(url, HELLO, **BOB)).status == 200
        other = await post(f"{base}/claude/v1/messages", {**HELLO, "max_tokens": 9}, **ANN)
        assert (other.status, other.json["error"]["type"]) == (429, "rate_limit_error")
        # Lists and counts are requests, too; a key that is none has no minute.
        assert (await ask("GET", f"{base}/v1/models", headers={"authorization": "Bearer key-ann"})).status == 429
        assert [(await post(url, HELLO, authorization="Bearer x")).status for _ in range(5)] == [401] * 5
        assert (await ask("GET", f"{base}/healthz")).status == 200


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_the_pace() -> None:
    clock = Clock()
    rates = LocalRates(clock=clock)
    assert [await rates.acquire("a", 60) for _ in range(61)] == [0] * 60 + [pytest.approx(1)]
    clock.now += 0.5
    assert await rates.acquire("a", 60) == pytest.approx(0.5)
    clock.now += 0.5
    assert [await rates.acquire("a", 60) for _ in range(2)] == [0, pytest.approx(1)]
    clock.now += 3600
    assert [await rates.acquire("a", 60) for _ in range(61)] == [0] * 60 + [pytest.approx(1)]
    assert await rates.acquire("b", 60) == 0


async def test_names_that_ask_no_more_are_forgotten() -> None:
    clock = Clock()
    rates = LocalRates(clock=clock)
    for number in range(10_000):
        await rates.acquire(f"n{number}", 60)
    clock.now += 120
    for number in range(2):
        await rates.acquire(f"m{number}", 60)
    assert len(rates._due) == 2


async def test_a_budget_of_a_day_ends_at_midnight() -> None:
    clock = Clock()
    clock.now = 20_000 * 86_400 + 3600
    rates = LocalRates(wall=clock)
    assert [await rates.spend("a", 1, 3) for _ in range(4)] == [0, 0, 0, 86_400 - 3600]
    assert await rates.spend("b", 0, 3) == 0
    assert [await rates.spend("b", 10, 3), await rates.spend("b", 0, 3)] == [0, 86_400 - 3600]
    clock.now += 86_400 - 3600
    assert [await rates.spend(name, 1, 3) for name in ("a", "b")] == [0, 0], "what was too much yesterday is forgotten"


async def test_processes_with_one_database_count_a_day_together(postgres_schema: Postgres) -> None:  # noqa: F811
    one, other = open_rates(postgres_schema.url), open_rates(postgres_schema.url)
    try:
        assert [await rates.spend("ann", 1, 1000) for rates in (one, other) * 500] == [0] * 1000
        assert 0 < await other.spend("ann", 1, 1000) <= 86_400
        assert await one.spend("bob", 5000, 1000) == 0
        assert 0 < await other.spend("bob", 0, 1000) <= 86_400
        # A day later; a request of anybody does not remove what still counts.
        await postgres_schema.execute("UPDATE request_rates SET due = due - 86400")
        assert await one.acquire("eve", 60) == 0
        assert [await other.spend(name, 600, 1000) for name in ("ann", "bob", "bob", "bob")][:3] == [0, 0, 0]
        assert await one.spend("bob", 0, 1000) > 0
    finally:
        await one.close()
        await other.close()


async def test_processes_with_one_database_count_together(postgres_schema: Postgres) -> None:  # noqa: F811
    one, other = open_rates(postgres_schema.url), open_rates(postgres_schema.url)
    try:
        assert [await rates.acquire("ann", 4) for rates in (one, other, one, other)] == [0] * 4
        assert 14 < await one.acquire("ann", 4) <= 15
        assert 14 < await other.acquire("ann", 4) <= 15
        assert await other.acquire("bob", 4) == 0
        await postgres_schema.execute("UPDATE request_rates SET due = due - 1000")
        assert [await one.acquire("bob", 4) for _ in range(5)][:4] == [0] * 4
        assert await postgres_schema.execute("SELECT string_agg(name, ' ') FROM request_rates") == "bob", (
            "a name goes when it says nothing any more"
        )
    finally:
        await one.close()
        await other.close()


async def test_two_bridges_with_one_database(postgres_schema: Postgres) -> None:  # noqa: F811
    setup = config(per_key={"requests_per_minute": 2})
    setup["stores"] = {"runs": postgres_schema.url}
    async with serving({**setup}) as one, serving({**setup}) as other:
        replies = [await post(f"{base}/v1/chat/completions", HELLO, **ANN) for base in (one, other, one, other)]
        assert [reply.status for reply in replies] == [200, 200, 429, 429]


async def test_without_its_database_each_process_counts(
    postgres_schema: Postgres,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A database that has failed is not asked again by each request."""
    caplog.set_level(logging.INFO)
    rates: Any = open_rates(postgres_schema.url)
    assert await rates.acquire("ann", 2) == 0
    await postgres_schema.down()
    asked = 0
    write = rates._database.write

    async def counted(work: Any) -> Any:
        nonlocal asked
        asked += 1
        return await write(work)

    monkeypatch.setattr(rates._database, "write", counted)
    assert [await rates.acquire("ann", 2) for _ in range(3)][:2] == [0, 0]
    assert await rates.acquire("ann", 2) > 0
    assert asked == 1
    await postgres_schema.up()
    rates._failed_at -= 10
    assert await rates.acquire("bob", 2) == 0
    await rates.close()
    first, second = [record.getMessage() for record in caplog.records if record.name == "bridge.rates"]
    assert first.startswith("each process counts requests separately: the rate store is not available (postgresql: ")
    assert second == "resolved: each process counts requests separately"


# ---------------------------------------------------------------------- how much at once


async def test_a_key_has_limits_of_its_own() -> None:
    async with fake_backend("openai-chat") as backend:
        backend.says("Hello")
        setup = config(backend.url, per_key={"requests_per_day": 1})
        own = {"requests_per_day": 3, "requests_per_minute": 2}
        setup["server"]["auth"]["keys"] = [{**KEYS[0], "limits": own}, KEYS[1]]
        async with serving(setup) as base:
            url = f"{base}/v1/chat/completions"
            replies = [await post(url, HELLO, **ANN) for _ in range(3)]
            assert [reply.status for reply in replies] == [200, 200, 429]
            assert "within a minute" in replies[-1].json["error"]["message"]
            replies = [await post(url, HELLO, **BOB) for _ in range(2)]
            assert [reply.status for reply in replies] == [200, 429]
            assert replies[-1].json["error"]["message"] == "This key has sent its 1 requests of today (UTC)."
            assert 0 < int(replies[-1].headers["retry-after"]) <= 86_400


async def test_the_tokens_of_a_key_in_a_day() -> None:
    """The demo reports some; whoever has used them up may still read and list."""
    setup = config(per_key={"tokens_per_day": 5})
    setup["server"]["auth"]["keys"] = [KEYS[0], {**KEYS[1], "limits": {"tokens_per_day": 100_000}}]
    async with serving(setup) as base:
        url = f"{base}/v1/chat/completions"
        assert (await post(url, HELLO, **ANN)).status == 200
        refused = await post(url, HELLO, **ANN)
        assert refused.status == 429
        assert refused.json["error"]["message"] == "This key has used its 5 tokens of today (UTC)."
        assert (await ask("GET", f"{base}/v1/models", headers=ANN)).status == 200
        assert [(await post(url, HELLO, **BOB)).status for _ in range(3)] == [200] * 3


async def test_tokens_of_stored_runs_count(tmp_path: Any) -> None:
    setup = config(route={"dialect": "openai-chat", "path": "/v1", "backend": "it", "durable": True})
    setup["server"]["limits"] = {"per_key": {"tokens_per_day": 5}}
    setup["stores"] = {"runs": f"sqlite:///{tmp_path}/runs.db"}
    async with serving(setup) as base:
        url = f"{base}/v1/chat/completions"
        assert (await post(url, {**HELLO, "stream": True}, **ANN)).status == 200
        assert (await post(url, HELLO, **ANN)).status == 429


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_of_a_run_that_is_left_count_by_an_estimate(stream: bool) -> None:
    """Its backend had no time to report any."""
    long = {**HELLO, "stream": stream, "messages": [{"role": "user", "content": "word " * 400}]}
    async with fake_backend("openai-chat") as backend:
        backend.says("Hello")
        async with serving(config(backend.url, per_key={"tokens_per_day": 400})) as base:
            url = f"{base}/v1/chat/completions"
            assert (await post(url, HELLO, **ANN)).status == 200

            async def silent(exchange: Exchange) -> None:
                if stream:
                    await exchange.head()
                    await exchange.send(b'data: {"choices": [{"index": 0, "delta": {"content": "Hel"}}]}\n\n')
                await exchange.left()

            backend.plays(silent)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await post(url, long, **ANN)
            await backend.seen[-1].gone.wait()
            backend.says("Hello")
            refused = await post(url, HELLO, **ANN)
            assert refused.json["error"]["message"] == "This key has used its 400 tokens of today (UTC)."


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_that_a_backend_does_not_report_count_by_an_estimate(stream: bool) -> None:
    """Over a passthrough route it is the client who asks for them, or not."""
    long = {**HELLO, "stream": stream, "messages": [{"role": "user", "content": "word " * 400}]}
    async with fake_backend("openai-chat") as backend:
        backend.says("Hello")
        route = {"dialect": "openai-chat", "path": "/v1", "backend": "it", "passthrough": True}
        setup = config(backend.url, route=route, per_key={"tokens_per_day": 400})
        setup["routes"] = setup["routes"][:1]
        async with serving(setup) as base:
            url = f"{base}/v1/chat/completions"
            assert (await post(url, long, **ANN)).status == 200
            assert (await post(url, HELLO, **ANN)).status == 429


async def test_tokens_of_embeddings_count() -> None:
    embedded = {"object": "list", "data": [{"index": 0, "embedding": [0.5]}], "usage": {"prompt_tokens": 500}}
    async with fake_backend("openai-chat") as backend:
        backend.answers(200, json.dumps(embedded).encode())
        setup = config(backend.url, per_key={"tokens_per_day": 400})
        setup["routes"] = [{"dialect": "ollama", "path": "/", "backend": "it"}]
        async with serving(setup) as base:
            asked = {"model": "m", "input": "Hello"}
            assert [(await post(f"{base}/api/embed", asked, **ANN)).status for _ in range(2)] == [200, 429]


async def test_tokens_of_a_canceled_run_count_by_an_estimate(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.runs")
    setup = config(route={"dialect": "openai-responses", "path": "/v1", "backend": "it"})
    async with fake_backend("openai-chat") as backend:
        backend.plays(lambda exchange: exchange.left())
        setup["backends"]["it"] = {"dialect": "openai-chat", "url": backend.url}
        setup["server"]["limits"] = {"per_key": {"tokens_per_day": 400}}
        setup["stores"] = {"runs": f"sqlite:///{tmp_path}/runs.db", "history": f"sqlite:///{tmp_path}/history.db"}
        async with serving(setup) as base:
            url = f"{base}/v1/responses"
            queued = await post(url, {"model": "m", "input": "word " * 400, "background": True}, **ANN)
            while not backend.seen:
                await asyncio.sleep(0.01)
            assert (await post(f"{url}/{queued.json['id']}/cancel", {}, **ANN)).json["status"] == "cancelled"
            while not any(record.name == "bridge.runs" for record in caplog.records):
                await asyncio.sleep(0.01)  # until it has ended
            backend.says("Hello")
            assert (await post(url, {"model": "m", "input": "Hello"}, **ANN)).status == 429


async def test_the_models_of_a_key() -> None:
    async with fake_backend("openai-chat") as backend:
        backend.says("Hello")
        setup = config(backend.url)
        setup["server"]["auth"]["keys"] = [{**KEYS[0], "models": ["small", "qwen*"]}, KEYS[1]]
        setup["backends"]["it"]["model_map"] = {"small": "gpt-small", "large": "gpt-large", "*": "gpt-large"}
        async with serving(setup) as base:
            url = f"{base}/v1/chat/completions"
            said = [(await post(url, {**HELLO, "model": name}, **ANN)).status for name in ("small", "qwen3", "large")]
            assert said == [200, 200, 403]
            refused = await post(url, {**HELLO, "model": "large"}, **ANN)
            assert refused.json["error"]["message"] == "This API key does not allow the model 'large'."
            assert (await post(url, {**HELLO, "model": "large"}, **BOB)).status == 200
            listed = await ask("GET", f"{base}/v1/models", headers=ANN)
            assert {"small"} == {each["id"] for each in listed.json["data"]}
            assert (await ask("GET", f"{base}/v1/models/large", headers=ANN)).status == 404
            listed = await ask("GET", f"{base}/v1/models", headers={"authorization": "Bearer key-bob"})
            assert {"small", "large"} <= {each["id"] for each in listed.json["data"]}


async def test_the_models_of_a_key_are_those_that_the_backend_reads() -> None:
    """Of two members with one name, servers take the first or the last; passthrough sends both on."""
    twice = b'{"model": "%s", "messages": [{"role": "user", "content": "Hi"}], "%s": "%s"}'
    async with fake_backend("openai-chat") as backend:
        backend.says("Hello")
        setup = config(backend.url)
        setup["server"]["auth"]["keys"] = [{**KEYS[0], "models": ["small"]}, KEYS[1]]
        setup["routes"][0]["passthrough"] = True
        async with serving(setup) as base:
            url = f"{base}/v1/chat/completions"
            for names in ((b"large", b"model", b"small"), (b"large", b"mod\\u0065l", b"small")):
                reply = await post(url, twice % names, **ANN)
                assert (reply.status, reply.json["error"]["param"]) == (400, "model")
                assert (await post(url, twice % names, **BOB)).status == 200
            assert (await post(url, twice % (b"small", b"user", b"large"), **ANN)).status == 200


async def test_the_models_of_a_key_for_embeddings() -> None:
    async with fake_backend("openai-chat") as backend:
        backend.answers(200, b'{"data": [{"index": 0, "embedding": [1, 2]}]}')
        setup = config(backend.url, route={"dialect": "ollama", "path": "/"})
        setup["server"]["auth"]["keys"] = [{**KEYS[0], "models": ["small"]}, KEYS[1]]
        async with serving(setup) as base:
            reply = await post(f"{base}/api/embed", {"model": "large", "input": "x"}, **ANN)
            assert (reply.status, backend.seen) == (403, [])
            assert reply.json["error"] == "This API key does not allow the model 'large'."
            assert (await post(f"{base}/api/embed", {"model": "small", "input": "x"}, **ANN)).status == 200
            assert (await post(f"{base}/api/embed", {"model": "large", "input": "x"}, **BOB)).status == 200


async def test_requests_of_a_key_at_the_same_time() -> None:
    async with busy() as it, serving(config(it.backend.url, per_key={"concurrent": 1})) as base:
        url = f"{base}/v1/chat/completions"
        first = asyncio.create_task(post(url, HELLO, **ANN))
        await it.arrived.get()
        refused = await post(url, HELLO, **ANN)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert refused.json["error"]["message"] == "This key has reached its limit of 1 concurrent requests."
        second = asyncio.create_task(post(url, HELLO, **BOB))
        await it.arrived.get()
        it.release.set()
        assert [(await first).status, (await second).status] == [200, 200]
        assert (await post(url, HELLO, **ANN)).status == 200, "its place is free again"


async def test_requests_of_a_key_wait_in_a_queue_of_its_own() -> None:
    """As many as `queue` says, in order of arrival; other keys do not wait with them."""
    async with busy() as it, serving(config(it.backend.url, per_key={"concurrent": 1, "queue": 1})) as base:
        url = f"{base}/v1/chat/completions"
        first = asyncio.create_task(post(url, HELLO, **ANN))
        await it.arrived.get()
        others = [asyncio.create_task(post(url, HELLO, **ANN)) for _ in range(2)]
        done, waiting = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        assert [(await task).status for task in done] == [429]
        bob = asyncio.create_task(post(url, HELLO, **BOB))
        await it.arrived.get()
        assert len(it.backend.seen) == 2, "one of Ann's waits"
        it.release.set()
        assert [(await task).status for task in (first, *waiting, bob)] == [200] * 3


async def test_a_client_that_leaves_gives_its_place_back() -> None:
    async with busy() as it, serving(config(it.backend.url, per_key={"concurrent": 1})) as base:
        url = f"{base}/v1/chat/completions"
        client = asyncio.create_task(post(url, HELLO, **ANN))
        await it.arrived.get()
        client.cancel()
        await asyncio.wait_for(it.backend.seen[0].gone.wait(), 40)
        it.release.set()
        async with asyncio.timeout(40):
            while (await post(url, HELLO, **ANN)).status != 200:
                await asyncio.sleep(0.01)


async def test_who_waits_counts_so_that_one_key_does_not_fill_the_queue() -> None:
    setup = config("http://127.0.0.1:9", concurrent=1, queue=5, per_key={"concurrent": 2})
    async with busy() as it:
        setup["backends"]["it"]["url"] = it.backend.url
        async with serving(setup) as base:
            url = f"{base}/v1/chat/completions"
            first = asyncio.create_task(post(url, HELLO, **ANN))
            await it.arrived.get()
            others = [asyncio.create_task(post(url, HELLO, **ANN)) for _ in range(3)]
            done, waiting = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
            while len(done) < 2:
                done, waiting = await asyncio.wait(others, timeout=0.01)
            assert [(await task).status for task in done] == [429, 429]
            it.release.set()
            assert [(await task).status for task in (first, *waiting)] == [200, 200]


async def test_a_route_has_places_of_its_own() -> None:
    async with busy() as it:
        setup = config(it.backend.url, route={"limits": {"concurrent": 1, "queue": 0}})
        async with serving(setup) as base:
            url = f"{base}/v1/chat/completions"
            first = asyncio.create_task(post(url, HELLO, **ANN))
            await it.arrived.get()
            refused = await post(url, HELLO, **BOB)
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert refused.json["error"]["message"].startswith("This route is at its limit")
            other = asyncio.create_task(post(f"{base}/claude/v1/messages", {**HELLO, "max_tokens": 9}, **BOB))
            await it.arrived.get()
            it.release.set()
            assert [(await first).status, (await other).status] == [200, 200]


async def test_a_durable_route_obeys(tmp_path: Any) -> None:
    async with busy() as it:
        setup = config(it.backend.url, route={"durable": True}, per_key={"concurrent": 1})
        setup["stores"] = {"runs": f"sqlite:///{tmp_path}/runs.db"}
        async with serving(setup) as base:
            url = f"{base}/v1/chat/completions"
            first = asyncio.create_task(post(url, HELLO, **ANN))
            await it.arrived.get()
            assert (await post(url, {**HELLO, "n": 1}, **ANN)).status == 429
            it.release.set()
            assert (await first).status == 200


# ---------------------------------------------------------------------- how long


@pytest.mark.parametrize("line", [b"x-long: " + b"a" * 40_000, b"\r\n".join(b"x-%d: a" % n for n in range(5000))])
async def test_a_head_that_is_too_long_is_refused_and_not_logged(line: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    setup = config()
    setup["server"]["metrics"] = {"public": True}
    async with serving(setup) as base:
        port = int(base.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n" + line + b"\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 40)
        writer.close()
        assert answer.startswith(b"HTTP/1.0 431 ")
        assert "aaaa" not in caplog.text
        assert "Traceback" not in caplog.text
        limit = b"32768 bytes" if b"x-long" in line else b"128 headers"
        assert limit in answer
        (refused,) = [record for record in caplog.records if record.name == "bridge.access"]
        assert limit.decode() in refused.getMessage()
        assert refused.facts["peer"] == "127.0.0.1"
        counted = (await ask("GET", f"{base}/metrics")).body.decode()
        assert re.search(r'bridge_refusals_total\{reason="too_large"\} [1-9]', counted)
        assert (await ask("GET", f"{base}/healthz")).status == 200


def test_a_queue_of_a_key_needs_a_limit_to_wait_at() -> None:
    with pytest.raises(ConfigError, match=r"per_key\.queue: needs concurrent"):
        parse(config("http://127.0.0.1:9", per_key={"queue": 3, "requests_per_minute": 5}))


# ---------------------------------------------------------------------- bodies that are being read


class Slow:
    """A client that sends a part of its body and waits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def begin(cls, base: str, sent: int, key: str = "key-ann") -> Slow:
        slow = cls(*await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2])))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\n"
        slow.writer.write(f"{head}content-length: 4000000\r\n\r\n".encode() + b"x" * sent)
        await slow.writer.drain()
        return slow

    async def head(self) -> str:
        return (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 40)).decode().lower()

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


async def serving_app(setup: dict[str, Any], stack: contextlib.AsyncExitStack) -> tuple[str, Bodies]:
    """The bridge, and what counts its bodies."""
    bridge = Bridge.from_config({**setup, "stores": {"history": "off"}})
    runner = web.AppRunner(make_app(bridge), handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    listening = bound_socket()
    await web.SockSite(runner, listening).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}", runner.app[STATE].limits.bodies


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(40):
        while not true():
            await asyncio.sleep(0.01)


async def test_unfinished_bodies_have_one_budget() -> None:
    async with contextlib.AsyncExitStack() as stack:
        base, bodies = await serving_app(config(bodies="1MiB"), stack)
        one, two = [await Slow.begin(base, 500_000) for _ in range(2)]
        await until(lambda: bodies.taken == 2 * (500_000 - FREE))
        three = await Slow.begin(base, 500_000, "key-bob")
        head = await three.head()
        assert head.startswith("http/1.1 503 ")
        assert "retry-after: 1" in head
        # What is small is read all the same.
        small = {**HELLO, "user": "x" * 50_000}
        assert (await post(f"{base}/v1/chat/completions", small, **BOB)).status == 200
        large = {**HELLO, "user": "x" * 500_000}
        for slow in (one, two, three):
            await slow.close()
        await until(lambda: bodies.taken == 0)
        assert (await post(f"{base}/v1/chat/completions", large, **BOB)).status == 200
        assert bodies.taken == 0


async def test_a_body_that_comes_takes_a_place_of_its_owner() -> None:
    async with serving(config(per_key={"concurrent": 1, "queue": 1})) as base:
        slow = [await Slow.begin(base, 10) for _ in range(3)]
        heads = [asyncio.create_task(each.head()) for each in slow]
        done, _ = await asyncio.wait(heads, return_when=asyncio.FIRST_COMPLETED)
        (head,) = [task.result() for task in done]
        assert head.startswith("http/1.1 429 ")
        assert "retry-after: 1" in head
        assert (await post(f"{base}/v1/chat/completions", HELLO, **BOB)).status == 200, "it holds nobody else up"
        for task in heads:
            task.cancel()
        for each in slow:
            await each.close()


# ---------------------------------------------------------------------- runs that are queued


def runs_config(url: str, route: dict[str, Any] | None = None, **limits: Any) -> dict[str, Any]:
    """Every way in which a run goes on without its client, over one backend."""
    return {
        "server": {"auth": {"keys": KEYS}, "limits": limits},
        "backends": {"it": {"dialect": "openai-chat", "url": url, "model": "m"}},
        "routes": [
            {"dialect": "agent-runs", "path": "/agent", "backend": "it", **(route or {})},
            {"dialect": "openai-responses", "path": "/v1", "backend": "it", **(route or {})},
            {"dialect": "agentscope", "path": "/as", "backend": "it", "durable": True, **(route or {})},
            {"dialect": "openai-chat", "path": "/chat", "backend": "it", **(route or {})},
        ],
        "stores": {"history": "sqlite:///:memory:"},
    }


async def queue_run(base: str, kind: str, name: str, key: dict[str, str]) -> Reply:
    """Starts a run of this kind, in a thread of its own."""
    if kind == "agent-runs":
        body: dict[str, Any] = {
            "threadId": f"t-{name}", "runId": f"r-{name}", "state": {}, "tools": [], "context": [],
            "messages": [{"id": name, "role": "user", "content": name}], "forwardedProps": {"runtime_mode": "chat"},
        }  # fmt: skip
        return await post(f"{base}/agent/runs", body, **key)
    if kind == "background":
        return await post(f"{base}/v1/responses", {"model": "m", "input": name, "background": True}, **key)
    said = [{"role": "user", "content": [{"type": "text", "text": name}]}]
    return await post(f"{base}/as/process/task", {"input": said, "session_id": name}, **key)


KINDS = ["agent-runs", "background", "task"]
QUEUED = {"agent-runs": 202, "background": 200, "task": 200}


async def gathered(it: Busy, count: int) -> None:
    """So many requests have come to the backend, and no more come while everything else is awaited."""
    async with asyncio.timeout(40):
        for _ in range(count):
            await it.arrived.get()


async def test_processes_count_what_a_key_does_at_once_together(run_engine: RunEngine) -> None:  # noqa: F811
    """Requests that are waited for, and runs that are not, in one database."""
    async with busy() as it:

        def setup(**per_key: int) -> dict[str, Any]:
            return {
                **runs_config(it.backend.url, per_key=per_key),
                "stores": {"history": run_engine.url, "runs": run_engine.url},
            }

        async with serving(setup(concurrent=2)) as one, serving(setup(concurrent=2)) as two:
            first = asyncio.create_task(post(f"{one}/chat/chat/completions", HELLO, **ANN))
            await gathered(it, 1)
            assert (await queue_run(two, "agent-runs", "a", ANN)).status == 202
            await gathered(it, 1)
            for base in (one, two):
                refused = await post(f"{base}/chat/chat/completions", HELLO, **ANN)
                assert (refused.status, refused.headers["retry-after"]) == (429, "1")
                assert refused.json["error"]["message"] == "This key has reached its limit of 2 concurrent requests."
            bob = asyncio.create_task(post(f"{two}/chat/chat/completions", HELLO, **BOB))
            await gathered(it, 1)
            assert len(it.backend.seen) == 3
            it.release.set()
            assert [(await first).status, (await bob).status] == [200, 200]
            assert (await post(f"{two}/chat/chat/completions", HELLO, **ANN)).status == 200


async def test_runs_of_a_key_wait_for_those_of_another_process(run_engine: RunEngine) -> None:  # noqa: F811
    """A run that waits is taken by the process that has a slot for it when one is given back; a request waits, too."""
    async with busy() as it:

        def setup() -> dict[str, Any]:
            limits = {"concurrent": 1, "queue": 2}
            return {
                **runs_config(it.backend.url, per_key=limits),
                "stores": {"history": run_engine.url, "runs": run_engine.url},
            }

        async with serving(setup()) as one, serving(setup()) as two:
            assert (await queue_run(one, "agent-runs", "a", ANN)).status == 202
            await gathered(it, 1)
            assert (await queue_run(two, "agent-runs", "b", ANN)).status == 202
            waits = asyncio.create_task(post(f"{two}/chat/chat/completions", HELLO, **ANN))
            await asyncio.sleep(0.3)
            assert len(it.backend.seen) == 1
            it.release.set()
            await gathered(it, 2)
            assert (await waits).status == 200


@pytest.mark.parametrize("kind", KINDS)
async def test_queued_runs_take_places_of_their_owner(kind: str) -> None:
    """Two of Ann's are driven and two wait; more are refused, and Bob's run waits for none of them."""
    async with busy() as it, serving(runs_config(it.backend.url, per_key={"concurrent": 2, "queue": 2})) as base:
        replies = [await queue_run(base, kind, f"a{n}", ANN) for n in range(8)]
        assert [reply.status for reply in replies] == [QUEUED[kind]] * 4 + [429] * 4
        assert replies[4].headers["retry-after"] == "1"
        assert "AGENT_SSE_CONNECTION_LIMIT" not in replies[4].body.decode()
        await gathered(it, 2)
        # Its places are those of requests that are waited for, too.
        waited = asyncio.create_task(post(f"{base}/chat/chat/completions", HELLO, **ANN))
        assert (await queue_run(base, kind, "b", BOB)).status == QUEUED[kind]
        await gathered(it, 1)
        assert len(it.backend.seen) == 3, "two of Ann's, one of Bob's"
        it.release.set()
        assert (await waited).status == 200
        await gathered(it, 3)


@pytest.mark.parametrize("kind", KINDS)
async def test_queued_runs_take_places_of_their_route_and_owners_take_turns(kind: str) -> None:
    order: list[str] = []
    setup = {"limits": {"concurrent": 1, "queue": 6}}
    async with busy() as it, serving(runs_config(it.backend.url, setup)) as base:
        for n in range(5):
            assert (await queue_run(base, kind, f"ann{n}", ANN)).status == QUEUED[kind]
        assert (await queue_run(base, kind, "bob", BOB)).status == QUEUED[kind]
        assert (await queue_run(base, kind, "ann5", ANN)).status == QUEUED[kind]
        refused = await queue_run(base, kind, "bob2", BOB)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        await gathered(it, 1)
        assert len(it.backend.seen) == 1
        it.release.set()
        await gathered(it, 6)
    order = [next(name for name in ("bob", "ann") if name.encode() in seen.body) for seen in it.backend.seen]
    assert order[:3].count("bob") == 1, "behind one more of Ann's at most"


async def test_a_durable_run_and_its_reader_have_one_place_each() -> None:
    setup = runs_config("", per_key={"concurrent": 1})
    async with busy() as it:
        setup["backends"]["it"]["url"] = it.backend.url
        async with serving(setup) as base:
            body = {"input": [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "session_id": "s"}
            first = asyncio.create_task(post(f"{base}/as/process", body, **ANN))
            await gathered(it, 1)
            assert (await post(f"{base}/as/process", {**body, "session_id": "s2"}, **ANN)).status == 429
            it.release.set()
            assert (await first).status == 200
            assert (await post(f"{base}/as/process", {**body, "session_id": "s3"}, **ANN)).status == 200


async def test_a_background_run_is_read_and_cancelled_while_it_has_the_only_place() -> None:
    async with busy() as it, serving(runs_config(it.backend.url, per_key={"concurrent": 1})) as base:
        made = await queue_run(base, "background", "x", ANN)
        await gathered(it, 1)
        url = f"{base}/v1/responses/{made.json['id']}"
        headers = {"authorization": "Bearer key-ann"}
        assert (await ask("GET", url, headers=headers)).json["status"] == "in_progress"
        assert (await ask("POST", f"{url}/cancel", headers=headers)).json["status"] == "cancelled"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/responses/input_tokens"])
async def test_models_and_counts_take_a_place(path: str) -> None:
    async with busy() as it, serving(runs_config(it.backend.url, per_key={"concurrent": 1})) as base:
        running = asyncio.create_task(post(f"{base}/chat/chat/completions", HELLO, **ANN))
        await gathered(it, 1)
        headers = {"authorization": "Bearer key-ann", "content-type": "application/json"}
        method, body = ("GET", b"") if path.endswith("models") else ("POST", b'{"model": "m", "input": "x"}')
        refused = await ask(method, base + path, body, headers)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        it.release.set()
        assert (await running).status == 200


async def test_an_upload_takes_a_place() -> None:
    async with busy() as it, serving(runs_config(it.backend.url, per_key={"concurrent": 1})) as base:
        running = asyncio.create_task(post(f"{base}/chat/chat/completions", HELLO, **ANN))
        await gathered(it, 1)
        for path in ("/agent/attachments", "/agent/transcribe"):
            refused = await post(base + path, b"", content_type="multipart/form-data; boundary=x", **ANN)
            assert refused.status == 429
        it.release.set()
        assert (await running).status == 200


async def test_the_limit_of_a_route_is_one_for_all_its_operations() -> None:
    setup = runs_config("", {"limits": {"concurrent": 1, "queue": 0}})
    async with busy() as it:
        setup["backends"]["it"]["url"] = it.backend.url
        async with serving(setup) as base:
            running = asyncio.create_task(post(f"{base}/v1/responses", {"model": "m", "input": "x"}, **ANN))
            await gathered(it, 1)
            assert (await ask("GET", f"{base}/v1/models", headers={"authorization": "Bearer key-bob"})).status == 503
            it.release.set()
            assert (await running).status == 200


async def test_too_many_requests_in_a_minute_are_not_too_many_connections() -> None:
    async with busy() as it, serving(runs_config(it.backend.url, per_key={"requests_per_minute": 1})) as base:
        assert (await queue_run(base, "agent-runs", "1", ANN)).status == 202
        refused = await queue_run(base, "agent-runs", "2", ANN)
        assert (refused.status, refused.json["code"]) == (429, "RATE_LIMITED")
        it.release.set()


async def test_users_who_wait_at_a_gate_take_turns() -> None:
    pool, order = SlotPool(1, None), list[str]()

    async def run(user: str) -> None:
        await pool.enter(user)
        order.append(user)
        pool.leave()

    await pool.enter("x")
    tasks = [asyncio.create_task(run(user)) for user in ("a1", "a1", "a1", "b", "c")]
    await asyncio.sleep(0)
    assert pool.waiting == 5
    tasks[1].cancel()
    await asyncio.sleep(0)
    assert pool.waiting == 4
    pool.leave()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["a1", "b", "c", "a1"]
    assert pool.is_idle


async def test_a_place_that_is_given_to_one_who_leaves_goes_to_the_next() -> None:
    pool = SlotPool(1, None)
    await pool.enter("x")
    first, second = [asyncio.create_task(pool.enter(user)) for user in "ab"]
    await asyncio.sleep(0)
    pool.leave()
    first.cancel()
    await second
    assert (first.cancelled(), pool.waiting, pool.is_full) == (True, 0, True)
    pool.leave()
    assert pool.is_idle
