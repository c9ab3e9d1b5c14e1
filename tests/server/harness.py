"""Real sockets for tests: the bridge as in production, and a plain client. The backend is that of `bridge.testing`."""

from __future__ import annotations

import contextlib
import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from bridge.engine.bridge import Bridge
from bridge.server import running
from bridge.testing import Exchange, FakeBackend, Seen, bound_socket, fake_backend, free_port

__all__ = [
    "Exchange", "FakeBackend", "Reply", "Seen", "ask", "bound_socket", "fake_backend", "free_port", "post", "serving",
]  # fmt: skip


@contextlib.asynccontextmanager
async def serving(config: dict[str, Any]) -> AsyncIterator[str]:
    """The bridge with this configuration, served as in production; gives its base URL.

    Conversations are kept only where the configuration says so, and runs in memory: the default's file would outlive
    the test.
    """
    server = config.pop("server", {})
    config = {**config, "stores": {"history": "off", "runs": "sqlite:///:memory:", **config.get("stores", {})}}
    async with contextlib.AsyncExitStack() as stack:
        for attempt in range(10):
            section = {"port": free_port(), "drain": "1s", **server}
            try:
                port = await stack.enter_async_context(running(Bridge.from_config({"server": section, **config})))
                break
            except OSError:
                # Another test process took the port in between.
                if attempt == 9:
                    raise
        yield f"http://127.0.0.1:{port}"


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


async def post(url: str, body: Any, **headers: str) -> Reply:
    """A POST and its whole answer. A body that is not bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    sent = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return await ask("POST", url, data, sent)


async def ask(method: str, url: str, data: bytes = b"", headers: dict[str, str] | None = None) -> Reply:
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method, url, data=io.BytesIO(data) if isinstance(data, bytes) and data else data or None, headers=headers
        ) as response,
    ):
        return Reply(response.status, {k.lower(): v for k, v in response.headers.items()}, await response.read())
