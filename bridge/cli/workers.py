"""Several processes that share one port: this process starts them, passes signals on, and ends with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

NUMBER = "BRIDGE_WORKER"
"""In a worker's environment: which one it is, from 1."""


def run(count: int, arguments: Sequence[str]) -> int:
    """Runs `count` processes with this command line; ends when one of them does, or on a signal.

    The exit code is the first one that is not 0, 1 for a worker that a signal killed, where dying of the one that we
    passed on counts as 0.
    """
    children: list[subprocess.Popen[bytes]] = []
    told = False

    def stop(number: int = 0, frame: object = None) -> None:
        nonlocal told
        if not told:
            told = True
            for child in children:
                if child.poll() is None:
                    child.send_signal(signal.SIGTERM)

    # Before the first worker: a signal in between must find somebody who passes it on.
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    command = [sys.executable, "-m", "bridge.cli", *arguments]
    for number in range(1, count + 1):
        if not told:
            children.append(subprocess.Popen(command, env={**os.environ, NUMBER: str(number)}))
    if children:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    asked = told
    stop()
    codes = [child.wait() for child in children]
    if asked:
        # A worker that was told while it was still starting dies of the signal, which is what it was told to do.
        codes = [0 if code == -signal.SIGTERM else code for code in codes]
    return next((code if code > 0 else 1 for code in codes if code), 0)
