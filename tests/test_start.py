"""What a start of the example configuration loads, and how often it reads what is installed.

Loading is all that a start costs: no time is measured here, since that is a matter of the machine (`make bench`).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bridge.contract import registry
from bridge.engine.config import load
from tests.test_architecture import KITS

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "config.yaml"

SERVED = """
import asyncio, sys
import bridge.cli.serve
from bridge.engine.config import load
from bridge.engine.bridge import Bridge
from bridge.server import running

async def start():
    async with running(Bridge.of(load(sys.argv[1], server={"port": 0}))):
        for name, module in list(sys.modules.items()):
            print(name, getattr(module, "__file__", None) or "", sep="|")

asyncio.run(start())
"""
# aiohttp's and pydantic's own ones included, and what these load when it happens to be there.
LIBRARIES = {
    "aiodns aiohappyeyeballs aiohttp aiosignal attr attrs brotli brotlicffi frozenlist idna multidict propcache yarl",
    "annotated_types pydantic pydantic_core typing_extensions typing_inspection",
    "orjson prometheus_client uvloop yaml _yaml",
}
NOT_NEEDED = {
    "bridge.cli.workers",
    "bridge.translation.library",
    "bridge.server.grpc.agent_servers",
    "bridge.server.grpc.served_session",
    "bridge.server.grpc.grpc_server",
    "bridge.server.auth.jwks",
    "bridge.server.operations.openapi",
    "bridge.server.grpc.relay",
    "bridge.server.auth.tokens",
    "bridge.stores.folder",
    "bridge.stores.postgres",
    "bridge.stores.object_storage",
    "bridge.engine.telemetry.tracing",
    "bridge.testing",
    "bridge.run.backends.fetch",
    "bridge.run.backends.grpc.grpc_backend",
}
"""Rooms and files of this package that the example has no use for; most of them stand for a library behind them."""
TABLES = {"difflib", "encodings.idna", "stringprep"}
"""Of Python's own: for mistakes, and for names of hosts in letters of all the world."""


def run(code: str, *args: str, cwd: Path = ROOT) -> str:
    command = [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{code}", *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=True).stdout


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Each module that is there when the example is served, and its file."""
    lines = run(SERVED, str(CONFIG), cwd=tmp_path_factory.mktemp("start")).splitlines()
    return dict(line.split("|") for line in lines)


def test_only_dialects_that_the_configuration_names_are_loaded(modules: dict[str, str]) -> None:
    config = load(CONFIG)
    named = [registry.get(route.dialect) for route in config.routes]
    named += [registry.get(each.dialect) for each in config.backends.values() if not each.is_demo]
    wanted = {type(dialect).__module__.split(".")[2] for dialect in named}
    loaded = {name.split(".")[2] for name in modules if name.startswith("bridge.dialects.")}
    assert loaded - KITS == wanted


def test_the_libraries_for_programs_are_not(modules: dict[str, str]) -> None:
    assert [name for name in modules if name.startswith("bridge.sdk")] == []


def test_nothing_of_ours_is_loaded_that_the_example_has_no_use_for(modules: dict[str, str]) -> None:
    used = ("server.host.app", "stores.sqlite", "run.backends.demo_backend")
    assert {f"bridge.{name}" for name in used} <= modules.keys()
    for name in NOT_NEEDED:
        file = ROOT / name.replace(".", "/")
        assert file.is_dir() or file.with_suffix(".py").exists(), f"{name} has moved"
    assert NOT_NEEDED & modules.keys() == set()


def test_nothing_of_pythons_own_is_loaded_that_only_we_would_ask_for(modules: dict[str, str]) -> None:
    assert {"encodings", "socket"} <= modules.keys()
    assert TABLES & modules.keys() == set()


def test_no_further_library_is_loaded(modules: dict[str, str]) -> None:
    known = {name for line in LIBRARIES for name in line.split()}
    assert {"aiohttp", "pydantic"} <= modules.keys()
    found = {name.split(".")[0] for name, file in modules.items() if "site-packages" in file}
    assert found - known - {"_distutils_hack"} == set()


def test_what_is_installed_is_read_once_for_all_dialects(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []

    def counted(**wanted: str) -> object:
        reads.append(wanted)
        return real(**wanted)

    real = registry.entry_points
    monkeypatch.setattr(registry, "entry_points", counted)
    monkeypatch.setattr(registry, "_installed", {})
    monkeypatch.setattr(registry, "_registered", {})
    load(CONFIG)
    assert len(reads) == 1
