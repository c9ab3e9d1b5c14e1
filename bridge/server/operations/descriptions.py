"""Facts about the agent behind a route, for dialects whose clients request a description of it."""

from __future__ import annotations

from aiohttp import web

from bridge.contract import DescribedAgent, WireRequest
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route


def described(bridge: Bridge, route: Route, http: web.Request, *, secured: bool) -> DescribedAgent:
    """Return the agent; its address is the configured one, else the one by which this request came."""
    base = bridge.config.server.public_url or f"{http.scheme}://{http.host}"
    return DescribedAgent(
        ", ".join(backend.name for backend in route.backends),
        [backend.capabilities for backend in route.backends],
        base.rstrip("/") + route.path.rstrip("/"),
        route.options,
        secured,
        route.durable,
        WireRequest(http.method, http.path, http.headers, http.query),
    )
