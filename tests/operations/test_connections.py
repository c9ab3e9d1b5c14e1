"""What never becomes a request is answered with an error, a request id, and no word about the software."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from bridge.contract import registry
from bridge.engine.bridge import Bridge
from bridge.errors import ErrorCode, Failure
from bridge.server.host import http_server
from bridge.server.host.app import UNKNOWN_PATH
from bridge.server.host.http_server import HttpServer
from bridge.server.host.listeners import bind, close
from tests.server.harness import Exchange, fake_backend, free_port, serving

CONFIG = {
    "backends": {"it": {"dialect": "demo"}},
    "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
}
STORES = {"history": "off", "runs": "sqlite:///:memory:"}
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
async def test_what_is_no_request_gets_an_error(request_: bytes, status: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(dict(CONFIG)) as base:
        answered, headers, body = await said(base, request_)
    assert answered == status
    assert headers["content-type"].startswith("application/json")
    assert headers["server"] == "dialect-bridge"
    assert len(headers["x-request-id"]) >= 16
    assert "invalid_request" in str(orjson.loads(body)["error"])
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


FRONTS = [name for name in registry.served() if not registry.get(name).over_grpc and name != "acp"]
"""Dialects over HTTP; acp is one over WebSockets."""
LARGE = 70_000
UNSERVED = {
    "an unknown expectation": ("POST {path} HTTP/1.1", "expect: dinner", 417),
    "another version": ("POST {path} HTTP/2.0", "", 505),
    "an invalid length": ("POST {path}?a=b HTTP/1.1", "content-length: nine", 400),
    "an unknown encoding": ("POST {path} HTTP/1.1", "content-encoding: br\r\ncontent-length: 3", 415),
    "a long header": ("POST {path} HTTP/1.1", "x: " + "y" * 40_000, 431),
    "a path that is not served": ("GET {path}/no/such/thing HTTP/1.1", "", 404),
    "a method that is not served": ("TRACE {path} HTTP/1.1", "", 405),
    "a large body": ("POST {path} HTTP/1.1", f"content-type: application/json\r\ncontent-length: {LARGE}", 413),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def every_front() -> AsyncIterator[str]:
    """The address of a server with a route for each dialect, below its name."""
    routes = [{"dialect": name, "path": f"/{name}", "backend": "it"} for name in FRONTS]
    async with serving(
        {**CONFIG, "routes": routes, "stores": {"history": "sqlite:///:memory:"}, "server": {"max_body": "64KiB"}}
    ) as base:
        yield base


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("what", UNSERVED)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_reaches_no_operation_is_refused_in_the_shape_of_its_route(
    every_front: str, what: str, front: str
) -> None:
    line, header, status = UNSERVED[what]
    dialect = registry.get(front)
    path = next(re.sub(r"{\w+}", "x", each.path) for each in dialect.surface if each.method == "POST")
    request = f"{line.format(path=f'/{front}{path}')}\r\nhost: localhost\r\nconnection: close\r\n{header}\r\n\r\n"
    request = request.replace("\r\n\r\n\r\n", "\r\n\r\n") + ("x" * LARGE if str(LARGE) in header else "")
    answered, headers, body = await said(every_front, request.encode())
    failure = Failure(ErrorCode.INVALID_REQUEST, "x", status=status, headers={"allow": "POST"} if status == 405 else {})
    if status == 404:
        failure = Failure(ErrorCode.NOT_FOUND, "x", backend_code=UNKNOWN_PATH)
    expected = dialect.encode_error(failure)
    assert answered == expected.status
    assert headers["content-type"] == expected.headers["content-type"]
    assert names_in(expected.body) <= names_in(body)
    assert headers["x-request-id"]
    assert headers["server"] == "dialect-bridge"


def names_in(body: bytes) -> set[str]:
    """Return the paths of all members of a JSON text; none of any other text."""

    def within(value: Any, path: str) -> Iterator[str]:
        yield path
        for name, each in value.items() if isinstance(value, dict) else ():
            yield from within(each, f"{path}.{name}")

    return set(within(orjson.loads(body), "")) if body[:1] in b"{[" else set()


@pytest.mark.parametrize("line", ["GET /nowhere HTTP/1.1", "GET / HTTP/1.1", "\x16\x03\x01 hello"])
async def test_what_is_near_no_route_is_refused_in_the_shape_of_the_server(line: str) -> None:
    request = f"{line}\r\nhost: localhost\r\nexpect: dinner\r\nconnection: close\r\n\r\n"
    async with serving(dict(CONFIG)) as base:
        status, _, body = await said(base, request.encode())
    assert status in (400, 417)
    assert names_in(body) == {"", ".error", ".error.code", ".error.message"}


@pytest.mark.parametrize("expected", ["", "100-Continue"])
async def test_a_known_expectation_is_met(expected: str) -> None:
    request = f"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nexpect: {expected}\r\nconnection: close\r\n\r\n"
    async with serving(dict(CONFIG)) as base:
        status, _, body = await said(base, request.encode())
    assert status == (100 if expected else 200)
    assert b'"data"' in body


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


async def test_idle_connections_of_a_replaced_server_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their next request needs the new configuration, however long the streams of the old one go on."""
    monkeypatch.setattr(http_server, "_FRESH", 0.1)
    body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi"}]}'
    begun, release = asyncio.Event(), asyncio.Event()

    async def held(exchange: Exchange) -> None:
        begun.set()
        await release.wait()
        await exchange.stream(b"data: [DONE]\n\n")

    async with fake_backend("openai-chat") as backend, asyncio.timeout(20):
        backend.plays(held)
        section = {"dialect": "openai-chat", "url": backend.url}
        sockets = bind("127.0.0.1", free_port())
        served = HttpServer(Bridge.from_config({**CONFIG, "backends": {"it": section}, "stores": STORES}), sockets)
        await served.start()
        streaming, first = await asyncio.open_connection("127.0.0.1", served.port)
        waiting, second = await asyncio.open_connection("127.0.0.1", served.port)
        second.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b"200 OK" in await waiting.readuntil(b"}")
        first.write(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        await begun.wait()
        retiring = asyncio.create_task(served.retire())
        assert await waiting.read() == b""
        assert not retiring.done()
        release.set()
        assert b"data: " in await streaming.readuntil(b"0\r\n\r\n")
        await retiring
        close(sockets)
        first.close()
        second.close()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_a_body_that_declares_too_much_is_refused_before_it_comes(path: str) -> None:
    server = {"max_body": "1KiB", "body_time": "1h"}
    section = {"dialect": "openai-chat", "url": "http://127.0.0.1:1"}
    config: dict[str, Any] = {**CONFIG, "server": server, "backends": {"it": section}}
    config["routes"] = [{**config["routes"][0], "extras": "it"}]
    async with serving(config) as base, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
        writer.write(HEAD.replace(b"/v1/chat/completions", path.encode()) + b"content-length: 1025\r\n\r\n")
        assert b" 413 " in await reader.readline()
        assert b"longer than the limit of 1024 bytes (server.max_body)" in await reader.readuntil(b"}")
        writer.close()
