"""The routes of a bridge that have an address: each is an agent there, and one server serves all that share it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bridge.contract import Dialect, SessionDialect, ToolHostDialect, require
from bridge.contract.optional.sessions import Handle, OwnAgent, Refuse, Registration, Respond, Serve
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route
from bridge.errors import ConfigError
from bridge.run.tools.tool_sources import Tools, ToolSource
from bridge.server.auth.audit_log import AuditLog
from bridge.server.auth.identity import Identity
from bridge.server.grpc.activity import Activity
from bridge.server.grpc.grpc_guard import GrpcGuard
from bridge.server.grpc.grpc_server import GrpcServer
from bridge.server.grpc.served_session import ServedSession, TurnRunner
from bridge.server.requests.limits import ServerLimits
from bridge.stores import open_places

if TYPE_CHECKING:
    from bridge.engine.telemetry.tracing import Tracing


def servers(bridge: Bridge, limits: ServerLimits, identity: Identity, refusals: AuditLog) -> list[GrpcServer]:
    """A server for each address that routes of the bridge name. Raises `ConfigError` when routes at one disagree."""
    found: dict[tuple[str, Dialect], list[Route]] = {}
    for route in bridge.routes:
        if route.listen is not None:
            found.setdefault((route.listen, route.dialect), []).append(route)
    lines = {at: _line(routes) for at, routes in found.items()}
    # Gateways of one process are different ones.
    repeated = {line for line in lines.values() if list(lines.values()).count(line) > 1}
    for at, line in lines.items():
        lines[at] = f"{line} at {at[0]}" if line in repeated else line
    return [_server(bridge, limits, identity, refusals, *at, lines[at], routes) for at, routes in found.items()]


def _line(routes: Sequence[Route]) -> str:
    """Return the name of a gateway, the same in all of its processes: that of its agents."""
    return f"nodes of {' '.join(sorted(route.agent_id or '' for route in routes))}"


def _server(
    bridge: Bridge,
    limits: ServerLimits,
    identity: Identity,
    refusals: AuditLog,
    address: str,
    dialect: Dialect,
    line: str,
    routes: Sequence[Route],
) -> GrpcServer:
    dialect = require(dialect, SessionDialect)
    settings = [dialect.channel(route.options) for route in routes]
    if len({(s.ca, s.cert, s.key, s.max_message) for s in settings}) > 1:
        raise ConfigError(f"routes at {address} share one server, so that tls and max_message must be the same.")
    by_agent = {route.agent_id or "": route for route in routes}
    agents = {
        name: OwnAgent(route.options, tuple(b.capabilities for b in route.backends)) for name, route in by_agent.items()
    }
    found = {name: dialect.registration(address, name, agent) for name, agent in agents.items()}
    registrations = [registration for registration in found.values() if registration is not None]
    if len({(m.gateway, m.address) for m in registrations}) < len(registrations):
        raise ConfigError(f"routes at {address}: a gateway takes one agent for each address; give each its own.")
    host = Agents(by_agent, TurnRunner(bridge, limits), settings[0].idle)
    guard = GrpcGuard(identity, {name: route.path for name, route in by_agent.items()}, refusals)
    server = GrpcServer(
        address, dialect, dialect.agent_registry(address, agents), settings[0], host, registrations, guard,
        Activity(address, lambda: bridge.host.metrics), bridge.config.server.keepalive,
        open_places(bridge.config.stores.runs, line) if len(registrations) < len(agents) else None,
    )  # fmt: skip
    for name, route in by_agent.items():
        _give_tools(route, found[name], server, bridge.tracing)
    return server


def _give_tools(route: Route, registration: Registration | None, server: GrpcServer, tracing: Tracing | None) -> None:
    """Return the tools at the route's registry, or at the one where its agent is registered, for the model."""
    dialect = route.dialect
    rounds = dialect.own_tools(route.options) if isinstance(dialect, ToolHostDialect) else None
    if isinstance(dialect, ToolHostDialect) and route.tools is None and rounds is not None:
        ask = server.ask if registration is None else server.ask_at(registration)
        tools: Tools = (source := ToolSource(dialect, route.options, ask))
        if tracing is not None:
            from bridge.engine.telemetry.traced import TracedTools

            tools = TracedTools(source, tracing)
        route.tools, route.max_tool_rounds = tools, rounds


class Agents:
    """See `bridge.server.grpc.grpc_server.GrpcHost`: sessions become runs of routes."""

    def __init__(self, routes: dict[str, Route], turns: TurnRunner, idle: float) -> None:
        self._routes = routes
        self._turns = turns
        self._idle = idle

    async def session(self, reply: Serve, first: bytes, rpc: Any, leaving: asyncio.Event) -> None:
        route = self._routes[reply.agent]
        await ServedSession(reply.session, route, self._turns, rpc, leaving).run(first, self._idle)

    async def call(self, reply: Handle, body: bytes) -> Respond | Refuse:
        return Refuse("NOT_FOUND", "Receiver not found")
