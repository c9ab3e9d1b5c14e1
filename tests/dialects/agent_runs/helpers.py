"""What the tests of this dialect share: the API served for real, its users, and captures of it."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ag_ui.core import Event as OfficialEvent
from pydantic import TypeAdapter

from bridge.contract import Frame
from bridge.translation.framing import sse
from tests.server.harness import FakeBackend, Reply, ask, post, serving

CAPTURES = Path(__file__).parents[2] / "captures" / "agent-runs"
OFFICIAL: TypeAdapter[Any] = TypeAdapter(OfficialEvent)
BASE = "/api/v1/agent"
THREAD = "thread-r1"

CHUNK = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n'
END = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def config(folder: Path, backend: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One route on files of this folder; `more`: options of the route, and whole sections of the configuration."""
    sections = {name: more.pop(name) for name in ("server", "stores", "speech", "backends", "modes") if name in more}
    keys = [{"name": name, "key": f"{name}-token"} for name in ("alice", "bob")]
    route = {"dialect": "agent-runs", "path": BASE, "backend": sections.get("modes", "it")}
    return {
        "server": {"auth": {"keys": keys}, **sections.get("server", {})},
        "backends": sections.get("backends", {"it": backend or {"dialect": "demo"}}),
        "routes": [{**route, "options": {"poll_interval": 0.02, **more}}],
        "stores": {
            "history": f"sqlite:///{folder}/bridge.db",
            "runs": f"sqlite:///{folder}/bridge.db",
            "attachments": f"file:///{folder}/attachments",
            **sections.get("stores", {}),
        },
        **({"speech": sections["speech"]} if "speech" in sections else {}),
    }


def served(folder: Path, backend: dict[str, Any] | None = None, **more: Any) -> AbstractAsyncContextManager[str]:
    return serving(config(folder, backend, **more))


def llm(backend: FakeBackend) -> dict[str, Any]:
    return {"dialect": "openai-chat", "url": backend.url, "model": "m"}


def run_input(text: str = "text", run: str = "run-1", **fields: Any) -> dict[str, Any]:
    message = {"id": f"user-{run}", "role": "user", "content": text}
    return {
        "threadId": THREAD, "runId": run, "state": {}, "messages": [message], "tools": [], "context": [],
        "forwardedProps": {"runtime_mode": "chat"}, **fields,
    }  # fmt: skip


class Client:
    """One user of the API at `url`."""

    def __init__(self, url: str, user: str = "alice") -> None:
        self.base = url + BASE
        self.headers = {"authorization": f"Bearer {user}-token"}

    async def start(self, body: Any) -> Reply:
        return await post(f"{self.base}/runs", body, **self.headers)

    async def run(self, *words: Any, **fields: Any) -> bytes:
        """Starts a run and reads it to its end."""
        body = run_input(*words, **fields)
        assert (await self.start(body)).status == 202
        reply = await self.events(body["runId"], thread=body["threadId"])
        assert reply.status == 200
        return reply.body

    async def events(self, run: str = "run-1", last: str = "", *, thread: str = THREAD, query: str = "") -> Reply:
        headers = {**self.headers, "last-event-id": last}
        return await ask("GET", f"{self.base}/runs/{thread}/events?runId={quote(run)}{query}", headers=headers)

    async def cancel(self, run: str = "run-1", thread: str = THREAD) -> Reply:
        return await ask("POST", f"{self.base}/runs/{thread}/cancel?runId={run}", headers=self.headers)

    async def get(self, path: str) -> Reply:
        return await ask("GET", f"{self.base}{path}", headers=self.headers)

    async def send(self, path: str, data: Any) -> Reply:
        return await ask("POST", f"{self.base}{path}", data, self.headers)


def blocks(body: bytes) -> list[bytes]:
    """The frames of a stream as they came, comments left out."""
    return [block + b"\n\n" for block in body.split(b"\n\n") if block and not block.startswith(b":")]


def frames(body: bytes) -> list[Frame]:
    splitter = sse.Splitter()
    found = [*splitter.feed(body), *splitter.close()]
    return [frame for frame in found if isinstance(frame, Frame)]


def events_in(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(frame.data) for frame in frames(body)]


def types_in(body: bytes) -> list[str]:
    return [event["type"] for event in events_in(body)]


def text_in(body: bytes) -> str:
    return "".join(event.get("delta", "") for event in events_in(body) if event["type"] == "TEXT_MESSAGE_CONTENT")


def request_in(name: str) -> tuple[str, str, dict[str, str], bytes]:
    """Method, path below the mount, headers and body of a captured request."""
    head, _, body = (CAPTURES / f"{name}.request.http").read_bytes().partition(b"\r\n\r\n")
    line, *rest = head.decode().split("\r\n")
    headers = {n.lower(): v.strip() for n, _, v in (header.partition(":") for header in rest)}
    kept = ("authorization", "content-type", "accept", "last-event-id")
    method, path, _ = line.split(" ")
    return method, path.removeprefix(BASE), {n: v for n, v in headers.items() if n in kept}, body


def response_in(name: str) -> tuple[int, dict[str, str], bytes]:
    head, _, body = (CAPTURES / f"{name}.response.http").read_bytes().partition(b"\r\n\r\n")
    line, *rest = head.decode().split("\r\n")
    headers = {n.lower(): v.strip() for n, _, v in (header.partition(":") for header in rest)}
    if headers.get("transfer-encoding") == "chunked":
        body = _dechunked(body)
    return int(line.split(" ")[1]), headers, body


def _dechunked(body: bytes) -> bytes:
    out = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size or b"0", 16)
        out += rest[:length]
        body = rest[length + 2 :]
    return out
