"""`dialect-bridge acp`: a route for one client that has started this program, over standard input and output.

Nothing is listened on. Standard output belongs to the protocol from the first line on, and logging to standard error.
The first call is answered before the backends exist, as editors wait for it whenever they open a project.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING

from bridge.cli import logs
from bridge.contract import (
    ANSWER_FEATURES,
    REQUEST_FEATURES,
    Capabilities,
    Operation,
    RpcDialect,
    RpcService,
    entries,
    registry,
)
from bridge.engine.config import Config, load
from bridge.errors import BridgeError, ConfigError
from bridge.jsonrpc.stdio import StdioCarrier, claim_stdio
from bridge.server.sessions import RunScope, SessionConnection

if TYPE_CHECKING:
    from bridge.engine.bridge import Bridge
    from bridge.engine.config.schema.routes import RouteSection
    from bridge.engine.route import Route

log = logging.getLogger("bridge.rpc")

_AGENT = Capabilities(answers=entries(ANSWER_FEATURES), requests=entries(REQUEST_FEATURES))
"""An agent of this process gets requests as they are."""
_HEADSTART = 0.02
"""Seconds in which answers that are ready are written before the bridge is built, which holds the event loop."""


def acp(args: argparse.Namespace) -> int:
    """Serve one client until it closes standard input."""
    try:
        stdio = claim_stdio()
    except OSError as error:
        raise ConfigError(f"standard input and output must be open: {error.strerror}") from None
    logs.set_up(args.log_level, args.log_format)
    config = load(args.config)
    section = _section(config, args.route)
    if config.folder:
        # The client starts this program in a folder of its own. Paths in the configuration mean those of its file.
        os.chdir(config.folder)
    return asyncio.run(_serve(AcpCommand(config, section), StdioCarrier(stdio)))


def _section(config: Config, path: str | None) -> RouteSection:
    """Return the route to serve: the one at `path`, or the only one of such a dialect. Raises `ConfigError`."""
    fitting = [name for name in registry.names() if isinstance(registry.get(name), RpcDialect)]
    served = [route for route in config.routes if route.dialect in fitting]
    wanted = f"`dialect: {' or '.join(fitting)}`"
    known = ", ".join(f"{route.mount} ({route.dialect})" for route in config.routes)
    if path is None:
        if len(served) == 1:
            return served[0]
        hint = "name one with --route" if served else f"add one with {wanted}"
        raise ConfigError(f"{len(served)} routes can be served to an editor; {hint}; there are: {known}")
    for route in config.routes:
        if route.mount == (path.rstrip("/") or "/"):
            if route in served:
                return route
            raise ConfigError(f"the route at {path} has the dialect {route.dialect}; expected {wanted}")
    raise ConfigError(f"no route at {path!r}; there are: {known}")


async def _serve(command: AcpCommand, carrier: StdioCarrier) -> int:
    connection = SessionConnection(command)
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def stop() -> None:
        tasks.add(loop.create_task(connection.close()))

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    opening = loop.create_task(command.open_after_greeting())
    try:
        ended = await connection.serve(carrier)
        log.debug("the client has left: %s", ended)
    finally:
        opening.cancel()
        with suppress(asyncio.CancelledError):
            await opening
        await command.close()
    return 0


class AcpCommand:
    """This program as the server of its client; an `RpcHost`."""

    headers: Mapping[str, str] = MappingProxyType({})
    owner = ""

    def __init__(self, config: Config, section: RouteSection) -> None:
        dialect = registry.get(section.dialect)
        assert isinstance(dialect, RpcDialect)
        self.dialect: RpcDialect = dialect
        self.busy: set[tuple[str, str]] = set()
        self._config = config
        self._section = section
        self._has_greeted = asyncio.Event()
        self._lock = asyncio.Lock()
        self._open: tuple[Bridge, Route] | None = None
        self._service = RpcService.of(
            [_card(config, name) for name in section.backends],
            stores=config.stores.history is not None,
            version=version("dialect-bridge"),
            options=section.options,
        )

    @property
    def service(self) -> RpcService:
        return self._service

    def greeted(self) -> None:
        self._has_greeted.set()

    async def open_after_greeting(self) -> None:
        """Open the bridge when the client has the answer to its first call."""
        await self._has_greeted.wait()
        try:
            await self.opened()
        except BridgeError as error:
            log.error("%s", error.message)  # each call that needs the bridge gets it, too

    async def opened(self) -> tuple[Bridge, Route]:
        async with self._lock:
            if self._open is None:
                await asyncio.sleep(_HEADSTART)
                from bridge.engine.bridge import Bridge

                config = self._config
                needed = {*self._section.backends, *filter(None, (self._section.tool_host,))}
                backends = {name: each for name, each in config.backends.items() if name in needed}
                bridge = Bridge.of(config.model_copy(update={"routes": (self._section,), "backends": backends}))
                await bridge.start()
                self._open = bridge, bridge.route(self._section.mount)
        return self._open

    async def close(self) -> None:
        """Close the bridge if it is open."""
        if self._open is not None:
            await self._open[0].close()

    async def admit(self, operation: Operation | None) -> None:
        """The client is the user who started this program."""

    def allows(self, model: str) -> bool:
        return True

    def check_model(self, model: str | None) -> None:
        """There is no key that allows some models only."""

    def counting(self) -> AbstractContextManager[object]:
        return nullcontext() if self._open is None else self._open[0].counting()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[RunScope]:
        from bridge.server.operations.rpc_endpoint import ReportedRun

        bridge, route = await self.opened()
        scope = ReportedRun(bridge, route, "")
        error: BaseException | None = None
        try:
            yield scope
        except BaseException as raised:
            error = raised
            raise
        finally:
            scope.ended(error)


def _card(config: Config, name: str) -> Capabilities:
    """Return the capabilities of a backend, which need not exist yet."""
    section = config.backends[name]
    return _AGENT if section.is_demo or section.target is not None else registry.get(section.dialect).capabilities
