"""Closes connections whose first request does not arrive: each takes a descriptor, and anyone can open one.

aiohttp has no limit for this; it only closes connections that were silent for an hour.
"""

from __future__ import annotations

import asyncio

from aiohttp import web


class SilentConnections:
    """Check all connections of a server, four times in `seconds`, once it is started."""

    def __init__(self, seconds: float) -> None:
        self._served: set[object] = set()
        self._server: web.Server | None = None
        self._seconds = seconds
        self._since: dict[object, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self, server: web.Server) -> None:
        self._server = server
        self._check()

    def note(self, connection: object) -> None:
        """A request came over a connection."""
        if self._server is not None:
            self._served.add(connection)

    def _check(self) -> None:
        assert self._server is not None
        loop = asyncio.get_running_loop()
        now, connections = loop.time(), list(self._server.connections)
        self._served.intersection_update(connections)
        waiting = [c for c in connections if c not in self._served]
        self._since = {c: self._since.get(c, now) for c in waiting}
        for connection in waiting:
            if now - self._since[connection] >= self._seconds:
                connection.force_close()
        self._timer = loop.call_later(self._seconds / 4, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
