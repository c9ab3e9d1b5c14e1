"""The endpoint for Prometheus, and polling of what is a state, not a count: queue, runs, breakers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping

from aiohttp import web

from bridge.engine.bridge import Bridge
from bridge.engine.config import MetricsSection
from bridge.engine.telemetry.metrics import CONTENT_TYPE, BridgeMetrics
from bridge.errors import RequestError
from bridge.server.auth.identity import Identity, visit_of
from bridge.server.requests.exchange import EXCHANGE
from bridge.server.requests.http_messages import error_of
from bridge.server.requests.limits import ServerLimits

_LOOK = 5.0
"""Seconds between two polls, where another process may answer the scrape."""


class MetricsEndpoint:
    """One server's part in the metrics of its process. `answer` serves their path, `life` is its life."""

    def __init__(
        self, bridge: Bridge, metrics: BridgeMetrics, limits: ServerLimits, identity: Identity, section: MetricsSection
    ) -> None:
        self._bridge = bridge
        self._limits = limits
        self._identity = identity
        self._section = section
        self._metrics = metrics
        self._scraping = asyncio.Lock()
        """Held by the one scrape that is being answered: scrapes take one thread and no more."""
        self._metrics.most_users = section.users

    async def life(self, app: web.Application) -> AsyncIterator[None]:
        self._metrics.watched.append(self)
        looking = asyncio.create_task(_poll(self._metrics)) if self._metrics.shared else None
        try:
            yield
        finally:
            if looking is not None:
                looking.cancel()
            self._metrics.watched.remove(self)
            self._metrics.sample()

    async def answer(self, http: web.Request) -> web.StreamResponse:
        http[EXCHANGE].check_named_origin()
        if not self._section.public:
            try:
                await self._identity.check_operator(visit_of(http), self._section.path)
            except RequestError as error:
                return error_of(None, error.failure)
        async with self._scraping:
            self._metrics.sample()
            text = await asyncio.to_thread(self._metrics.text)
        return web.Response(body=text, headers={"content-type": CONTENT_TYPE})

    @property
    def waiting(self) -> int:
        return self._limits.waiting

    @property
    def executing(self) -> int:
        return len(self._bridge.runs.tasks) if self._bridge.has_runs else 0

    @property
    def backends(self) -> Collection[str]:
        return {*self._bridge.config.backends, *(back.name for route in self._bridge.routes for back in route.backends)}

    @property
    def breakers(self) -> Mapping[str, bool]:
        backends = {backend.name: backend for route in self._bridge.routes for backend in route.backends}
        return {name: b.breaker.is_open for name, b in backends.items() if b.breaker is not None}


async def _poll(of: BridgeMetrics) -> None:
    while True:
        of.sample()
        await asyncio.sleep(_LOOK)
