"""The bridge as an ASGI application: mounted in Starlette, served by uvicorn, and driven by hand."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from bridge import Bridge, asgi
from bridge.errors import BackendError, ConfigError, ErrorCode
from bridge.server.requests.writing import StreamedResponse
from tests.server.harness import Exchange, ask, fake_backend, post

HELLO = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
CHAT = {"dialect": "openai-chat", "path": "/v1", "backend": "it"}


def bridge(**more: Any) -> Bridge:
    config = {"backends": {"it": {"dialect": "demo"}}, "routes": [CHAT], "stores": {"history": "off"}, **more}
    config["stores"] = {"runs": "sqlite:///:memory:", **config["stores"]}
    return Bridge.from_config(config)


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Any ASGI application, served by uvicorn; gives its address."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        task = asyncio.create_task(server.serve([sock]))
        while not server.started:
            assert not task.done(), "it did not start"
            await asyncio.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


def mounted(made: asgi.ASGIApp) -> Starlette:
    async def home(request: Request) -> PlainTextResponse:
        return PlainTextResponse("My own page.")

    return Starlette(routes=[Route("/", home), Mount("/llm", made)], lifespan=made.lifespan)


async def test_a_mounted_bridge_answers_beside_the_application() -> None:
    async with served(mounted(asgi.app(bridge()))) as base:
        assert (await ask("GET", f"{base}/")).body == b"My own page."
        reply = await post(f"{base}/llm/v1/chat/completions", HELLO)
        assert reply.status == 200
        assert reply.json["choices"][0]["message"]["content"].startswith("You said: Hello")
        assert reply.headers["x-request-id"]
        assert (await ask("GET", f"{base}/llm/v1/models")).json["object"] == "list"
        page = await ask("GET", f"{base}/llm/")
        assert b"<title>dialect-bridge</title>" in page.body
        lost = await post(f"{base}/llm/v1/nowhere", HELLO)
        assert (lost.status, lost.json["error"]["code"]) == (404, "unknown_url")


async def test_streams_arrive_piece_by_piece() -> None:
    async with served(asgi.app(bridge())) as base, aiohttp.ClientSession() as session:
        body = {"model": "m", "messages": [{"role": "user", "content": "slow"}], "stream": True}
        async with session.post(f"{base}/v1/chat/completions", json=body) as response:
            assert response.headers.getall("transfer-encoding") == ["chunked"]
            first = await response.content.readuntil(b"\n\n")
            second = await response.content.readuntil(b"\n\n")
            assert b"[DONE]" not in first + second


async def test_a_stream_begins_while_its_model_thinks() -> None:
    thought = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await thought.wait()
        await exchange.answer(500, b"{}")

    async with fake_backend() as backend:
        backend.plays(script)
        silent = bridge(server={"keepalive": "60ms"}, backends={"it": {"dialect": "openai-chat", "url": backend.url}})
        async with (
            asyncio.timeout(20),
            served(asgi.app(silent)) as base,
            aiohttp.ClientSession() as session,
            session.post(f"{base}/v1/chat/completions", json={**HELLO, "stream": True}) as response,
        ):
            assert response.status == 200
            assert await response.content.readuntil(b"\n\n") == b": keep-alive\n\n"
            thought.set()
            assert b"status 500" in await response.read()


async def test_a_client_that_leaves_cancels_the_run() -> None:
    left = asyncio.Event()

    async def play(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"half"}}]}\n\n')
        await exchange.left()
        left.set()

    async with fake_backend() as backend:
        backend.plays(play)
        made = asgi.app(bridge(backends={"it": {"dialect": "openai-chat", "url": backend.url}}))
        async with served(made) as base, aiohttp.ClientSession() as session:
            async with session.post(f"{base}/v1/chat/completions", json={**HELLO, "stream": True}) as response:
                await response.content.readuntil(b"\n\n")
                response.close()
            async with asyncio.timeout(5):
                await left.wait()


async def test_bodies_have_the_limits_of_the_server() -> None:
    async with served(asgi.app(bridge(server={"max_body": 2000}))) as base:
        url = f"{base}/v1/chat/completions"
        packed = gzip.compress(orjson.dumps(HELLO))
        assert (await post(url, packed, content_encoding="gzip")).status == 200
        bomb = gzip.compress(b"x" * 50_000_000)
        assert (await post(url, bomb, content_encoding="gzip")).status == 413
        assert (await post(url, b"x" * 3000)).status == 413
        broken = await post(url, packed[:-9], content_encoding="gzip")
        assert broken.status == 400
        assert "cannot be decoded" in broken.json["error"]["message"]
        assert (await post(url, b"\x00no gzip", content_encoding="gzip")).status == 400
        assert (await post(url, b"x", content_encoding="br")).status == 415


async def test_history_and_fallback_are_those_of_a_route(tmp_path: Path) -> None:
    async with fake_backend() as first, fake_backend() as second:
        first.answers(500, b"{}")
        choice = b'{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}'
        second.streams(b'data: {"id":"x","choices":[%b]}\n\ndata: [DONE]\n\n' % choice)
        made = asgi.app(
            bridge(
                backends={
                    "it": {"dialect": "openai-chat", "url": first.url, "model": "m"},
                    "other": {"dialect": "openai-chat", "url": second.url, "model": "m"},
                },
                routes=[{"dialect": "agentscope", "path": "/agent", "backend": ["it", "other"]}],
                stores={"history": f"sqlite:///{tmp_path}/h.db"},
            )
        )
        async with served(mounted(made)) as base:
            for text in ("one", "two"):
                content = [{"type": "text", "text": text}]
                body = {"input": [{"role": "user", "type": "message", "content": content}], "session_id": "s"}
                assert b'"status":"completed"' in (await post(f"{base}/llm/agent/process", body)).body
        sent = [[m["role"] for m in orjson.loads(seen.body)["messages"]] for seen in second.seen]
        assert sent == [["user"], ["user", "assistant", "user"]]


async def test_a_file_is_uploaded_and_fetched(tmp_path: Path) -> None:
    """A megabyte in a form, and its bytes back: larger than what is read ahead on either side."""
    picture = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4000
    routes = [{"dialect": "agent-runs", "path": "/api", "backend": "it"}]
    stores = {"history": f"sqlite:///{tmp_path}/h.db", "attachments": f"file://{tmp_path}/images"}
    made = asgi.app(bridge(server={"secret": "a secret of the test"}, routes=routes, stores=stores))
    async with served(made) as base, aiohttp.ClientSession() as session:
        form = aiohttp.FormData({"threadId": "t1"})
        form.add_field("file", picture, filename="x.png", content_type="image/png")
        async with session.post(f"{base}/api/attachments", data=form) as response:
            assert response.status == 200, await response.text()
            url = (await response.json())["attachment"]["url"]
        async with session.get(url) as response:
            assert await response.read() == picture


async def test_a_websocket_is_refused_as_over_http() -> None:
    async with served(asgi.app(bridge())) as base, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(f"{base}/v1/chat/completions")
        assert caught.value.status == 426


async def test_it_opens_and_closes_as_often_as_it_is_asked() -> None:
    made = asgi.app(bridge())
    for _ in range(2):
        async with served(made) as base:
            assert (await post(f"{base}/v1/chat/completions", HELLO)).status == 200


async def run_by_hand(made: asgi.ASGIApp, scope: dict[str, Any], *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """What the application sends for these messages."""
    sent: list[dict[str, Any]] = []
    left = iter(messages)

    async def receive() -> dict[str, Any]:
        for message in left:
            return message
        await asyncio.sleep(30)
        raise AssertionError("too long")

    async def send(message: Any) -> None:
        sent.append(message)

    await made(scope, receive, send)
    return sent


async def test_without_its_lifespan_it_says_what_is_missing() -> None:
    with pytest.raises(RuntimeError, match="run the ASGI lifespan"):
        await run_by_hand(asgi.app(bridge()), {"type": "http"})


async def test_routes_over_grpc_are_refused() -> None:
    agent = {"dialect": "aip", "listen": "127.0.0.1:1", "agent_id": "a", "backend": "it"}
    with pytest.raises(
        ConfigError, match=r"routes\[1\].listen: ASGI has no gRPC; serve it with `dialect-bridge serve`"
    ):
        asgi.app(bridge(routes=[CHAT, agent]))


async def test_a_bridge_that_cannot_start_fails_the_lifespan(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(self: Bridge) -> None:
        raise BackendError("The store does not answer.", code=ErrorCode.STORE_UNAVAILABLE)

    monkeypatch.setattr(Bridge, "start", start)
    sent = await run_by_hand(asgi.app(bridge()), {"type": "lifespan"}, {"type": "lifespan.startup"})
    assert sent == [{"type": "lifespan.startup.failed", "message": "The store does not answer."}]


async def test_where_it_is_mounted_does_not_matter() -> None:
    """Servers and frameworks give the mount path as `root_path`, in front of `path` or taken off it."""
    made = asgi.app(bridge())
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"expect", b"100-continue")]
    async with made.lifespan():
        for path, root in (
            ("/a/v1/chat/completions", "/a"),
            ("/v1/chat/completions", "/a"),
            ("/v1/chat/completions", ""),
        ):
            scope = {"type": "http", "method": "POST", "path": path, "root_path": root, "headers": headers}
            sent = await run_by_hand(made, scope, {"type": "http.request", "body": orjson.dumps(HELLO)})
            assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
            assert sent[0]["status"] == 200
            assert not {b"connection", b"transfer-encoding", b"date"} & {name for name, _ in sent[0]["headers"]}


async def test_a_request_whose_client_leaves_in_the_middle_of_its_body() -> None:
    made = asgi.app(bridge())
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [(b"host", b"127.0.0.1")]}
    async with made.lifespan():
        half = {"type": "http.request", "body": b"{", "more_body": True}
        start, _ = await run_by_hand(made, scope, half, {"type": "http.disconnect"})
        assert start["status"] == 499


async def test_a_server_that_raises_when_the_client_has_left() -> None:
    made = asgi.app(bridge())
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers}
    async with made.lifespan():
        await made(scope, receiving({**HELLO, "stream": True}), raising)


async def raising(message: Any) -> None:
    raise OSError("gone")


def receiving(body: Any) -> Any:
    """A client that sends this and stays."""
    messages = iter([{"type": "http.request", "body": orjson.dumps(body)}])

    async def receive() -> dict[str, Any]:
        for message in messages:
            return message
        await asyncio.sleep(30)
        raise AssertionError("too long")

    return receive


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    """The application returns without the end of the response, for which ASGI servers close the connection."""
    made = asgi.app(bridge(server={"slow_reader": "1s"}))
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body":
            await asyncio.sleep(30)

    async with made.lifespan(), asyncio.timeout(10):
        await made(scope, receiving({**HELLO, "stream": True}), send)
    assert sent[-1]["more_body"]


@pytest.mark.parametrize("length", [None, b"0"])
@pytest.mark.parametrize("page", [{b"origin": b"https://a.example"}, {b"sec-fetch-site": b"same-origin"}, {}])
async def test_a_page_may_send_a_get_without_a_body(length: bytes | None, page: dict[bytes, bytes]) -> None:
    """Even where the ASGI server says only in its first message that there is none."""
    made = asgi.app(bridge(routes=[{**CHAT, "dialect": "ag-kit", "path": "/kit"}]))
    headers = [(b"host", b"127.0.0.1"), *page.items(), *([(b"content-length", length)] if length else [])]
    scope = {"type": "http", "method": "GET", "path": "/kit/healthz", "headers": headers}
    post_scope = {**scope, "method": "POST", "path": "/kit/send-message"}
    async with made.lifespan():
        started, *_ = await run_by_hand(made, scope, {"type": "http.request"})
        refused, *_ = await run_by_hand(made, post_scope, {"type": "http.request"})
        typed, *_ = await run_by_hand(made, post_scope, {"type": "http.request", "body": b"{}"})
    assert started["status"] == 200
    assert refused["status"] in (400, 422)
    assert (typed["status"] == 415) is bool(page)


async def test_a_request_whose_client_leaves_before_its_body_is_not_served() -> None:
    made = asgi.app(bridge())
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [(b"host", b"127.0.0.1")]}
    async with made.lifespan():
        assert await run_by_hand(made, scope, {"type": "http.disconnect"}) == []


async def test_an_answer_that_fails_after_its_head_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the ASGI server closes the connection."""

    async def fails(self: Any, *rest: Any) -> Any:
        raise ValueError("wrong")

    monkeypatch.setattr(StreamedResponse, "write_eof", fails)
    made = asgi.app(bridge())
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers}
    body = {"type": "http.request", "body": orjson.dumps({**HELLO, "stream": True})}
    async with made.lifespan():
        started, *rest = await run_by_hand(made, scope, body)
    assert started["status"] == 200
    assert all(each["type"] == "http.response.body" and each["more_body"] for each in rest)


@pytest.mark.parametrize("over", ["tcp", "unix"])
async def test_a_proxy_in_front_of_the_asgi_server_names_the_user(over: str, tmp_path: Path) -> None:
    """As docs/library.md says: without uvicorn's own reading of X-Forwarded-For, and by a word for a unix socket."""
    trusted = ["127.0.0.1"] if over == "tcp" else ["unix"]
    made = asgi.app(bridge(server={"auth": {"trusted_header": "X-User", "trusted_proxies": trusted}}))
    config = uvicorn.Config(made, log_level="warning", proxy_headers=False)
    server = uvicorn.Server(config)
    kind = socket.AF_INET if over == "tcp" else socket.AF_UNIX
    with socket.socket(kind) as sock:
        sock.bind(("127.0.0.1", 0) if over == "tcp" else str(tmp_path / "socket"))
        task = asyncio.create_task(server.serve([sock]))
        while not server.started:
            await asyncio.sleep(0.01)
        connector = aiohttp.TCPConnector() if over == "tcp" else aiohttp.UnixConnector(str(tmp_path / "socket"))
        host = f"127.0.0.1:{sock.getsockname()[1]}" if over == "tcp" else "localhost"
        headers = {"x-user": "ann", "x-forwarded-for": "203.0.113.7"}
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(f"http://{host}/v1/chat/completions", json=HELLO, headers=headers) as reply,
        ):
            status = reply.status
        server.should_exit = True
        await task
    assert status == 200
