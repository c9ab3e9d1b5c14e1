"""`dialect-bridge serve` as processes of their own on shared stores: killed, and started again."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.dialects.agent_runs.helpers import BASE, Client, frames
from tests.docs.helpers import COMMAND, environment
from tests.forkserver import ForkedProcess
from tests.server.harness import free_port

HEADERS = {"authorization": "Bearer alice-token"}


class Server:
    """One machine's server, at `url` since its last start."""

    def __init__(self, name: str, folder: Path, config: dict[str, Any]) -> None:
        self.name = name
        self.url = ""
        self._file = folder / f"{name}.yaml"
        self._log = folder / f"{name}.log"
        self._file.write_text(json.dumps({**config, "server": {**config["server"], "page": False}}))
        self._process: ForkedProcess | None = None
        self._printed = -1

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Returns when it listens."""
        for _ in range(10):
            port = free_port()
            if b"is serving on" in await asyncio.to_thread(self._serve, port):
                self.url = f"http://127.0.0.1:{port}"
                return
            await self.kill()  # another test process took the port in between
        raise AssertionError(self._log.read_text())

    def _serve(self, port: int) -> bytes:
        """Return what it prints first."""
        command = (COMMAND, "serve", str(self._file), "--port", str(port))
        out, stdout = os.pipe()
        self._printed = out
        with open(os.devnull, "rb") as stdin, open(stdout, "wb") as printed, self._log.open("ab") as log:
            streams = {"stdin": stdin, "stdout": printed, "stderr": log}
            self._process = ForkedProcess(command, cwd=self._file.parent, env=environment(), **streams)
        with open(out, "rb", closefd=False) as said:
            return said.readline()

    async def kill(self) -> None:
        """SIGKILL: it has no last word."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await asyncio.to_thread(process.wait)
            os.close(self._printed)


@asynccontextmanager
async def machines(folder: Path, config: dict[str, Any], *names: str) -> AsyncIterator[list[Server]]:
    """Servers with one configuration, not started yet; each tells the backend its name in the header `x-server`."""
    servers = []
    for name in names:
        backends = {b: {**about, "headers": {"x-server": name}} for b, about in config["backends"].items()}
        servers.append(Server(name, folder, {**config, "backends": backends}))
    try:
        yield servers
    finally:
        for server in servers:
            await server.kill()


def alice(server: Server) -> Client:
    return Client(server.url)


async def connected(
    session: aiohttp.ClientSession, server: Server, thread: str, run: str, last: str = ""
) -> AsyncIterator[bytes]:
    """One connection to the events of a run: whole frames, comments left out, until either side has enough.

    Raises `aiohttp.ClientError` when the server is gone, or goes.
    """
    url = f"{server.url}{BASE}/runs/{thread}/events?runId={run}"
    async with session.get(url, headers={**HEADERS, "last-event-id": last}) as response:
        assert response.status in (200, 204), await response.text()
        rest = b""
        async for piece in response.content.iter_any():
            *whole, rest = (rest + piece).split(b"\n\n")
            for block in whole:
                if not block.startswith(b":"):
                    yield block + b"\n\n"


def id_of(frame: bytes) -> str:
    return frames(frame)[0].id or ""
