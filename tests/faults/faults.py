"""What backends do wrong: the table of faults, each a script of bytes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bridge.contract import registry
from bridge.testing.pairs import frames_of
from tests.server.harness import Exchange

WORDS = ("Hello ", "w☀")
SUN = "☀".encode()


@dataclass
class Said:
    """A stream of the backend's dialect in pieces: until the first words, a piece with the sun in it, the rest.

    `heard` is set when the client has the first words: what comes behind them comes in a read of its own.
    """

    first: bytes
    sunny: bytes
    rest: bytes
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def of(cls, dialect: str, run: str | None = None) -> Said:
        """`run`: the id of the run where the backend queued it; its readers look for that in each event."""
        frames = with_run(frames_of(registry.get(dialect), *WORDS), run)
        begun = next(n for n, f in enumerate(frames) if b"Hello" in f)
        sunny = next(n for n, f in enumerate(frames) if SUN in f)
        return cls(
            b"".join(frames[: begun + 1]), b"".join(frames[begun + 1 : sunny + 1]), b"".join(frames[sunny + 1 :])
        )

    @property
    def half(self) -> bytes:
        """Half of the next event."""
        return self.sunny[: len(self.sunny) // 2]

    @property
    def cut_sun(self) -> bytes:
        """The next event up to the middle of a character."""
        return self.sunny[: self.sunny.index(SUN) + 1]


def with_run(frames: list[bytes], run: str | None) -> list[bytes]:
    """The frames as a backend that queues runs keeps them: each with its place, and with this run's id."""
    out = [b"id: %d-0\n%b" % (n, frame) for n, frame in enumerate(frames, 1)]
    return out if run is None else [re.sub(rb'"runId":"[^"]*"', b'"runId":"%b"' % run.encode(), f) for f in out]


Play = Callable[[Exchange, Said], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    """`begun`: the words before the fault were sent, and must arrive. `section`: the backend's configuration.

    `complete`: the answer is whole as HTTP, so that its connection may be used again.
    """

    name: str
    play: Play
    begun: bool = False
    complete: bool = False
    section: dict[str, Any] = field(default_factory=dict)


FAULTS: list[Fault] = []

LAWFUL = {("body ends before the answer is complete", "ag-kit"), ("an empty body", "ag-kit")}
"""Faults that are none for this backend: its end mark may be missing (ag-kit protocol page, part 1, rule 4)."""


def fault(name: str, *, begun: bool = False, complete: bool = False, **section: Any) -> Callable[[Play], Play]:
    def keep(play: Play) -> Play:
        FAULTS.append(Fault(name, play, begun, complete, section))
        return play

    return keep


async def _begin(exchange: Exchange, said: Said) -> None:
    await exchange.head()
    await exchange.send(said.first)
    await said.heard.wait()


@fault("reset before the response head")
async def _(exchange: Exchange, said: Said) -> None:
    exchange.reset()


@fault("closed before the response head")
async def _(exchange: Exchange, said: Said) -> None:
    exchange.close()


@fault("closed inside the response head")
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.raw(b"HTTP/1.1 200 OK\r\ncontent-ty")
    exchange.close()


@fault("reset after the response head")
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.head()
    exchange.reset()


@fault("reset between events", begun=True)
async def _(exchange: Exchange, said: Said) -> None:
    await _begin(exchange, said)
    exchange.reset()


@fault("reset inside an event", begun=True)
async def _(exchange: Exchange, said: Said) -> None:
    await _begin(exchange, said)
    await exchange.send(said.half)
    exchange.reset()


@fault("reset inside a character", begun=True)
async def _(exchange: Exchange, said: Said) -> None:
    await _begin(exchange, said)
    await exchange.send(said.cut_sun)
    exchange.reset()


@fault("closed inside an event", begun=True)
async def _(exchange: Exchange, said: Said) -> None:
    await _begin(exchange, said)
    await exchange.send(said.half)
    exchange.close()


@fault("body ends before the answer is complete", begun=True, complete=True)
async def _(exchange: Exchange, said: Said) -> None:
    await _begin(exchange, said)
    await exchange.end()


@fault("body ends inside a character", begun=True, complete=True)
async def _(exchange: Exchange, said: Said) -> None:
    await _begin(exchange, said)
    await exchange.send(said.cut_sun)
    await exchange.end()


# The limit counts from before the request is sent: on a busy machine that takes its time.
@fault("silent before the response head", timeouts={"first_event": "400ms"})
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.left()


@fault("silent after the response head", timeouts={"first_event": "150ms"})
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.head()
    await exchange.left()


@fault("only SSE comments", timeouts={"total": "400ms"})
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.head()
    with suppress(ConnectionError):
        while not exchange.seen.gone.is_set():
            await exchange.send(b": alive\n\n" * 4_000)
            await asyncio.sleep(0.005)


@fault("silent between events", begun=True, timeouts={"idle": "150ms"})
async def _(exchange: Exchange, said: Said) -> None:
    await _begin(exchange, said)
    await exchange.left()


@fault("silent inside a character", begun=True, timeouts={"idle": "150ms"})
async def _(exchange: Exchange, said: Said) -> None:
    await _begin(exchange, said)
    await exchange.send(said.cut_sun)
    await exchange.left()


@fault("no end mark, connection stays open", begun=True, timeouts={"total": "600ms"})
async def _(exchange: Exchange, said: Said) -> None:
    await _begin(exchange, said)
    with suppress(ConnectionError):
        while not exchange.seen.gone.is_set():
            await exchange.send(b": alive\n\n" * 4_000)
            await asyncio.sleep(0.005)


@fault("not HTTP")
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.raw(b"SSH-2.0-OpenSSH_9.6\r\n\0\x01\x02\r\n\r\n")
    exchange.close()


@fault("an HTML page", complete=True)
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.answer(200, b"<!doctype html><title>Sign in</title>", "text/html")


@fault("half a JSON value", complete=True)
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.answer(200, b'{"choices": [{"mess')


@fault("an empty body", complete=True)
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.answer(200, b"", "text/event-stream")


@fault("an event that is not JSON", begun=True, complete=True)
async def _(exchange: Exchange, said: Said) -> None:
    await _begin(exchange, said)
    await exchange.send(b"data: {no json\n\n" + said.sunny + said.rest)
    await exchange.end()


@fault("an event that is not UTF-8", begun=True, complete=True)
async def _(exchange: Exchange, said: Said) -> None:
    await _begin(exchange, said)
    await exchange.send(said.sunny.replace(SUN, b"\xff\xfe") + said.rest)
    await exchange.end()


@fault("an invalid chunk size", begun=True)
async def _(exchange: Exchange, said: Said) -> None:
    await _begin(exchange, said)
    await exchange.raw(b"zz\r\nhello\r\n")
    await exchange.left()


@fault("an event that never ends", begun=True, max_event="64KiB")
async def _(exchange: Exchange, said: Said) -> None:
    await _begin(exchange, said)
    with suppress(ConnectionError):
        await exchange.send(b'data: "')
        while not exchange.seen.gone.is_set():
            await exchange.send(b"x" * 10_000)


@fault("a body declared as gzip", complete=True)
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.head(content_encoding="gzip")
    await exchange.send(said.first)
    await exchange.end()


@fault("HTTP 307 to another host", complete=True)
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.answer(307, b"", location="http://elsewhere.invalid/")


@fault("HTTP 401", complete=True)
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.answer(401, b'{"error":{"message":"Incorrect API key provided: sk-backend1234"}}')


@fault("HTTP 429", complete=True)
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.answer(429, b'{"error":{"message":"slow down"}}', retry_after="3")


@fault("HTTP 500 with a stack trace", complete=True)
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.answer(500, b"Traceback (most recent call last):\n" + b"x" * 2_000_000, "text/plain")


@fault("HTTP 503", complete=True)
async def _(exchange: Exchange, said: Said) -> None:
    await exchange.answer(503, b"upstream connect error", "text/plain")
