"""How often one request reaches a backend that closes kept connections, with both HTTP clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from typing import Any

import pytest

from bridge.contract import WireRequest, registry
from bridge.run.backends import connector
from bridge.run.backends.http_backend import HttpBackend
from tests.server.harness import Exchange, FakeBackend, fake_backend, post, serving

BOTH = pytest.mark.parametrize("client", ["aiohttp", "httptools"])
WHOLE = b'{"say":"whole","end":"stop"}'
LATE = -1.0
"""No connection closes within this time."""


@pytest.fixture
async def backend() -> AsyncIterator[FakeBackend]:
    async with fake_backend() as made:
        yield made


def config(client: str, *urls: str, attempts: int = 1) -> dict[str, Any]:
    backends = {
        f"b{number}": {"dialect": "toy", "url": url, "retry": {"attempts": attempts, "backoff": "1ms", "budget": 1}}
        for number, url in enumerate(urls)
    }
    return {
        "server": {"http_client": client},
        "backends": backends,
        "routes": [{"dialect": "toy", "path": "/toy", "backend": list(backends)}],
    }


def answers_first(backend: FakeBackend, number: int) -> None:
    """Answer that many requests, each on a connection of its own that is kept; then close each connection that brings
    another one.
    """
    together = asyncio.Barrier(number)

    async def script(exchange: Exchange) -> None:
        if len(backend.seen) <= number:
            await together.wait()
            await exchange.answer(200, WHOLE)
        else:
            exchange.reset()

    backend.plays(script)


async def ask_kept(base: str, number: int) -> int:
    """Ask `number` times at once, then once more; return the status of that."""
    await asyncio.gather(*(post(f"{base}/toy/ask", {"ask": "x"}) for _ in range(number)))
    return (await post(f"{base}/toy/ask", {"ask": "last"})).status


@BOTH
@pytest.mark.parametrize(("seconds", "calls"), [(60.0, 2), (LATE, 1)])
async def test_one_request_with_many_kept_connections(
    backend: FakeBackend, toy: str, client: str, seconds: float, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice if the connection closed at once, else once: the backend may have worked on it."""
    monkeypatch.setattr(connector, "AT_ONCE_SECONDS", seconds)
    answers_first(backend, 5)
    async with serving(config(client, backend.url)) as base:
        assert await ask_kept(base, 5) == 502
    assert len(backend.seen) - 5 == calls


@BOTH
@pytest.mark.parametrize(("seconds", "most"), [(60.0, 4), (LATE, 3)])
async def test_repetitions_do_not_add_to_retries(
    backend: FakeBackend, toy: str, client: str, seconds: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try may be sent twice; those after it find no kept connection that is known to work."""
    monkeypatch.setattr(connector, "AT_ONCE_SECONDS", seconds)
    answers_first(backend, 1)
    async with serving(config(client, backend.url, attempts=3)) as base:
        assert await ask_kept(base, 1) == 502
    assert len(backend.seen) - 1 == most


@BOTH
async def test_a_fallback_gets_each_request_once(
    backend: FakeBackend, toy: str, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "AT_ONCE_SECONDS", LATE)
    answers_first(backend, 3)
    async with fake_backend() as other:
        other.answers(200, WHOLE)
        async with serving(config(client, backend.url, other.url)) as base:
            assert await ask_kept(base, 3) == 200
        assert (len(backend.seen), len(other.seen)) == (4, 1)


@BOTH
async def test_a_connection_that_closes_while_a_body_is_sent(
    backend: FakeBackend, toy: str, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backend cannot have worked on a request of which it has a part."""
    monkeypatch.setattr(connector, "AT_ONCE_SECONDS", LATE)
    heads: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(asyncio.IncompleteReadError):
            while True:
                heads.append(head := await reader.readuntil(b"\r\n\r\n"))
                if len(heads) == 2:
                    writer.transport.abort()
                    return
                size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                await reader.readexactly(size)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 28\r\n\r\n" + WHOLE)

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    made = HttpBackend("it", registry.get(toy), f"http://127.0.0.1:{port}", httptools=client == "httptools")
    await made.start()
    try:
        for _ in range(2):
            answer = await made.answer(WireRequest("POST", "/ask", {}, body=b"x" * (32 * 2**20)))
            assert (answer.status, await answer.read(100)) == (200, WHOLE)
            answer.release()
    finally:
        await made.close()
        listening.close()
    assert len(heads) == 3
