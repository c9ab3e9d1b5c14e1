"""The HTTP server: `make_app` makes an aiohttp application, `running` and `serve` run it.

The names are loaded at first use: parts of the server are used without the rest of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.server.host.app import make_app
    from bridge.server.host.http_server import running, serve

__all__ = ["make_app", "running", "serve"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'bridge.server' has no attribute {name!r}")
    from bridge.server.host import app, http_server

    return getattr(app if name == "make_app" else http_server, name)
