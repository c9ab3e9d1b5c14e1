"""A bridge over an agent in this process, for tests of programs that call a bridge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.contract import Dialect, Operation, offers, registry
from bridge.contract.registry import resolve
from bridge.engine.bridge import Bridge
from bridge.engine.config import Config, ServerSection
from bridge.engine.route import Route
from bridge.run.backends.local_backend import Agent, LocalBackend
from bridge.run.group import BackendGroup


def bridge_of(agent: Agent, *dialects: str | Dialect, server: Mapping[str, Any] | None = None) -> Bridge:
    """Return a bridge that serves an agent in these dialects, each at `/<name of the dialect>`. The default is all
    dialects but those that queue runs, which need stores.

    Open it with `async with`, pass it to `bridge.server.make_app` for a test client, or serve it with
    `bridge.server.running`. `server` is the section of a configuration, for instance `{"port": free_port()}`. The agent
    is an async generator function, as for a `python` backend, or a `ScriptedAgent`.
    """
    backend = LocalBackend("agent", agent)
    routes = [
        Route(dialect, f"/{dialect.name}", dialect.front_options(), BackendGroup([backend]))
        for dialect in map(resolve, dialects or _at_once())
    ]
    # An agent object cannot be configured, so the configuration contains only the server's settings.
    return Bridge(routes, Config.model_construct(server=ServerSection(**(server or {})), backends={}, routes=()))


def _at_once() -> list[str]:
    return [name for name in registry.names() if offers(registry.get(name).surface, Operation.RUN)]
