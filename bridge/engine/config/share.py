"""One worker's share of the limits of a server with several workers."""

from __future__ import annotations

from typing import TypeVar

from bridge.engine.config.schema.base import ConcurrencySection
from bridge.engine.config.schema.whole import Config

_Any = TypeVar("_Any", bound=ConcurrencySection)


def share_of(config: Config, number: int) -> Config:
    """Return the configuration with the share of worker `number`, counted from 1, of the limits of the server and the
    routes.

    Remainders go to the first workers. Each has at least one slot.
    """
    workers = config.server.workers
    server = config.server.model_copy(update={"limits": _part(config.server.limits, workers, number)})
    routes = tuple(
        route if route.limits is None else route.model_copy(update={"limits": _part(route.limits, workers, number)})
        for route in config.routes
    )
    return config.model_copy(update={"server": server, "routes": routes})


def _part(limits: _Any, workers: int, number: int) -> _Any:
    more = {"concurrent": max(1, _of(limits.concurrent, workers, number)), "queue": _of(limits.queue, workers, number)}
    return limits.model_copy(update=more)


def _of(whole: int, workers: int, number: int) -> int:
    return whole // workers + (number <= whole % workers)
