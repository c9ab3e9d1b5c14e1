"""The HTTP server: `make_app` (aiohttp) and `make_asgi_app` make applications, `running` and `serve` run them."""

from bridge.server.app import make_app
from bridge.server.asgi import ASGIApp, make_asgi_app
from bridge.server.serve import running, serve

__all__ = ["ASGIApp", "make_app", "make_asgi_app", "running", "serve"]
