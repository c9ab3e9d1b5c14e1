"""What every route gets: keys, limits, CORS, ids, sizes, timeouts, cancellation, drain. Shown with the toy dialect."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import socket

import aiohttp
import pytest
from aiohttp import web

from bridge.engine.bridge import Bridge
from bridge.model import UsageReported
from bridge.run.run import Run
from bridge.server import make_app
from tests.server.harness import Exchange, ask, fake_backend, free_port, post, serving

pytestmark = pytest.mark.usefixtures("toy")
SAID = b'data: {"say":"Hello"}\n\n'
END = b'data: {"end":"stop"}\n\n'


def config(url: str | None = None, backend: dict | None = None, **server: object) -> dict:
    section = {"dialect": "toy", "url": url, **(backend or {})} if url else {"dialect": "demo", **(backend or {})}
    return {
        "server": server,
        "backends": {"it": section},
        "routes": [{"dialect": "toy", "path": "/toy", "backend": "it"}],
    }


# ---------------------------------------------------------------------- who may come in


async def test_keys_open_their_routes_and_no_others() -> None:
    keys = [
        {"name": "all", "key": "secret-all"},
        {"name": "hashed", "key_sha256": hashlib.sha256(b"secret-hashed").hexdigest(), "routes": ["/toy"]},
        {"name": "elsewhere", "key": "secret-elsewhere", "routes": ["/other"]},
    ]
    setup = config(auth={"keys": keys})
    setup["routes"].append({"dialect": "toy", "path": "/other", "backend": "it"})
    async with serving(setup) as base:
        url = f"{base}/toy/ask"
        assert (await post(url, {"ask": "x"})).status == 401
        assert (await post(url, {"ask": "x"}, authorization="Bearer wrong")).status == 401
        assert (await post(url, {"ask": "x"}, authorization="bearer secret-all")).status == 200
        assert (await post(url, {"ask": "x"}, x_api_key="secret-hashed")).status == 200
        refused = await post(url, {"ask": "x"}, x_api_key="secret-elsewhere")
        assert refused.status == 403
        assert "secret" not in refused.body.decode()
        assert (await ask("GET", f"{base}/healthz")).status == 200


# ---------------------------------------------------------------------- headers


async def test_cors_preflight_and_answer() -> None:
    async with serving(config()) as base:
        origin = {"origin": "https://app.example"}
        asks = {"access-control-request-method": "POST", "access-control-request-headers": "content-type, x-mine"}
        preflight = await ask("OPTIONS", f"{base}/toy/ask", headers={**origin, **asks})
        assert preflight.status == 200
        assert preflight.headers["access-control-allow-origin"] == "https://app.example"
        assert preflight.headers["access-control-allow-headers"] == "content-type, x-mine"
        answer = await post(f"{base}/toy/ask", {"ask": "x"}, **origin)
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert "x-bridge-lost" in answer.headers["access-control-expose-headers"].lower()


async def test_cors_of_other_origins_is_refused_when_origins_are_named() -> None:
    async with serving(config(cors={"origins": ["https://mine.example"]})) as base:
        other = await post(f"{base}/toy/ask", {"ask": "x"}, origin="https://other.example")
        mine = await post(f"{base}/toy/ask", {"ask": "x"}, origin="https://mine.example")
    assert "access-control-allow-origin" not in other.headers
    assert mine.headers["access-control-allow-origin"] == "https://mine.example"


async def test_request_ids_travel_both_ways() -> None:
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.streams(SAID, END)
        given = await post(f"{base}/toy/ask", {"ask": "x"}, x_request_id="mine-1")
        assert given.headers["x-request-id"] == "mine-1"
        assert backend.seen[0].headers["x-request-id"] == "mine-1"
        odd = await post(f"{base}/toy/ask", {"ask": "x"}, x_request_id="has spaces")
        assert len(odd.headers["x-request-id"]) == 32
        error = await ask("GET", f"{base}/toy/nix", headers={"x-request-id": "mine-2"})
        assert error.headers["x-request-id"] == "mine-2"


async def test_only_allowed_headers_reach_the_backend() -> None:
    section = {"headers": {"X-Team": "bridge"}, "forward_headers": ["X-Trace"], "api_key": "backend-key"}
    async with fake_backend() as backend, serving(config(backend.url, section)) as base:
        backend.streams(SAID, END)
        await post(
            f"{base}/toy/ask", {"ask": "x"}, x_trace="t1", x_other="o", authorization="Bearer clients", cookie="c"
        )
        headers = backend.seen[0].headers
    assert (headers["x-team"], headers["x-trace"]) == ("bridge", "t1")
    assert headers["authorization"] == "Bearer backend-key"
    assert "x-other" not in headers
    assert "cookie" not in headers


# ---------------------------------------------------------------------- limits


async def test_a_body_over_the_limit_is_refused_in_the_dialects_shape() -> None:
    async with serving(config(max_body="1KiB")) as base:
        reply = await post(f"{base}/toy/ask", {"ask": "x" * 2000})
    assert reply.status == 413
    assert reply.json == {"wrong": "The request body is longer than the limit of 1024 bytes (server.max_body)."}


async def test_more_runs_than_allowed_wait_or_are_refused() -> None:
    release = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(SAID)
        await release.wait()
        await exchange.send(END)
        await exchange.end()

    async with (
        fake_backend() as backend,
        serving(config(backend.url, limits={"concurrent": 1, "queue": 1})) as base,
    ):
        backend.plays(script)
        url = f"{base}/toy/ask"
        first = asyncio.create_task(post(url, {"ask": "1"}))
        while not backend.seen:
            await asyncio.sleep(0.01)
        second = asyncio.create_task(post(url, {"ask": "2"}))
        await asyncio.sleep(0.1)
        third = await post(url, {"ask": "3"})
        assert (third.status, third.headers["retry-after"]) == (503, "1")
        assert len(backend.seen) == 1
        release.set()
        assert (await first).body == (await second).body == SAID + END


# ---------------------------------------------------------------------- cancellation


@contextlib.asynccontextmanager
async def unprepared_server(url: str):
    """The application in a server that was not told to cancel handlers, as somebody else's would be."""
    bridge = Bridge.from_config(config(url))
    runner = web.AppRunner(make_app(bridge), handler_cancellation=False, access_log=None, shutdown_timeout=1)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("server", ["ours", "somebody else's"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("moment", ["before the head", "before the first event", "between events"])
async def test_a_client_that_leaves_stops_the_backend(server: str, stream: bool, moment: str) -> None:
    reached = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        if moment != "before the head":
            await exchange.head()
        if moment == "between events":
            await exchange.send(SAID)
        reached.set()
        await exchange.left()

    async with fake_backend() as backend:
        backend.plays(script)
        serve = serving(config(backend.url)) if server == "ours" else unprepared_server(backend.url)
        async with serve as base:
            client = asyncio.create_task(post(f"{base}/toy/ask", {"ask": "x", "stream": stream}))
            await reached.wait()
            await asyncio.sleep(0.05)
            client.cancel()
            await asyncio.wait_for(backend.seen[0].gone.wait(), 1)


async def test_a_client_that_leaves_while_a_write_is_blocked_stops_the_backend() -> None:
    piece = b'data: {"say":"' + b"x" * 60_000 + b'"}\n\n'

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        with contextlib.suppress(ConnectionError):
            for _ in range(2_000):
                await exchange.send(piece)

    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.plays(script)
        port = int(base.rpartition(":")[2])
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b'POST /toy/ask HTTP/1.1\r\nhost: localhost\r\ncontent-length: 11\r\n\r\n{"ask":"x"}')
        await asyncio.sleep(0.5)
        assert not backend.seen[0].gone.is_set()
        client.close()
        await asyncio.wait_for(backend.seen[0].gone.wait(), 1)


async def test_what_one_read_brought_leaves_in_one_write() -> None:
    """32 events that arrive together are one HTTP chunk of the answer, not 32."""

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(SAID)
        await asyncio.sleep(0.1)
        await exchange.send(b"".join(b'data: {"say":"%d"}\n\n' % n for n in range(32)))
        await asyncio.sleep(0.1)
        await exchange.send(END)
        await exchange.end()

    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.plays(script)
        async with aiohttp.ClientSession() as session, session.post(f"{base}/toy/ask", json={"ask": "x"}) as response:
            chunks = [piece async for piece, ended in response.content.iter_chunks() if ended]
    assert [chunk.count(b"data: ") for chunk in chunks] == [1, 32, 1]


async def test_a_client_that_does_not_read_stops_the_reading() -> None:
    """Backpressure: what the backend can send is bounded by the buffers between, not by memory."""
    sent = 0

    async def script(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.head()
        with contextlib.suppress(ConnectionError):
            for _ in range(10_000):
                await exchange.send(b'data: {"say":"' + b"x" * 10_000 + b'"}\n\n')
                sent += 10_000

    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.plays(script)
        port = int(base.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.sendall(b'POST /toy/ask HTTP/1.1\r\nhost: localhost\r\ncontent-length: 11\r\n\r\n{"ask":"x"}')
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.3)
        assert 0 < sent < 40_000_000


# ---------------------------------------------------------------------- time


@pytest.mark.parametrize(
    ("timeouts", "moment", "status"),
    [
        ({"first_event": "200ms"}, "head", 504),
        ({"first_event": "200ms"}, "event", 504),
        ({"idle": "200ms"}, "idle", 200),
        ({"total": "300ms", "idle": "10s"}, "idle", 200),
        ({"total": "300ms"}, "head", 504),
    ],
)
async def test_a_silent_backend_is_given_up(timeouts: dict, moment: str, status: int) -> None:
    async def script(exchange: Exchange) -> None:
        if moment != "head":
            await exchange.head()
        if moment == "idle":
            await exchange.send(SAID)
        await exchange.left()

    async with fake_backend() as backend, serving(config(backend.url, {"timeouts": timeouts})) as base:
        backend.plays(script)
        reply = await asyncio.wait_for(post(f"{base}/toy/ask", {"ask": "x"}), 40)
        assert reply.status == status
        assert b"wrong" in reply.body
        await asyncio.wait_for(backend.seen[0].gone.wait(), 1)


async def test_a_silent_stream_is_kept_warm() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(SAID)
        await asyncio.sleep(0.5)
        await exchange.send(END)
        await exchange.end()

    async with fake_backend() as backend, serving(config(backend.url, keepalive="100ms")) as base:
        backend.plays(script)
        reply = await post(f"{base}/toy/ask", {"ask": "x"})
    assert 2 <= reply.body.count(b": keep-alive\n\n") <= 5
    assert reply.body.replace(b": keep-alive\n\n", b"") == SAID + END


async def test_an_agent_in_this_process_that_hangs_is_given_up() -> None:
    async with serving(config(backend={"timeouts": {"idle": "200ms"}})) as base:
        reply = await asyncio.wait_for(post(f"{base}/toy/ask", {"ask": "slow"}), 40)
    assert b'"wrong":"The backend sent nothing for 0.2 s (timeouts.idle)."' in reply.body


# ---------------------------------------------------------------------- tries


async def test_a_failed_try_is_repeated_until_content_came() -> None:
    async def script(exchange: Exchange) -> None:
        if len(backend.seen) < 3:
            await exchange.answer(503, b"{}", retry_after="0")
        else:
            await exchange.stream(SAID, END)

    retry = {"retry": {"attempts": 3, "backoff": "10ms"}}
    async with fake_backend() as backend, serving(config(backend.url, retry)) as base:
        backend.plays(script)
        assert (await post(f"{base}/toy/ask", {"ask": "x"})).body == SAID + END
        assert len(backend.seen) == 3


async def test_nothing_is_repeated_after_content_or_unasked() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(SAID)
        exchange.reset()

    async with fake_backend() as backend, serving(config(backend.url, {"retry": {"attempts": 3}})) as base:
        backend.plays(script)
        assert (await post(f"{base}/toy/ask", {"ask": "x"})).body.count(b"Hello") == 1
        assert len(backend.seen) == 1
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.answers(503, b"{}")
        assert (await post(f"{base}/toy/ask", {"ask": "x"})).status == 503, "the status alone says overloaded"
        assert len(backend.seen) == 1


async def test_a_kept_alive_connection_that_the_backend_closed_is_replaced_at_once() -> None:
    """openai-chat.md, section 8: no byte came on a reused connection, so one fresh one is tried."""

    async def script(exchange: Exchange) -> None:
        if len(backend.seen) == 2:
            exchange.reset()
        else:
            await exchange.stream(SAID, END)

    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.plays(script)
        for _ in range(2):
            assert (await post(f"{base}/toy/ask", {"ask": "x"})).body == SAID + END
        assert (len(backend.seen), backend.connections) == (3, 2)


async def test_connections_to_the_backend_are_used_again() -> None:
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.streams(SAID, END)
        for _ in range(5):
            await post(f"{base}/toy/ask", {"ask": "x"})
        assert backend.connections == 1


# ---------------------------------------------------------------------- what backends answer


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (302, b"", "text/html"),
        (500, b"<html>", "text/html"),
        (404, b"", "text/plain"),
    ],
)
async def test_refusals_are_errors_with_a_status(status: int, body: bytes, content_type: str) -> None:
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.answers(status, body, content_type, location="http://127.0.0.1:1/")
        reply = await post(f"{base}/toy/ask", {"ask": "x"})
        assert reply.status == 502
        assert len(backend.seen) == 1


async def test_a_backend_that_cannot_be_reached() -> None:
    async with serving(config(f"http://127.0.0.1:{free_port()}")) as base:
        reply = await post(f"{base}/toy/ask", {"ask": "x"})
    assert (reply.status, reply.json) == (502, {"wrong": "The backend is not available: the connection was refused."})


@pytest.mark.parametrize("whole", [True, False])
async def test_an_answer_over_the_limit_ends_the_run(whole: bool) -> None:
    async def script(exchange: Exchange) -> None:
        with contextlib.suppress(ConnectionError):
            await exchange.head(content_type="application/json" if whole else "text/event-stream")
            await exchange.send(b"{" if whole else SAID)
            for _ in range(200):
                await exchange.send(b'"' + b"x" * 1000 if whole else b"data: " + b"x" * 1000)
            await exchange.left()

    async with fake_backend() as backend, serving(config(backend.url, {"max_event": "10KiB"})) as base:
        backend.plays(script)
        reply = await post(f"{base}/toy/ask", {"ask": "x"})
        assert b"the limit of" in reply.body
        await asyncio.wait_for(backend.seen[0].gone.wait(), 1)


async def test_a_backend_that_does_not_speak_http() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.raw(b"\x00\x01garbage\r\n\r\n")
        exchange.close()

    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.plays(script)
        reply = await post(f"{base}/toy/ask", {"ask": "x"})
    assert (reply.status, reply.json) == (502, {"wrong": "The backend's answer is not HTTP."})


async def test_a_stream_with_the_wrong_type_is_still_a_stream() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head(content_type="application/json")
        await exchange.send(b": first a comment\n\n" + SAID)
        await exchange.send(END)
        await exchange.end()

    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.plays(script)
        assert (await post(f"{base}/toy/ask", {"ask": "x"})).body == SAID + END


# ---------------------------------------------------------------------- routes, logs, the end


async def test_models_choose_their_backend_and_unknown_ones_are_not_found() -> None:
    async with fake_backend() as backend:
        backend.streams(SAID, END)
        setup = config(backend.url)
        setup["backends"]["demo"] = {"dialect": "demo"}
        setup["routes"][0].pop("backend")
        setup["routes"][0]["models"] = {"friday": "demo"}
        async with serving(setup) as base:
            # The toy never names a model, and the route has no pattern for "none".
            reply = await post(f"{base}/toy/ask", {"ask": "x"})
            assert reply.status == 404
            assert "friday" in reply.json["wrong"]
            assert backend.seen == []


async def test_passthrough_keeps_every_byte_of_the_payloads() -> None:
    odd = b'data: {"say":"Hel",  "extra": [1, 2]}\n\n'
    async with fake_backend() as backend:
        setup = config(backend.url)
        setup["routes"][0]["passthrough"] = True
        async with serving(setup) as base:
            backend.streams(odd, END)
            body = b'{ "ask":"x",   "unknown": 1 }'
            reply = await post(f"{base}/toy/ask", body)
            assert reply.body == odd + END
            assert backend.seen[0].body == body
            backend.streams(odd)
            cut = await post(f"{base}/toy/ask", body)
            assert cut.body.startswith(odd)
            assert b'"wrong"' in cut.body


async def test_one_log_line_for_each_run(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bridge.access"):
        async with serving(config()) as base:
            await post(f"{base}/toy/ask", {"ask": "reasoning"}, x_request_id="log-1")
            await post(f"{base}/toy/ask", {"ask": 1})
    lines = [record.facts for record in caplog.records if record.name == "bridge.access"]
    assert [line["status"] for line in lines] == ["stop", "invalid_request"]
    assert lines[0]["request_id"] == "log-1"
    assert (lines[0]["route"], lines[0]["front"], lines[0]["back"]) == ("/toy", "toy", "it")
    assert (lines[0]["tokens_in"], lines[0]["tokens_out"]) == (12, 34)
    assert lines[0]["first_ms"] <= lines[0]["total_ms"]


async def test_who_leaves_with_the_whole_answer_has_canceled_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Putting a run away may take a moment, in which the client closes its connection."""
    close = Run.close

    async def closed(run: Run) -> None:
        await close(run)
        raise asyncio.CancelledError

    monkeypatch.setattr(Run, "close", closed)
    with caplog.at_level(logging.INFO, "bridge.access"):
        async with serving(config()) as base:
            assert (await post(f"{base}/toy/ask", {"ask": "Hi"})).status == 200
    lines = [record.facts for record in caplog.records if record.name == "bridge.access"]
    assert [line["status"] for line in lines] == ["stop"]


async def test_an_open_stream_may_finish_while_the_server_stops() -> None:
    go_on = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(SAID)
        await go_on.wait()
        await exchange.send(END)
        await exchange.end()

    async with fake_backend() as backend:
        backend.plays(script)
        async with contextlib.AsyncExitStack() as stack:
            base = await stack.enter_async_context(serving(config(backend.url, drain="5s")))
            client = asyncio.create_task(post(f"{base}/toy/ask", {"ask": "x"}))
            while not backend.seen:
                await asyncio.sleep(0.01)
            asyncio.get_running_loop().call_later(0.2, go_on.set)
        assert (await client).body == SAID + END


async def test_a_stream_that_does_not_finish_in_time_is_told_so() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.send(SAID)
        await exchange.left()

    async with fake_backend() as backend:
        backend.plays(script)
        async with contextlib.AsyncExitStack() as stack:
            base = await stack.enter_async_context(serving(config(backend.url, drain="300ms")))
            client = asyncio.create_task(post(f"{base}/toy/ask", {"ask": "x"}))
            while not backend.seen:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
        assert (await client).body == SAID + b'data: {"wrong":"The server is shutting down; the run was aborted."}\n\n'


async def test_five_hundred_requests_leave_nothing_behind() -> None:
    async with fake_backend() as backend, serving(config(backend.url)) as base:
        backend.streams(SAID, END)
        before = len(asyncio.all_tasks())
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=50)) as session:

            async def one() -> bytes:
                async with session.post(f"{base}/toy/ask", json={"ask": "x"}) as response:
                    return await response.read()

            bodies = await asyncio.gather(*(one() for _ in range(500)))
        assert set(bodies) == {SAID + END}
        await asyncio.sleep(0.2)
        # What is left belongs to kept-alive connections to the backend: the fake's tasks, not the bridge's.
        assert len(asyncio.all_tasks()) - before <= 2 * backend.connections


async def test_the_log_line_names_what_this_request_lost(caplog: pytest.LogCaptureFixture) -> None:
    """The same as its header, for each request apart: the next one loses nothing."""
    routes = [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}]
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    async with fake_backend("openai-chat") as backend:
        backend.says("Hello", UsageReported(1, 1))
        backends = {"it": {"dialect": "openai-chat", "url": backend.url}}
        async with serving({"backends": backends, "routes": routes}) as base:
            with caplog.at_level(logging.INFO, "bridge.access"):
                told = await post(f"{base}/v1/chat/completions", body, x_session_id="s1")
                plain = await post(f"{base}/v1/chat/completions", body)
    assert told.headers["x-bridge-lost"] == "thread_id"
    assert "x-bridge-lost" not in plain.headers
    assert [r.__dict__["facts"].get("lost") for r in caplog.records if r.name == "bridge.access"] == ["thread_id", None]
