"""Log lines for requests that are refused before a route serves them, at a bounded rate.

Violations of permissions go to the audit log (`bridge.audit`), everything else, such as an unknown path, to
`bridge.access`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

from bridge.errors import ErrorCode, Failure, shortened
from bridge.server.auth.api_keys import AuthFailure, Reason
from bridge.toolkit.redact import explained

log = logging.getLogger("bridge.audit")
access = logging.getLogger("bridge.access")

LINES = 30
"""Lines for one peer in `WINDOW`; further refusals are counted, and reported in one line at its end."""
WINDOW = 60.0
"""Seconds."""
PEERS = 1000
"""Peers that have lines of their own at the same time; all further ones share theirs."""
_OTHERS = "other addresses"


@dataclass(slots=True)
class _Window:
    """The refusals of one peer since `began`."""

    began: float
    lines: int = 0
    suppressed: int = 0
    timer: asyncio.TimerHandle | None = None


class AuditLog:
    """Writes refusals to the log. Belongs to one event loop; `close` writes what is pending.

    `count` is called with the reason of every refusal, also of those that the log leaves out.
    """

    def __init__(
        self, count: Callable[[str], None] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count = count
        self._clock = clock
        # In the order in which they began, which is that in which they end.
        self._windows: OrderedDict[str, _Window] = OrderedDict()

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
        self._end(self._clock())
        name = _peer(peer)
        if name not in self._windows and len(self._windows) >= PEERS:
            name = _OTHERS
        window = self._windows.get(name)
        if window is None:
            window = self._windows[name] = _Window(self._clock())
        if window.lines >= LINES:
            window.suppressed += 1
            if window.timer is None:
                end = window.began + WINDOW
                window.timer = asyncio.get_running_loop().call_later(end - self._clock(), self._end, end)
            return
        window.lines += 1
        logger.warning("%s", text, extra={"facts": facts})

    def close(self) -> None:
        """Write the counts of suppressed refusals."""
        self._end(float("inf"))

    def _end(self, now: float) -> None:
        """Remove the windows that are over; each is visited once."""
        while self._windows:
            name, window = next(iter(self._windows.items()))
            if now < window.began + WINDOW:
                return
            del self._windows[name]
            if window.timer is not None:
                window.timer.cancel()
            if window.suppressed:
                facts = {"peer": name, "suppressed": window.suppressed}
                log.warning("further refusals are not logged", extra={"facts": facts})


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
