"""Closes connections that only take a descriptor: anyone can open one.

aiohttp has no limit for this; it only closes connections that were silent for an hour, as proxies in front keep theirs.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from typing import cast

from aiohttp import web

from bridge.server.host.server_connection import ServerConnection

log = logging.getLogger("bridge.server")

_PAUSE = 0.1
"""Seconds between two looks at the number of connections while new ones come."""
_QUIET = 60.0
"""Seconds between two lines in the log about it."""


class SilentConnections:
    """Closes those of a server whose first request does not arrive within so many seconds, and those that wait for
    their next one where there are more than half as many connections as the process may have descriptors.

    They are looked at four times in `seconds` once the server is started.
    """

    def __init__(self, seconds: float) -> None:
        self._server: web.Server | None = None
        self._seconds = seconds
        self._since: dict[ServerConnection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._relief: asyncio.TimerHandle | None = None
        self._most = _descriptors() // 2
        self._said_at = -math.inf

    def start(self, server: web.Server) -> None:
        """Begin to check a server of `ServerConnection`s."""
        self._server = server
        self._check()

    @property
    def _connections(self) -> list[ServerConnection]:
        assert self._server is not None
        return cast("list[ServerConnection]", self._server.connections)

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        waiting = [connection for connection in self._connections if not connection.has_asked]
        self._since = {c: self._since.get(c, now) for c in waiting}
        for connection in waiting:
            if now - self._since[connection] >= self._seconds:
                connection.force_close()
        self._timer = loop.call_later(self._seconds / 4, self._check)

    def accepted(self) -> None:
        """Note that another connection was accepted."""
        if self._relief is None:
            self._relief = asyncio.get_running_loop().call_later(_PAUSE, self._relieve)

    def _relieve(self) -> None:
        """Close the connections that have waited longest, down to the number that there may be."""
        self._relief = None
        connections = self._connections
        if len(connections) <= self._most:
            return
        idle = sorted((c for c in connections if c.idle_since is not None), key=lambda c: c.idle_since or 0.0)
        for connection in idle[: max(0, len(connections) - self._most)]:
            connection.close()
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= _QUIET:
            self._said_at = now
            words = "%d connections are open, of %d descriptors: those that wait longest for a request are closed"
            log.warning(words, len(connections), 2 * self._most)

    def stop(self) -> None:
        for timer in (self._timer, self._relief):
            if timer is not None:
                timer.cancel()


def _descriptors() -> int:
    """Return how many descriptors this process may have open."""
    if sys.platform == "win32":
        return sys.maxsize
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
