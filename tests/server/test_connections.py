"""What never becomes a request is answered with a JSON error, a request id, and no word about the software."""

from __future__ import annotations

import asyncio
import logging

import orjson
import pytest

from tests.server.harness import serving

CONFIG = {
    "backends": {"it": {"dialect": "demo"}},
    "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
}
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


async def said(base: str, request: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    writer.write(request)
    async with asyncio.timeout(20):
        data = await reader.read()
    writer.close()
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\x16\x03\x01 hello sk-secretsecretsecret\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (HEAD + b"content-length: nine\r\n\r\n", 400),
        (HEAD + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabc", 400),
        (HEAD + b"x" * 20_000 + b": y\r\n\r\n", 400),
        (HEAD + b"content-encoding: br\r\ncontent-length: 3\r\n\r\nabc", 415),
        (HEAD + b"content-encoding: zstd\r\ncontent-length: 3\r\n\r\nabc", 415),
    ],
    ids=["tls", "version", "length", "two lengths", "long header", "br", "zstd"],
)
async def test_what_is_no_request_gets_a_plain_error(
    request_: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(dict(CONFIG)) as base:
        answered, headers, body = await said(base, request_)
    assert answered == status
    assert headers["content-type"].startswith("application/json")
    assert headers["server"] == "dialect-bridge"
    assert len(headers["x-request-id"]) >= 16
    assert orjson.loads(body)["error"]["code"] == "invalid_request"
    assert b"secret" not in body
    assert "secret" not in caplog.text
    assert "Traceback" not in caplog.text
