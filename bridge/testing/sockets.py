"""Ports for tests, which no other test process takes in between."""

from __future__ import annotations

import atexit
import itertools
import os
import socket
from collections.abc import Generator

_FIRST, _SIZE, _BLOCKS = 20_000, 250, 48
"""Below the range from which the kernel gives outgoing connections theirs."""


def _bound(port: int) -> socket.socket | None:
    """A loopback socket on this port; None where the port is taken.

    The protocol is given because asyncio sets TCP_NODELAY only on a socket with an explicit protocol TCP; without it,
    small writes are delayed, and lost on a reset.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        return None
    return sock


def _claim(near: int) -> socket.socket | None:
    """Return the first port of a free block: the process that holds that port owns the block."""
    return next(filter(None, (_bound(_FIRST + n % _BLOCKS * _SIZE) for n in range(near, near + _BLOCKS))), None)


def _ports() -> Generator[int]:
    """Ports that are this process's alone.

    Between `free_port` and the server that listens there lie seconds, when that server is a program that starts. Two
    processes that walk through the same ports in that time give one port to two servers, and the client of one meets
    the other. A block is kept while the next one is used up, and the kernel gives back what an ended process held.
    """
    near = os.getpid()
    # Two from the start: a process holds as many descriptors in its first block as in the next one.
    guards = [guard for guard in (_claim(near),) if guard]
    try:
        while True:
            if guard := _claim(near):
                guards.append(guard)
                if len(guards) > 2:
                    guards.pop(0).close()
            elif not guards:
                return
            first = guards[-1].getsockname()[1]
            near = (first - _FIRST) // _SIZE + 1
            yield from range(first + 1, first + _SIZE)
    finally:
        for guard in guards:
            guard.close()


_PORTS = _ports()
atexit.register(_PORTS.close)


def bound_socket() -> socket.socket:
    """Return a loopback socket on a free port. Raises `OSError` if there is none."""
    for port in itertools.islice(_PORTS, 2_000):
        if listening := _bound(port):
            return listening
    raise OSError("no free port")


def free_port() -> int:
    """A port that is free, and that no other test process will be given meanwhile."""
    with bound_socket() as listening:
        return int(listening.getsockname()[1])
