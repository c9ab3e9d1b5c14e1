"""Checks who may use an endpoint: the origin of a page, the key or token, and the rate of its user."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from bridge.contract import SCOPES, Endpoint, Operation, Scope
from bridge.engine.bridge import Bridge
from bridge.engine.route import Route
from bridge.errors import BridgeError
from bridge.server.auth.audit_log import AuditLog
from bridge.server.auth.cors import PRIVATE_OPERATIONS, OriginPolicy
from bridge.server.auth.identity import QUERY_TOKEN, Identity, visit_of
from bridge.server.auth.resource_metadata import challenged
from bridge.server.requests.http_messages import REPORTED, USER, request_id
from bridge.server.requests.limits import ServerLimits

_CONNECTED = frozenset({Operation.SOCKET, Operation.CONNECT})
"""Operations of connections, whose requests count, and not they themselves."""


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
        refusals: AuditLog,
    ) -> None:
        self.dialect = route.dialect
        self.operation = endpoint.operation
        self._route = route
        self._config = bridge.config
        self._origins = origins
        self._identity = identity
        self._limits = limits
        self._refusals = refusals
        self._query_key = endpoint.query_key
        if endpoint.query_token is not None and getattr(route.options, endpoint.query_token, False):
            self._query_key = QUERY_TOKEN
        self._is_public = endpoint.public
        self._is_local = endpoint.operation is Operation.TOOLS
        self._asks = not (endpoint.public or identity.is_open)
        self._counts = limits.has_rates and not endpoint.public
        self.is_refused_late = not endpoint.public and endpoint.operation not in (Operation.STOP, Operation.CANCEL)
        """A server that stops takes no new work, but still ends what is under way."""

    def details(self, http: web.Request) -> dict[str, Any]:
        """Return the details of a failure for dialects whose errors depend on what was requested."""
        return {"operation": self.operation, "path": http.path}

    def check_origin(self, http: web.Request) -> None:
        """Raise `RequestError` (forbidden) for a page of another site that may not call the endpoint."""
        if not self._is_public:
            # A reader who comes back to a durable run reads what is kept.
            private = self.operation in PRIVATE_OPERATIONS or (self._route.durable and "last-event-id" in http.headers)
            self._origins.check_endpoint(http, private=private, local=self._is_local)

    async def identify(self, http: web.Request) -> None:
        """Find the user of a request and count it. Raises `RequestError` (unauthorized, forbidden, rate limited)."""
        user, is_repeated = "", self._counts and USER in http
        if self._asks:
            with challenged(http, self._config, self._route.path if self._is_local else None):
                visit = visit_of(http, self._query_key)
                user = await self._identity.user(visit, self._route.path, scope=SCOPES[self.operation])
        http[USER] = user
        if self._counts and (is_repeated or self.operation not in _CONNECTED):
            await self._limits.check_rate(user, runs=SCOPES[self.operation] is Scope.RUN)

    async def admit(self, http: web.Request) -> None:
        """Check one more request of a connection or a batch as if it had come alone. Raises as `identify` does."""
        try:
            await self.identify(http)
        except BridgeError as error:
            http[REPORTED] = True  # the request has a line of its own
            failure, path = error.failure, http.rel_url.raw_path
            self._refusals.refused(
                failure, path=path, peer=http.remote, user=http.get(USER), request_id=request_id(http)
            )
            raise

    async def permit(self, http: web.Request, operation: Operation) -> None:
        """Check that the user of a request may do what its body asks for. Raises `RequestError` (forbidden)."""
        self._origins.check_endpoint(http, private=operation in PRIVATE_OPERATIONS, local=self._is_local)
        if self._asks:
            visit = visit_of(http, self._query_key)
            await self._identity.user(visit, self._route.path, scope=SCOPES[operation])


GUARD = web.RequestKey("guard", Guard)
