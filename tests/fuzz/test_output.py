"""A run of the fuzzer of the server's output that is the same every time, and what it notices.

`make fuzz TIME=3600` goes on from other seeds for as long as it is told.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.fuzz.output import Asked, Case, Invalid, Result, Server, case, judge, judge_events, play, run, taken
from tests.server.harness import bound_socket

SEED = 0
CASES = 250
MARK, OTHER = b"mark-00000000000000aax", b"mark-00000000000000bbx"


async def test_whatever_a_backend_sends_clients_get_valid_answers_of_their_own() -> None:
    result = Result()
    await run((case(SEED, number) for number in range(CASES)), result)
    assert result.findings == []
    assert result.played == CASES
    # Most of what is asked is answered, in all ways that there are.
    for what, least in {
        "200": CASES / 2,
        "text/event-stream": 30,
        "HEAD": 5,
        "502": 20,
        "cut off": 5,
        "429": 5,
    }.items():
        assert result.seen[what] >= least, what


def test_a_case_is_made_of_its_number() -> None:
    made = [case(SEED, number) for number in range(40)]
    assert made == [case(SEED, number) for number in range(40)]
    assert len({each.asked[0].request for each in made}) > 30
    assert {each.pipelined for each in made} == {True, False}


def head(*lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", *lines, "", ""]).encode() + body


def asked(method: str = "GET", **more: object) -> Asked:
    return Asked(MARK, method, b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data",
    [
        b"HTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        head("no header"),
        head("a b: c"),
        head("a: \x01"),
        head("content-length: 1", "content-length: 1", body=b"x"),
        head("content-length: 1", "transfer-encoding: chunked", body=b"x"),
        head(body=b"x"),
        head("transfer-encoding: chunked", body=b"x\r\n"),
        head("transfer-encoding: chunked", body=b"1\r\nxyz\r\n0\r\n\r\n"),
        head("transfer-encoding: chunked", body=b"HTTP/1.1 504 Gateway Timeout"),
    ],
)
def test_what_is_no_http_is_noticed(data: bytes) -> None:
    with pytest.raises(Invalid):
        taken(data, "GET")


def test_answers_are_taken_one_after_the_other() -> None:
    first, second = (
        head("content-length: 2", body=b"ab"),
        head("transfer-encoding: chunked", body=b"1\r\nc\r\n0\r\n\r\n"),
    )
    answer = taken(first + second, "GET")
    assert answer is not None
    assert (answer.body, answer.rest) == (b"ab", second)
    assert all(taken(second[:size], "GET") is None for size in range(len(second)))
    empty = taken(head("content-length: 2") + first, "HEAD")
    assert empty is not None
    assert empty.rest == first


@pytest.mark.parametrize(
    ("answer", "to"),
    [
        (head("content-length: 22", body=OTHER), asked()),
        (head("content-length: 6", body=b"forged"), asked()),
        (head("x: " + OTHER.decode(), "content-length: 0"), asked()),
        (head("content-type: application/json", "content-length: 1", body=b"{"), asked()),
        (head("content-type: text/event-stream", "content-length: 9", body=b"data: {}\n"), asked()),
        (head("content-length: 2", body=b"ab"), asked(forwards=True, whole=False)),
        (head("content-length: 2", body=b"ab"), asked(forwards=True, body=b"abc")),
        (b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n", asked()),
    ],
)
def test_answers_that_are_wrong_are_noticed(answer: bytes, to: Asked) -> None:
    found = taken(answer, "GET")
    assert found is not None
    with pytest.raises(Invalid):
        judge(found, to, {MARK, OTHER})


@pytest.mark.parametrize(
    "body", [b"data: {}", b"data: {\n\n", b"dat: {}\n\n", b"event: a\rb\ndata: {}\n\n", b"data: {}\n\nx\n\n"]
)
def test_events_that_are_none_are_noticed(body: bytes) -> None:
    judge_events(b": hi\n\nevent: a\nid: 1\ndata: {\ndata: }\n\ndata: [DONE]\n\n")
    with pytest.raises(Invalid):
        judge_events(body)


@contextlib.asynccontextmanager
async def speaking(data: bytes) -> AsyncIterator[Server]:
    """A server that says this to whatever it is asked, and stays."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(data)
        with contextlib.suppress(ConnectionError):
            await reader.read()  # the client leaves
        writer.close()
        left.set()

    left, sock = asyncio.Event(), bound_socket()
    async with await asyncio.start_server(serve, sock=sock):
        yield Server(f"http://127.0.0.1:{sock.getsockname()[1]}", {})
        await left.wait()


@pytest.mark.parametrize(
    ("data", "method", "problem"),
    [
        (head("content-length: 2", body=b"ab"), "GET", ""),
        (head("content-length: 2", body=b"ab"), "HEAD", "more than the answers"),
        (head("content-length: 1", body=b"ab"), "GET", "more than the answers"),
        (head("content-length: 22", body=OTHER), "GET", "in the answer to"),
    ],
)
async def test_a_connection_is_judged(data: bytes, method: str, problem: str) -> None:
    async with speaking(data) as server:
        server.marks.add(OTHER)
        found = await play(server, Case("", [asked(method)], pipelined=True))
    assert problem in found
    assert bool(problem) is bool(found)
