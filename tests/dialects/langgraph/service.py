"""A small LangGraph server on a socket, which plays recorded streams: threads, runs, joins and cancels."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

from bridge.model.jsontext import dumps
from bridge.testing import Exchange, fake_backend
from tests.recorded import CAPTURES, body

RUN = "01a217b9-0000-7000-8000-000000000001"
_ID = re.compile(rb"^id: ?(.*)$", re.MULTILINE)


def recorded(name: str) -> list[bytes]:
    """The events of a recorded stream, with the bytes that separate them."""
    data = body(CAPTURES / "langgraph" / f"{name}.response.http")
    end = b"\r\n\r\n" if b"\r\n\r\n" in data else b"\n\n"
    return [event + end for event in data.split(end) if event.strip()]


def event(name: str, data: Any, place: object = None) -> bytes:
    """One event; `place` is its id."""
    last = f"id: {place}\n" if place is not None else ""
    return f"event: {name}\n".encode() + b"data: " + dumps(data) + f"\n{last}\n".encode()


def events(*pairs: tuple[str, Any], first: int = 0) -> list[bytes]:
    """Events with numbers as ids."""
    return [event(name, data, first + n) for n, (name, data) in enumerate(pairs)]


class Server:
    """`play` is the stream of each run; a run's state is the next of `statuses`, the last again and again.

    `cuts` are the numbers of events after which a connection ends: cleanly, or with `reset` with a reset connection.
    `joins` are the streams for those who come back; without, they get what follows their `Last-Event-ID`. `forgets`:
    its threads are gone, and only a run that may create one begins. `more` are further fields of a run; `needs_input`
    refuses runs with neither an input nor a command. Runs begin when `go_on` is set; `held`: one waits. `log` holds the
    requests, `bodies` what runs were started with, `cursors` the ids of joins.
    """

    def __init__(
        self,
        play: Sequence[bytes] | str = "text",
        *,
        statuses: Sequence[Any] = ("success",),
        cuts: Sequence[int] = (),
        reset: bool = False,
        joins: Sequence[Sequence[bytes] | int] = (),
        state: Any = None,
        error: Any = None,
        refuses: tuple[int, Any] | None = None,
        names_run: bool = True,
        stays: bool = False,
        forgets: bool = False,
        more: dict[str, Any] | None = None,
    ) -> None:
        self.play = recorded(play) if isinstance(play, str) else list(play)
        self.statuses = list(statuses)
        self.cuts = list(cuts)
        self.reset = reset
        self.joins = list(joins)
        self.state = state
        self.error = error
        self.refuses = refuses
        self.names_run = names_run
        self.stays = stays
        self.forgets = forgets
        self.more = more or {}
        self.held, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()
        self.needs_input: tuple[int, Any] | None = None
        self.missing = 404, dumps({"detail": "Thread or assistant not found."})
        self.log: list[str] = []
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.cursors: list[str | None] = []
        self.url = ""

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Server]:
        async with fake_backend() as backend:
            backend.plays(self._answer)
            self.url = backend.url
            yield self

    async def _answer(self, exchange: Exchange) -> None:
        seen = exchange.seen
        path, _, query = seen.path.partition("?")
        self.log.append(f"{seen.method} {re.sub(r'/threads/[^/]+', '/threads/T', path)}{query and '?' + query}")
        match seen.method, path.strip("/").split("/"):
            case "POST", [*_, "runs", "stream"] if self.refuses is not None:
                self.headers.append(seen.headers)
                await exchange.answer(self.refuses[0], dumps(self.refuses[1]))
            case "POST", [*where, "runs", "stream"]:
                self.bodies.append(json.loads(seen.body))
                self.headers.append(seen.headers)
                if self.forgets and self.bodies[-1].get("if_not_exists") == "reject":
                    await exchange.answer(*self.missing)
                    return
                given = self.bodies[-1].get("input"), self.bodies[-1].get("command")
                if self.needs_input is not None and given == (None, None):
                    await exchange.answer(self.needs_input[0], dumps(self.needs_input[1]))
                    return
                self.held.set()
                await self.go_on.wait()
                base = "/".join(["", *where, "runs", RUN])
                names = {"location": f"{base}/stream", "content_location": base} if self.names_run else {}
                await exchange.head(200, "text/event-stream; charset=utf-8", **names)
                await self._stream(exchange, self.play)
            case "GET", ["threads", _, "runs", _, "stream"]:
                cursor = seen.headers.get("last-event-id")
                self.cursors.append(cursor)
                joined = self.joins.pop(0) if self.joins else self._after(cursor)
                if isinstance(joined, int):
                    await exchange.answer(joined, dumps({"detail": "not here"}))
                    return
                await exchange.head(200, "text/event-stream")
                await self._stream(exchange, joined)
            case "GET", ["threads", _, "runs", run]:
                status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
                if isinstance(status, int):
                    await exchange.answer(status, dumps({"detail": "Run not found"}))
                else:
                    await exchange.answer(200, dumps({"run_id": run, "status": status, **self.more}))
            case "GET", ["threads", _, "state"] if self.state is not None:
                await exchange.answer(200, dumps(self.state))
            case "GET", ["threads", _, "state"] if not self.forgets:
                await exchange.answer(500, dumps({"detail": "Internal Server Error"}))
            case "GET", ["threads", thread] if self.error is not None:
                await exchange.answer(200, dumps({"thread_id": thread, "status": "error", "error": self.error}))
            case "POST", [*_, "cancel"]:
                await exchange.answer(200, b"{}")
            case _:
                await exchange.answer(404, dumps({"detail": "Not Found"}))

    def _after(self, cursor: str | None) -> Sequence[bytes]:
        ids = [found[1].decode().strip() if (found := _ID.search(each)) else "" for each in self.play]
        return self.play[ids.index(cursor) + 1 :] if cursor in ids else self.play if cursor == "-1" else []

    async def _stream(self, exchange: Exchange, play: Sequence[bytes]) -> None:
        cut = self.cuts.pop(0) if self.cuts else None
        for each in play[:cut]:
            await exchange.send(each)
        if self.stays:
            await exchange.left()
        elif cut is not None and self.reset:
            exchange.reset()
        else:
            await exchange.end()
