"""Runs the application in this process until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from bridge.engine import Bridge
from bridge.server.app import CANCELS, STATE, make_app

log = logging.getLogger("bridge.server")


@asynccontextmanager
async def running(bridge: Bridge, *, share_port: bool = False) -> AsyncIterator[int]:
    """The server of `bridge`, open inside the block; gives its port. Leaving the block drains it.

    `share_port`: other processes listen on the same port. Raises `OSError` when the port cannot be opened.
    """
    server = bridge.config.server
    app = make_app(bridge)
    # Without handler_cancellation aiohttp lets a handler sleep on when its client is gone, and the backend works on.
    app[CANCELS] = True
    # Streams are drained by `State.drain`, which can still say something to them; aiohttp only cuts.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, server.host, server.port, backlog=1024, reuse_port=share_port or None)
        await site.start()
        yield runner.addresses[0][1]
        app[STATE].draining = True
        await site.stop()
        await app[STATE].drain(server.drain)
    finally:
        await runner.cleanup()


async def serve(bridge: Bridge, *, share_port: bool = False, ready: Callable[[int], None] | None = None) -> None:
    """Serves until SIGTERM or SIGINT, then drains. `ready` is called with the port when it is open.

    Raises `OSError` when the port cannot be opened.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    # Opening thousands of streams with the default thresholds spends a third of its time in the collector.
    gc.set_threshold(50_000, 20, 100)
    async with running(bridge, share_port=share_port) as port:
        if ready is not None:
            ready(port)
        await stop.wait()
        log.info("stopping; open streams have %g s to finish", bridge.config.server.drain)
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(name)
