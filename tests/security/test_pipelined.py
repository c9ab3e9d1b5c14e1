"""Requests that are sent behind each other, and answers that nobody takes."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from tests.faults.apart import resident
from tests.server.harness import ask, serving

CONFIG = {
    "backends": {"it": {"dialect": "demo"}},
    "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
    "server": {"slow_reader": "1s"},
}
BODY = b'{"model":"m","messages":[{"role":"user","content":"text"}]}'
REQUESTS = {
    "without a body": b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "that are refused": b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "for runs": b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", REQUESTS)
async def test_requests_whose_answers_are_not_read_take_no_memory(kind: str) -> None:
    """The server reads no more of them than it answers, and cuts the connection."""
    many = REQUESTS[kind] * (2**18 // len(REQUESTS[kind]))
    async with serving(dict(CONFIG)) as base:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that the system takes few answers, too
        client.connect(("127.0.0.1", int(base.rpartition(":")[2])))
        _, writer = await asyncio.open_connection(sock=client, limit=1)
        before = resident()
        sent = 0
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(many)
                    await writer.drain()
                    sent += len(many)
                    assert sent < 2**26, "it is read for ever"
            assert (await ask("GET", f"{base}/healthz")).status == 200
        grown = resident() - before
        writer.transport.abort()
    assert grown < 48 * 2**20, f"{grown} bytes for {sent} bytes of requests"


OFFER = "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"
HEALTH = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n%s\r\n"
RUN = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n%scontent-length: {len(BODY)}\r\n\r\n{BODY.decode()}"


OFFERING = {
    "no body": HEALTH % OFFER,
    "a body": RUN % ("content-type: application/json\r\n" + OFFER),
    "chunks": "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    f"transfer-encoding: chunked\r\n{OFFER}\r\n{len(BODY):x}\r\n{BODY.decode()}\r\n0\r\n\r\n",
}
SPLIT = {"at once": 0, "at the end of the head": -4, "inside it": -2, "in the body": 10}


@pytest.mark.parametrize("before", ["", HEALTH % ""], ids=["first", "behind another"])
@pytest.mark.parametrize("split", SPLIT)
@pytest.mark.parametrize("offering", OFFERING)
async def test_nothing_is_dropped_behind_an_offer_of_another_protocol(offering: str, split: str, before: str) -> None:
    """Each request is answered, or the connection closed: no answer is left for the next request to take."""
    text = before + OFFERING[offering]
    end = text.index("\r\n\r\n", len(before)) + 4
    cut = max(len(before), 1) if split == "at once" else end + SPLIT[split]
    sent = (text + "GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n").encode()
    async with serving(dict(CONFIG)) as base:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
        writer.write(sent[:cut])
        await asyncio.sleep(0.05)
        writer.write(sent[cut:])
        async with asyncio.timeout(20):
            data = await reader.read(-1)
        writer.close()
    assert data.count(b"HTTP/1.1 200 OK") == 1 + bool(before)
    assert b"HTTP/1.1 404" not in data


@pytest.mark.parametrize("offering", [HEALTH % OFFER, RUN % ("content-type: application/json\r\n" + OFFER)])
async def test_a_client_that_offers_another_protocol_keeps_its_connection(offering: str) -> None:
    async with serving(dict(CONFIG)) as base:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
        async with asyncio.timeout(20):
            for cut in (len(offering), 30, len(offering) - 1):
                writer.write(offering[:cut].encode())
                await asyncio.sleep(0.05)
                writer.write(offering[cut:].encode())
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 OK")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length[15:]))
        writer.close()
