"""Checks who may use an endpoint: the origin of a page, the key or token, and the rate of its user."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from bridge.contract import SCOPES, Endpoint, Operation, Scope
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route
from bridge.errors import BackendError, ErrorCode
from bridge.server.auth.cors import PRIVATE_OPERATIONS, Initiator, OriginPolicy
from bridge.server.auth.identity import QUERY_TOKEN, Identity, visit_of
from bridge.server.auth.resource_metadata import challenged
from bridge.server.requests.limits import ServerLimits

_CONNECTED = frozenset({Operation.SOCKET, Operation.CONNECT})
"""Operations of connections, whose messages count, and not they themselves."""


class Stopping(Protocol):
    """A server that stops some day."""

    @property
    def draining(self) -> bool:
        """It is about to stop."""


class Guard:
    """The checks of one endpoint of a route, made once for all requests to it."""

    def __init__(
        self,
        endpoint: Endpoint,
        route: Route,
        bridge: Bridge,
        origins: OriginPolicy,
        identity: Identity,
        limits: ServerLimits,
        server: Stopping,
    ) -> None:
        """`server` takes no new work when it is about to stop, but still ends what runs."""
        self.dialect = route.dialect
        self.operation = endpoint.operation
        self.route = route
        self.mount = route.path.rstrip("/")
        self.bodies = limits.bodies
        self._config = bridge.config
        self._origins = origins
        self._identity = identity
        self._limits = limits
        self._query_key = endpoint.query_key
        if endpoint.query_token is not None and getattr(route.options, endpoint.query_token, False):
            self._query_key = QUERY_TOKEN
        self._is_public = endpoint.public
        self._is_local = endpoint.operation is Operation.TOOLS
        self._asks = not (endpoint.public or identity.is_open)
        self._counts = limits.has_rates and not endpoint.public
        self.identifies = self._asks or self._counts
        """False where every caller is the same user, and none is counted."""
        self._server = server
        self._ends = endpoint.public or endpoint.operation in (Operation.STOP, Operation.CANCEL)

    def check(self, http: web.Request, initiator: Initiator | None) -> None:
        """Check what needs no key.

        Raises `RequestError` (forbidden) for a page of another site that may not call the endpoint, and `BackendError`
        (overloaded) for new work of a server that is about to stop.
        """
        if initiator is not None and not self._is_public:
            # A reader who comes back to a durable run reads what is kept.
            private = self.operation in PRIVATE_OPERATIONS or (self.route.durable and "last-event-id" in http.headers)
            self._origins.check_endpoint(initiator, private=private, local=self._is_local)
        if not self._ends and self._server.draining:
            text = "The server is stopping; another one, or the next one, will take this request."
            raise BackendError(text, code=ErrorCode.OVERLOADED, headers={"retry-after": "1"})

    async def identify(self, http: web.Request, *, is_message: bool = False) -> str:
        """Return the user of a request, or of a message over its connection, and count it.

        Raises `RequestError` (unauthorized, forbidden) and `BackendError` (rate limited).
        """
        user = ""
        if self._asks:
            with challenged(http, self._config, self.route.path if self._is_local else None):
                visit = visit_of(http, self._query_key)
                user = await self._identity.user(visit, self.route.path, scope=SCOPES[self.operation])
        if self._counts and (is_message or self.operation not in _CONNECTED):
            await self._limits.check_rate(user, runs=SCOPES[self.operation] is Scope.RUN)
        return user

    async def permit(self, http: web.Request, initiator: Initiator | None, operation: Operation) -> None:
        """Check that the user of a request may do what its body asks for.

        Raises `RequestError` (forbidden), and `BackendError` (rate limited) for a run of a user without tokens.
        """
        user = ""
        if initiator is not None:
            self._origins.check_endpoint(initiator, private=operation in PRIVATE_OPERATIONS, local=self._is_local)
        if self._asks:
            visit = visit_of(http, self._query_key)
            user = await self._identity.user(visit, self.route.path, scope=SCOPES[operation])
        if self._counts and SCOPES[operation] is Scope.RUN and SCOPES[self.operation] is not Scope.RUN:
            await self._limits.check_tokens(user)
