"""Listening sockets, separate from the servers that use them: they outlive configurations and workers that die."""

from __future__ import annotations

import socket

BACKLOG = 1024


def bind(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """Bound sockets, one for each address of the host; they do not listen yet. Port 0 takes a free one.

    `shared`: others may bind the same port, each of which gets its part of the connections. Raises `OSError`.
    """
    # As bytes if possible: for any text, Python loads its tables of Unicode names.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            made.append(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                # The IPv4 address of a host is one of its own.
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address[0], port, *address[2:]))
            port = port or sock.getsockname()[1]
    except OSError:
        close(made)
        raise
    return made


def close(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
