"""A client of MCP by hand, of both kinds of revisions."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bridge.translation.framing.sse import Splitter
from tests.server.harness import serving

NEW, OLD = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"
TASKS = f"{META}tasks"
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
FORMS = {"elicitation": {"form": {}}}
AGENT = {"dialect": "python", "target": "tests.dialects.mcp.agent:run"}


def config(folder: Path, *routes: dict[str, Any], **server: Any) -> dict[str, Any]:
    return {
        "server": {"keepalive": "15s", **server},
        "backends": {"agent": AGENT, "demo": {"dialect": "demo"}},
        "routes": list(routes) or [route()],
        "stores": {"history": f"sqlite:///{folder}/history.db", "runs": f"sqlite:///{folder}/runs.db"},
    }


def route(path: str = "/mcp", **fields: Any) -> dict[str, Any]:
    return {"dialect": "mcp", "path": path, "backend": "agent", **fields}


def offering(**tools: Any) -> dict[str, Any]:
    """A route with several tools."""
    offered = {name: tool if isinstance(tool, dict) else {"backend": tool} for name, tool in tools.items()}
    return route(backend=None, tools=offered, options={"instructions": "Ask them."})


@dataclass
class Answer:
    """What came for one message: the notifications and questions before its answer, and the answer."""

    status: int
    headers: dict[str, str]
    body: bytes
    messages: list[Any] = field(default_factory=list)

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def last(self) -> Any:
        return self.messages[-1]

    @property
    def result(self) -> Any:
        return self.last["result"]

    @property
    def error(self) -> Any:
        return self.last["error"]

    @property
    def texts(self) -> list[str]:
        return [part["text"] for part in self.result["content"] if part["type"] == "text"]

    @property
    def progress(self) -> list[dict[str, Any]]:
        return [m["params"] for m in self.messages if m.get("method") == "notifications/progress"]

    @property
    def conversation(self) -> str:
        return self.texts[1].removeprefix("conversation: ")


@dataclass
class Client:
    url: str
    session: aiohttp.ClientSession
    headers: dict[str, str] = field(default_factory=dict)
    number: int = 0

    async def send(self, body: Any, headers: dict[str, str] | None = None, method: str = "POST") -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {**ACCEPT, **self.headers, **(headers or {})}
        async with self.session.request(method, self.url, data=data, headers=sent) as response:
            raw = await response.read()
            found = Answer(response.status, {k.lower(): v for k, v in response.headers.items()}, raw)
        if found.is_stream:
            found.messages = events(raw)
        elif raw:
            value = json.loads(raw)
            found.messages = value if isinstance(value, list) else [value]
        return found

    def message(self, method: str, params: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        self.number += 1
        members = {"jsonrpc": "2.0", "id": self.number, "method": method, **fields}
        return members if params is None else {**members, "params": params}


def events(raw: bytes) -> list[Any]:
    """The messages of an event stream."""
    frames = Splitter().feed(raw)
    return [json.loads(data) for f in frames if (data := f if isinstance(f, bytes) else f.data)]


class New(Client):
    """Without sessions."""

    def framed(
        self, method: str, params: dict[str, Any] | None = None, capabilities: Any = None, token: Any = None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        meta: dict[str, Any] = {f"{META}protocolVersion": NEW, f"{META}clientCapabilities": capabilities or {}}
        if token is not None:
            meta["progressToken"] = token
        body = self.message(method, {**(params or {}), "_meta": meta})
        headers = {"mcp-protocol-version": NEW, "mcp-method": method}
        if "name" in (params or {}):
            headers["mcp-name"] = str((params or {})["name"])
        return body, headers

    async def ask(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> Answer:
        return await self.send(*self.framed(method, params, **more))

    async def call(self, prompt: str, tool: str = "ask_agent", *, params: Any = None, **more: Any) -> Answer:
        rest = {key: more.pop(key) for key in ("capabilities", "token") if key in more}
        arguments = {"prompt": prompt, **more}
        return await self.ask("tools/call", {"name": tool, "arguments": arguments, **(params or {})}, **rest)


class Old(Client):
    """With a session."""

    async def start(self, version: str = OLD, capabilities: Any = None) -> Answer:
        params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": {"name": "t"}}
        answer = await self.send(self.message("initialize", params))
        self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        self.headers["mcp-protocol-version"] = answer.result["protocolVersion"]
        ready = await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (ready.status, ready.body) == (202, b"")
        return answer

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> Answer:
        return await self.send(self.message(method, params))

    def framed(self, prompt: str, tool: str = "ask_agent", token: Any = None, **arguments: Any) -> dict[str, Any]:
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        return self.message("tools/call", {"name": tool, "arguments": {"prompt": prompt, **arguments}, **meta})

    async def call(self, prompt: str, tool: str = "ask_agent", token: Any = None, **arguments: Any) -> Answer:
        return await self.send(self.framed(prompt, tool, token, **arguments))

    @contextlib.asynccontextmanager
    async def open(self, body: dict[str, Any]) -> AsyncIterator[AsyncIterator[Any]]:
        """A call, and its messages as they come."""
        sent = {**ACCEPT, **self.headers}
        async with self.session.post(self.url, data=json.dumps(body).encode(), headers=sent) as response:

            async def messages() -> AsyncIterator[Any]:
                splitter = Splitter()
                async for data in response.content.iter_any():
                    for frame in splitter.feed(data):
                        if payload := frame if isinstance(frame, bytes) else frame.data:
                            yield json.loads(payload)

            yield messages()


@contextlib.asynccontextmanager
async def served(setup: dict[str, Any], path: str = "/mcp", **headers: str) -> AsyncIterator[tuple[New, Old]]:
    """A bridge, and a client of each kind."""
    async with serving(setup) as base, aiohttp.ClientSession() as session:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        yield New(f"{base}{path}", session, dict(sent)), Old(f"{base}{path}", session, dict(sent))


async def until(found: Any) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(10):
        while not found():
            await asyncio.sleep(0.01)
