"""Requests that go out past aiohttp's session: what is sent, what is made of answers, and what the session keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from yarl import URL

from bridge.codec import WireRequest, registry
from bridge.transports.connections import Connector
from bridge.transports.direct import Direct, Response
from bridge.transports.http import HttpBackend

BODY = b'{"ask":"hi"}'
HEADERS = {"content-type": "application/json", "accept-encoding": "identity", "user-agent": "me", "x-one": "1"}
OK = b"HTTP/1.1 200 OK\r\ncontent-type: Text/Plain; charset=utf-8\r\ncontent-length: 5\r\n\r\nHello"


class Peer:
    """A server that notes what each read brings and answers each request with the next of its `answers`."""

    def __init__(self) -> None:
        self.reads: list[bytes] = []
        self.answers: list[bytes | None] = []
        """None closes the connection."""
        self.connections: list[asyncio.StreamWriter] = []
        self.gone = 0
        """How many connections the client has closed."""
        self._went = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        while data := await reader.read(2**20):
            self.reads.append(data)
            if self.answers and (data.endswith((BODY, b"\r\n\r\n"))):
                answer = self.answers.pop(0)
                if answer is None:
                    writer.close()
                    return
                writer.write(answer)
        writer.close()
        async with self._went:
            self.gone += 1
            self._went.notify_all()

    async def has_gone(self, number: int) -> None:
        async with asyncio.timeout(40), self._went:
            await self._went.wait_for(lambda: self.gone >= number)


@pytest.fixture
async def peer() -> AsyncIterator[tuple[Peer, URL]]:
    peer = Peer()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    async with server:
        yield peer, URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/ask?key=a%20b")
        for each in peer.connections:
            each.close()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=Connector(), cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield session


def wire(**more: Any) -> WireRequest:
    asked: dict[str, Any] = {"method": "POST", "path": "/ask", "headers": dict(HEADERS), "body": BODY, **more}
    return WireRequest(**asked)


async def asked(direct: Direct, request: WireRequest, url: URL) -> Response:
    async with asyncio.timeout(40):
        answer = await direct.ask(request, url)
    assert answer is not None, "left to the session"
    return answer


async def left(direct: Direct, request: WireRequest, url: URL) -> bool:
    """Whether it is left to the session."""
    return await asyncio.wait_for(direct.ask(request, url), 40) is None


def lines(sent: bytes) -> tuple[bytes, set[bytes], bytes]:
    head, _, body = sent.partition(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    return first, {name.lower() + b":" + value for name, _, value in (each.partition(b":") for each in headers)}, body


async def test_what_is_sent_is_what_the_session_would_send(
    peer: tuple[Peer, URL], session: aiohttp.ClientSession
) -> None:
    there, url = peer
    there.answers = [OK, OK]
    async with await asked(Direct(session), wire(), url) as answer:
        assert await answer.content.read() == b"Hello"
    (mine,) = there.reads  # head and body in one write
    there.reads.clear()
    async with session.post(url, data=BODY, headers=HEADERS) as response:
        assert await response.read() == b"Hello"
    assert lines(mine) == lines(b"".join(there.reads))


@pytest.mark.parametrize("after", [0.0, 0.05])
async def test_an_answer_that_nobody_asked_for_is_not_the_next_ones(
    peer: tuple[Peer, URL], session: aiohttp.ClientSession, after: float
) -> None:
    """It comes behind the end of the one before it, or while the connection rests."""
    there, url = peer
    evil = OK.replace(b"Hello", b"Evil!")
    there.answers = [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nHe\r\n", OK]
    direct = Direct(session)
    answer = await asked(direct, wire(), url)
    assert await answer.content.readany() == b"He"
    end = b"3\r\nllo\r\n0\r\n\r\n"
    there.connections[0].write(end if after else end + evil)
    assert await answer.content.read() == b"llo"
    if after:
        await asyncio.sleep(after)
        there.connections[0].write(evil)
        await asyncio.sleep(after)
    assert await (await asked(direct, wire(), url)).content.read() == b"Hello"
    assert len(there.connections) == 2


async def test_what_is_told_of_an_answer(peer: tuple[Peer, URL], session: aiohttp.ClientSession) -> None:
    there, url = peer
    there.answers = [OK, b"HTTP/1.1 429 Slow\r\nRetry-After: 3\r\ncontent-length: 0\r\n\r\n"]
    direct = Direct(session)
    first, second = await asked(direct, wire(), url), await asked(direct, wire(), url)
    assert (first.status, first.content_type, await first.content.read()) == (200, "text/plain", b"Hello")
    assert (second.status, second.content_type, second.headers["retry-after"]) == (429, "", "3")


async def test_a_connection_is_used_again_when_all_has_come(
    peer: tuple[Peer, URL], session: aiohttp.ClientSession
) -> None:
    there, url = peer
    there.answers = [OK, b"HTTP/1.1 204 No\r\n\r\n", OK]
    direct = Direct(session)
    for body in (b"Hello", b"", b"Hello"):
        answer = await asked(direct, wire(), url)
        assert await answer.content.read() == body
        answer.close()  # the connection is not the answer's any more
    assert len(there.connections) == 1


@pytest.mark.parametrize("how", [Response.release, Response.close])
async def test_an_answer_that_is_left_closes_its_connection_and_tells_who_reads(
    peer: tuple[Peer, URL], session: aiohttp.ClientSession, how: Callable[[Response], None]
) -> None:
    there, url = peer
    there.answers = [OK[:-2]]
    answer = await asked(Direct(session), wire(), url)
    assert await answer.content.readany() == b"Hel"
    reading = asyncio.ensure_future(answer.content.readany())
    await asyncio.sleep(0)
    how(answer)
    with pytest.raises(aiohttp.ClientConnectionError):
        await asyncio.wait_for(reading, 40)
    await there.has_gone(1)


async def test_who_is_cancelled_leaves_no_connection(peer: tuple[Peer, URL], session: aiohttp.ClientSession) -> None:
    there, url = peer
    task = asyncio.ensure_future(Direct(session).ask(wire(), url))
    while not there.reads:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await there.has_gone(1)


async def test_what_is_said_before_the_answer_is_passed_over(
    peer: tuple[Peer, URL], session: aiohttp.ClientSession
) -> None:
    there, url = peer
    there.answers = [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + OK]
    answer = await asked(Direct(session), wire(), url)
    assert (answer.status, await answer.content.read()) == (200, b"Hello")


async def test_an_answer_that_ends_with_its_connection(peer: tuple[Peer, URL], session: aiohttp.ClientSession) -> None:
    there, url = peer
    there.answers = [b"HTTP/1.1 200 OK\r\n\r\nHello"]
    answer = await asked(Direct(session), wire(), url)
    there.connections[0].close()
    assert await asyncio.wait_for(answer.content.read(), 40) == b"Hello"


async def test_another_protocol_is_an_answer(peer: tuple[Peer, URL], session: aiohttp.ClientSession) -> None:
    """Nobody asked for one; it is not waited for what comes after it."""
    there, url = peer
    there.answers = [b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"]
    answer = await asked(Direct(session), wire(), url)
    assert answer.status == 101
    answer.close()


async def test_a_connection_that_was_closed_as_it_was_made(
    peer: tuple[Peer, URL], session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url = peer
    connect = Connector.connect

    async def closing(self: Connector, *args: Any, **more: Any) -> Any:
        connection = await connect(self, *args, **more)
        connection.transport.close()
        return connection

    monkeypatch.setattr(Connector, "connect", closing)
    with pytest.raises(ConnectionResetError):
        await asked(Direct(session), wire(), url)


async def test_what_is_no_http(peer: tuple[Peer, URL], session: aiohttp.ClientSession) -> None:
    there, url = peer
    there.answers = [b"220 mail.example ESMTP\r\n"]
    with pytest.raises(aiohttp.ClientResponseError):
        await asked(Direct(session), wire(), url)
    await there.has_gone(1)


async def test_a_peer_that_closes_without_an_answer(peer: tuple[Peer, URL], session: aiohttp.ClientSession) -> None:
    there, url = peer
    there.answers = [None]
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await asked(Direct(session), wire(), url)


async def test_a_connection_that_was_closed_meanwhile_is_replaced(toy: str, peer: tuple[Peer, URL]) -> None:
    """The backend closes what it kept alive as the next request comes: that was not answered, and is sent anew."""
    there, url = peer
    there.answers = [OK, None, OK]
    backend = HttpBackend("it", registry.get(toy), str(url.with_query(None)))
    await backend.start()
    try:
        for _ in range(2):
            answer = await asyncio.wait_for(backend.ask(wire(path="")), 40)
            assert isinstance(answer, Response)
            assert await answer.content.read() == b"Hello"
    finally:
        await backend.close()
    assert len(there.connections) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("x-a", f"1{sign}x-evil: 2") for sign in ("\r\n", "\n", "\r", "\x00", "\x7f")] + [("x-a\n", "1")],
)
async def test_no_header_can_hold_another(
    peer: tuple[Peer, URL], session: aiohttp.ClientSession, name: str, value: str
) -> None:
    there, url = peer
    with pytest.raises(ValueError, match="control character"):
        await asked(Direct(session), wire(headers={**HEADERS, name: value}), url)
    assert there.connections == []


async def test_an_accept_of_its_own_is_the_only_one(peer: tuple[Peer, URL], session: aiohttp.ClientSession) -> None:
    there, url = peer
    there.answers = [OK]
    (await asked(Direct(session), wire(headers={**HEADERS, "Accept": "text/event-stream"}), url)).close()
    assert there.reads[0].lower().count(b"accept:") == 1


@pytest.mark.parametrize(
    "request_",
    [
        wire(method="PUT"),
        wire(body=b""),
        wire(body=b" " * 2**16),
        wire(query={"a": "1"}),
        wire(headers={"x-one": "1"}),
        wire(headers={**HEADERS, "Connection": "close"}),
        wire(headers={**HEADERS, "host": "else.example"}),
        wire(headers={**HEADERS, "transfer-encoding": "chunked"}),
        wire(headers={**HEADERS, "expect": "100-continue"}),
    ],
)
async def test_what_is_left_to_the_session(
    peer: tuple[Peer, URL], session: aiohttp.ClientSession, request_: WireRequest
) -> None:
    assert await left(Direct(session), request_, peer[1])


@pytest.mark.parametrize("url", ["http://me:secret@127.0.0.1:1/", "ftp://127.0.0.1:1/", "http:///ask"])
async def test_addresses_that_are_left_to_the_session(session: aiohttp.ClientSession, url: str) -> None:
    assert await left(Direct(session), wire(), URL(url))


async def test_who_traces_a_session_sees_its_requests(peer: tuple[Peer, URL]) -> None:
    there, url = peer
    there.answers = [OK]
    seen: list[str] = []

    async def note(session: Any, context: Any, told: aiohttp.TraceRequestStartParams) -> None:
        seen.append(told.method)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(note)
    async with aiohttp.ClientSession(connector=Connector(), trace_configs=[trace]) as session:
        assert await left(Direct(session), wire(), url)
        (await session.post(url, data=BODY)).close()
    assert seen == ["POST"]


async def test_who_replaces_the_session_gets_its_requests(
    peer: tuple[Peer, URL], session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def instead(*_: Any, **__: Any) -> None:
        raise AssertionError("not asked here")

    monkeypatch.setattr(aiohttp.ClientSession, "_request", instead)
    assert await left(Direct(session), wire(), peer[1])


async def test_addresses_with_ids_in_them_are_not_kept(session: aiohttp.ClientSession, peer: tuple[Peer, URL]) -> None:
    there, url = peer
    direct = Direct(session)
    for number in range(200):
        there.answers = [OK]
        answer = await asked(direct, wire(path=f"/{number}"), url.with_path(f"/{number}"))
        assert await answer.content.read() == b"Hello"
    assert there.reads[-1].startswith(b"POST /199 HTTP/1.1\r\n")
    assert len(direct._known) <= 64
