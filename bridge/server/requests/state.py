"""The state that the handlers of one server share, and how it comes to an end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from bridge.engine.bridge import Bridge
from bridge.server.auth.audit_log import AuditLog
from bridge.server.auth.cors import OriginPolicy
from bridge.server.auth.identity import Identity, page_key_of
from bridge.server.requests.exchange import RouteHandler
from bridge.server.requests.limits import ServerLimits

Task = asyncio.Task[object]


def _none() -> int:
    return 0


@dataclass(frozen=True)
class Hosting:
    """What the program that serves an application does, and knows.

    Attributes:
        cancels: It cancels a handler when its client leaves. Any other server may not (for aiohttp it is off by
            default), so that handlers then look for it themselves.
        on_loopback: It listens on loopback only, where nobody calls it by the address of another network.
        stop_now: Set when open runs are not to be waited for any longer.
        silent_workers: Returns how many of the processes that share the port do not answer: a part of the connections
            waits for them.
    """

    cancels: bool = False
    on_loopback: bool = False
    stop_now: asyncio.Event = field(default_factory=asyncio.Event)
    silent_workers: Callable[[], int] = _none


class State:
    """The shared state of a server, which may not be started yet."""

    def __init__(self, bridge: Bridge, hosting: Hosting | None = None) -> None:
        """Raises `ConfigError` for what the server needs and is not installed."""
        server = bridge.config.server
        self.bridge: Bridge = bridge
        self.hosting = hosting or Hosting()
        self.identity = Identity.of(server.auth, page_key_of(bridge.config))
        self.limits: ServerLimits = ServerLimits(bridge.config, bridge.memory_budget, self.identity, bridge.places)
        self.origins = OriginPolicy(server, on_loopback=self.hosting.on_loopback)
        self.refusals = AuditLog(
            lambda reason: bridge.host.metrics.refusal(reason) if bridge.host.metrics is not None else None
        )
        self.handlers: list[RouteHandler] = []
        self.writing: set[Task] = set()
        """The tasks of requests, not those of routes or the page, whose responses are being written."""
        self.draining = False
        """The server is about to stop and not ready."""
        self.retired = False
        """Another configuration is served now."""

    def begin_to_stop(self) -> None:
        """Call the server not ready: it is about to stop."""
        self.draining = True

    def retire(self) -> None:
        """Let connections end after the answer of their request: another configuration is served now."""
        self.retired = True

    async def drain(self, seconds: float | None) -> None:
        """Give open runs so long to finish (None: as they need) unless `stop_now` is set; then cut the rest."""
        for handler in self.handlers:
            handler.stop_accepting()
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds if seconds is not None else math.inf
        runs = self.bridge.runs if self.bridge.has_runs else None
        if runs is not None:
            await runs.stop_taking()
        # Runs that nobody reads may finish too.
        while (
            (tasks := self.open() | (runs.tasks if runs is not None else set()))
            and (left := end - loop.time()) > 0
            and not self.hosting.stop_now.is_set()
        ):
            stop_now = loop.create_task(self.hosting.stop_now.wait())
            limit = None if seconds is None else left
            await asyncio.wait({*tasks, stop_now}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            stop_now.cancel()
        if runs is not None:
            # Their readers get the end from the log, like all others.
            await runs.retire()
            if late := self.open():
                await asyncio.wait(late, timeout=1)
        for task in self.writing - {task for handler in self.handlers for task in handler.active}:
            task.cancel()
        for handler in self.handlers:
            handler.cut()
        if late := self.open():
            await asyncio.wait(late, timeout=2)

    def open(self) -> set[Task]:
        """The tasks of the requests that are being served, wait for their turn, or have their response written."""
        return {task for handler in self.handlers for task in handler.active} | self.writing


STATE = web.AppKey("state", State)
