"""What the tests of stops, sessions and tasks share: a model that waits to be told, and clients that read along."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.dialects.agentscope.frontends import WebFrontend, python_client
from tests.server.harness import Exchange, FakeBackend

CHUNK = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
END = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
STOPPED = {"status": "success", "message": "Interrupt signal broadcasted."}
FORMS = ("agentscope", "agentscope-java")
forms = pytest.mark.parametrize("form", FORMS)
kinds = pytest.mark.parametrize("durable", [False, True], ids=["plain", "durable"])


def config(folder: Path, backend: FakeBackend, *, form: str = "agentscope", durable: bool = False, **more: Any) -> Any:
    server = more.pop("server", {})
    route = {"dialect": form, "path": "/a", "backend": "it", "durable": durable, "options": more}
    return {
        "backends": {"it": {"dialect": "openai-chat", "url": backend.url, "model": "m"}},
        "routes": [route],
        "stores": {"runs": f"sqlite:///{folder}/runs.db"},
        "server": server,
    }


def said(
    text: str = "Hi", session: str | None = "s", user: str | None = "u", form: str = "agentscope", **more: Any
) -> Any:
    java = form == "agentscope-java"
    kind, session_name, user_name = ("MESSAGE", "sessionId", "userId") if java else ("message", "session_id", "user_id")
    body = {"input": [{"role": "user", "type": kind, "content": [{"type": "text", "text": text}]}], **more}
    return {**body, **{k: v for k, v in ((session_name, session), (user_name, user)) if v is not None}}


def named(form: str, session: str = "s", user: str | None = "u") -> dict[str, Any]:
    return {**said("", session, user, form), "input": []}


class Script:
    """A model that says `one `, and the rest when it is told to; each request of it is counted."""

    def __init__(self, backend: FakeBackend, *, silent: bool = False) -> None:
        self.go_on, self.asked, self.left = asyncio.Event(), asyncio.Semaphore(0), asyncio.Semaphore(0)
        self._silent = silent
        backend.plays(self)

    async def __call__(self, exchange: Exchange) -> None:
        self.asked.release()
        await exchange.head()
        if not self._silent:
            await exchange.send(CHUNK % b"one ")
        leaving = asyncio.create_task(exchange.left())
        going = asyncio.create_task(self.go_on.wait())
        await asyncio.wait({leaving, going}, return_when=asyncio.FIRST_COMPLETED)
        going.cancel()
        if leaving.done():
            self.left.release()
            return
        leaving.cancel()
        await exchange.send(CHUNK % b"two")
        await exchange.send(END)
        await exchange.end()


class Reading:
    """A client that reads an answer while the test goes on."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.body = b""
        self._response = response

    async def until(self, word: bytes) -> None:
        while word not in self.body:
            piece = await self._response.content.readany()
            assert piece, self.body
            self.body += piece

    async def whole(self) -> bytes:
        async with asyncio.timeout(40):
            self.body += await self._response.read()
        return self.body


@asynccontextmanager
async def reading(url: str, body: Any, **headers: str) -> AsyncIterator[Reading]:
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as response:
        yield Reading(response)


def without_comments(body: bytes) -> bytes:
    return b"".join(block + b"\n\n" for block in body.split(b"\n\n") if block and not block.startswith(b":"))


def events(body: bytes) -> list[dict[str, Any]]:
    lines = body.decode().split("\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def text_in(event: dict[str, Any]) -> str:
    return "".join(c["text"] for m in event["output"] or () for c in m["content"])


def check(body: bytes, form: str, status: str, text: str) -> dict[str, Any]:
    """The stream ends once, as `status`, with all that was said; both known clients see it so."""
    told = events(body)
    numbers = [e["sequenceNumber" if form == "agentscope-java" else "sequence_number"] for e in told]
    assert numbers == list(range(len(told)))
    last = told[-1]
    assert [e["status"] for e in told if e["object"] == "response"] == ["created", "in_progress", status]
    assert (last["object"], text_in(last)) == ("response", text)
    if form == "agentscope":
        frontend = WebFrontend().read(body)
        assert frontend.errors == []
        assert [value for _, value in frontend.shown()] == ([text] if text else [])
        assert frontend.generating is (status == "canceled")
        assert python_client(body)[-1].status == status
    return last
