"""Programs and servers by name, and what connects each: one table for `init`, the page and the documentation.

`CLIENTS` are programs that call a route, `SERVERS` what a backend calls. The table is `programs.json`: data, so that no
code knows a dialect by its name.
"""

from bridge.server.connect.programs import (
    CLIENTS,
    FROM_PAGES,
    SERVERS,
    BackendProgram,
    ClientProgram,
    RouteAddress,
    Snippet,
    named,
    unknown,
)

__all__ = [
    "CLIENTS",
    "FROM_PAGES",
    "SERVERS",
    "BackendProgram",
    "ClientProgram",
    "RouteAddress",
    "Snippet",
    "named",
    "unknown",
]
