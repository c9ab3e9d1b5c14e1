"""The metadata of a protected resource (RFC 9728), in which clients of tools find the issuer of their tokens.

Without an issuer there is none, and every address below `/.well-known/` is unknown: clients that find anything there
begin to register.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from bridge.contract import Operation
from bridge.engine.bridge import Bridge
from bridge.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from bridge.engine.config import Config

_PATH = "/.well-known/oauth-protected-resource"


def mount_metadata(app: web.Application, bridge: Bridge) -> None:
    """Serve the metadata of each route whose clients may find an issuer."""
    issuer = _issuer(bridge.config)
    if issuer is None:
        return
    for route in bridge.routes:
        if route.serves(Operation.TOOLS):
            app.router.add_get(_PATH + route.path.rstrip("/"), _handler(bridge.config, issuer, route.path))


def _handler(config: Config, issuer: str, path: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(http: web.Request) -> web.StreamResponse:
        metadata = {
            "resource": _base(config, http) + path.rstrip("/"),
            "authorization_servers": [issuer],
            "bearer_methods_supported": ["header"],
        }
        return web.json_response(metadata)

    return answer


@contextmanager
def challenged(http: web.Request, config: Config, path: str | None) -> Iterator[None]:
    """Add to a 401 where the metadata of the route at `path` is; None for a route without."""
    try:
        yield
    except RequestError as error:
        if path is not None and error.code is ErrorCode.UNAUTHORIZED and _issuer(config) is not None:
            place = f"{_base(config, http)}{_PATH}{path.rstrip('/')}"
            error.failure.headers["www-authenticate"] = f'Bearer resource_metadata="{place}"'
        raise


def _issuer(config: Config) -> str | None:
    """Return the issuer of the tokens that are accepted, if it has an address."""
    jwt = config.server.auth.jwt if config.server.auth is not None else None
    issuer = jwt.issuer if jwt is not None else None
    return issuer if issuer is not None and issuer.startswith(("http://", "https://")) else None


def _base(config: Config, http: web.Request) -> str:
    return (config.server.public_url or f"{http.scheme}://{http.host}").rstrip("/")
