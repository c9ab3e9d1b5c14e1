"""What is published: the source distribution, the wheel made from it, and the wheel where nothing else is installed.

Extras are resolved against what the tests run with; that each is really needed, and is named by who needs it, is tried
in the environment without any; that each is enough by itself, in one that has this extra and no other.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from tests.deploy.tools import BIN
from tests.docs.helpers import ROOT, environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
"""What is installed comes over a network."""

UV = str(Path(sys.executable).with_name("uv"))
CHAT = {"dialect": "openai-chat", "path": "/v1", "backend": "it"}
NEEDS: dict[str, dict[str, Any]] = {
    "aip": {"routes": [{"dialect": "aip", "listen": "127.0.0.1:50051", "agent_id": "it", "backend": "it"}]},
    "postgres": {
        "routes": [{**CHAT, "dialect": "openai-responses"}],
        "stores": {"history": "postgresql://127.0.0.1:1/none"},
    },
    "objects": {"routes": [{**CHAT, "dialect": "agent-runs"}], "stores": {"attachments": "s3://bucket"}},
    **{
        cloud: {
            "backends": {"it": {"dialect": "openai-chat", "url": "https://h.us-east-1.amazonaws.com", "auth": cloud}}
        }
        for cloud in ("aws", "azure", "gcp")
    },
    "jwt": {"server": {"auth": {"jwt": {"jwks_url": "https://issuer.example/keys"}}}},
    "httptools": {"server": {"http_client": "httptools"}},
    "otel": {"server": {"traces": {"endpoint": "http://127.0.0.1:4318"}}},
}
"""For each extra a configuration that needs it. uvloop is taken where it is there."""
MODULES = {
    "aip": "bridge.run.backends.grpc.grpc_backend, bridge.dialects.aip.codec",
    "postgres": "bridge.stores.postgres",
    "objects": "obstore",
    "aws": "botocore.auth",
    "azure": "azure.identity",
    "gcp": "google.auth.transport.requests",
    "jwt": "cryptography",
    "httptools": "bridge.run.backends.http1",
    "otel": "bridge.engine.telemetry.tracing, opentelemetry.exporter.otlp.proto.http",
    "uvloop": "uvloop",
}
"""What cannot be imported without it: our own modules, or a library that one of ours imports when it is used."""


def run(*command: str, cwd: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command, cwd=cwd, input=stdin, capture_output=True, env=environment(), timeout=300, check=False
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both distributions; the wheel is made from what the source distribution holds."""
    folder = tmp_path_factory.mktemp("dist")
    done = run(str(BIN / "pyproject-build"), "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel and what it depends on, at the versions that CI tests with."""
    folder = tmp_path_factory.mktemp("bare")
    assert run(sys.executable, "-m", "venv", "--without-pip", str(folder), cwd=folder).returncode == 0
    install(str(folder / "bin" / "python"), str(wheel))
    return folder / "bin"


@cache
def index() -> str:
    """The address of the package index that pip uses here, which uv does not read."""
    said = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("PIP_INDEX_URL")
    return (
        said or run(sys.executable, "-m", "pip", "config", "get", "global.index-url", cwd=ROOT).stdout.decode().strip()
    )


def uv(*args: str) -> None:
    """uv takes a tenth of pip's time; modules are compiled when they are imported."""
    folder = {"UV_DEFAULT_INDEX": index()} if index() else {}
    done = subprocess.run([UV, *args], capture_output=True, env=environment(**folder), timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()


def install(python: str, *wanted: str) -> None:
    uv("pip", "install", "--python", python, "--constraint", str(ROOT / "constraints.txt"), *wanted)


def metadata(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(archive.read(name).decode())


def test_the_source_distribution_holds_what_tests_and_images_need(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("Makefile", "Dockerfile", "LICENSE", "README.md", "constraints.txt", "config.yaml", "mkdocs.yml",
                 "deploy/compose.yaml", "tests/test_architecture.py", "examples/agent.py"):  # fmt: skip
        assert name in names, name


def test_extras_are_satisfied_by_what_the_tests_run_with(wheel: Path) -> None:
    told = metadata(wheel)
    extras = set(told.get_all("Provides-Extra"))
    assert extras == {*NEEDS, "completion", "uvloop", "testing", "docs", "fuzz", "all", "dev"}
    requirements = [Requirement(line) for line in told.get_all("Requires-Dist")]

    def of(extra: str) -> list[Requirement]:
        return [r for r in requirements if r.marker is not None and r.marker.evaluate({"extra": extra})]

    of_all = {r.name: [str(other.specifier) for other in of("all") if other.name == r.name] for r in of("all")}
    for extra in (*NEEDS, "completion", "uvloop"):
        mine = of(extra)
        assert mine, extra
        for requirement in mine:
            assert requirement.specifier.contains(version(requirement.name)), requirement
            assert str(requirement.specifier) in of_all[requirement.name], f"{requirement} of {extra}"


def test_the_installed_command_works(bare: Path, tmp_path: Path) -> None:
    command = str(bare / "dialect-bridge")
    assert run(command, "--version", cwd=tmp_path).stdout.startswith(b"dialect-bridge ")
    config = tmp_path / "config.yaml"
    config.write_bytes((ROOT / "config.yaml").read_bytes())
    checked = run(command, "check", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr.decode()
    stream = (
        b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    told = run(command, "translate", "--from", "openai-chat", "--to", "ag-ui", cwd=tmp_path, stdin=stream)
    assert b'"delta":"Hi"' in told.stdout, told.stderr.decode()


def config(extra: str) -> str:
    """A configuration that needs this extra."""
    return yaml.safe_dump({"backends": {"it": {"dialect": "demo"}}, "routes": [CHAT], **NEEDS.get(extra, {})})


REFUSED = """
import sys
from bridge.cli import main
for extra in sys.argv[1:]:
    for command in ["serve", f"{extra}.yaml", "--port", "0"], ["check", f"{extra}.yaml"]:
        code = main(command)
        print(code, file=sys.stderr)
    print(extra, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def refused(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What `serve` and `check` say to configurations for which an extra is not there, by its name; one process does."""
    folder, rest = tmp_path_factory.mktemp("refused"), {}
    for extra in NEEDS:
        (folder / f"{extra}.yaml").write_text(config(extra), encoding="utf-8")
    done = run(str(bare / "python"), "-c", REFUSED, *NEEDS, cwd=folder)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (0, b""), said
    for extra in NEEDS:
        rest[extra], _, said = said.partition(f"2\n{extra}\n")
    assert said == ""
    return rest


@pytest.mark.parametrize("extra", NEEDS)
def test_who_needs_an_extra_is_told_its_name(extra: str, refused: dict[str, str]) -> None:
    served, checked = refused[extra].split("2\n")
    assert f"dialect-bridge[{extra}]" in served
    assert checked == served


MISSING = """
import sys
for wanted in sys.argv[1:]:
    try:
        exec(f"import {wanted}")
    except ImportError:
        print(wanted)
"""


@pytest.fixture(scope="module")
def missing(bare: Path) -> list[str]:
    """Which of `MODULES` cannot be imported without any extra."""
    done = run(str(bare / "python"), "-c", MISSING, *MODULES.values(), cwd=bare)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


@pytest.mark.parametrize("extra", [*NEEDS, "uvloop"])
def test_each_extra_is_enough_alone(extra: str, bare: Path, missing: list[str], wheel: Path, tmp_path: Path) -> None:
    """In a copy of the bare environment with what this extra adds."""
    shutil.copytree(bare.parent, tmp_path, symlinks=True, copy_function=os.link, dirs_exist_ok=True)
    python = str(tmp_path / "bin" / "python")
    install(python, "--find-links", str(wheel.parent), f"dialect-bridge[{extra}]=={metadata(wheel)['Version']}")
    uv("pip", "check", "--python", python)
    (tmp_path / "config.yaml").write_text(config(extra), encoding="utf-8")
    code = f"from bridge.cli import main; assert main(['check']) == 0; import {MODULES[extra]}"
    done = run(python, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert MODULES[extra] in missing, "without it, it would not do"
