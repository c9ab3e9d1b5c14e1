"""The dialect in whose shape a request is answered that fits no endpoint."""

from __future__ import annotations

from collections.abc import Container, Sequence

from bridge.contract import Dialect
from bridge.engine.route import Route


def nearest_dialect(routes: Sequence[Route], path: str, headers: Container[str] = ()) -> Dialect | None:
    """Return the dialect whose mount path comes first in the path of a request, the longest of several; None if no
    route is near.

    Of several with the same mount path, one is preferred by whose header the request tells itself from the others'.
    """
    near = [route for route in routes if _position(path, route.path) >= 0]

    def nearness(route: Route) -> tuple[int, int, bool]:
        tells = any(each.header in headers for each in route.dialect.surface if each.header)
        return -_position(path, route.path), len(route.path), tells

    return max(near, key=nearness).dialect if near else None


def _position(path: str, mount: str) -> int:
    """Return where in the path the mount path begins, wherever the application itself is mounted; -1 if nowhere."""
    return len(path) if mount == "/" else f"{path}/".find(f"{mount}/")
