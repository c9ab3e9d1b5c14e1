"""The bytes of responses: no second head, no body behind HEAD, the promised length, and readers who do not read."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import socket
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bridge.contract import Operation, registry
from bridge.contract.surface import shown_path
from bridge.engine.bridge import Bridge
from bridge.errors import BackendError, BridgeError, ErrorCode
from bridge.run.run import Run
from bridge.server.host.app import make_app
from bridge.server.requests.exchange import EXCHANGE
from bridge.server.requests.state import Hosting
from bridge.server.requests.writing import StreamedResponse
from tests.server.harness import Exchange, ask, bound_socket, fake_backend, post, serving

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CLOSING = "connection: close\r\n"
BODY = b"b" * 300_000
"""More than a connection buffers at once."""


def config(url: str = "", **more: Any) -> dict[str, Any]:
    backend = {"dialect": "openai-chat", "url": f"{url}/v1", **more.pop("backend", {})} if url else {"dialect": "demo"}
    route = {"dialect": "openai-chat", "path": "/v1", "backend": "it", **({"extras": "it"} if url else {})}
    return {"backends": {"it": backend}, "routes": [{**route, **more.pop("route", {})}], **more}


def request(method: str, path: str, body: Any = None, more: str = "") -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    typed = f"content-type: application/json\r\ncontent-length: {len(data)}\r\n" if data else ""
    return f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{typed}{more}\r\n".encode() + data


async def received(base: str, *requests: bytes) -> bytes:
    """Everything that comes for these requests on one connection, until that is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    data = bytearray()
    try:
        writer.write(b"".join(requests))
        async with asyncio.timeout(40):
            with contextlib.suppress(ConnectionError):
                while piece := await reader.read(2**20):
                    data += piece
    finally:
        writer.transport.abort()
    return bytes(data)


def heads(data: bytes) -> int:
    return data.count(b"HTTP/1.1 ")


def is_complete(data: bytes) -> bool:
    """Whether this is one whole response, as its own head says."""
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return len(body) == int(lengths[0].split(b":")[1]) if lengths else body.endswith(b"0\r\n\r\n")


# ---------------------------------------------------------------------- HEAD


@contextlib.asynccontextmanager
async def everything(folder: Path, url: str) -> AsyncIterator[str]:
    """Every dialect over HTTP at /NAME, durable where it can be, with extras, files, metrics and the page."""
    routes = []
    for name in registry.over_http():
        surface = registry.get(name).surface
        route = {"dialect": name, "path": f"/{name}", "backend": "it", "durable": any(e.durable for e in surface)}
        if any(each.operation is Operation.FORWARD for each in surface):
            route["extras"] = "far"
        routes.append(route)
    sections = {
        "server": {"secret": "a secret", "page": True},
        "backends": {"it": {"dialect": "demo"}, "far": {"dialect": "openai-chat", "url": url}},
        "routes": routes,
        "stores": {"history": "sqlite:///:memory:", "attachments": f"file://{folder}/files"},
    }
    async with serving(sections) as base:
        yield base


async def uploaded(base: str, image: bytes) -> str:
    """The path and query of the signed URL of an image."""
    form = aiohttp.FormData()
    form.add_field("threadId", "00000000-0000-4000-8000-000000000001")
    form.add_field("file", image, filename="a.png", content_type="image/png")
    async with aiohttp.ClientSession() as session, session.post(f"{base}/agent-runs/attachments", data=form) as reply:
        url: str = (await reply.json())["attachment"]["url"]
    return url.removeprefix(base)


class _Anything(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return {"version": "v1beta"}.get(key, "x")


def endpoints() -> list[tuple[str, str]]:
    """Path and further header lines of all that GET may ask for."""
    found = [(path, "") for path in ("/", "/_page/page.js", "/_page/nothing", "/_page/state", "/_page/health")]
    found += [(path, "") for path in ("/healthz", "/readyz", "/metrics", "/nowhere", "/_page/dialects/ag-ui.js")]
    for name in registry.over_http():
        for each in registry.get(name).surface:
            if each.method == "GET":
                path = shown_path(each.path).format_map(_Anything())
                found.append((f"/{name}{path}", f"{each.header}: x\r\n" if each.header else ""))
    return found


async def test_head_gets_no_body_from_any_endpoint(tmp_path: Path) -> None:
    """The next answer of the connection follows its head at once."""
    image = b"\x89PNG\r\n\x1a\n" + b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfalse"
    async with fake_backend() as backend, everything(tmp_path, backend.url) as base:
        backend.answers(200, b'{"data":[]}')
        served = 0
        for path, more in [*endpoints(), (await uploaded(base, image), "")]:
            whole = await received(base, request("GET", path, more=more + CLOSING)) if "stream" not in path else b""
            data = await received(base, request("HEAD", path, more=more), request("GET", "/healthz", more=CLOSING))
            head, _, rest = data.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 "), path
            assert rest.startswith(b"HTTP/1.1 200 OK\r\n"), path
            assert heads(data) == 2, path
            if head.startswith(b"HTTP/1.1 200"):
                served += 1
                assert head.split(b"\r\n")[0] == whole.split(b"\r\n")[0], path
    assert served > 12


# ---------------------------------------------------------------------- after the head


async def raises(http: web.Request, error: BaseException) -> web.StreamResponse:
    out = StreamedResponse(headers={"content-type": "text/plain"})
    await out.prepare(http)
    await out.write(b"half")
    raise error


async def times_out(http: web.Request) -> web.StreamResponse:
    async with asyncio.timeout(0.05):
        return await _waits(http)


async def _waits(http: web.Request) -> web.StreamResponse:
    out = StreamedResponse(headers={"content-length": "10"})
    await out.prepare(http)
    await out.write(b"half")
    await asyncio.sleep(60)
    return out


async def is_canceled(http: web.Request) -> web.StreamResponse:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(0.05, task.cancel)
    return await _waits(http)


async def returns_another(http: web.Request) -> web.StreamResponse:
    out = StreamedResponse()
    await out.prepare(http)
    await out.write(b"half")
    return web.json_response({"second": "answer"})


async def begins_another(http: web.Request) -> web.StreamResponse:
    out, second = StreamedResponse(), web.Response(body=b"second answer")
    await out.prepare(http)
    await second.prepare(http)
    await second.write_eof()
    return out


async def does_not_end(http: web.Request) -> web.StreamResponse:
    out = StreamedResponse()
    await out.prepare(http)
    await out.write(b"half")
    return out


def writes(promised: int, *pieces: bytes) -> Callable[[web.Request], Any]:
    async def handle(http: web.Request) -> web.StreamResponse:
        out = StreamedResponse(headers={"content-length": str(promised)})
        await out.prepare(http)
        for piece in pieces:
            await out.write(piece)
        await out.write_eof()
        return out

    return handle


def failing(error: BaseException) -> Callable[[web.Request], Any]:
    async def handle(http: web.Request) -> web.StreamResponse:
        return await raises(http, error)

    return handle


HANDLERS: dict[str, Callable[[web.Request], Any]] = {
    "a refusal": failing(BridgeError("no")),
    "a failure of a backend": failing(BackendError("late", code=ErrorCode.BACKEND_TIMEOUT)),
    "an error of ours": failing(ValueError("a secret")),
    "a lost connection to a store": failing(ConnectionRefusedError("no store")),
    "a page of aiohttp": failing(web.HTTPNotFound()),
    "a redirect": failing(web.HTTPFound("/elsewhere")),
    "a timeout": failing(TimeoutError()),
    "time": times_out,
    "canceled": is_canceled,
    "another response": returns_another,
    "another head": begins_another,
    "no end": does_not_end,
    "too short": writes(10, b"half"),
    "too long": writes(3, b"half"),
    "too long at its end": writes(4, b"half", b"more"),
}


@contextlib.asynccontextmanager
async def hosting(handler: Callable[[web.Request], Any], *, cancels: bool = True) -> AsyncIterator[str]:
    """The application with one more handler, at /own."""
    app = make_app(Bridge.from_config({**config(), "stores": {"history": "off"}}), Hosting(cancels=cancels))
    app.router.add_get("/own", handler)
    runner = web.AppRunner(app, handler_cancellation=cancels)
    await runner.setup()
    listening = bound_socket()
    await web.SockSite(runner, listening).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("name", HANDLERS)
async def test_a_failure_after_the_head_closes_the_connection(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(HANDLERS[name]) as base:
        data = await received(base, request("GET", "/own"), request("GET", "/healthz", more=CLOSING))
    assert heads(data) == 1
    assert not is_complete(data)
    assert b"second" not in data
    assert "Unhandled exception" not in caplog.text


async def test_a_failure_before_the_head_is_a_response() -> None:
    async def fails(http: web.Request) -> web.StreamResponse:
        raise ConnectionRefusedError("no store")

    async with hosting(fails) as base:
        data = await received(base, request("GET", "/own", more=CLOSING))
    assert data.startswith(b"HTTP/1.1 500 ")
    assert is_complete(data)


@pytest.mark.parametrize("size", [0, 10, 47 * 1024, 48 * 1024 + 1, 3 * 2**20])
async def test_whole_bodies_of_any_size_arrive(size: int) -> None:
    async def whole(http: web.Request) -> web.StreamResponse:
        return web.Response(body=b"x" * size, headers={"x-own": "yes"})

    async with hosting(whole) as base:
        reply = await ask("GET", f"{base}/own")
        assert (reply.status, reply.body, reply.headers["x-own"]) == (200, b"x" * size, "yes")
        assert reply.headers["content-length"] == str(size)
        data = await received(base, request("HEAD", "/own"), request("GET", "/healthz", more=CLOSING))
        assert heads(data) == 2


STREAMS = {
    "a run": ("/plain/v1", {"dialect": "openai-chat", "path": "/plain/v1"}),
    "a durable run": ("/durable/v1", {"dialect": "openai-chat", "path": "/durable/v1", "durable": True}),
}


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("error", [BridgeError("no"), ValueError("wrong"), ConnectionRefusedError("no store")])
async def test_a_stream_that_cannot_be_ended_is_no_whole_one(
    kind: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: StreamedResponse, data: bytes = b"") -> None:
        raise error

    monkeypatch.setattr(StreamedResponse, "write_eof", fails)
    path, route = STREAMS[kind]
    async with serving({"backends": {"it": {"dialect": "demo"}}, "routes": [{**route, "backend": "it"}]}) as base:
        data = await received(base, request("POST", f"{path}/chat/completions", {**CHAT, "stream": True}))
    assert heads(data) == 1
    assert data.startswith(b"HTTP/1.1 200 ")
    assert not is_complete(data)


async def test_a_lost_connection_to_a_store_is_no_canceled_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(self: Run) -> Any:
        raise ConnectionRefusedError("no store")

    caplog.set_level(logging.INFO, "bridge.access")
    async with serving(config()) as base:
        monkeypatch.setattr(Run, "read", broken)
        whole = await post(f"{base}/v1/chat/completions", CHAT)
        streamed = await post(f"{base}/v1/chat/completions", {**CHAT, "stream": True})
    assert (whole.status, streamed.status) == (500, 500)
    lines = [record.facts for record in caplog.records if record.name == "bridge.access"]
    assert [line["status"] for line in lines] == ["internal", "internal"]


async def test_a_lost_connection_to_a_store_ends_a_stream_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    read, reads = Run.read, 0

    async def broken(self: Run) -> Any:
        nonlocal reads
        reads += 1
        if reads > 1:
            raise ConnectionRefusedError("no store")
        return await read(self)

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(b'data: {"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n')
        await exchange.seen.gone.wait()

    async with fake_backend() as backend, serving(config(backend.url)) as base:
        monkeypatch.setattr(Run, "read", broken)
        backend.plays(script)
        reply = await post(f"{base}/v1/chat/completions", {**CHAT, "stream": True})
    assert b'"error"' in reply.body
    assert b"no store" not in reply.body


# ---------------------------------------------------------------------- forwarded answers


@pytest.mark.parametrize("length", ["content-length: 100000\r\n", "transfer-encoding: chunked\r\n"])
async def test_a_forwarded_answer_that_takes_too_long_is_broken_off(length: str) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.raw(f"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\n{length}\r\n".encode())
        with contextlib.suppress(ConnectionError):
            while not exchange.seen.gone.is_set():
                await exchange.raw(b"1\r\nx\r\n" if "chunked" in length else b"x")
                await asyncio.sleep(0.05)

    async with fake_backend() as backend, serving(config(backend.url, backend={"timeouts": {"total": "1s"}})) as base:
        backend.plays(script)
        data = await received(base, request("POST", "/v1/audio/speech", {"input": "x"}))
    assert (heads(data), is_complete(data)) == (1, False)


def deflated(data: bytes) -> bytes:
    return zlib.compress(data)


@pytest.mark.parametrize(
    ("encoding", "packed"), [("gzip", gzip.compress), ("deflate", deflated), ("x-none", bytes), ("identity", bytes)]
)
@pytest.mark.parametrize("body", [b"[]", b'{"data":["' + b"x" * 200_000 + b'"]}'], ids=["small", "large"])
async def test_a_forwarded_answer_has_the_length_of_what_is_sent(
    encoding: str, packed: Callable[[bytes], bytes], body: bytes
) -> None:
    """Whatever the backend has packed, the next answer of the connection is in its place."""
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.answers(200, packed(body), "application/json", content_encoding=encoding)
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            for _ in range(2):
                async with session.post(f"{base}/v1/embeddings", json={"input": "x"}) as reply:
                    assert await reply.read() == body
                    assert reply.headers.get("content-encoding") == (encoding if packed is bytes else None)
                async with session.get(f"{base}/healthz") as reply:
                    assert await reply.json() == {"status": "ok"}


# ---------------------------------------------------------------------- readers who do not read


async def answered(body: bytes, exchange: Exchange) -> None:
    with contextlib.suppress(ConnectionError):
        await exchange.answer(200, body, "application/json")


def completion(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()


LARGE = 24 * 2**20
UNREAD = {
    "a whole answer": ("/v1/chat/completions", CHAT),
    "an answer of its own words": ("/same/chat/completions", CHAT),
    "a durable answer": ("/durable/chat/completions", CHAT),
    "a forwarded answer": ("/v1/embeddings", {"input": "x"}),
}


def large_answers(url: str) -> dict[str, Any]:
    sections = config(url)
    more: list[dict[str, Any]] = [{"path": "/same", "passthrough": True}, {"path": "/durable", "durable": True}]
    sections["routes"] += [{"dialect": "openai-chat", "backend": "it", **each} for each in more]
    return sections


@pytest.mark.parametrize("kind", UNREAD)
async def test_a_client_that_does_not_read_loses_its_place(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its slot is taken while its answer is written, and free once `slow_reader` has passed."""
    caplog.set_level(logging.INFO, "bridge.access")
    path, body = UNREAD[kind]
    server = {"slow_reader": "500ms", "limits": {"concurrent": 1, "queue": 0}}
    async with fake_backend() as backend, serving({**large_answers(backend.url), "server": server}) as base:
        backend.plays(lambda exchange: answered(completion("x" * LARGE), exchange))
        reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]), limit=1024)
        writer.write(request("POST", path, body))
        async with asyncio.timeout(30):
            await reader.readexactly(15)
            assert (await post(base + path, body)).status == 503
            backend.plays(lambda exchange: answered(completion("short"), exchange))
            while (await post(base + path, body)).status == 503:
                await asyncio.sleep(0.05)
        writer.transport.abort()
    facts = [record.facts for record in caplog.records if record.name == "bridge.access"]
    assert {line["status"] for line in facts} & {"canceled", "left"}


async def test_an_event_of_many_megabytes_may_take_longer_than_the_limit() -> None:
    """The limit is that of a piece: who reads on is not cut, however large the event."""
    event = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 12 * 2**20 + b'"}}]}\n\n'
    sections = {**config(), "server": {"slow_reader": "1s"}}
    async with fake_backend() as backend:
        backend.streams(event, b"data: [DONE]\n\n")
        sections["backends"] = {"it": {"dialect": "openai-chat", "url": backend.url, "max_event": "32MiB"}}
        async with serving(sections) as base:
            client = socket.create_connection(("127.0.0.1", int(base.rpartition(":")[2])))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)  # so that the system does not read for it
            reader, writer = await asyncio.open_connection(sock=client, limit=1024)
            writer.write(request("POST", "/v1/chat/completions", {**CHAT, "stream": True}, CLOSING))
            data = bytearray()
            async with asyncio.timeout(40):
                while piece := await reader.read(2**16):
                    data += piece
                    await asyncio.sleep(0.012)
            writer.close()
    assert data.endswith(b"0\r\n\r\n")
    assert len(data) > len(event)


async def test_a_client_that_reads_slowly_gets_its_answer_at_a_stop() -> None:
    """The drain waits for it, as for a stream."""
    async with fake_backend() as backend:
        backend.answers(200, completion("x" * 8 * 2**20), "application/json")
        stack = contextlib.AsyncExitStack()
        base = await stack.enter_async_context(serving({**config(backend.url), "server": {"drain": "60s"}}))
        reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]), limit=1024)
        writer.write(request("POST", "/v1/chat/completions", CHAT))
        begun = await reader.readexactly(15)
        stopping = asyncio.create_task(stack.aclose())
        await asyncio.sleep(1.5)
        assert not stopping.done()
        async with asyncio.timeout(40):
            data = begun + await reader.read(-1)
            await stopping
        writer.close()
    assert is_complete(data)


async def test_the_drain_ends_and_cuts_an_answer_that_is_not_read() -> None:
    async with fake_backend() as backend:
        backend.answers(200, completion("x" * LARGE), "application/json")
        stack = contextlib.AsyncExitStack()
        base = await stack.enter_async_context(serving({**config(backend.url), "server": {"drain": "300ms"}}))
        reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]), limit=1024)
        writer.write(request("POST", "/v1/chat/completions", CHAT))
        data = await reader.readexactly(15)
        async with asyncio.timeout(20):
            await stack.aclose()
            with contextlib.suppress(ConnectionError):
                data += await reader.read(-1)
        writer.close()
    assert heads(data) == 1
    assert not is_complete(data)


async def test_what_a_request_holds_is_left_when_its_answer_is_written() -> None:
    held: list[str] = []

    class Place:
        def __init__(self, name: str) -> None:
            self.name = name

        async def enter(self) -> None:
            held.append(self.name)

        def leave(self) -> None:
            held.remove(self.name)

    async def own(http: web.Request) -> web.StreamResponse:
        await http[EXCHANGE].hold(Place("one"))
        await http[EXCHANGE].hold(Place("two"))
        assert held == ["one", "two"]
        if "fail" in http.query:
            raise BridgeError("no")
        return web.Response(body=BODY)

    async with hosting(own) as base:
        assert (await ask("GET", f"{base}/own")).body == BODY
        assert held == []
        assert (await ask("GET", f"{base}/own?fail=1")).status == 500
        assert held == []


def test_nobody_else_writes_a_stream() -> None:
    """So that each of them is aborted where it fails: `web.StreamResponse` is made in `writing` alone."""
    root = Path(__file__).parents[2] / "bridge"
    made = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "web.StreamResponse(" in path.read_text(encoding="utf-8")
    }
    assert made == set()
