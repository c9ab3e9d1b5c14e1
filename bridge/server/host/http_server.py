"""Runs the application in this process until it is stopped, with one configuration after another."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from bridge.contract import Dialect
from bridge.engine.bridge import Bridge
from bridge.engine.config.kinds import is_loopback
from bridge.errors import BridgeError, ConfigError, Failure, log_unexpected
from bridge.server.host import listeners as listening
from bridge.server.host.app import make_app
from bridge.server.host.server_connection import checking_heads, listen
from bridge.server.host.silent_connections import SilentConnections
from bridge.server.requests.coalescing import MergedWork, in_daemon_thread
from bridge.server.requests.nearest import nearest_dialect
from bridge.server.requests.state import STATE, Hosting, State

if TYPE_CHECKING:
    from bridge.server.grpc.grpc_server import GrpcServer

log = logging.getLogger("bridge.server")

_wire = logging.getLogger("bridge.server.http")
"""aiohttp's own log messages."""

_FRESH = 5.0
"""Seconds in which a connection brings its first request."""

_BEAT = 1.0
"""Seconds between two signs of life to the parent process."""

_AGES = 86400.0
"""Seconds that agents over gRPC get where nothing presses."""


def _say_little(record: logging.LogRecord) -> bool:
    """aiohttp repeats what it could not parse, which may be half a key, and adds a traceback of its parser."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError | web.RequestPayloadError):
        record.msg, record.args, record.exc_info = "invalid request (%s)", (type(error).__name__,), None
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True


_wire.addFilter(_say_little)


class Supervisor(Protocol):
    """What a worker knows of the process that started it."""

    def beat(self) -> bool:
        """Tell it that this process serves. Return False if it is gone."""

    def silent_workers(self) -> int:
        """Return how many of the workers that share the port do not answer."""

    def leave(self) -> None:
        """Tell it that this process does not serve any more."""


def check(bridge: Bridge) -> None:
    """Raises `ConfigError` for what would keep a server of this bridge, which is not open, from being made.

    `Bridge.of` has checked everything else. This does not connect, write or count.
    """
    try:
        _agents_of(bridge, State(bridge))
    except ConfigError as error:
        raise bridge.config.located(error) from None


def _agents_of(bridge: Bridge, state: State) -> list[GrpcServer]:
    """The servers of gRPC routes; their modules are loaded only if there are any."""
    if not any(route.listen for route in bridge.routes):
        return []
    from bridge.server.grpc.agent_servers import servers

    return servers(bridge, state.limits, state.identity, state.refusals)


class HttpServer:
    """A bridge that is served on bound sockets: `start` it, then `stop` or `retire` it, and `close` it in any case.

    `stop` closes the sockets, `retire` leaves them to the next server. Setting `stop_now` ends the wait for open runs.
    """

    def __init__(
        self,
        bridge: Bridge,
        sockets: list[socket.socket],
        stop_now: asyncio.Event | None = None,
        before: HttpServer | None = None,
        parent: Supervisor | None = None,
    ) -> None:
        """`before`: whose place it takes at addresses of gRPC that both have. `parent`: of a worker."""
        self.bridge = bridge
        self.sockets = sockets
        self.stop_now = stop_now or asyncio.Event()
        hosting = Hosting(
            cancels=True,  # by handler_cancellation below
            on_loopback=is_loopback(bridge.config.server.host),
            stop_now=self.stop_now,
            **({} if parent is None else {"silent_workers": parent.silent_workers}),
        )
        app = make_app(bridge, hosting)
        self._state = app[STATE]
        # `State.drain` drains streams, since it can still write to them; aiohttp would only close them.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1, handle_signals=False)
        self._listeners: list[asyncio.Server] = []
        self._silent_connections = SilentConnections(bridge.config.server.body_time)
        self._agents = _agents_of(bridge, self._state)
        served = {each.address: each for each in before._agents} if before is not None else {}
        self._followed = {a.address: served[a.address] for a in self._agents if a.address in served}

    async def start(self) -> None:
        """Raises `OSError` for an address that cannot be had, `BridgeError` for a store or what needs a restart."""
        for each in self._agents:
            if each.address in self._followed:
                each.check(self._followed[each.address])
        await self._runner.setup()
        if self._runner.server is not None:
            self._silent_connections.start(self._runner.server)
            self._runner.server.request_factory = checking_heads(self._runner.server.request_factory)
        for each in self._agents:
            if each.address not in self._followed:
                await each.start()
        for sock in self.sockets:
            assert self._runner.server is not None
            server, own = self._runner.server, sock.dup()
            self._listeners.append(await self._listener(server, own))
        # Last of all: whatever failed before leaves the agents that are served as they are.
        for each in self._agents:
            if each.address in self._followed:
                each.follow(self._followed[each.address])

    async def _listener(self, server: web.Server, sock: socket.socket) -> asyncio.Server:
        accepted = self._silent_connections.accepted
        return await listen(server, sock, listening.BACKLOG, self._note, self._shape, accepted)

    def _note(self, failure: Failure, peer: str | None) -> None:
        self._state.refusals.unserved(failure, http=failure.http_status, method="-", path="-", peer=peer)

    def _shape(self, path: str) -> Dialect | None:
        return nearest_dialect(self.bridge.routes, path)

    @property
    def port(self) -> int:
        port: int = self.sockets[0].getsockname()[1]
        return port

    async def stop(self, seconds: float) -> None:
        """Stop accepting requests, report that to load balancers, and give open runs this time to finish.

        New connections are refused from here on, and the port is free for another process.
        """
        self.refuse()
        await self._leave(seconds)

    def refuse(self) -> None:
        """Answers new requests on connections that are open: the server is stopping."""
        self._state.begin_to_stop()

    async def retire(self) -> None:
        """Takes no more connections, since another one does, and ends with the last of its requests."""
        await self._leave(None)
        await self.close()

    async def _leave(self, seconds: float | None) -> None:
        for listener in self._listeners:
            listener.close()
        if seconds is None:
            await self._let_go()
        else:
            # The listeners had duplicates. As long as one of a socket is open, the system accepts connections for it.
            listening.close(self.sockets)
        agents = (self._drained(each, seconds) for each in self._agents)
        await asyncio.gather(self._state.drain(seconds), *agents)

    async def _let_go(self) -> None:
        """Close idle connections, so that their next request gets the new configuration.

        Not at once: a connection that was just accepted is about to send its first request. Requests in the meantime
        are served, with the notice that their connection closes.
        """
        self._state.retire()
        if self.bridge.has_runs:
            await self.bridge.runs.stop_taking()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop_now.wait(), _FRESH)
        if self._runner.server is not None:
            self._runner.server.pre_shutdown()

    async def _drained(self, agents: GrpcServer, seconds: float | None) -> None:
        """Let the turns of sessions finish, unless the stop is urgent."""
        loop = asyncio.get_running_loop()
        stopping = loop.create_task(agents.stop(_AGES if seconds is None else seconds))
        stop_now = loop.create_task(self.stop_now.wait())
        await asyncio.wait({stopping, stop_now}, return_when=asyncio.FIRST_COMPLETED)
        stop_now.cancel()
        if not stopping.done():
            await agents.stop(0)
        await stopping

    async def close(self) -> None:
        self._silent_connections.stop()
        for listener in self._listeners:
            listener.close()
        await asyncio.gather(*(each.stop(0) for each in self._agents))
        await self._runner.cleanup()


@asynccontextmanager
async def running(bridge: Bridge, *, stop_now: asyncio.Event | None = None) -> AsyncIterator[int]:
    """Serve `bridge` inside the block, which gets the port. Leaving the block drains, unless `stop_now` is set.

    Raises `OSError` when the port cannot be opened.
    """
    server = bridge.config.server
    sockets = listening.bind(server.host, server.port)
    try:
        served = HttpServer(bridge, sockets, stop_now)
        try:
            await served.start()
            yield served.port
            await served.stop(server.drain)
        finally:
            await served.close()
    finally:
        listening.close(sockets)


async def serve(
    bridge: Bridge,
    sockets: list[socket.socket] | None = None,
    *,
    ready: Callable[[int], None] | None = None,
    reload: Callable[[], Bridge] | None = None,
    changed: Callable[[Bridge, int], None] | None = None,
    parent: Supervisor | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT, then drains. `ready` is called with the port when it is open.

    On SIGHUP, `reload` returns the new bridge; if it raises `ConfigError`, nothing changes, else `changed` is called
    with that bridge and its port. With `sockets` this is one
    of several workers, whose `parent` reloads: SIGUSR1 then lets open requests finish, without a limit. Raises
    `OSError` if the port cannot be opened.
    """
    server = bridge.config.server
    own = listening.bind(server.host, server.port) if sockets is None else []
    life = _ServerLifecycle(HttpServer(bridge, sockets or own, parent=parent), reload, changed, parent)
    # Opening thousands of streams with the default thresholds spends a third of its time in the collector.
    gc.set_threshold(50_000, 20, 100)
    try:
        await life.run(ready, worker=sockets is not None)
    finally:
        listening.close(life.now.sockets)


async def _beat(parent: Supervisor) -> None:
    """Return when the parent is gone."""
    while parent.beat():  # noqa: ASYNC110
        await asyncio.sleep(_BEAT)


class _ServerLifecycle:
    """A serving process, controlled by signals."""

    def __init__(
        self,
        now: HttpServer,
        reload: Callable[[], Bridge] | None,
        changed: Callable[[Bridge, int], None] | None,
        parent: Supervisor | None,
    ) -> None:
        self.now = now
        self._reload = reload
        self._changed = changed
        self._reloading = MergedWork(self._change)
        self._parent = parent
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._stopping = False
        self._retired: dict[asyncio.Task[None], HttpServer] = {}

    async def run(self, ready: Callable[[int], None] | None, *, worker: bool) -> None:
        loop = asyncio.get_running_loop()
        names = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1 if worker else signal.SIGHUP]
        for name in names:
            loop.add_signal_handler(name, self._signaled, name)
        if worker:
            # A closing terminal signals the whole group; this process follows its parent instead.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        orphaned = loop.create_task(self._until_orphaned()) if worker else None
        beating: asyncio.Task[None] | None = None
        try:
            await self.now.start()
            if self._parent is not None:
                beating = loop.create_task(_beat(self._parent))
                # A parent that was gone before this process asked for its number is seen by the pipe alone.
                beating.add_done_callback(lambda done: None if done.cancelled() else self._stop_once())
            if ready is not None:
                ready(self.now.port)
            while (name := await self._signals.get()) is signal.SIGHUP:
                self._reloading.request()
            # A reload that goes on is given up: it may take minutes to import what it needs.
            await self._reloading.stop()
            await self._end(drains=name is not signal.SIGUSR1)
        finally:
            if orphaned is not None:
                orphaned.cancel()
            await self._reloading.stop()
            await asyncio.gather(*(each.close() for each in (self.now, *self._retired.values())))
            if beating is not None and self._parent is not None:
                beating.cancel()
                self._parent.leave()
            for name in names:
                loop.remove_signal_handler(name)

    def _signaled(self, name: signal.Signals) -> None:
        """The first signal to stop drains, the second one does not wait for open streams."""
        if name in (signal.SIGTERM, signal.SIGINT):
            if self._stopping:
                for each in (self.now, *self._retired.values()):
                    each.stop_now.set()
            self._stopping = True
        self._signals.put_nowait(name)

    async def _change(self) -> None:
        """From the old configuration to the new one, or not at all."""
        assert self._reload is not None
        try:
            following = await self._following(await in_daemon_thread(self._reload))
        except (BridgeError, OSError) as error:
            log.error("the configuration is not changed: %s", error)
            return
        except Exception as error:
            log_unexpected(log, "the configuration is not changed", error)
            return
        before, self.now = self.now, following
        task = asyncio.get_running_loop().create_task(before.retire())
        self._retired[task] = before
        task.add_done_callback(lambda done: self._retired.pop(done))
        if before.sockets is not following.sockets:
            listening.close(before.sockets)
        log.info("the new configuration is active; open requests finish with the old one")
        if self._changed is not None:
            self._changed(following.bridge, following.port)

    async def _following(self, bridge: Bridge) -> HttpServer:
        """The bridge, served. Raises what keeps it from that; nothing is left of it then."""
        following = HttpServer(bridge, self._sockets_for(bridge), before=self.now)
        try:
            await following.start()
        except BaseException:
            await following.close()
            if following.sockets is not self.now.sockets:
                listening.close(following.sockets)
            raise
        return following

    def _sockets_for(self, bridge: Bridge) -> list[socket.socket]:
        """Those in use where the address stays. Raises `OSError`."""
        old, new = self.now.bridge.config.server, bridge.config.server
        if (old.host, old.port) == (new.host, new.port):
            return self.now.sockets
        return listening.bind(new.host, new.port)

    async def _end(self, *, drains: bool) -> None:
        """Drain. A worker that is being replaced waits for its requests until it is stopped."""
        loop = asyncio.get_running_loop()
        leaving = loop.create_task(self._retire() if not drains else self._stop())
        if not drains:
            signaled = loop.create_task(self._signals.get())
            await asyncio.wait({leaving, signaled}, return_when=asyncio.FIRST_COMPLETED)
            signaled.cancel()
            if not leaving.done():
                self.now.refuse()
                self._stop_after(self.now.bridge.config.server.drain)
        await leaving

    async def _retire(self) -> None:
        log.info("replaced; open requests finish with the old configuration")
        leaving = asyncio.get_running_loop().create_task(self.now.retire())
        # The parent and the workers that follow have the sockets, too: kept here, they would outlive these.
        listening.close(self.now.sockets)
        await leaving

    async def _stop(self) -> None:
        seconds = self.now.bridge.config.server.drain
        log.info("stopping; open streams have %g s to finish", seconds)
        self._stop_after(seconds)
        for each in self._retired.values():
            each.refuse()
        await asyncio.gather(self.now.stop(seconds), *self._retired)

    def _stop_after(self, seconds: float) -> None:
        for each in (self.now, *self._retired.values()):
            asyncio.get_running_loop().call_later(seconds, each.stop_now.set)

    async def _until_orphaned(self) -> None:
        """Stop a worker whose parent process is gone, as nothing else would stop it."""
        parent = os.getppid()
        while os.getppid() == parent:  # noqa: ASYNC110
            await asyncio.sleep(1)
        self._stop_once()

    def _stop_once(self) -> None:
        if not self._stopping:
            self._signaled(signal.SIGTERM)
