"""A small agent service on a socket: sessions, their streams, and a reply that is played when a run is started."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from bridge.model.jsontext import dumps
from bridge.testing import Exchange, fake_backend

WORDS = ("Hello, ", "world.")


def reply_of(*words: str, end: bool = True) -> list[dict[str, Any]]:
    """The events of a reply that says this."""
    deltas = [{"type": "TEXT_BLOCK_DELTA", "block_id": "b", "delta": word} for word in words]
    events = [{"type": "REPLY_START"}, {"type": "MODEL_CALL_START", "model_name": "m"}, *deltas]
    return [*events, {"type": "REPLY_END", "finished_reason": "completed"}] if end else events


class Service:
    """`plays` are the events of each run, the last ones again and again; `log` is what it was asked.

    Where `missed` is given, so many interrupts have no effect, and the next one ends the run.
    Requests that begin with `holds` are answered when `go_on` is set; `held`: one waits.
    """

    def __init__(
        self,
        *plays: list[dict[str, Any]],
        status: str = "idle",
        busy: int = 0,
        breaks: int = 0,
        cleanly: bool = False,
        missed: int | None = None,
    ) -> None:
        self.plays = list(plays) or [reply_of(*WORDS)]
        self.status = status
        self.busy = busy
        self.breaks = breaks
        self.cleanly = cleanly
        self.missed = missed
        self.interrupted = asyncio.Event()
        self.log: list[str] = []
        self.made: list[dict[str, Any]] = []
        self.posted: list[Any] = []
        self.url = ""
        self.said = asyncio.Event()
        self.held, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()
        self.holds = ""
        self._started: dict[str, asyncio.Event] = {}
        self._count = 0

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Service]:
        async with fake_backend() as backend:
            backend.plays(self._play)
            self.url = backend.url
            yield self

    async def _play(self, exchange: Exchange) -> None:
        seen = exchange.seen
        path, _, _ = seen.path.partition("?")
        assert seen.headers["x-user-id"]
        self.log.append(f"{seen.method} {path}")
        if self.holds and self.log[-1].startswith(self.holds):
            self.held.set()
            await self.go_on.wait()
        match seen.method, path.strip("/").split("/"):
            case "GET", ["agent"]:
                await exchange.answer(200, dumps({"agents": [{"id": "a1"}], "total": 1}))
            case "GET", ["sessions"]:
                views = [{"session": {"id": f"s{n}", "config": made}} for n, made in enumerate(self.made)]
                await exchange.answer(200, dumps({"sessions": views}))
            case "POST", ["sessions"]:
                self.made.append(json.loads(seen.body))
                await exchange.answer(201, dumps({"session_id": f"s{len(self.made) - 1}"}))
            case "GET", ["sessions", session, "stream"]:
                await self._stream(exchange, session)
            case "POST", ["sessions", _, "interrupt"] if self.missed is not None:
                self.missed -= 1
                if self.missed < 0:
                    self.interrupted.set()
                await exchange.answer(202, b"{}")
            case "GET", ["sessions", _, "messages"]:
                history = [{"role": "user", "content": []}]
                await exchange.answer(200, dumps({"messages": history, "event_cursor": "1-0"}))
            case "GET", ["sessions", session, "status"]:
                await exchange.answer(200, dumps({"session_id": session, "status": self.status}))
            case "POST", ["chat"] if self.busy:
                self.busy -= 1
                await exchange.answer(409, dumps({"detail": "a run is on"}))
            case "POST", ["chat"]:
                body = json.loads(seen.body)
                self.posted.append(body["input"])
                self._count += 1
                self._run(body["session_id"]).set()
                await exchange.answer(200, dumps({"status": "started", "session_id": body["session_id"]}))
            case _:
                await exchange.answer(202, b"{}")

    def _run(self, session: str) -> asyncio.Event:
        return self._started.setdefault(session, asyncio.Event())

    async def _stream(self, exchange: Exchange, session: str) -> None:
        await exchange.head(200, "text/event-stream; charset=utf-8")
        started = self._run(session)
        await started.wait()
        number = self._count
        play = self.plays.pop(0) if len(self.plays) > 1 and not self.breaks else self.plays[0]
        for place, event in enumerate(play):
            if self.breaks and place == len(play) - 1:
                self.breaks -= 1
                if self.cleanly:  # within the next event
                    await exchange.send(b'data: {"id": "')
                    await exchange.end()
                else:
                    exchange.reset()
                return
            name = {"id": f"{session}-{number}-{place}", "reply_id": f"reply{number:03}"}
            await exchange.send(b"data: " + dumps({**name, **event}) + b"\n\n")
        self.said.set()
        started.clear()
        if self.missed is not None:
            await self.interrupted.wait()
            end = {"type": "REPLY_END", "id": "end", "reply_id": f"reply{number:03}", "finished_reason": "interrupted"}
            await exchange.send(b"data: " + dumps(end) + b"\n\n")
        await exchange.left()
