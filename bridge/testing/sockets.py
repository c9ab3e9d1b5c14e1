"""Ports for tests, bound before anybody else can take them."""

from __future__ import annotations

import itertools
import os
import socket

# Where a process begins to look is far from where the next ones do, since test processes are started in a row.
_PORTS = (20_000 + (os.getpid() * 7_919 + n) % 12_000 for n in itertools.count())


def bound_socket() -> socket.socket:
    """A loopback socket on a port below the range from which the kernel gives outgoing connections theirs.

    The protocol is named because asyncio sets TCP_NODELAY only on a socket whose protocol says TCP;
    without it a small write waits, and a reset that follows throws it away.
    """
    for port in itertools.islice(_PORTS, 2_000):
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError:
            listening.close()
            continue
        return listening
    raise OSError("no free port")


def free_port() -> int:
    """A port that was free a moment ago."""
    with bound_socket() as listening:
        return int(listening.getsockname()[1])
