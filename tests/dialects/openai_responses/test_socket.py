"""Requests over a WebSocket: served as over HTTP, one after the other, with a memory of the last answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import openai
import pytest

from bridge.server.requests.bodies import FREE
from bridge.testing import FakeBackend, fake_backend
from tests.server.harness import ask, serving
from tests.server.test_limits import Busy, serving_app, until
from tests.server.test_metrics import of, read

BACKS = ("openai-chat", "anthropic-messages", "openai-responses")
LAST = {"response.completed", "response.failed", "response.incomplete", "error"}


def setup(backend: FakeBackend, name: str = "openai-chat", **more: Any) -> dict[str, Any]:
    route = {"dialect": "openai-responses", "path": "/v1", "backend": "it", **more.pop("route", {})}
    return {
        "backends": {"it": {"dialect": name, "url": f"{backend.url}/v1"}},
        "routes": [route],
        "stores": {"history": "off"},
        **more,
    }


@contextlib.asynccontextmanager
async def connected(base: str, **headers: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{base}/v1/responses", headers=headers, max_msg_size=0) as socket,
    ):
        yield socket


def create(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "response.create", "model": "m", "store": False, "input": [said(text)], **fields}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


async def answer(socket: aiohttp.ClientWebSocketResponse) -> list[dict[str, Any]]:
    """The events of one answer."""
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] not in LAST:
        events.append(await asyncio.wait_for(socket.receive_json(), 10))
    return events


@pytest.mark.parametrize("back", BACKS)
async def test_two_turns(back: str) -> None:
    async with fake_backend(back) as backend, serving(setup(backend, back)) as base, connected(base) as socket:
        backend.says("It is sunny.")
        await socket.send_json(create("Weather?"))
        first = await answer(socket)
        assert [e["sequence_number"] for e in first] == list(range(len(first)))
        assert first[-1]["response"]["output"][0]["content"][0]["text"] == "It is sunny."
        await socket.send_json(create("Thanks", previous_response_id=first[-1]["response"]["id"]))
        second = await answer(socket)
        assert second[-1]["response"]["previous_response_id"] == first[-1]["response"]["id"]
        texts = ["".join(p.text for p in m.parts) for m in backend.requests[-1].messages]  # type: ignore[union-attr]
    assert texts == ["Weather?", "It is sunny.", "Thanks"]


async def test_nothing_is_asked_of_a_request_that_prepares() -> None:
    async with fake_backend("openai-chat") as backend, serving(setup(backend)) as base, connected(base) as socket:
        backend.says("Hello.")
        await socket.send_json(create("Be brief.", generate=False))
        warm = (await answer(socket))[-1]["response"]
        assert (warm["status"], warm["output"], backend.requests) == ("completed", [], [])
        await socket.send_json(create("Hi", previous_response_id=warm["id"]))
        await answer(socket)
        texts = ["".join(p.text for p in m.parts) for m in backend.requests[-1].messages]  # type: ignore[union-attr]
    assert texts == ["Be brief.", "Hi"]


async def test_what_is_wrong_is_told_and_the_connection_goes_on() -> None:
    async with fake_backend("openai-chat") as backend, serving(setup(backend)) as base, connected(base) as socket:
        backend.says("Hello.")
        for message, status, param in (
            ("no JSON", 400, None),
            ('{"type": "response.steer"}', 400, "type"),
            (json.dumps(create("Hi", stream_id="a")), 400, "stream_id"),
            (json.dumps(create("Hi", background=True)), 400, "background"),
            (json.dumps(create("Hi", temperature="hot")), 400, "temperature"),
            (json.dumps(create("Hi", store=True)), 400, "store"),
        ):
            await socket.send_str(message)
            (error,) = await answer(socket)
            assert (error["type"], error["status"], error["error"]["param"]) == ("error", status, param), message
        await socket.send_json(create("Hi", previous_response_id="resp_none"))
        (error,) = await answer(socket)
        assert (error["status"], error["error"]["code"]) == (400, "previous_response_not_found")
        await socket.send_json(create("Hi"))
        assert (await answer(socket))[-1]["type"] == "response.completed"


async def test_a_failing_backend_is_an_error_with_its_status() -> None:
    async with fake_backend("openai-chat") as backend, serving(setup(backend)) as base, connected(base) as socket:
        backend.answers(429, b'{"error": {"message": "slow down", "code": "rate_limit_exceeded"}}')
        await socket.send_json(create("Hi"))
        (error,) = await answer(socket)
    assert (error["status"], error["error"]["code"]) == (429, "rate_limit_exceeded")


async def test_switched_off_it_is_a_426() -> None:
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    upgrade["sec-websocket-key"] = "dGhlIHNhbXBsZQ=="
    for route in ({"options": {"websocket": False}}, {"passthrough": True}):
        async with (
            fake_backend("openai-responses") as backend,
            serving(setup(backend, "openai-responses", route=route)) as base,
        ):
            assert (await ask("GET", f"{base}/v1/responses", headers=upgrade)).status == 426
            assert (await ask("GET", f"{base}/v1/responses")).status == 405


async def test_without_upgrade_it_is_a_405() -> None:
    async with fake_backend("openai-chat") as backend, serving(setup(backend)) as base:
        reply = await ask("GET", f"{base}/v1/responses")
        assert (reply.status, reply.headers["allow"]) == (405, "POST")
        assert (await ask("HEAD", f"{base}/v1/responses")).status == 405


# ---------------------------------------------------------------------- identity, limits, logs

KEYS = {"auth": {"keys": [{"name": "web", "key": "s3cret-web"}, {"name": "app", "key": "s3cret-app"}]}}
WEB = {"Authorization": "Bearer s3cret-web"}


async def refused(base: str, **headers: str) -> int:
    with pytest.raises(aiohttp.WSServerHandshakeError) as error:
        async with connected(base, **headers):
            pass
    return error.value.status


async def test_connections_need_a_key_and_are_limited() -> None:
    server = {**KEYS, "limits": {"sockets": 2, "per_key": {"concurrent": 2}}}
    async with fake_backend("openai-chat") as backend, serving(setup(backend, server=server)) as base:
        assert await refused(base) == 401
        assert await refused(base, Authorization="Bearer wrong") == 401
        async with connected(base, **WEB), connected(base, **WEB):
            assert await refused(base, **WEB) == 429
            assert await refused(base, Authorization="Bearer s3cret-app") == 503
        async with connected(base, **WEB) as socket:
            backend.says("Hello.")
            await socket.send_json(create("Hi"))
            assert (await answer(socket))[-1]["type"] == "response.completed"


async def test_each_request_counts() -> None:
    server = {**KEYS, "limits": {"per_key": {"requests_per_minute": 2}}}
    async with (
        fake_backend("openai-chat") as backend,
        serving(setup(backend, server=server)) as base,
        connected(base, **WEB) as socket,
    ):
        backend.says("Hello.")
        ends = []
        for _ in range(3):
            await socket.send_json(create("Hi"))
            ends.append((await answer(socket))[-1])
    assert [e["type"] for e in ends] == ["response.completed", "response.completed", "error"]
    assert ends[-1]["status"] == 429


async def test_pages_of_other_sites_may_not_connect() -> None:
    async with fake_backend("openai-chat") as backend, serving(setup(backend, server={"cors": "off"})) as base:
        assert await refused(base, Origin="https://evil.example") == 403


async def test_log_and_metrics(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bridge.access")
    async with fake_backend("openai-chat") as backend, serving(setup(backend)) as base:
        before = await read(base)
        async with connected(base) as socket:
            backend.says("Hello.")
            for _ in range(2):
                await socket.send_json(create("Hi"))
                await answer(socket)
            await socket.send_str("{}")
            await answer(socket)
        after = await read(base)
    facts = [record.facts for record in caplog.records if record.name == "bridge.access"]  # type: ignore[attr-defined]
    assert [(f["http"], f["status"], f["back"]) for f in facts] == [
        (200, "stop", "it"),
        (200, "stop", "it"),
        (400, "invalid_request", ""),
    ]
    assert len({f["run_id"] for f in facts}) == 3
    assert of(after, "bridge_requests_total", status="200") == of(before, "bridge_requests_total", status="200") + 2


@pytest.mark.parametrize("closing", ["close", "cut"])
async def test_a_client_that_leaves_ends_its_run(closing: str) -> None:
    left = asyncio.Event()
    async with fake_backend("openai-chat") as backend, serving(setup(backend)) as base:

        async def script(exchange: Any) -> None:
            await exchange.head()
            await exchange.send(b'data: {"choices": [{"index": 0, "delta": {"content": "Hel"}}]}\n\n')
            await exchange.left()
            left.set()

        backend.plays(script)
        async with connected(base) as socket:
            await socket.send_json(create("Hi"))
            while (await socket.receive_json())["type"] != "response.output_text.delta":
                pass
            if closing == "cut":
                assert socket._response.connection is not None
                socket._response.connection.close()
        await asyncio.wait_for(left.wait(), 5)


async def test_frames_and_silence_are_bounded() -> None:
    server = {"max_body": "64KiB", "limits": {"socket_idle": "200ms"}}
    async with fake_backend("openai-chat") as backend, serving(setup(backend, server=server)) as base:
        async with connected(base) as socket:
            await socket.send_json(create("x" * 70_000))
            closed = await asyncio.wait_for(socket.receive(), 5)
            assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.MESSAGE_TOO_BIG)
        async with connected(base) as socket:
            closed = await asyncio.wait_for(socket.receive(), 5)
            assert closed.type is aiohttp.WSMsgType.CLOSE
        assert backend.requests == []


async def test_messages_that_wait_have_the_budget_of_all_bodies() -> None:
    async with fake_backend("openai-chat") as backend, contextlib.AsyncExitStack() as stack:
        busy = Busy(backend)
        base, bodies = await serving_app(setup(backend, server={"limits": {"bodies": "1MiB"}}), stack)
        large = json.dumps(create("x" * 700_000))
        async with connected(base) as one, connected(base) as two:
            await one.send_json(create("Hi"))
            await busy.arrived.get()
            assert bodies.taken == 0
            await one.send_str(large)
            await until(lambda: bodies.taken == len(large) - FREE)
            await two.send_str(large)
            (refused,) = await answer(two)
            assert (refused["status"], refused["error"]["code"]) == (503, "overloaded")
            await two.send_json(create("small"))
            busy.release.set()
            for socket in (one, one, two):
                assert (await answer(socket))[-1]["type"] == "response.completed"
            assert bodies.taken == 0
        busy.release.clear()
        async with connected(base) as leaves:
            await leaves.send_json(create("Hi"))
            await leaves.send_str(large)
            await until(lambda: bodies.taken == len(large) - FREE)
        await until(lambda: bodies.taken == 0)


async def test_a_request_too_many_closes_the_connection() -> None:
    async with fake_backend("openai-chat") as backend, serving(setup(backend)) as base, connected(base) as socket:
        backend.says("Hello.")
        for _ in range(2):
            await socket.send_json(create("Hi"))
        await answer(socket)
        assert (await answer(socket))[-1]["type"] == "response.completed", "one may wait"
        for _ in range(20):
            await socket.send_json(create("Hi"))
        while (message := await asyncio.wait_for(socket.receive(), 5)).type is aiohttp.WSMsgType.TEXT:
            pass
    assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.POLICY_VIOLATION)


async def test_what_a_connection_remembers_is_bounded() -> None:
    server = {"max_body": "64KiB"}
    async with (
        fake_backend("openai-chat") as backend,
        serving(setup(backend, server=server)) as base,
        connected(base) as socket,
    ):
        backend.says("Hello.")
        await socket.send_json(create("x" * 40_000))
        first = (await answer(socket))[-1]["response"]["id"]
        await socket.send_json(create("x" * 40_000, previous_response_id=first))
        second = (await answer(socket))[-1]["response"]["id"]
        await socket.send_json(create("Hi", previous_response_id=second))
        assert (await answer(socket))[-1]["error"]["code"] == "previous_response_not_found"


class Clock:
    now = 0.0

    def time(self) -> float:
        return self.now


async def test_a_key_that_expires_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its requests are refused; the connection itself has nothing more to give."""
    clock = Clock()
    monkeypatch.setattr("bridge.server.auth.identity.time", clock)
    server = {"auth": {"keys": [{"name": "web", "key": "s3cret-web", "expires": "2001-01-01"}]}}
    async with (
        fake_backend("openai-chat") as backend,
        serving(setup(backend, server=server)) as base,
        connected(base, **WEB) as socket,
    ):
        backend.says("Hello.")
        assert (await asked(socket))[-1]["type"] == "response.completed"
        clock.now = 1e9
        end = (await asked(socket))[-1]
        assert (end["status"], end["error"]["code"]) == (401, "invalid_api_key")
    assert [record.name for record in caplog.records if record.levelno >= logging.WARNING].count("bridge.audit") == 1


async def asked(socket: aiohttp.ClientWebSocketResponse) -> list[dict[str, Any]]:
    await socket.send_json(create("Hi"))
    return await answer(socket)


async def test_a_server_that_stops_closes_idle_connections_and_ends_the_others() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def script(exchange: Any) -> None:
        await exchange.head()
        await exchange.send(b'data: {"choices": [{"index": 0, "delta": {"content": "Hello."}}]}\n\n')
        begun.set()
        await release.wait()
        await exchange.send(b"data: [DONE]\n\n")
        await exchange.end()

    async with fake_backend("openai-chat") as backend, contextlib.AsyncExitStack() as stack:
        backend.plays(script)
        base = await stack.enter_async_context(serving(setup(backend, server={"drain": "60s"})))
        async with connected(base) as idle, connected(base) as busy:
            await busy.send_json(create("Hi"))
            await begun.wait()
            stopping = asyncio.create_task(stack.aclose())
            closed = await asyncio.wait_for(idle.receive(), 10)
            assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.GOING_AWAY)
            assert not stopping.done()
            release.set()
            assert (await answer(busy))[-1]["type"] == "response.completed"
            closed = await asyncio.wait_for(busy.receive(), 10)
            assert closed.data == aiohttp.WSCloseCode.GOING_AWAY
            await asyncio.wait_for(stopping, 10)


async def test_a_client_that_does_not_read_is_cut() -> None:
    """Its backend is let go; no more of the answer is read for it."""

    async def script(exchange: Any) -> None:
        await exchange.head()
        said = b'data: {"choices": [{"index": 0, "delta": {"content": "' + b"x" * 50_000 + b'"}}]}\n\n'
        with contextlib.suppress(ConnectionError):
            while True:
                await exchange.send(said)

    async with fake_backend("openai-chat") as backend:
        backend.plays(script)
        async with serving(setup(backend, server={"slow_reader": "300ms", "keepalive": "off"})) as base:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]), limit=1024)
            writer.write(
                b"GET /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
                b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            async with asyncio.timeout(40):
                await reader.readuntil(b"\r\n\r\n")
                message = json.dumps(create("Hi")).encode()
                writer.write(b"\x81\xfe" + len(message).to_bytes(2) + bytes(4) + message)
                while not backend.seen:
                    await asyncio.sleep(0.01)
                await backend.seen[0].gone.wait()
            writer.transport.abort()


async def test_a_stored_answer_is_found_by_another_connection() -> None:
    async with fake_backend("openai-chat") as backend:
        config = setup(backend, stores={"history": "sqlite:///:memory:"})
        async with serving(config) as base:
            backend.says("Hello.")
            async with connected(base) as socket:
                await socket.send_json({**create("Hi"), "store": True})
                first = (await answer(socket))[-1]["response"]["id"]
            async with connected(base) as socket:
                await socket.send_json(create("Again", previous_response_id=first))
                assert (await answer(socket))[-1]["type"] == "response.completed"
            assert (await ask("GET", f"{base}/v1/responses/{first}")).status == 200


# ---------------------------------------------------------------------- the official client


@pytest.mark.interop
async def test_the_sdk() -> None:
    async with fake_backend("anthropic-messages") as backend, serving(setup(backend, "anthropic-messages")) as base:
        backend.says("It is sunny.")
        async with (
            openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="k", max_retries=0) as client,
            client.responses.connect() as connection,
        ):
            await connection.response.create(model="m", input="Weather?", store=False)
            async for event in connection:
                if event.type == "response.completed":
                    break
    assert event.response.output_text == "It is sunny."
