"""A stream whose backend is silent: what is written meanwhile, so that nothing on the way closes its connection."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from bridge.run.run import Run
from bridge.server.requests.exchange import ServerExchange
from bridge.server.requests.http_messages import name_losses
from bridge.translation import Translation

_LOOKS = 4
"""How often in `keepalive` a stream is looked at: a silence is noticed late by at most one of these parts."""


class Keepalive:
    """Looks after a stream beside its pump, now and then and not for each event.

    While the backend thinks, it writes what keeps the connection open. Before the first content that begins the stream,
    so that proxies which cut silent connections do not cut this one; a failure is an event of it from then on.

    The run knows whether the backend is waited for, and the report how much was written. `has_begun`: the head of the
    response is sent.
    """

    __slots__ = (
        "_beat", "_http", "_keepalive", "_report", "_response", "_run", "_sent", "_silent_since", "_slot",
        "_translation", "_wheel", "has_begun",
    )  # fmt: skip

    def __init__(
        self, exchange: ServerExchange, run: Run, response: web.StreamResponse, translation: Translation
    ) -> None:
        self._http = exchange.http
        self._run = run
        self._response = response
        self._translation = translation
        self._report = exchange.report
        # A WebSocket is kept open by pings.
        writes = exchange.stream is None and exchange.route.options.keeps_alive
        self._silent_since = time.monotonic()
        self._sent = 0
        self.has_begun = False
        self._beat: asyncio.Task[None] | None = None
        self._wheel = exchange.bridge.timers
        self._keepalive = (exchange.server.keepalive or 0.0) if writes else 0.0
        self._slot = self._wheel.add(self, self._keepalive / _LOOKS) if self._keepalive else None

    async def begin(self) -> None:
        """Send the head of the response, unless it was sent. Raises `ConnectionError` if the client has gone."""
        await self.settle()
        if not self.has_begun:
            await self._begin()

    async def settle(self) -> None:
        """Wait until what is being written beside the pump is written."""
        if self._beat is not None:
            await asyncio.wait({self._beat})

    async def _begin(self) -> None:
        self.has_begun = True
        name_losses(self._response, self._run.lost.names)
        await self._response.prepare(self._http)
        self._report.streams()

    def expire(self) -> None:
        """Look whether the stream has been silent for too long, and come back."""
        now = time.monotonic()
        self._slot = self._wheel.add(self, self._keepalive / _LOOKS)
        if self._report.sent != self._sent:
            self._sent, self._silent_since = self._report.sent, now
        if self._run.waiting is None or now - self._silent_since < self._keepalive:
            return
        if self._beat is None:
            self._silent_since = now
            self._beat = asyncio.get_running_loop().create_task(self._keep_open())
            self._beat.add_done_callback(self._written)

    def _written(self, _: asyncio.Task[None]) -> None:
        self._beat = None  # a finished task is not held while the backend is silent

    async def _keep_open(self) -> None:
        out = self._sign_of_life() if self._run.waiting is not None else b""
        if not out:
            return
        try:
            if not self.has_begun:
                await self._begin()
            await self._response.write(out)
        except ConnectionError:
            # The pump learns of it by itself.
            return

    def _sign_of_life(self) -> bytes:
        """Return what keeps the connection open, after the head of the answer in a dialect that needs that."""
        out = self._translation.heartbeat()
        if not out and not self.has_begun:
            out = self._translation.write(self._run.head())
            out += self._translation.heartbeat()
        return out

    def stop(self) -> None:
        if self._slot is not None:
            self._wheel.remove(self, self._slot)
        if self._beat is not None:
            self._beat.cancel()
