"""Listening sockets, separate from the servers that use them: they outlive configurations and workers that die."""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import Any

BACKLOG = 1024

_EVERYWHERE = ("::", "*", "")
"""Hosts that mean all addresses of both families; `0.0.0.0` means those of IPv4."""
_MISSING = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
"""What the system says of a family that it does not have."""


def bind(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """Bound sockets, one for each address of the host. Port 0 takes a free one.

    `shared`: others may bind the same port, each of which gets its part of the connections; the caller has made sure by
    `claim` that these are its own. Raises `OSError`.
    """
    made: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in _addresses(host, port):
            try:
                made.append(_bound(family, (address[0], port, *address[2:]), shared=shared))
            except OSError as error:
                if error.errno not in _MISSING:
                    raise
                missing = error
                continue
            port = port or made[-1].getsockname()[1]
        if missing is not None and not made:
            raise missing
    except OSError:
        close(made)
        raise
    return made


def claim(host: str, port: int) -> None:
    """Raise `OSError` (EADDRINUSE) if another process listens there, also one that shares the port.

    A socket that is to be shared does not find that out: two servers would each get a part of the connections.
    """
    sockets = bind(host, port)
    try:
        for sock in sockets:
            sock.listen(1)
    finally:
        close(sockets)


def listen_on(sockets: list[socket.socket]) -> None:
    """Accept connections, which wait until a server takes them; from now on `claim` fails for others."""
    for sock in sockets:
        sock.listen(BACKLOG)


def url_host(host: str) -> str:
    """Return the host of a URL at which a server that listens on `host` answers on this machine."""
    if host in (*_EVERYWHERE, "0.0.0.0"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def close(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    if host.lower() == "localhost":
        # Both, whatever the file of hosts says: clients try either first.
        return [(socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET6, ("::1", port, 0, 0))]
    # As bytes if possible: for any text, Python loads its tables of Unicode names.
    name = host.encode() if host.isascii() else host
    wanted = None if host in _EVERYWHERE else name
    found = socket.getaddrinfo(wanted, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _bound(family: socket.AddressFamily, address: Any, *, shared: bool) -> socket.socket:
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(contextlib.closing(socket.socket(family, socket.SOCK_STREAM)))
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            # The IPv4 address of a host is one of its own.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        stack.pop_all()
        return sock
