"""A client without an HTTP library: it sees how an answer ended, and can do what libraries do not."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any

from bridge import Message, Request, Text
from bridge.contract import Context, Dialect, WireRequest, WireResponse, registry
from bridge.errors import Failure
from bridge.model import Event, RunFailed, fold, verify
from bridge.translation import AnswerDecoder
from tests.docs.tables import dialects

BOTH = [d for d in map(registry.get, dialects()) if d.served and d.called]
SPEAKING = [d.name for d in BOTH if d.framing == "sse"]
LIMIT = 30.0
"""Seconds after which an answer that does not end has failed its test."""


@dataclass
class Saw:
    """What came back. `whole`: the answer ended as HTTP says it must; a cut connection is no end."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    whole: bool = False


def asking(front: Dialect, text: str = "hi", thread: str = "t1", run: str = "r1", stream: bool = True) -> WireRequest:
    """A client's request in its dialect; `path` is that below the mount."""
    asked = Request([Message("user", [Text(text)], id=f"m-{run}")], model="m", thread_id=thread, run_id=run)
    asked.stream = stream
    asked.extras = {"ag-ui": {"forwardedProps": {"runtime_mode": "chat"}}}
    wire = front.encode_request(asked, Context(run, thread, 0.0, front.back_options(), "m", asked))
    wire.path = front.example_request(text, stream).target
    return wire


def raw(wire: WireRequest, mount: str, **headers: str) -> bytes:
    """The bytes of the request; the connection is asked to close behind its answer."""
    sent = {
        "host": "localhost",
        "connection": "close",
        "content-length": str(len(wire.body)),
        **wire.headers,
        **headers,
    }
    lines = [f"{wire.method} {mount}{wire.path} HTTP/1.1", *(f"{k}: {v}" for k, v in sent.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + wire.body


async def connect(base: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]), limit=64 * 2**20)


async def exchange(base: str, request: bytes, heard: asyncio.Event | None = None) -> Saw:
    """Sends the request and reads until the connection closes. Raises `TimeoutError` when it does not.

    `heard` is set when the first words came.
    """
    async with asyncio.timeout(LIMIT):
        reader, writer = await connect(base)
        try:
            writer.write(request)
            data = bytearray()
            try:
                while piece := await reader.read(2**20):
                    data += piece
                    if heard is not None and b"Hello" in data:
                        heard.set()
            except ConnectionError:
                return parsed(bytes(data), reset=True)
            return parsed(bytes(data))
        finally:
            writer.close()


async def ask(base: str, front: Dialect, mount: str, heard: asyncio.Event | None = None, **said: Any) -> Saw:
    """One run, to its end; where a run is started by one request and read by another, both."""
    wire = asking(front, **said)
    saw = await exchange(base, raw(wire, mount), heard)
    if saw.status != 202:
        return saw
    thread, run = said.get("thread", "t1"), said.get("run", "r1")
    return await exchange(base, raw(WireRequest("GET", f"/runs/{thread}/events?runId={run}"), mount), heard)


def parsed(data: bytes, *, reset: bool = False) -> Saw:
    """What these bytes of an answer say. `reset`: the connection was reset behind them."""
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return Saw()
    first, *lines = head.decode().split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    saw = Saw(int(first.split()[1]), headers)
    if headers.get("transfer-encoding") == "chunked":
        saw.body, saw.whole = _joined(rest)
    else:
        saw.body, saw.whole = rest, len(rest) == int(headers.get("content-length", "0"))
    saw.whole = saw.whole and not reset
    return saw


def _joined(data: bytes) -> tuple[bytes, bool]:
    out = []
    while (found := re.match(rb"([0-9a-f]+)\r\n", data)) is not None:
        size = int(found[1], 16)
        if size == 0:
            return b"".join(out), True
        out.append(data[found.end() : found.end() + size])
        data = data[found.end() + size + 2 :]
    return b"".join(out), False


@dataclass
class Read:
    """What the answer amounts to for a client of the dialect."""

    verdict: str
    text: str
    failure: Failure | None


def read(front: Dialect, saw: Saw) -> Read:
    """As the dialect's own decoder reads it. What is no valid answer or error of the dialect raises."""
    if not saw.status:
        return Read("cut", "", None)
    if saw.status >= 400:
        assert saw.whole
        assert saw.headers["content-type"].split(";")[0] in ("application/json", "application/problem+json")
        failure = front.decode_error(WireResponse(saw.status, saw.headers, saw.body))
        assert failure.message
        return Read(f"HTTP {saw.status}", "", failure)
    reading = AnswerDecoder(front, Context("client", "t1", 0.0, front.back_options()), saw.headers)
    events: list[Event] = verify(reading.receive(saw.body) + reading.close())
    text, last = fold(events).text, events[-1]
    if not isinstance(last, RunFailed):
        return Read("whole" if saw.whole else "cut, and reads as whole", text, None)
    return Read("error event" if saw.whole else "cut", text, last.error)
