"""A backend that speaks the agent run API, written from its description alone: queue, log, cancel, uploads.

It keeps each thread, and hears of a message list what follows the last message that it has.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

from tests.pairs.agents import Agui, Hang, Heard, Step, agui_message, said
from tests.server.harness import Exchange, FakeBackend, serving

Wire = dict[str, Any]
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class Log:
    """The events of one run, each with its number in the thread."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []
        self.over = False
        self.canceled = asyncio.Event()
        self.grown = asyncio.Condition()


class Runs(Agui):
    dialect = "agent-runs"
    remembers = True

    def __init__(self, backend: FakeBackend) -> None:
        super().__init__(backend)
        self.conversations: dict[str, list[tuple[Any, ...]]] = {}
        self.known: dict[str, set[str]] = {}
        self.logs: dict[tuple[str, str], Log] = {}
        self.uploads: dict[str, str] = {}
        self.count = 0

    # ------------------------------------------------------------------ what it hears

    def hear(self, body: Wire) -> Heard:
        assert body["forwardedProps"]["runtime_mode"] == "chat"
        assert _ID.fullmatch(body["threadId"])
        assert _ID.fullmatch(body["runId"])
        assert body.get("resume") or body["messages"][-1]["role"] in ("user", "tool")
        heard = Heard([], [t["name"] for t in body["tools"]])
        for message in self._new(body):
            agui_message(heard, message)
        conversation = self.conversations.setdefault(body["threadId"], [])
        conversation += heard.conversation
        heard.conversation = list(conversation)
        heard.images = [self.uploads.get(url, url) for url in heard.images]
        for entry in body.get("resume") or []:
            heard.resume, heard.resumed = entry.get("payload"), entry["interruptId"]
            heard.refused = entry["status"] == "cancelled"
        return heard

    def _new(self, body: Wire) -> list[Wire]:
        """What follows the last message that is kept, and its own answer to that."""
        known, messages = self.known.setdefault(body["threadId"], set()), body["messages"]
        assert len({m["id"] for m in messages}) == len(messages)
        place = max((n + 1 for n, m in enumerate(messages) if m["id"] in known), default=0)
        while 0 < place < len(messages) and self._mine(messages[place], body["threadId"]):
            place += 1
        known.update(m["id"] for m in messages)
        return list(messages[place:])

    def _mine(self, message: Wire, thread: str) -> bool:
        results = {e[1] for e in self.conversations[thread] if e[0] == "result"}
        return message["role"] in ("assistant", "reasoning") or message.get("toolCallId") in results

    def remember(self, body: Wire, steps: list[Step]) -> None:
        self.conversations[body["threadId"]] += said(steps)

    # ------------------------------------------------------------------ what it answers

    async def left(self, number: int) -> None:
        await list(self.logs.values())[number].canceled.wait()

    async def _play(self, exchange: Exchange) -> None:
        seen = exchange.seen
        parts = urlsplit(seen.path)
        query = {k: v[0] for k, v in parse_qs(parts.query).items()}
        assert seen.headers["authorization"] == "Bearer backend-key"
        if seen.method == "POST" and parts.path == "/runs":
            await self._start(exchange)
        elif seen.method == "POST" and parts.path == "/attachments":
            await self._upload(exchange)
        elif found := re.fullmatch(r"/runs/([^/]+)/(events|cancel)", parts.path):
            log = self.logs[found[1], query["runId"]]
            await (self._read(exchange, log) if found[2] == "events" else self._cancel(exchange, log))
        else:
            raise AssertionError(f"no endpoint: {seen.method} {parts.path}")

    async def _start(self, exchange: Exchange) -> None:
        body = exchange.seen.json
        key = (body["threadId"], body["runId"])
        assert key not in self.logs, "a run id used twice"
        self.logs[key] = Log()
        heard = self.hear(body)
        self.heard.append(heard)
        steps = self.brain(heard)
        answer = {"taskId": body["runId"], "threadId": key[0], "runId": key[1], "created": len(self.logs) == 1}
        await exchange.answer(202, orjson.dumps(answer))
        for event in self.wire(steps):
            assert isinstance(event, dict)
            await self.write(key, event)
        if any(isinstance(step, Hang) for step in steps):
            self.hanging.set()
            return
        self.remember(body, steps)

    async def write(self, key: tuple[str, str], event: Wire) -> None:
        log = self.logs[key]
        self.count += 1
        data = orjson.dumps({**event, "threadId": key[0], "runId": key[1]})
        async with log.grown:
            log.frames.append((self.count, b"id: 1795242297063-%d\ndata: %b\n\n" % (self.count, data)))
            log.over = log.over or event["type"] in ("RUN_FINISHED", "RUN_ERROR")
            log.grown.notify_all()

    async def _read(self, exchange: Exchange, log: Log) -> None:
        last = int(exchange.seen.headers.get("last-event-id", "0-0").partition("-")[2])
        if log.over and log.frames[-1][0] <= last:
            await exchange.answer(204, b"")
            return
        await exchange.head()
        await exchange.send(b": keep-alive\n\n")
        while True:
            for number, frame in list(log.frames):
                if number > last:
                    await exchange.send(frame)
                    last = number
            if log.over and log.frames[-1][0] <= last:
                break
            async with log.grown:
                while log.frames[-1][0] <= last:
                    await log.grown.wait()
        await exchange.end()

    async def _cancel(self, exchange: Exchange, log: Log) -> None:
        log.canceled.set()
        key = next(key for key, value in self.logs.items() if value is log)
        await exchange.answer(202, orjson.dumps({"threadId": key[0], "runId": key[1], "accepted": True}))
        if not log.over:
            await self.write(key, {"type": "RUN_ERROR", "message": "cancelled", "code": "RUN_CANCELLED"})

    async def _upload(self, exchange: Exchange) -> None:
        border = b"--" + exchange.seen.headers["content-type"].partition("boundary=")[2].encode()
        fields: dict[str, tuple[str, bytes]] = {}
        for piece in exchange.seen.body.split(border)[1:-1]:
            head, _, content = piece.removeprefix(b"\r\n").removesuffix(b"\r\n").partition(b"\r\n\r\n")
            name = re.search(r'name="(\w+)"', head.decode())
            kind = re.search(r"(?i)content-type: (\S+)", head.decode())
            assert name is not None
            fields[name[1]] = kind[1] if kind else "", content
        assert _ID.fullmatch(fields["threadId"][1].decode())
        mime, content = fields["file"]
        assert content.startswith(b"\x89PNG")
        url = f"https://store.example/{len(self.uploads)}.png?sig=x"
        self.uploads[url] = f"data:{mime};base64,{base64.b64encode(content).decode()}"
        answer = {"bucket": "b", "path": "p", "mimeType": mime, "url": url}
        await exchange.answer(200, orjson.dumps({"attachment": answer}))


class BridgedRuns(Agui):
    """The bridge's own server of this API, in front of an agent that speaks AG-UI."""

    dialect = "agent-runs"
    remembered = True

    @asynccontextmanager
    async def served(self, folder: Path) -> AsyncIterator[str]:
        store = f"sqlite:///{folder}/behind.db"
        config = {
            "server": {"auth": {"keys": [{"name": "bridge", "key": "backend-key"}]}},
            "backends": {"it": {"dialect": "ag-ui", "url": self.backend.url}},
            "routes": [
                {"dialect": "agent-runs", "path": "/agent", "backend": "it", "options": {"connection_limit": 100}}
            ],
            "stores": {"history": store, "runs": store, "attachments": f"file:///{folder}/images"},
        }
        async with serving(config) as base:
            yield f"{base}/agent"


RUNS: dict[str, type[Agui]] = {"agent-runs": Runs, "agent-runs bridged": BridgedRuns}
