"""One demo bridge, served by the real command, for everything that only needs some bridge."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.helpers import EXAMPLES, ROOT, Server, run, serve


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`config.yaml` as it is, on another port."""
    with serve(tmp_path_factory.mktemp("demo"), ROOT / "config.yaml") as served:
        yield served
        assert served.stop() == 0
        assert "Traceback" not in served.err


@pytest.fixture(scope="session")
def messages(demo: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of Anthropic Messages: the recipe for one, in front of the demo."""
    folder, config = tmp_path_factory.mktemp("messages"), EXAMPLES / "configs" / "anthropic.yaml"
    with serve(folder, config, OPENAI_BASE_URL=f"{demo.url}/v1") as served:
        yield served
        assert served.stop() == 0
        assert "Traceback" not in served.err


@pytest.fixture(scope="session")
def runs(demo: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the agent run API: the recipe for one, in front of the demo."""
    folder, config = tmp_path_factory.mktemp("runs"), EXAMPLES / "configs" / "agent-runs.yaml"
    with serve(folder, config, OPENAI_BASE_URL=f"{demo.url}/v1", WEB_KEY="key-of-web") as served:
        yield served
        assert served.stop() == 0
        assert "Traceback" not in served.err


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, in another folder; a warning fails. All processes of the tests share it."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, built = base / "site", base / "site.built"
    with (base / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            done = run(sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder))
            assert done.returncode == 0, done.stderr.decode()
            built.touch()
    return folder
