"""Runs the application in this process until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from bridge.engine import Bridge
from bridge.server.app import CANCELS, STATE, State, make_app

if TYPE_CHECKING:
    from bridge.server.grpc import GrpcServer

log = logging.getLogger("bridge.server")


@asynccontextmanager
async def running(
    bridge: Bridge, *, share_port: bool = False, hurry: asyncio.Event | None = None
) -> AsyncIterator[int]:
    """The server of `bridge`, open inside the block; gives its port. Leaving it drains, but for `hurry`.

    `share_port`: other processes listen on the same port. Raises `OSError` when the port cannot be opened.
    """
    server = bridge.config.server
    app = make_app(bridge)
    # Without handler_cancellation aiohttp lets a handler sleep on when its client is gone, and the backend works on.
    app[CANCELS] = True
    app[STATE].hurry = hurry or app[STATE].hurry
    # Streams are drained by `State.drain`, which can still say something to them; aiohttp only cuts.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1, handle_signals=False)
    agents = _agents(bridge, app[STATE])
    try:
        await runner.setup()
        site = web.TCPSite(runner, server.host, server.port, backlog=1024, reuse_port=share_port or None)
        await site.start()
        for each in agents:
            await each.start()
        yield runner.addresses[0][1]
        app[STATE].draining = True
        await site.stop()
        await asyncio.gather(app[STATE].drain(server.drain), *(_drained(a, app[STATE], server.drain) for a in agents))
    finally:
        await asyncio.gather(*(each.stop(0) for each in agents))
        await runner.cleanup()


def _agents(bridge: Bridge, state: State) -> list[GrpcServer]:
    """The servers of routes over gRPC; who has none of these does not load what they need."""
    if not any(route.listen for route in bridge.routes):
        return []
    from bridge.server.agents import servers

    return servers(bridge, state.gate)


async def _drained(agents: GrpcServer, state: State, seconds: float) -> None:
    """Lets the turns of sessions finish, but not when there is a hurry."""
    loop = asyncio.get_running_loop()
    stopping, hurry = loop.create_task(agents.stop(seconds)), loop.create_task(state.hurry.wait())
    await asyncio.wait({stopping, hurry}, return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if not stopping.done():
        await agents.stop(0)
    await stopping


async def serve(bridge: Bridge, *, share_port: bool = False, ready: Callable[[int], None] | None = None) -> None:
    """Serves until SIGTERM or SIGINT, then drains. `ready` is called with the port when it is open.

    Raises `OSError` when the port cannot be opened.
    """
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def told() -> None:
        """The first signal drains, the second one does not wait for open streams."""
        if stop.is_set():
            hurry.set()
        stop.set()

    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, told)
    # Opening thousands of streams with the default thresholds spends a third of its time in the collector.
    gc.set_threshold(50_000, 20, 100)
    async with running(bridge, share_port=share_port, hurry=hurry) as port:
        if ready is not None:
            ready(port)
        orphaned = loop.create_task(_until_orphaned(stop)) if share_port else None
        await stop.wait()
        if orphaned is not None:
            orphaned.cancel()
        log.info("stopping; open streams have %g s to finish", bridge.config.server.drain)
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(name)


async def _until_orphaned(stop: asyncio.Event) -> None:
    """One of several workers stops when the process that started it is gone: nobody would ever tell it to."""
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110
        await asyncio.sleep(1)
    stop.set()
