"""Log lines for requests that are refused before a route serves them, at a bounded rate.

Violations of permissions go to the audit log (`bridge.audit`), everything else, such as an unknown path, to
`bridge.access`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network

from bridge.errors import ErrorCode, Failure, shortened
from bridge.server.auth.api_keys import AuthFailure, Reason
from bridge.toolkit.redact import explained

log = logging.getLogger("bridge.audit")
access = logging.getLogger("bridge.access")

LINES = 30
"""Lines for one peer in `WINDOW`; further refusals are counted, and reported in one line at its end."""
WINDOW = 60.0
"""Seconds of a window, which is the same for all peers."""
PEERS = 1000
"""Peers that have lines of their own in a window; all further ones share theirs."""
_OTHERS = "other addresses"


class AuditLog:
    """Writes refusals to the log. Belongs to one event loop; `close` writes what is pending.

    `count` is called with the reason of every refusal, also of those that the log leaves out.
    """

    def __init__(
        self, count: Callable[[str], None] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count = count
        self._clock = clock
        self._refusals: dict[str, int] = {}  # by peer, since the window began
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def refused(
        self, failure: Failure, *, path: str, peer: str | None, user: str | None = None, request_id: str | None = None
    ) -> None:
        """Record a refusal for missing permissions (unauthorized, forbidden); other failures are ignored.

        `peer`: the address of the connection; `user`: the owner of the request, unless the refusal names one.
        """
        if failure.code not in (ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN):
            return
        reason = Reason.FORBIDDEN
        if isinstance(failure, AuthFailure):
            reason, user = failure.reason, failure.user or user
        facts = {"reason": reason, **_facts(path, peer, user, request_id)}
        self._write(log, "refused", facts, str(reason), peer)

    def unserved(
        self,
        failure: Failure,
        *,
        http: int,
        method: str,
        path: str,
        peer: str | None,
        user: str | None = None,
        request_id: str | None = None,
    ) -> None:
        """Note a request that no route has served, such as one for an unknown path. `http` is its answer's status."""
        facts = {"http": http, "method": method, **_facts(path, peer, user, request_id)}
        self._write(access, f"request refused: {explained(failure)}", facts, str(failure.code), peer)

    def _write(
        self, logger: logging.Logger, text: str, facts: dict[str, object], counted: str, peer: str | None
    ) -> None:
        if self._count is not None:
            self._count(counted)
        if self._clock() - self._began >= WINDOW:
            self.close()
            self._began = self._clock()
        name = _peer(peer)
        if name not in self._refusals and len(self._refusals) >= PEERS:
            name = _OTHERS
        self._refusals[name] = self._refusals.get(name, 0) + 1
        if self._refusals[name] <= LINES:
            logger.warning("%s", text, extra={"facts": facts})
        elif self._timer is None:
            left = self._began + WINDOW - self._clock()
            self._timer = asyncio.get_running_loop().call_later(left, self.close)

    def close(self) -> None:
        """End the window: write the counts of suppressed refusals."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for name, count in self._refusals.items():
            if count > LINES:
                facts = {"peer": name, "suppressed": count - LINES}
                log.warning("further refusals are not logged", extra={"facts": facts})
        self._refusals.clear()


def _facts(path: str, peer: str | None, user: str | None, request_id: str | None) -> dict[str, object]:
    facts: dict[str, object] = {"path": shortened(path), "peer": peer or "unknown"}
    if user:
        facts["user"] = user
    if request_id:
        facts["request_id"] = request_id
    return facts


def _peer(address: str | None) -> str:
    """Return the address under which lines are counted; of IPv6 the /64 network, as one host may use all of it."""
    try:
        peer = ip_address((address or "").partition("%")[0])
    except ValueError:
        return address or "unknown"
    if isinstance(peer, IPv6Address) and peer.ipv4_mapped is None:
        return str(ip_network((peer, 64), strict=False))
    return str(peer)
