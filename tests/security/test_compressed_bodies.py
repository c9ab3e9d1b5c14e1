"""Compressed bodies: what they expand to and what follows their end, over HTTP and ASGI."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from bridge import Bridge, asgi
from tests.server.harness import serving

CONFIG: dict[str, Any] = {
    "server": {"max_body": "1MiB"},
    "backends": {"it": {"dialect": "demo"}},
    "routes": [{"dialect": "anthropic-messages", "path": "/v1", "backend": "it"}],
}
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
ASK = orjson.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "text"}]})
PIECES = 400

Post = Callable[[str, list[bytes]], Awaitable[tuple[int, int]]]


async def over_http(path: str, pieces: list[bytes]) -> tuple[int, int]:
    """Send the pieces one after another; return the status, and how many could be sent."""
    lines = ["content-type: application/json", "content-encoding: gzip", "transfer-encoding: chunked"]
    async with serving(dict(CONFIG)) as base:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
        head = asyncio.create_task(reader.readline())
        writer.write("\r\n".join([f"POST {path} HTTP/1.1", "host: localhost", *lines, "", ""]).encode())
        sent = 0
        for piece in pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)
            if head.done():
                break
            sent += 1
        else:
            writer.write(b"0\r\n\r\n")
        async with asyncio.timeout(30):
            status = int((await head).split()[1])
        writer.transport.abort()
    return status, sent


async def over_asgi(path: str, pieces: list[bytes]) -> tuple[int, int]:
    """The same to an ASGI application."""
    app = asgi.app(Bridge.from_config(dict(CONFIG)))
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-encoding", b"gzip")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [*headers, (b"transfer-encoding", b"chunked")],
        "client": ("127.0.0.1", 1),
    }
    sent, status = 0, 0

    async def receive() -> dict[str, Any]:
        nonlocal sent
        await asyncio.sleep(0)
        if sent == len(pieces):
            await asyncio.Event().wait()
        sent += 1
        return {"type": "http.request", "body": pieces[sent - 1], "more_body": sent < len(pieces)}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    async with app.lifespan(), asyncio.timeout(30):
        await app(scope, receive, send)
    return status, sent


BOTH = pytest.mark.parametrize("post", [over_http, over_asgi])


@BOTH
@pytest.mark.parametrize("path", [MESSAGES, COUNT])
async def test_what_follows_the_end_is_refused_and_not_kept(post: Post, path: str) -> None:
    status, sent = await post(path, [gzip.compress(ASK), *[b"x" * 2**16] * PIECES])
    assert status == 400
    assert sent < PIECES, "all of it was read"


@BOTH
async def test_a_body_may_have_several_members(post: Post) -> None:
    members = [gzip.compress(ASK[:20]), gzip.compress(b""), gzip.compress(ASK[20:])]
    assert await post(COUNT, [b"".join(members)]) == (200, 1)
    assert await post(COUNT, members) == (200, 3)


@BOTH
@pytest.mark.parametrize("path", [MESSAGES, COUNT])
async def test_a_body_counts_as_it_expands(post: Post, path: str) -> None:
    status, _ = await post(path, [gzip.compress(b" " * 2**25 + ASK)])
    assert status == 413
