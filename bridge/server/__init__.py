"""The HTTP server: `make_app` makes an aiohttp application, `running` and `serve` run it."""

from bridge.server.app import make_app
from bridge.server.serve import running, serve

__all__ = ["make_app", "running", "serve"]
