"""TCP keep-alive for connections to backends.

A model may be silent for as long as its answer takes. Probes of the operating system tell such a backend from one that
is gone, and keep the connection known to the NAT gateways between, which forget silent ones after minutes.
"""

from __future__ import annotations

import socket

_SILENT = 60
"""Seconds of silence before the first probe."""
_BETWEEN = 15
"""Seconds between two probes."""
_UNANSWERED = 4
"""Probes without an answer after which the connection is broken."""
_SETTINGS = {"TCP_KEEPIDLE": _SILENT, "TCP_KEEPALIVE": _SILENT, "TCP_KEEPINTVL": _BETWEEN, "TCP_KEEPCNT": _UNANSWERED}
"""Option of the operating system -> value; no system has all. macOS names the first one `TCP_KEEPALIVE`."""


def probe(sock: socket.socket) -> socket.socket:
    """Let the operating system probe the peer of a silent connection. Return the socket."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _SETTINGS.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock


def probed_socket(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
    """Make the socket for one result of `getaddrinfo`."""
    family, kind, protocol, _, _ = address
    return probe(socket.socket(family, kind, protocol))
