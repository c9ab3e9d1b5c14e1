"""A backend of this API that plays what a test wants of each of its endpoints, and a client without a frontend."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bridge.contract import Losses
from bridge.dialects.agent_runs import dialect
from bridge.model import Event, Message, Part, Request, Text, verify
from bridge.model.events import TERMINAL
from bridge.run.backend import CallInfo
from bridge.run.backends.queued_backend import QueuedRunsBackend
from tests.server.harness import Exchange, FakeBackend, Seen, fake_backend

from .helpers import THREAD, blocks, response_in

Play = Callable[[Exchange], Awaitable[None]]


class Upstream:
    """`starts` and `reads` are played one after another, the last one for all further requests."""

    def __init__(self, backend: FakeBackend) -> None:
        self.backend = backend
        self.url = backend.url
        self.starts: list[Play] = [self.queues]
        self.reads: list[Play] = [self.sends(response_in("runs-events")[2])]
        self.uploads: list[Play] = [self.stores]
        self.canceled = asyncio.Event()
        self.run = ""
        backend.plays(self._play)

    def asked(self, what: str) -> list[Seen]:
        return [seen for seen in self.backend.seen if urlsplit(seen.path).path.endswith(what)]

    @property
    def cursors(self) -> list[str | None]:
        """From where each reader wanted to go on."""
        return [seen.headers.get("last-event-id") for seen in self.asked("/events")]

    async def _play(self, exchange: Exchange) -> None:
        parts = urlsplit(exchange.seen.path)
        if parts.path == "/runs":
            self.run = exchange.seen.json["runId"]
            await _next(self.starts)(exchange)
        elif parts.path == "/attachments":
            await _next(self.uploads)(exchange)
        else:
            assert parse_qs(parts.query)["runId"] == [self.run]
            if parts.path.endswith("/cancel"):
                self.canceled.set()
                await exchange.answer(202, response_in("runs-cancel")[2])
            else:
                await _next(self.reads)(exchange)

    # ------------------------------------------------------------------ what it may do

    async def queues(self, exchange: Exchange) -> None:
        await exchange.answer(202, response_in("runs-create")[2])

    async def stores(self, exchange: Exchange) -> None:
        await exchange.answer(200, response_in("runs-attachment")[2])

    def own(self, body: bytes) -> bytes:
        """A recorded stream as one of the run that was asked for."""
        return re.sub(rb'"runId":"run-\d"', b'"runId":"%b"' % self.run.encode(), body)

    def sends(self, body: bytes, upto: int | None = None, how: str = "end") -> Play:
        """What of the stream lies behind the reader's last id, up to so many bytes; then it ends properly, or so."""

        async def play(exchange: Exchange) -> None:
            parts = blocks(self.own(body))
            ids = [part.split(b"\n")[0][4:].decode() for part in parts]
            last = exchange.seen.headers.get("last-event-id")
            rest = b"".join(parts[ids.index(last) + 1 if last else 0 :])
            await exchange.head()
            await exchange.send(rest[:upto])
            if how == "end":
                await exchange.end()
            elif how == "close":
                exchange.close()
            else:
                exchange.reset()

        return play

    def streams(self, body: bytes) -> Play:
        """Exactly this, whatever the reader has."""

        async def play(exchange: Exchange) -> None:
            await exchange.stream(self.own(body))

        return play


def _next(plays: list[Play]) -> Play:
    return plays.pop(0) if len(plays) > 1 else plays[0]


def refuses(status: int, code: str, **headers: str) -> Play:
    async def play(exchange: Exchange) -> None:
        body = json.dumps({"status": status, "detail": "It was refused.", "code": code}).encode()
        await exchange.answer(status, body, "application/problem+json", **headers)

    return play


async def silent(exchange: Exchange) -> None:
    """No answer at all."""
    await exchange.left()


async def waits(exchange: Exchange) -> None:
    """A stream in which nothing happens."""
    await exchange.head()
    await exchange.send(b": keep-alive\n\n")
    await exchange.left()


async def nothing_more(exchange: Exchange) -> None:
    await exchange.answer(204, b"")


async def empty(exchange: Exchange) -> None:
    await exchange.stream()


async def dead(exchange: Exchange) -> None:
    exchange.reset()


@asynccontextmanager
async def upstream() -> AsyncIterator[Upstream]:
    async with fake_backend() as backend:
        yield Upstream(backend)


@asynccontextmanager
async def calling(url: str, **more: Any) -> AsyncIterator[QueuedRunsBackend]:
    """The backend as the engine has it; it does not wait before it tries again."""
    options = dialect.back_options.model_validate({"reconnect": [0, 0, 0], **more.pop("options", {})})
    backend = QueuedRunsBackend("it", dialect, url, api_key="alice-token", options=options, **more)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.close()


def question(*parts: Part) -> Request:
    return Request([Message("user", list(parts) or [Text("hi")], id="m1")], thread_id=THREAD)


async def events_of(backend: QueuedRunsBackend, request: Request | None = None) -> list[Event]:
    """One run, to its end. Raises `BackendError` for one that could not be asked for."""
    call = backend.call(request or question(), CallInfo("run", THREAD, 0.0), Losses())
    events: list[Event] = []
    try:
        await call.open()
        while not events or type(events[-1]) not in TERMINAL:
            events += await call.read()
    finally:
        await call.close()
    return verify(events)
