"""WebSockets in both roles, over real sockets: conversations, limits, refusals and the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import ClientSession, WSMsgType, web

from bridge.jsonrpc import CarrierEnded, RpcConnection, RpcError, RpcNotification, RpcRequest
from bridge.jsonrpc import connection as module
from bridge.jsonrpc.websocket import WebSocketCarrier

from .helpers import conversations

Served = Callable[[WebSocketCarrier], Awaitable[None]]


@asynccontextmanager
async def served(serve: Served, **settings: Any) -> AsyncIterator[tuple[ClientSession, str]]:
    """A client, and the address where `serve` is called for each WebSocket."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if "refused" in request.query:
            raise web.HTTPUnauthorized
        carrier = await WebSocketCarrier.accept(request, headers={"Acp-Connection-Id": "c1"}, **settings)
        await serve(carrier)
        return carrier.socket  # type: ignore[return-value]

    app = web.Application()
    app.router.add_get("/acp", answer)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with asyncio.timeout(60), ClientSession() as session:
            yield session, f"http://127.0.0.1:{runner.addresses[0][1]}/acp"
    finally:
        await runner.cleanup()


async def echo(request: RpcRequest) -> Any:
    return request.params


async def nothing_more(carrier: WebSocketCarrier) -> str:
    """Why the other side says nothing more."""
    while True:
        try:
            await carrier.receive()
        except CarrierEnded as error:
            return str(error)


async def test_both_sides_call_each_other() -> None:
    reasons: list[str] = []

    async def twice(request: RpcRequest) -> Any:
        return await server.call("echo", request.params * 2)

    async def serve(carrier: WebSocketCarrier) -> None:
        nonlocal server
        async with RpcConnection(carrier, requests={"twice": twice}) as server:
            reasons.append(str(await server.wait()))

    server: RpcConnection
    async with served(serve) as (session, url):
        carrier = await WebSocketCarrier.connect(session, url)
        async with RpcConnection(carrier, requests={"echo": echo}) as client:
            assert await client.call("twice", ["é"]) == ["é", "é"]
            text = "x" * 3_000_000
            answers = await asyncio.gather(*(client.call("twice", [text, n]) for n in range(5)))
            assert answers == [[text, n, text, n] for n in range(5)]
        assert str(client.ended) == "the connection was closed"
    assert reasons == ["the WebSocket was closed with code 1000"]


async def test_a_recorded_conversation() -> None:
    lines = conversations()["ws-python"]
    spoken: list[bytes] = []

    async def serve(carrier: WebSocketCarrier) -> None:
        for line in lines:
            if line.sender == "agent":
                await carrier.send([line.frame])
            else:
                [frame] = await carrier.receive()
                spoken.append(frame)
        spoken.append((await nothing_more(carrier)).encode())

    async with served(serve) as (session, url):
        carrier = await WebSocketCarrier.connect(session, url)
        for line in lines:
            if line.sender == "client":
                await carrier.send([line.frame])
            else:
                assert await carrier.receive() == [line.frame]
        await carrier.close()
    assert spoken == [*(line.frame for line in lines if line.sender == "client"), spoken[-1]]
    assert spoken[-1] == b"the WebSocket was closed with code 1000"


async def test_the_heads_of_the_handshake() -> None:
    async def serve(carrier: WebSocketCarrier) -> None:
        await nothing_more(carrier)

    async with served(serve) as (session, url), session.ws_connect(url, compress=15) as socket:
        assert socket._response.headers["Acp-Connection-Id"] == "c1"
        assert "Sec-WebSocket-Extensions" not in socket._response.headers


async def test_binary_frames_are_ignored() -> None:
    async def serve(carrier: WebSocketCarrier) -> None:
        async with RpcConnection(carrier, requests={"echo": echo}) as connection:
            await connection.wait()

    async with served(serve) as (session, url), session.ws_connect(url) as socket:
        await socket.send_bytes(RpcRequest.of(1, "echo", ["binary"]).encode())
        await socket.send_str(RpcRequest.of(2, "echo", ["text"]).encode().decode())
        await socket.send_str("")
        await socket.send_str("\n{}\n")
        answers = [(await socket.receive()).data for _ in range(3)]
    assert answers[0] == '{"jsonrpc":"2.0","id":2,"result":["text"]}'
    assert ["-32700" in answers[1], "-32600" in answers[2]] == [True, True]


async def test_frames_beyond_the_limit() -> None:
    reasons: list[str] = []

    async def serve(carrier: WebSocketCarrier) -> None:
        async with RpcConnection(carrier, requests={"echo": echo}) as connection:
            reasons.append(str(await connection.wait()))

    async with served(serve, max_frame=1000) as (session, url):
        async with session.ws_connect(url) as socket:
            await socket.send_str(RpcRequest.of(1, "echo", []).encode().decode())
            assert (await socket.receive()).data == '{"jsonrpc":"2.0","id":1,"result":[]}'
            await socket.send_str("x" * 600_000)
            message = await socket.receive()
            assert (message.type, socket.close_code) == (WSMsgType.CLOSE, 1009)
        while not reasons:
            await asyncio.sleep(0)
        assert reasons == ["a message is longer than the limit of 1000 bytes"]
        carrier = await WebSocketCarrier.connect(session, url, max_frame=100)
        await carrier.send([RpcRequest.of(1, "echo", ["x" * 200]).encode()])
        assert await nothing_more(carrier) == "a message is longer than the limit of 100 bytes"
        await carrier.close()


@pytest.mark.parametrize("abrupt", [True, False])
async def test_calls_fail_when_the_other_side_leaves(abrupt: bool) -> None:
    failures: list[str] = []

    async def serve(carrier: WebSocketCarrier) -> None:
        async with RpcConnection(carrier) as connection:
            try:
                await connection.call("permission")
            except CarrierEnded as error:
                failures.append(str(error))

    async with served(serve) as (session, url):
        socket = await session.ws_connect(url)
        await socket.receive()
        if abrupt:
            assert socket._conn is not None
            assert socket._conn.transport is not None
            socket._conn.transport.abort()
        await socket.close(code=4001)
        while not failures:
            await asyncio.sleep(0)
    assert failures[0].startswith("the WebSocket was closed with code")
    assert abrupt or failures[0].endswith("4001")


async def test_a_client_that_answers_no_ping_is_gone() -> None:
    reasons: list[str] = []

    async def serve(carrier: WebSocketCarrier) -> None:
        reasons.append(await nothing_more(carrier))

    async with served(serve, heartbeat=0.05) as (session, url), session.ws_connect(url, autoping=False):
        while not reasons:
            await asyncio.sleep(0)
    assert reasons == ["the WebSocket was closed with code 1006"]


async def test_what_cannot_be_opened() -> None:
    async def serve(carrier: WebSocketCarrier) -> None:
        await carrier.close()

    async with served(serve) as (session, url):
        with pytest.raises(CarrierEnded, match="answers the request for a WebSocket with status 401"):
            await WebSocketCarrier.connect(session, url + "?refused=1")
        with pytest.raises(CarrierEnded, match=r"the server cannot be reached \(ClientConnectorError\)"):
            await WebSocketCarrier.connect(session, "http://127.0.0.1:1/acp")
        async with session.get(url) as answer:
            assert answer.status == 400
        carrier = await WebSocketCarrier.connect(session, url)
        assert await nothing_more(carrier) == "the WebSocket was closed with code 1000"
        with pytest.raises(CarrierEnded, match="the WebSocket was closed"):
            await carrier.send([b"{}"])
        await carrier.close()


async def test_a_client_that_reads_nothing_makes_the_server_wait() -> None:
    sent = 0
    connection: RpcConnection | None = None

    async def serve(carrier: WebSocketCarrier) -> None:
        nonlocal sent, connection
        async with RpcConnection(carrier) as connection:
            with suppress(CarrierEnded):
                while True:
                    await connection.notify("update", ["x" * 100_000])
                    sent += 1

    async with served(serve) as (session, url):
        socket = await session.ws_connect(url)
        while connection is None or connection.peer.unsent <= module._UNSENT:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert 0 < sent < 500
        assert (await socket.receive()).type is WSMsgType.TEXT
        await socket.close()


async def test_a_closed_server_refuses_what_comes_late() -> None:
    async def update(notification: RpcNotification) -> None:
        raise AssertionError("nothing comes")

    async def serve(carrier: WebSocketCarrier) -> None:
        async with RpcConnection(carrier, notifications={"update": update}):
            pass

    async with served(serve) as (session, url):
        carrier = await WebSocketCarrier.connect(session, url)
        async with RpcConnection(carrier) as connection:
            with pytest.raises((CarrierEnded, RpcError)):
                await connection.call("anything")
