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
        (HEAD + b"x: " + b"y" * 30_000 + b"\r\ncontent-length: nine\r\n\r\n", 400),
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


@pytest.mark.parametrize("version", ["HTTP/2.0", "HTTP/0.9", "HTTP/3.0"])
@pytest.mark.parametrize("path", ["/healthz", "/v1/models"])
async def test_other_versions_of_http_are_refused_in_ours(version: str, path: str) -> None:
    async with serving(dict(CONFIG)) as base:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
        writer.write(f"GET {path} {version}\r\nhost: localhost\r\n\r\n".encode())
        async with asyncio.timeout(20):
            data = await reader.read()  # the connection closes
        writer.close()
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 505 " if version != "HTTP/3.0" else b"HTTP/1.")
    assert b"error" in body


@pytest.mark.parametrize("path", ["/v1/models", "/nowhere"])
async def test_an_unknown_expectation_is_refused(path: str) -> None:
    """By aiohttp, before any of our handlers: with the headers of every response."""
    async with serving(dict(CONFIG)) as base:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
        writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nexpect: dinner\r\nconnection: close\r\n\r\n".encode())
        async with asyncio.timeout(20):
            data = await reader.read()
        writer.close()
    assert data.startswith(b"HTTP/1.1 417 ")
    assert b"x-request-id: " in data


@pytest.mark.parametrize(
    "head",
    [b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n", HEAD + b"cookie: " + b"a" * 40_000, HEAD + b"x" * 40_000 + b": y"],
    ids=["URL", "value", "name"],
)
async def test_a_url_and_a_header_have_a_limit_that_is_named(head: bytes) -> None:
    async with serving(dict(CONFIG)) as base:
        status, _, body = await said(base, head + b"\r\n\r\n")
    assert status == 431
    assert b"32768 bytes" in body


async def test_the_cookies_of_a_single_sign_on_fit() -> None:
    async with serving(dict(CONFIG)) as base:
        sent = HEAD + b"connection: close\r\ncookie: sso=" + b"a" * 30_000 + b"\r\ncontent-length: 2\r\n\r\n{}"
        status, _, body = await said(base, sent)
    assert (status, b"messages" in body) == (400, True)
