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


def node_client(folder: Path, name: str) -> None:
    """Makes sure of a client that runs in Node.js. A machine without it skips its tests, loudly; CI has it."""
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"{' AND '.join(missing).upper()} NOT INSTALLED: {name} was not tried")
    assert not missing, "CI must have Node.js and npm"
    assert (folder / "node_modules").is_dir(), f"{name} is not installed: make interop"


@pytest.fixture(scope="session")
def driver() -> Iterator[Driver]:
    """The official AG-UI client."""
    node_client(HERE, "the official AG-UI client")
    driver = Driver()
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def ai_sdk() -> list[str]:
    """The command that plays one talk of an application with the AI SDK."""
    folder = Path(__file__).parent / "ai-sdk"
    node_client(folder, "the AI SDK")
    return ["node", str(folder / "session.mjs")]


@pytest.fixture(scope="session")
def chats() -> Iterator[Driver]:
    """Chats of applications with the AI SDK, in six builds."""
    folder = Path(__file__).parent / "ai-sdk-ui"
    node_client(folder, "the AI SDK in six builds")
    driver = Driver(folder, "client.mjs")
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def langchain() -> list[str]:
    """The same with LangChain, which has a virtual environment of its own."""
    python = Path(sys.prefix) / "langchain" / "bin" / "python"
    assert python.exists(), "LangChain is not installed: make interop"
    return [str(python), str(Path(__file__).parent / "langchain" / "session.py")]


def _a2a(name: str, script: str) -> list[str]:
    python = Path(sys.prefix) / name / "bin" / "python"
    assert python.exists(), "a2a-sdk is not installed: make interop"
    return [str(python), str(Path(__file__).parent / "a2a" / script)]


@pytest.fixture(scope="session")
def a2a() -> list[str]:
    """The same with A2A's Python SDK, which has a virtual environment of its own."""
    return _a2a("a2a", "session.py")


@pytest.fixture(scope="session")
def a2a_old() -> list[str]:
    """The same with the Python SDK of A2A 0.3."""
    return _a2a("a2a-old", "session_old.py")


@pytest.fixture(scope="session")
def a2a_js() -> list[str]:
    """The same with A2A's JavaScript SDK."""
    folder = Path(__file__).parent / "a2a-js"
    node_client(folder, "A2A's JavaScript SDK")
    return ["node", str(folder / "session.mjs")]


@pytest.fixture(scope="session")
def acp_python() -> list[str]:
    """The same with the official Python client of ACP, which has a virtual environment of its own."""
    python = Path(sys.prefix) / "acp" / "bin" / "python"
    assert python.exists(), "agent-client-protocol is not installed: make interop"
    return [str(python), str(Path(__file__).parent / "acp" / "session.py")]


@pytest.fixture(scope="session")
def acp_js() -> list[str]:
    """The same with the official TypeScript client of ACP."""
    folder = Path(__file__).parent / "acp-js"
    node_client(folder, "the TypeScript client of ACP")
    return ["node", str(folder / "session.mjs")]


@pytest.fixture(scope="session")
def genai() -> list[str]:
    """The same with Google's Python SDK, which has a virtual environment of its own."""
    python = Path(sys.prefix) / "genai" / "bin" / "python"
    assert python.exists(), "google-genai is not installed: make interop"
    return [str(python), str(Path(__file__).parent / "genai" / "session.py")]


@pytest.fixture(scope="session")
def genai_js() -> list[str]:
    """The same with Google's JavaScript SDK."""
    folder = Path(__file__).parent / "genai-js"
    node_client(folder, "Google's JavaScript SDK")
    return ["node", str(folder / "session.mjs")]


@pytest.fixture(scope="session")
def ollama_js() -> list[str]:
    """The same with Ollama's JavaScript client."""
    folder = Path(__file__).parent / "ollama-js"
    node_client(folder, "Ollama's JavaScript client")
    return ["node", str(folder / "session.mjs")]


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
