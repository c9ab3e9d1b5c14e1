"""Closes connections whose first request does not arrive: each takes a descriptor, and anyone can open one.

aiohttp has no limit for this; it only closes connections that were silent for an hour.
"""

from __future__ import annotations

import asyncio
from typing import cast

from aiohttp import web

from bridge.server.host.server_connection import ServerConnection


class SilentConnections:
    """Check all connections of a server, four times in `seconds`, once it is started."""

    def __init__(self, seconds: float) -> None:
        self._server: web.Server | None = None
        self._seconds = seconds
        self._since: dict[ServerConnection, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self, server: web.Server) -> None:
        """Begin to check a server of `ServerConnection`s."""
        self._server = server
        self._check()

    def _check(self) -> None:
        assert self._server is not None
        loop = asyncio.get_running_loop()
        now, connections = loop.time(), cast("list[ServerConnection]", self._server.connections)
        waiting = [connection for connection in connections if not connection.has_asked]
        self._since = {c: self._since.get(c, now) for c in waiting}
        for connection in waiting:
            if now - self._since[connection] >= self._seconds:
                connection.force_close()
        self._timer = loop.call_later(self._seconds / 4, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
