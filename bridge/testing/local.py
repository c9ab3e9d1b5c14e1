"""A bridge over an agent in this process, for tests of whatever talks to a bridge."""

from __future__ import annotations

from bridge.codec import Dialect, registry
from bridge.config import Config
from bridge.engine import Bridge, Route
from bridge.library.reading import dialect_of
from bridge.transports.local import Agent, LocalBackend


def bridge_of(agent: Agent, *dialects: str | Dialect) -> Bridge:
    """A bridge that serves this agent in these dialects, by default in all: each at `/<name of the dialect>`.

    Open it with `async with`, or hand it to `bridge.server.make_app` and that to the test client of your choice. The
    agent is an async generator function such as a `python` backend names, or a `ScriptedAgent`.
    """
    backend = LocalBackend("agent", agent)
    routes = [
        Route(dialect, f"/{dialect.name}", dialect.front_options(), backend)
        for dialect in map(dialect_of, dialects or registry.names())
    ]
    # All settings are the defaults; an agent that is an object stands in no configuration.
    return Bridge(routes, Config.model_construct(backends={}, routes=()))
