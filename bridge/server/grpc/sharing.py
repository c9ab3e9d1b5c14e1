"""The nodes of a gateway in all of its processes: what is registered at one of them is reachable through each.

Each process tells the others of the nodes that registered with it, of those that it has heard, and of those that left
or cannot be reached, and takes over the nodes of the others. Who connects to a node of another process connects to the
addresses that were admitted when it registered. While the database is away, each process goes on with what it knows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import orjson

from bridge.contract.optional.sessions import AgentRegistry, SharedNode
from bridge.errors import BridgeError, FailureLog, log_unexpected
from bridge.server.grpc.node_registry import Nodes
from bridge.stores.places import Places

log = logging.getLogger("bridge.grpc")

_UNKNOWN = "nodes of other processes are not known"

EVERY = 1.0
"""Seconds between two exchanges."""


class Sharing:
    """Shares the nodes of one registry in these places."""

    def __init__(self, places: Places, registry: AgentRegistry, nodes: Nodes) -> None:
        self._places = places
        self._registry = registry
        self._nodes = nodes
        self._told: dict[str, str] = {}
        """What others know of the nodes that registered here."""
        self._heard: set[str] = set()
        self._gone: set[str] = set()
        self._failures = FailureLog(log)

    async def run(self, tell: Callable[[], None]) -> None:
        """Exchange what is new, again and again; `tell` reports the changes."""
        while True:
            try:
                await self.exchange()
                tell()
                self._failures.works(_UNKNOWN)
            except BridgeError as error:
                self._failures.failed(_UNKNOWN, error)
            except Exception as error:
                log_unexpected(log, "nodes cannot be shared", error)
            await asyncio.sleep(EVERY)

    async def exchange(self) -> None:
        """Raises `BridgeError`; then the next one makes up for it."""
        heard, gone = self._registry.news()
        self._heard |= heard
        self._gone |= gone
        own = {name: self._value(name, value) for name, value in self._registry.shared().items()}
        self._gone -= own.keys()
        new = {name: value for name, value in own.items() if self._told.get(name) != value}
        timeout = self._registry.heartbeat_timeout
        found = await self._places.exchange(new, self._heard - new.keys(), self._gone, timeout)
        self._heard, self._gone = set(), set()
        now = self._registry.shared()
        unknown = {name for name, value in now.items() if own.get(name) != self._value(name, value)}
        nodes = []
        for place in found:
            value, _ = orjson.loads(place.value)
            nodes.append(SharedNode(place.name, value, place.is_own, max(0.0, timeout - place.left)))
        self._registry.adopt(nodes, time.monotonic(), unknown)
        for place in found:
            target = orjson.loads(place.value)[1]
            address = self._registry.address_of(place.name)
            if not place.is_own and address is not None and target:
                self._nodes.learn(address, target)
        self._told = {name: value for name, value in own.items() if name in self._registry.shared()}

    def _value(self, name: str, value: str) -> str:
        address = self._registry.address_of(name) or ""
        told: list[Any] = [value, self._nodes.targets.get(address)]
        return orjson.dumps(told).decode()

    async def close(self) -> None:
        await self._places.close()
