"""Identifies the callers of a gRPC address by their metadata, as `bridge.server.auth.identity` does for HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import grpc
from multidict import CIMultiDict

from bridge.contract import SCOPES, Endpoint
from bridge.errors import RULES, BridgeError, Failure
from bridge.server.auth.audit_log import AuditLog
from bridge.server.auth.identity import Identity, Visit
from bridge.server.requests.http_messages import is_request_id


class GrpcGuard:
    """`mounts`: agent -> what names its route, as the routes of a key do."""

    def __init__(self, identity: Identity, mounts: Mapping[str, str], refusals: AuditLog | None = None) -> None:
        self._identity = identity
        self._mounts = mounts
        self._refusals = refusals or AuditLog()

    async def caller(self, rpc: Any, endpoint: Endpoint, agent: str | None = None) -> str:
        """Return the user who calls `endpoint` for one of the agents, or for anything here; "" without users.

        A key that opens any of the routes here opens the registry and what is relayed, too. Any other call is aborted:
        UNAUTHENTICATED, PERMISSION_DENIED (the key does not open the route, or lacks the scope of the operation), or
        UNAVAILABLE when a token cannot be checked now.
        """
        mounts = [self._mounts[agent]] if agent is not None else list(self._mounts.values())
        try:
            return await self._identity.user(visit_of(rpc), *mounts, scope=SCOPES[endpoint.operation])
        except BridgeError as error:
            self.refused(rpc, endpoint, error.failure)
            status = grpc.StatusCode[RULES[error.failure.code].grpc]
            await rpc.abort(status, error.message, tuple(error.failure.headers.items()))
            raise AssertionError("unreachable: abort raises") from None

    def refused(self, rpc: Any, endpoint: Endpoint, failure: Failure, user: str | None = None) -> None:
        """Note in the audit log that a call of `user` is refused."""
        sent = visit_of(rpc).headers.get("x-request-id", "")
        known = sent if is_request_id(sent) else None
        self._refusals.refused(failure, path=endpoint.path, peer=peer_address(rpc), user=user, request_id=known)


def visit_of(rpc: Any) -> Visit:
    """Binary metadata is left out: no key or name is in it."""
    seen: CIMultiDict[str] = CIMultiDict()
    for name, value in rpc.invocation_metadata() or ():
        if isinstance(value, str):
            seen.add(name, value)
    return Visit(seen, peer_address(rpc))


def peer_address(rpc: Any) -> str | None:
    """The IP address of a call's peer, which gRPC writes as `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    family, _, rest = rpc.peer().partition(":")
    if family not in ("ipv4", "ipv6"):
        return None
    return unquote(rest).rpartition(":")[0].strip("[]")
