"""Embeddings, audio, images and the like: passed on to one OpenAI-compatible backend as they are."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bridge.dialects.openai.api import EXTRAS
from bridge.engine.config import parse
from bridge.errors import ConfigError
from tests.server.harness import Exchange, ask, bound_socket, fake_backend, post, serving

PATHS = [endpoint.path for endpoint in EXTRAS]
FORM = "multipart/form-data; boundary=b"
KEYS = {"keys": [{"name": "web", "key": "client-key-1234", "routes": ["*"]}]}


def config(url: str, dialect: str = "openai-chat", **more: Any) -> dict[str, Any]:
    backend = {"dialect": "openai-chat", "url": f"{url}/v1", "api_key": "backend-key", **more.pop("backend", {})}
    route = {"dialect": dialect, "path": "/api", "backend": "demo", "extras": "models"}
    return {"backends": {"models": backend, "demo": {"dialect": "demo"}}, "routes": [route], **more}


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("path", PATHS)
async def test_body_and_answer_pass_as_they_are(path: str, dialect: str) -> None:
    async with fake_backend() as backend, serving(config(backend.url, dialect)) as base:
        headers = {"x_ratelimit_remaining_requests": "5", "set_cookie": "a=b", "connection": "keep-alive"}
        backend.answers(200, b"\x00\xff answer", "audio/mpeg", **headers)
        sent = {"content-type": FORM, "authorization": "Bearer mine", "x-api-key": "mine", "cookie": "c=d"}
        reply = await ask("POST", f"{base}/api{path}?a=1", b"--b\r\n\xff", sent)
        (seen,) = backend.seen
        assert (seen.path, seen.body, seen.headers["content-type"]) == (f"/v1{path}?a=1", b"--b\r\n\xff", FORM)
        assert seen.headers["authorization"] == "Bearer backend-key"
        assert seen.headers["x-request-id"] == reply.headers["x-request-id"]
        assert not {"x-api-key", "cookie"} & set(seen.headers)
        assert (reply.status, reply.body) == (200, b"\x00\xff answer")
        assert reply.headers["content-type"] == "audio/mpeg"
        assert reply.headers["x-ratelimit-remaining-requests"] == "5"
        assert "set-cookie" not in reply.headers


async def test_both_directions_are_streamed() -> None:
    first = asyncio.Event()

    async def echo(http: web.Request) -> web.StreamResponse:
        assert await http.content.readany() == b"one"
        first.set()
        assert await http.content.read() == b"two"
        out = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await out.prepare(http)
        await out.write(b"data: 1\n\n")
        await first.wait()
        await out.write_eof(b"data: 2\n\n")
        return out

    async def pieces() -> Any:
        yield b"one"
        async with asyncio.timeout(10):
            await first.wait()
        first.clear()
        yield b"two"

    app = web.Application()
    app.router.add_post("/v1/audio/speech", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    listening = bound_socket()
    await web.SockSite(runner, listening).start()
    async with serving(config(f"http://127.0.0.1:{listening.getsockname()[1]}")) as base, aiohttp.ClientSession() as s:
        headers = {"content-type": "application/json"}
        async with s.post(f"{base}/api/audio/speech", data=pieces(), headers=headers) as response:
            assert response.content_type == "text/event-stream"
            assert await response.content.readany() == b"data: 1\n\n"
            first.set()
            assert await response.content.read() == b"data: 2\n\n"
    await runner.cleanup()


async def test_keys_and_limits() -> None:
    server = {"auth": KEYS, "max_body": 1000, "limits": {"answer": 1024}}
    key = {"authorization": "Bearer client-key-1234"}
    async with fake_backend() as backend, serving(config(backend.url, server=server)) as base:
        backend.answers(200, b"{}")
        url = f"{base}/api/embeddings"
        assert (await post(url, {"input": "x"})).status == 401
        assert (await post(url, {"input": "x"}, **key)).status == 200
        large = await post(url, {"input": "x" * 2000}, **key)
        assert (large.status, large.json["error"]["code"]) == (413, "request_too_large")
        assert len(backend.seen) == 1
        backend.answers(200, b"x" * 2000)
        with pytest.raises(aiohttp.ClientPayloadError):
            await post(url, {"input": "x"}, **key)
        page = await post(
            f"{base}/api/audio/transcriptions", b"x", content_type=FORM, origin="https://x.example", **key
        )
        assert page.status == 403


async def test_keys_and_addresses_in_the_query_stay_here() -> None:
    key = {"authorization": "Bearer client-key-1234"}
    async with fake_backend() as backend, serving(config(backend.url, server={"auth": KEYS})) as base:
        backend.answers(200, b"{}")
        query = "a=1&key=client-key-1234&api-key=client-key-1234&access_token=t&api_base=http://x.example"
        assert (await post(f"{base}/api/embeddings?{query}", {"input": "x"}, **key)).status == 200
        assert [seen.path for seen in backend.seen] == ["/v1/embeddings?a=1"]


async def test_an_upload_that_is_broken_off_ends_the_request_at_the_backend() -> None:
    got: list[int] = []
    gone = asyncio.Event()

    async def receive(http: web.Request) -> web.Response:
        try:
            async for piece in http.content.iter_any():
                got.append(len(piece))
        except OSError:
            gone.set()
            raise
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/audio/transcriptions", receive)
    runner = web.AppRunner(app)
    await runner.setup()
    listening = bound_socket()
    await web.SockSite(runner, listening).start()
    async with serving(config(f"http://127.0.0.1:{listening.getsockname()[1]}")) as base:
        _, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
        head = f"POST /api/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\ncontent-type: {FORM}\r\n"
        writer.write(f"{head}content-length: 200000\r\n\r\n".encode() + b"x" * 100_000)
        async with asyncio.timeout(10):
            while sum(got) < 100_000:
                await asyncio.sleep(0.01)
        writer.transport.abort()
        async with asyncio.timeout(10):
            await gone.wait()
        assert sum(got) == 100_000
    await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "shown", "code"), [(400, 400, "too_long"), (429, 429, "too_long"), (401, 502, "backend_auth")]
)
async def test_an_error_is_told_as_for_chat(status: int, shown: int, code: str) -> None:
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        body = b'{"error": {"message": "The key backend-key is wrong", "code": "too_long"}}'
        backend.answers(status, body, retry_after="7")
        reply = await post(f"{base}/api/embeddings", {"input": "x"})
        assert (reply.status, reply.json["error"]["code"]) == (shown, code)
        assert b"backend-key" not in reply.body
        if status == 429:
            assert reply.headers["retry-after"] == "7"


async def test_a_backend_that_is_silent_away_or_breaks_off() -> None:
    async with fake_backend() as backend:
        times = {"timeouts": {"total": "1s", "idle": "200ms"}}
        async with serving(config(backend.url, backend=times)) as base:
            url = f"{base}/api/rerank"

            async def silent(exchange: Exchange) -> None:
                await exchange.left()

            backend.plays(silent)
            reply = await post(url, {})
            assert reply.status == 504
            assert "longer than 1 s to answer (timeouts.total)" in reply.json["error"]["message"]

            async def half(exchange: Exchange) -> None:
                await exchange.head()
                await exchange.send(b"half")
                await exchange.left()

            backend.plays(half)
            with pytest.raises(aiohttp.ClientPayloadError):
                await post(url, {})
    async with serving(config("http://127.0.0.1:9")) as base:
        reply = await post(f"{base}/api/rerank", {})
        assert (reply.status, reply.json["error"]["code"]) == (502, "backend_unavailable")


async def test_an_answer_that_is_long_in_coming_has_the_time_of_the_whole_call() -> None:
    """Such as an image: these answers are no streams, and silent until they are complete."""

    async def late(exchange: Exchange) -> None:
        await asyncio.sleep(1)
        await exchange.answer(200, b'{"data":[]}')

    async with fake_backend() as backend:
        backend.plays(late)
        async with serving(config(backend.url, backend={"timeouts": {"first_event": "100ms"}})) as base:
            reply = await post(f"{base}/api/images/generations", {"prompt": "x"})
    assert (reply.status, reply.body) == (200, b'{"data":[]}')


async def test_the_log_and_the_metrics_know_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.access")
    async with (
        fake_backend() as backend,
        serving(config(backend.url, server={"metrics": {"path": "/metrics"}})) as base,
    ):
        backend.answers(200, b"12345")
        await post(f"{base}/api/moderations", {"input": "x"})
        facts = caplog.records[-1].facts  # type: ignore[attr-defined]
        assert (facts["back"], facts["http"], facts["status"], facts["bytes"]) == ("models", 200, "stop", 5)
        metrics = (await ask("GET", f"{base}/metrics")).body.decode()
        assert 'back="models"' in metrics


async def test_without_the_option_there_is_nothing() -> None:
    async with fake_backend() as backend:
        parts = config(backend.url)
        del parts["routes"][0]["extras"]
        async with serving(parts) as base:
            assert (await post(f"{base}/api/embeddings", {})).status == 404


@pytest.mark.parametrize(
    ("dialect", "backend", "said"),
    [
        ("anthropic-messages", "models", "a route of dialect anthropic-messages offers no embeddings"),
        ("openai-chat", "demo", "a backend of dialect demo offers no embeddings"),
        ("openai-chat", "agent", "a backend of dialect ag-ui offers no embeddings"),
        ("openai-chat", "nobody", "nobody"),
    ],
)
def test_what_cannot_be_is_said_at_the_start(dialect: str, backend: str, said: str) -> None:
    parts = config("http://127.0.0.1:9", dialect)
    parts["backends"]["agent"] = {"dialect": "ag-ui", "url": "http://127.0.0.1:9"}
    parts["routes"][0]["extras"] = backend
    with pytest.raises(ConfigError) as caught:
        parse(parts)
    assert said in str(caught.value)
