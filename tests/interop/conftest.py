"""The real software of the protocols, started once for all tests. What is missing is a failure, or a loud skip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.client import HERE, VERSIONS, Driver, Frontend
from tests.server.harness import bound_socket

ROOT = Path(__file__).parents[2]
SERVER = Path(__file__).parent / "agkit" / "server.py"

MakeFrontend = Callable[..., Frontend]


@pytest.fixture(scope="session")
def driver() -> Iterator[Driver]:
    """The official AG-UI client. A machine without Node.js skips its tests, loudly; CI has it."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"{' AND '.join(missing).upper()} NOT INSTALLED: the official AG-UI client was not tried")
    assert not missing, "CI must have Node.js and npm"
    assert (HERE / "node_modules").is_dir(), "the official AG-UI client is not installed: make interop"
    driver = Driver()
    yield driver
    driver.close()


@pytest.fixture(params=VERSIONS, ids=[f"client {v}" for v in VERSIONS.values()])
def frontend(driver: Driver, request: pytest.FixtureRequest) -> MakeFrontend:
    """Makes conversations with an address, one after another with each version of the client."""

    def make(url: str, **config: object) -> Frontend:
        return Frontend(driver, request.param, url, **config)

    return make


@pytest.fixture(scope="session")
def agkit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a running `cloudbase-agent-server`, which has a virtual environment of its own."""
    python = Path(sys.prefix) / "ag-kit" / "bin" / "python"
    assert python.exists(), "cloudbase-agent-server is not installed: make interop"
    log = tmp_path_factory.mktemp("agkit") / "stderr.txt"
    with bound_socket() as listening, log.open("wb") as stderr:
        # It listens already: who comes while the server is starting waits, and is refused when it dies.
        listening.listen(64)
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        handle = listening.fileno()
        server = subprocess.Popen([python, SERVER, str(handle)], pass_fds=[handle], stderr=stderr)
    try:
        try:
            urllib.request.urlopen(f"{base}/healthz", timeout=60).close()
        except OSError as error:
            pytest.fail(f"cloudbase-agent-server did not start: {error}\n{log.read_text()}")
        yield base
    finally:
        server.kill()
        server.wait()
