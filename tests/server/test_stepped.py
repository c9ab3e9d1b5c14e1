"""Runs of several requests: their streams pass deltas on as all others do, and what is asked beside them is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import orjson
import pytest

from bridge.contract import Context, FrameLike, Losses, Step, WireRequest, WireResponse, registry
from bridge.dialects.a2a.codec import A2A
from bridge.errors import Failure
from bridge.model import Event, Message, Request, Text, TextDelta
from bridge.model.events import TERMINAL
from bridge.run.backend import CallInfo
from bridge.run.backends.stepped_backend import SteppedBackend
from bridge.run.run import Run
from tests.server.harness import Exchange, fake_backend, serving
from tests.server.test_writes import ASK, WORDS, chunk

IDS = {"taskId": "t", "contextId": "c"}


def update(kind: str, **fields: Any) -> bytes:
    return b"data: " + orjson.dumps({"jsonrpc": "2.0", "id": "1", "result": {kind: {**IDS, **fields}}}) + b"\n\n"


async def agent(url: str, client: str, came: asyncio.Queue[bytes]) -> bytes:
    """The body of a chat stream over an agent."""
    config = {
        "server": {"http_client": client},
        "backends": {"it": {"dialect": "a2a", "url": url, "options": {"card": "none"}}},
        "routes": [{"dialect": "openai-chat", "path": "/v1", "backend": "it"}],
    }
    body = b""
    async with (
        serving(config) as base,
        aiohttp.ClientSession() as session,
        session.post(f"{base}/v1/chat/completions", json=ASK) as response,
    ):
        async for piece in response.content.iter_any():
            came.put_nowait(piece)
            body += piece
    return body


@pytest.mark.parametrize("client", ["aiohttp", "httptools"])
async def test_deltas_wake_no_task(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Run] = []
    read = Run.read

    async def noted(self: Run) -> list[Event]:
        reads.append(self)
        return await read(self)

    monkeypatch.setattr(Run, "read", noted)
    came: asyncio.Queue[bytes] = asyncio.Queue()

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        for number, word in enumerate(WORDS):
            artifact = {"artifactId": "a", "parts": [{"text": word}]}
            await exchange.send(update("artifactUpdate", artifact=artifact, append=number > 0))
            while word.encode() not in await came.get():
                pass
        await exchange.send(update("statusUpdate", status={"state": "TASK_STATE_COMPLETED"}))
        await exchange.end()

    async with fake_backend() as backend, asyncio.timeout(20):
        backend.plays(script)
        body = await agent(backend.url, client, came)
    assert b"[DONE]" in body
    if client == "httptools":
        assert len(reads) <= 3  # the start, the end, and nothing for the words between
    else:
        assert len(reads) > len(WORDS)


class Asking:
    """A run that asks for its state once its stream, which has no end, was silent after the second word."""

    working = misses_cancels = reads_again = False

    def __init__(self, request: Request, context: Context) -> None:
        chat = registry.get("openai-chat")
        self._first: Step | None = Step(chat.encode_request(request, context))
        self._decoder = chat.decoder(context)
        self._words = 0

    def next(self) -> Step | None:
        step, self._first = self._first, None
        return step or (Step(WireRequest("GET", "/state"), 0.01) if self._words > 1 else None)

    def opened(self, headers: Mapping[str, str]) -> None: ...

    def feed(self, frames: Sequence[FrameLike]) -> list[Event]:
        events = self._decoder.feed(frames)
        self._words += sum(isinstance(event, TextDelta) for event in events)
        return events

    def whole(self, answer: WireResponse) -> list[Event]:
        return self._decoder.feed([answer.body])

    def close(self, failure: Failure | None = None) -> list[Event]:
        return self._decoder.close(failure)

    def refused(self, failure: Failure) -> bool:
        return False

    def ended(self, failure: Failure | None) -> list[Event]:
        return self._decoder.close(failure)

    def cancel(self) -> WireRequest | None:
        return None


class Asks(A2A):
    def stepped(self, wanted: Request, context: Context, memo: dict[str, Any]) -> Asking:
        return Asking(wanted, context)


@pytest.mark.parametrize("httptools", [False, True])
async def test_what_is_due_is_asked_although_deltas_are_passed_on(httptools: bool) -> None:
    taken: list[Event] = []
    arrived = asyncio.Event()

    def take(events: list[Event]) -> bool:
        taken.extend(events)
        arrived.set()
        return True

    async def script(exchange: Exchange) -> None:
        if exchange.seen.method == "GET":
            end = {"index": 0, "delta": {"content": "three"}, "finish_reason": "stop"}
            await exchange.answer(200, orjson.dumps({"id": "c", "model": "m", "choices": [end]}))
            return
        await exchange.head()
        await exchange.send(chunk("one"))
        await arrived.wait()
        await exchange.send(chunk("two"))
        await exchange.left()

    async with fake_backend() as backend, asyncio.timeout(20):
        backend.plays(script)
        it = SteppedBackend("it", Asks(), backend.url, httptools=httptools)
        await it.start()
        call = it.call(Request([Message("user", [Text("hi")])]), CallInfo("r", None, 1.0), Losses())
        await call.open()
        call.pass_deltas(take)  # type: ignore[attr-defined]
        events = list[Event]()
        while not (events and type(events[-1]) in TERMINAL):
            events += await call.read()
            arrived.set()
            if "three" in str(events):
                break
        await call.close()
        await it.close()
    assert [event.text for event in taken + events if isinstance(event, TextDelta)] == ["one", "two", "three"]
