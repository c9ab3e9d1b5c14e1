"""The gRPC server of one address: agents, tools, or a gateway to them. One handler per operation, none per dialect.

The dialect routes each message (`AgentRegistry`) and the `GrpcHost` answers it; this module moves bytes, opens
connections and waits. `bridge.server.grpc.agent_servers` decides which routes of a bridge are served this way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import grpc
import grpc.aio

from bridge.contract import Dialect, Endpoint, Operation
from bridge.contract.optional.sessions import (
    AgentRegistry,
    Channel,
    Decision,
    Dial,
    Dialed,
    Forward,
    Handle,
    Refuse,
    Registration,
    Respond,
    Serve,
    Subscribe,
    Visitor,
)
from bridge.errors import BackendError, ConfigError, ErrorCode, Failure, log_unexpected
from bridge.run.backends.grpc.channels import (
    add_port,
    call_unary,
    channel_options,
    failure_of,
    metadata_of,
    open_channel,
    ping_options,
)
from bridge.run.backends.grpc.registration import stay
from bridge.run.tools.tool_sources import Ask
from bridge.server.grpc.activity import TOOL_ERROR, Activity, CallRecord
from bridge.server.grpc.grpc_guard import GrpcGuard, peer_address
from bridge.server.grpc.node_registry import Nodes
from bridge.server.grpc.relay import Relays, trace_of
from bridge.server.grpc.sharing import Sharing
from bridge.stores.liveness import Liveness
from bridge.stores.places import Places

log = logging.getLogger("bridge.grpc")

_GOODBYE = 1.0
"""Seconds for sessions to end after they were asked to."""
_FORWARD_TIMEOUT = 60.0
"""Seconds for a single message that is handed on: such a call always has a deadline."""
_CHECKS = 3
"""So many checks in a row have to be in time before a node is called dead."""
_LEAST = 1.0
"""Seconds for which they have to be in time at least: shorter delays are no pause."""


class GrpcHost(Protocol):
    """Answers for the agents and tools at an address."""

    async def session(self, reply: Serve, first: bytes, rpc: Any, leaving: asyncio.Event) -> None:
        """Serve a session with an agent of the bridge; it ends soon after `leaving` is set."""

    async def call(self, reply: Handle, body: bytes) -> Respond | Refuse:
        """Serve a call of a tool of the bridge."""


class GrpcServer:
    """The server of one address. `start` it inside the running loop, `stop` it before the loop ends."""

    def __init__(
        self,
        address: str,
        dialect: Dialect,
        agent_registry: AgentRegistry,
        settings: Channel,
        host: GrpcHost,
        registrations: Sequence[Registration] = (),
        guard: GrpcGuard | None = None,
        activity: Activity | None = None,
        keepalive: float | None = None,
        places: Places | None = None,
    ) -> None:
        """`guard` authenticates callers, if there is one. `activity` counts calls; they are logged in any case.
        `places` shares the nodes with other processes.

        `keepalive`: seconds of silence after which the connection of a session is sent a ping.
        """
        self.address = address
        self._dialect = dialect
        self._registry = agent_registry
        self._settings = settings
        self._host = host
        self._registrations = list(registrations)
        self._guard = guard
        self._activity = activity or Activity(address)
        self._keepalive = keepalive
        self._endpoints = {endpoint.path: endpoint for endpoint in dialect.surface}
        self._handlers = _Handlers(self._endpoints, self)
        self._nodes = Nodes(settings)
        self._sharing = Sharing(places, agent_registry, self._nodes) if places is not None else None
        self._gateways: dict[str, grpc.aio.Channel] = {}
        self._server: grpc.aio.Server | None = None
        self._chores: list[asyncio.Task[None]] = []
        self._leaving = asyncio.Event()
        self._watchers: set[asyncio.Event] = set()
        self._relays = Relays(settings.grace)
        self._open = 0
        self._quiet = asyncio.Event()
        self._follower: GrpcServer | None = None
        self._followed: list[GrpcServer] = []

    async def start(self) -> None:
        """Raises `OSError` when the address cannot be had, or a file of the certificates cannot be read."""
        options = [*channel_options(self._settings), *ping_options(self._keepalive), ("grpc.so_reuseport", 0)]
        server = grpc.aio.server(options=options)
        server.add_generic_rpc_handlers((self._handlers,))
        try:
            add_port(server, self.address, self._settings)
        except RuntimeError:
            raise OSError(f"cannot listen on the agents' address {self.address}") from None
        await server.start()
        self._server = server
        self._chores = self._begun()
        for registration in self._registrations:
            self.join(registration)

    def _begun(self) -> list[asyncio.Task[None]]:
        """Start to look after the nodes."""
        chores = [self._clean()]
        if self._sharing is not None:
            chores.append(self._sharing.run(self._tell))
        return [asyncio.get_running_loop().create_task(chore) for chore in chores]

    def check(self, before: GrpcServer) -> None:
        """Raises `ConfigError` when this one cannot `follow` the other one at their address."""
        if replace(self._settings, grace=0, idle=0) != replace(before._settings, grace=0, idle=0):
            raise ConfigError(f"tls and max_message of {self.address} belong to its listener: a change needs a restart")
        if self._registrations or before._registrations:
            raise ConfigError(f"an agent at {self.address} registers at another gateway: a change needs a restart")
        if taken := before._registry.taken(self._registry):
            raise ConfigError(f"agent_id {', '.join(taken)} belongs to a node that is registered at {self.address}")

    def follow(self, before: GrpcServer) -> None:
        """Answers at the address in the place of the other one, whose listener, nodes and relayed sessions it takes.

        Sessions with the agents of the other server continue there; its `stop` waits for them. Clients notice nothing.
        """
        before._registry.replace(self._registry)
        self._registry, self._relays, self._nodes = before._registry, before._relays, before._nodes
        self._watchers, self._handlers = before._watchers, before._handlers
        self._sharing, before._sharing = before._sharing, self._sharing
        self._server, before._server = before._server, None
        self._handlers.server = self
        for chore in before._chores:
            chore.cancel()
        self._chores, before._chores = self._begun(), []
        self._followed, before._followed = [*before._followed, before], []
        before._follower = self
        if not before._open:
            before._quiet.set()

    def join(self, registration: Registration) -> None:
        """Keep a node of the bridge registered at another gateway until this server stops."""
        self._chores.append(asyncio.get_running_loop().create_task(self._stay(registration)))

    async def stop(self, grace: float) -> None:
        """Stop accepting calls; running turns have `grace` seconds, and idle sessions end now.

        Where another one took its place, it has sessions left at most, which have so long to end by themselves.
        """
        if self._sharing is not None and self._server is None:
            await self._sharing.close()
        if self._follower is not None:
            await self._part(grace)
            return
        self._leaving.set()
        for each in self._followed:
            each._leaving.set()
        self._tell()
        # If canceled before it began, a task would not deregister from its gateway.
        await asyncio.sleep(0)
        chores, self._chores = self._chores, []
        for chore in chores:
            chore.cancel()
        # Beside the goodbyes to gateways, which may be slow: the listener is closed at once.
        stopping = [self._server.stop(grace)] if self._server is not None else []
        await asyncio.gather(*stopping, *chores, return_exceptions=True)
        await self._relays.stop(grace)
        await self._nodes.close()
        if self._sharing is not None:
            await self._sharing.close()
        while self._gateways:
            await self._gateways.popitem()[1].close()

    async def _part(self, grace: float) -> None:
        for seconds in (grace, _GOODBYE):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._quiet.wait()
            self._leaving.set()

    async def _clean(self) -> None:
        """Remove nodes without a heartbeat.

        Not while this process itself did not run: it has heard no heartbeat then, even of nodes that sent one.
        """
        life = Liveness(max(_LEAST, _CHECKS * self._registry.check_every))
        while True:
            await asyncio.sleep(self._registry.check_every)
            may_judge = not life.grace()
            life.renewed()
            try:
                if may_judge:
                    self._registry.expire(time.monotonic())
                self._tell()
                await self._nodes.tidy(self._registry.addresses, self._relays.addresses)
            except Exception as error:
                log_unexpected(log, "nodes cannot be looked after", error)

    async def _stay(self, registration: Registration) -> None:
        """Keep an agent of the bridge registered at another gateway, and deregister it when canceled."""
        known = False

        def told(now: bool, why: str) -> None:
            nonlocal known
            before, known = known, now
            if known != before or not known:
                level = logging.INFO if known else logging.WARNING
                log.log(level, "gateway %s: %s", registration.gateway, "registered" if known else f"not known: {why}")

        await stay(registration, self._dialect, self._settings, told)

    async def _visitor(self, rpc: Any, endpoint: Endpoint) -> Visitor:
        return Visitor(await self._caller(rpc, endpoint), peer_address(rpc))

    async def _caller(self, rpc: Any, endpoint: Endpoint, agent: str | None = None) -> str:
        """See `GrpcGuard.caller`."""
        return await self._guard.caller(rpc, endpoint, agent) if self._guard is not None else ""

    async def _refuse(self, rpc: Any, endpoint: Endpoint, reply: Decision, by: Visitor) -> bytes:
        """Ends the call with what the hub refused it with."""
        if not isinstance(reply, Refuse):
            raise TypeError(f"expected an answer, got {type(reply).__name__}")
        if self._guard is not None and reply.status == grpc.StatusCode.PERMISSION_DENIED.name:
            self._guard.refused(rpc, endpoint, Failure(ErrorCode.FORBIDDEN, reply.details), by.user)
        return await _abort(rpc, grpc.StatusCode[reply.status], reply.details)

    # ------------------------------------------------------------------ single messages

    async def answer(self, endpoint: Endpoint, body: bytes, rpc: Any) -> bytes:
        by = await self._visitor(rpc, endpoint)
        with self._activity.call(endpoint.operation, by, rpc) as record:
            try:
                return await self._answered(endpoint, body, rpc, by, record)
            finally:
                self._tell()

    async def watch(self, endpoint: Endpoint, body: bytes, rpc: Any) -> None:
        """Send changes of the nodes to one subscriber, until the server stops."""
        by = await self._visitor(rpc, endpoint)
        reply = self._registry.call(endpoint, body, time.monotonic(), by)
        if not isinstance(reply, Subscribe):
            await self._refuse(rpc, endpoint, reply, by)
            return
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            # Send the head now: a caller that has read it misses no later change.
            await rpc.send_initial_metadata(())
            # The subscriber's replacement gets the same changes.
            while not self._handlers.server._leaving.is_set() and (events := self._registry.events(reply)) is not None:
                for message in events:
                    await rpc.write(message)
                await changed.wait()
                changed.clear()
        finally:
            self._watchers.discard(changed)
            self._registry.unwatched(reply)

    def _tell(self) -> None:
        """Report changes of nodes to operators and subscribers."""
        self._activity.changed(self._registry.changes())
        for changed in self._watchers:
            changed.set()

    async def _answered(self, endpoint: Endpoint, body: bytes, rpc: Any, by: Visitor, record: CallRecord) -> bytes:
        reply = self._registry.call(endpoint, body, time.monotonic(), by)
        if isinstance(reply, Dial):
            reply = await self._dial(reply)
        if isinstance(reply, Forward):
            record.to(reply.node)
            return self._noted(await self._forward(reply, body, rpc), record)
        if isinstance(reply, Handle):
            record.to(reply.node)
            reply = await self._host.call(reply, body)
        if isinstance(reply, Respond):
            return self._noted(reply.body, record)
        return await self._refuse(rpc, endpoint, reply, by)

    def _noted(self, answer: bytes, record: CallRecord) -> bytes:
        """Note whether a tool's answer is an error."""
        if record.found and self._registry.failed(answer):
            record.status = TOOL_ERROR
        return answer

    async def ask(self, path: str, body: bytes, seconds: float, forwarded: Mapping[str, str]) -> bytes:
        """Check how a caller with these headers would be answered. Raises `BackendError`."""
        if self._follower is not None:
            return await self._follower.ask(path, body, seconds, forwarded)
        endpoint, by = self._endpoints[path], Visitor()
        with self._activity.call(endpoint.operation, by) as record:
            reply = self._registry.call(endpoint, body, time.monotonic(), by)
            match reply:
                case Respond():
                    return reply.body
                case Forward():
                    record.to(reply.node)
                    return self._noted(await self._ask_node(reply, body, seconds, forwarded), record)
                case Refuse():
                    raise BackendError.of(failure_of(self._dialect, grpc.StatusCode[reply.status], reply.details))
                case _:
                    raise TypeError(f"{path} is not a method of the registry")

    async def _ask_node(self, node: Forward, body: bytes, seconds: float, forwarded: Mapping[str, str]) -> bytes:
        channel, metadata = self._nodes.at(node.address), tuple(forwarded.items())
        try:
            return await call_unary(channel, self._dialect, node.path, body, seconds, metadata)
        except BackendError as error:
            if error.failure.backend_code == grpc.StatusCode.UNAVAILABLE.name:
                self._registry.lost(node.node)
                self._tell()
            raise

    def ask_at(self, registration: Registration) -> Ask:
        """The same at the registry of a member, by the settings of this address."""
        own = metadata_of(self._dialect, registration.key)

        async def ask(path: str, body: bytes, seconds: float, forwarded: Mapping[str, str]) -> bytes:
            metadata = (*forwarded.items(), *own)
            channel = self._gateways.get(registration.gateway)
            if channel is None:
                channel = self._gateways[registration.gateway] = open_channel(registration.gateway, self._settings)
            return await call_unary(channel, self._dialect, path, body, seconds, metadata)

        return ask

    async def _dial(self, dial: Dial) -> Decision:
        """Connect to a node that registers, without blocking other calls."""
        try:
            outcome = await self._nodes.dial(dial, self._registry.dial_timeout)
        except BaseException:
            self._registry.dialed(dial.node, Dialed.UNREACHABLE, time.monotonic())
            raise
        return self._registry.dialed(dial.node, outcome, time.monotonic())

    async def _forward(self, forward: Forward, body: bytes, rpc: Any) -> bytes:
        left = rpc.time_remaining()
        timeout = min(_FORWARD_TIMEOUT, left) if left is not None else _FORWARD_TIMEOUT
        call = self._nodes.at(forward.address).unary_unary(forward.path)
        try:
            answer: bytes = await call(body, timeout=timeout, metadata=trace_of(rpc))
        except grpc.aio.AioRpcError as error:
            return await self._passed_on(forward, error.code(), error.details(), rpc)
        return answer

    async def _passed_on(self, forward: Forward, code: grpc.StatusCode, details: str | None, rpc: Any) -> bytes:
        """Pass a node's own status on to the caller; forget a node that cannot be reached."""
        if code is grpc.StatusCode.UNAVAILABLE:
            self._registry.lost(forward.node)
            self._tell()
        return await _abort(rpc, code, details or "")

    # ------------------------------------------------------------------ sessions

    async def session(self, endpoint: Endpoint, rpc: Any) -> None:
        by = await self._visitor(rpc, endpoint)
        with self._activity.call(endpoint.operation, by, rpc) as record:
            await self._session(endpoint, rpc, by, record)

    async def _session(self, endpoint: Endpoint, rpc: Any, by: Visitor, record: CallRecord) -> None:
        first = await self._first(rpc)
        reply = self._registry.open(endpoint, first, time.monotonic(), by)
        if isinstance(reply, Serve) and first is not None:
            try:
                self._open += 1
                reply.session.user = await self._caller(rpc, endpoint, reply.agent)
                record.to(reply.agent, reply.session.name)
                await self._host.session(reply, first, rpc, self._leaving)
            finally:
                self._registry.closed(reply.session.name, by)
                self._open -= 1
                if not self._open and self._follower is not None:
                    self._quiet.set()
        elif isinstance(reply, Forward) and reply.session is not None and first is not None:
            record.to(reply.node, reply.session.name)
            try:
                status = await self._relays.run(reply, reply.session, first, rpc, self._nodes.at(reply.address))
                if status is not None:
                    await self._passed_on(reply, *status, rpc)
            finally:
                self._registry.closed(reply.session.name, by)
        else:
            await self._refuse(rpc, endpoint, reply, by)

    async def _first(self, rpc: Any) -> bytes | None:
        """Return the message that opens a session; None if the session ended without one, or stays silent."""
        try:
            async with asyncio.timeout(self._settings.idle):
                came = await rpc.read()
        except TimeoutError:
            return None
        return None if came is grpc.aio.EOF else came


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the endpoint of a method and what serves its operation."""

    def __init__(self, endpoints: Mapping[str, Endpoint], server: GrpcServer) -> None:
        self._endpoints = endpoints
        self.server = server

    def service(self, details: Any) -> Any:
        endpoint = self._endpoints.get(details.method)
        if endpoint is None:
            return None

        # Each call looks up the server, as another one may have replaced it.
        async def session(messages: Any, rpc: Any) -> None:
            await self.server.session(endpoint, rpc)

        async def watch(body: bytes, rpc: Any) -> None:
            await self.server.watch(endpoint, body, rpc)

        async def answer(body: bytes, rpc: Any) -> bytes:
            return await self.server.answer(endpoint, body, rpc)

        if endpoint.operation is Operation.SESSION:
            return grpc.stream_stream_rpc_method_handler(session)
        if endpoint.operation is Operation.SUBSCRIBE:
            return grpc.unary_stream_rpc_method_handler(watch)
        return grpc.unary_unary_rpc_method_handler(answer)


async def _abort(rpc: Any, code: grpc.StatusCode, details: str) -> bytes:
    await rpc.abort(code, details)
    raise AssertionError("unreachable: abort raises")
