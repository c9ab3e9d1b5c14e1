"""The bridge with an Ollama route in front of a fake backend, and what its clients read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bridge.contract import Context, WireRequest
from bridge.dialects.ollama import dialect
from bridge.dialects.ollama.options import BackOptions, FrontOptions
from bridge.model import Event, Request, verify
from bridge.model.jsontext import dumps
from bridge.testing import FakeBackend, fake_backend
from tests.recorded import body
from tests.server.harness import Reply, serving

CAPTURES = Path(__file__).parents[2] / "captures" / "ollama"
INDEX: list[dict[str, Any]] = json.loads((CAPTURES / "index.json").read_text(encoding="utf-8"))["captures"]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgAAACAAAB4iG8MwAAAABJRU5ErkJggg=="
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
HI: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def front(options: FrontOptions | None = None, model: str | None = None) -> Context:
    return Context("run1", None, 1_700_000_000.0, options or FrontOptions(), model)


def back(**options: Any) -> Context:
    return Context("run1", None, 1_700_000_000.0, BackOptions(**options))


def asked(value: Any, path: str = "/api/chat", context: Context | None = None) -> Request:
    """The request of a client with this body."""
    data = value if isinstance(value, bytes) else dumps(value)
    return dialect.decode_request(WireRequest("POST", path, body=data), context or front())


def talk(*messages: dict[str, Any]) -> Request:
    return asked({"model": "m", "messages": list(messages)})


def sent(request: Request, **options: Any) -> dict[str, Any]:
    """The body that a backend gets."""
    found: dict[str, Any] = json.loads(dialect.encode_request(request, back(**options)).body)
    return found


def decode(data: bytes, context: Context | None = None) -> list[Event]:
    """The events of a backend's stream."""
    from bridge.translation.framing.lines import Splitter

    splitter, decoder = Splitter(), dialect.decoder(context or back())
    events = decoder.feed(splitter.feed(data)) + decoder.feed(splitter.close())
    return verify(events + decoder.close())


def recorded(name: str) -> bytes:
    """The body of a recorded message."""
    return body(CAPTURES / name)


def lines(reply: Reply) -> list[dict[str, Any]]:
    """The objects of a stream."""
    assert (reply.status, reply.headers["content-type"]) == (200, "application/x-ndjson"), reply.body
    assert reply.body.endswith(b"\n")
    return [json.loads(line) for line in reply.body[:-1].split(b"\n")]


@contextlib.asynccontextmanager
async def ollama(
    route: dict[str, Any] | None = None, backend: str = "openai-chat", path: str = "/", **server: Any
) -> AsyncIterator[tuple[str, FakeBackend]]:
    """The base URL of an Ollama route, and its backend."""
    async with fake_backend(backend) as fake:
        config = {
            "server": server,
            "backends": {"it": {"dialect": backend, "url": fake.url}},
            "routes": [{"dialect": "ollama", "path": path, **(route or {"backend": "it"})}],
        }
        async with serving(config) as base:
            yield base + path.rstrip("/"), fake
