"""Lookups of host names, so that a name server that does not answer for one name delays no other name.

`loop.getaddrinfo` runs in the few threads that all work of the process shares: lookups of one name that hang would
fill them. Here each name is looked up once at a time, in a thread of its own, and all who wait for it get the result.
Whoever stops waiting, at a timeout of its own, leaves the lookup to the others.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from contextlib import suppress
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

Info = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
"""One address, as `socket.getaddrinfo` returns it."""

_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
_Key = tuple[asyncio.AbstractEventLoop, str, int]


class Lookups:
    """Looks up at most `most` names at once. May be used in several event loops."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running: dict[_Key, asyncio.Future[list[Info]]] = {}

    async def find(self, host: str, port: int, family: int = socket.AF_UNSPEC) -> list[Info]:
        """Return the addresses of a host name, or the address itself. Raises what `socket.getaddrinfo` raises."""
        if is_address(host):
            return _look_up(host, port, family, socket.AI_NUMERICHOST)
        loop = asyncio.get_running_loop()
        key = loop, host, int(family)
        running = self._running.get(key)
        if running is None:
            if len(self._running) >= self._most:
                raise socket.gaierror(socket.EAI_AGAIN, "too many names are being looked up")
            running = self._running[key] = loop.create_future()
            running.add_done_callback(_take_error)
            threading.Thread(target=self._work, args=(key, running), name="lookup", daemon=True).start()
        # The lookup goes on for the others when one of them stops waiting.
        found = await asyncio.shield(running)
        return [(*each[:4], (each[4][0], port, *each[4][2:])) for each in found]

    def _work(self, key: _Key, running: asyncio.Future[list[Info]]) -> None:
        """Look a name up, in a thread."""
        loop, host, family = key
        found: list[Info] = []
        error: OSError | None = None
        try:
            found = _look_up(host, 0, family, 0)
        except UnicodeError:
            error = socket.gaierror(socket.EAI_NONAME, "the host name is not valid")
        except OSError as failed:
            error = failed
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._done, key, running, found, error)
            return
        self._running.pop(key, None)

    def _done(self, key: _Key, running: asyncio.Future[list[Info]], found: list[Info], error: OSError | None) -> None:
        self._running.pop(key, None)
        if error is not None:
            running.set_exception(error)
        else:
            running.set_result(found)


def _take_error(running: asyncio.Future[list[Info]]) -> None:
    """Nobody may wait for a failed lookup any more."""
    if not running.cancelled():
        running.exception()


def _look_up(host: str, port: int, family: int, flags: int) -> list[Info]:
    return list(socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, flags))


def is_address(host: str) -> bool:
    """Return whether a host is an IP address, with or without a zone."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


CONFIGURED = Lookups(256)
"""For hosts that the configuration names."""


class Resolver(AbstractResolver):
    """Lookups for the connectors of aiohttp."""

    def __init__(self, lookups: Lookups = CONFIGURED) -> None:
        self._lookups = lookups

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host name. Raises `OSError`."""
        return [
            ResolveResult(
                hostname=host, host=_numeric(address), port=port, family=family, proto=protocol, flags=_NUMERIC
            )
            for family, _, protocol, _, address in await self._lookups.find(host, port, family)
        ]

    async def close(self) -> None:
        """Nothing is held: a lookup that runs ends by itself."""


def _numeric(address: Any) -> str:
    """Return the address as text; that of a link with its zone."""
    host = str(address[0])
    return f"{host}%{address[3]}" if len(address) == 4 and address[3] and "%" not in host else host
