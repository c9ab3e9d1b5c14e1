"""Signals to a server that is starting, before its event loop handles them.

Without a handler SIGHUP ends a process, and the first process of a container ignores SIGTERM. Here SIGTERM and SIGINT
end the process, and SIGHUP is kept: the server reloads when it has started, as the file may have changed since it was
read.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

WORKER = "BRIDGE_WORKER"
"""The environment variable of a worker, with what its parent passes to it."""

_held = False


def hold() -> None:
    """Handle the signals until the event loop does."""
    if threading.current_thread() is not threading.main_thread():
        return  # embedded: the signals are the program's
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    signal.signal(signal.SIGHUP, _keep)
    # Without a meaning here; they would end the process. A worker that is replaced before it serves gets SIGUSR1.
    signal.signal(signal.SIGUSR1, _end if WORKER in os.environ else signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def kept() -> bool:
    """Return whether SIGHUP came meanwhile. True once."""
    global _held
    held, _held = _held, False
    return held


def _end(number: int, frame: FrameType | None) -> None:
    # At once, as the default handlers: nothing is served yet.
    os._exit(130 if number == signal.SIGINT else 0)


def _keep(number: int, frame: FrameType | None) -> None:
    global _held
    _held = True
