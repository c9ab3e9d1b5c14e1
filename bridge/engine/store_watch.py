"""Which stores cannot be written to: told in the log from the start on, and in the readiness of the server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from bridge.errors import BridgeError
from bridge.stores import StoreUnavailable, describe
from bridge.stores.reasons import explain

log = logging.getLogger("bridge.stores")

EVERY = 10.0
"""Seconds between two probes."""
PATIENCE = 30.0
"""Seconds for which a store may be away, as in a failover, before the server is not ready."""


@dataclass(slots=True)
class _Watched:
    """A store. `failure` is why it cannot be written to; `since` when that began, from the start on 0."""

    name: str
    place: str
    probe: Callable[[], Awaitable[object]]
    failure: str | None = None
    since: float = 0.0
    worked: bool = False


class StoreWatch:
    """Probes stores, each by its name in the configuration: its URL, and what writes to it."""

    def __init__(self, stores: Mapping[str, tuple[str, Callable[[], Awaitable[object]]]]) -> None:
        self._stores = [_Watched(name, describe(url), probe) for name, (url, probe) in stores.items()]
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="store-watch")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def failing(self) -> dict[str, str]:
        """The stores that could never be written to, or not for `PATIENCE` seconds, each with the engine's reason."""
        now = time.monotonic()
        return {
            each.name: each.failure
            for each in self._stores
            if each.failure is not None and (not each.worked or now - each.since > PATIENCE)
        }

    async def probe(self) -> list[tuple[str, str, str | None]]:
        """Return name, place and failure in words (None = it can be written to) of each store."""
        await asyncio.gather(*map(self._probe, self._stores))
        return [(each.name, each.place, each.failure and _in_words(each.failure)) for each in self._stores]

    async def _run(self) -> None:
        while True:
            await asyncio.gather(*map(self._probe, self._stores))
            await asyncio.sleep(EVERY)

    async def _probe(self, store: _Watched) -> None:
        try:
            await store.probe()
        except BridgeError as error:
            reason = error.reason if isinstance(error, StoreUnavailable) else error.message
            if store.failure is None:
                store.since = time.monotonic()
            if store.failure != reason:
                log.warning("store %s, %s, cannot be written to: %s", store.name, store.place, _in_words(reason))
            store.failure = reason
            return
        if store.failure is not None or not store.worked:
            log.info("store %s, %s, is ready", store.name, store.place)
        store.failure, store.worked = None, True


def _in_words(reason: str) -> str:
    words = explain(reason)
    return words if words == reason else f"{words} ({reason})"
