"""What is published says what it is made of and where it comes from, and the same source gives the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.docs.helpers import ROOT
from tests.test_licences import installed

RELEASE = ROOT / "deploy" / "release"
EPOCH = 1_800_000_000
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def script(name: str) -> ModuleType:
    spec = spec_from_file_location(name, RELEASE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*command: str, cwd: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), **more}
    return subprocess.run([sys.executable, *command], cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def sbom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sbom") / "dialect-bridge.cdx.json"
    done = run(str(RELEASE / "sbom.py"), str(path))
    assert done.returncode == 0, done.stderr
    return path


def built(target: str, folder: Path, **more: str) -> Path:
    done = run("-m", "hatchling", "build", "-t", target, "-d", str(folder), **more)
    assert done.returncode == 0, done.stderr
    (found,) = folder.iterdir()
    return found


# ---------------------------------------------------------------------- bill of materials


def test_the_bill_of_materials_names_what_runs(sbom: Path) -> None:
    told = json.loads(sbom.read_bytes())
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    assert told["metadata"]["component"]["name"] == "dialect-bridge"
    named = {each["name"]: each for each in told["components"]}
    assert set(installed()) <= named.keys()
    assert {"opentelemetry-sdk", "pydantic-core"} <= named.keys()
    assert named.keys() & {"pytest", "mypy", "cyclonedx-python-lib", "hatchling"} == set()
    for name, each in named.items():
        assert each["purl"] == f"pkg:pypi/{name}@{each['version']}"
        assert each["licenses"], name


def test_the_bill_of_materials_says_what_requires_what(sbom: Path) -> None:
    told = json.loads(sbom.read_bytes())
    graph = {each["ref"].partition("@")[0]: each.get("dependsOn", []) for each in told["dependencies"]}
    names = {name.partition("@")[0] for name in graph["pkg:pypi/aiohttp"]}
    assert {"pkg:pypi/yarl", "pkg:pypi/multidict"} <= names
    assert len(graph) == len(told["components"]) + 1


def test_the_same_environment_gives_the_same_bill(sbom: Path, tmp_path: Path) -> None:
    run(str(RELEASE / "sbom.py"), str(tmp_path / "again.json"))
    assert (tmp_path / "again.json").read_bytes() == sbom.read_bytes()


def test_another_environment_can_be_described(tmp_path: Path) -> None:
    """As the image is: from outside, by its site-packages."""
    folder = tmp_path / "site"
    for name, needs in (("dialect-bridge", 'toy>=1; extra == "x"'), ("toy", 'absent; sys_platform == "win32"')):
        info = folder / f"{name.replace('-', '_')}-1.5.dist-info"
        info.mkdir(parents=True)
        text = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.5\nLicense-Expression: MIT\nRequires-Dist: {needs}\n"
        (info / "METADATA").write_text(text + "Provides-Extra: x\n", encoding="utf-8")
    done = run(str(RELEASE / "sbom.py"), str(tmp_path / "out.json"), "--path", str(folder), "--extras", "x")
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "out.json").read_bytes())
    assert [(each["name"], each["licenses"]) for each in told["components"]] == [("toy", [{"license": {"id": "MIT"}}])]


# ---------------------------------------------------------------------- wheel


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_two_builds_are_alike(target: str, sbom: Path, tmp_path: Path) -> None:
    hashes = set()
    for name in ("one", "two"):
        made = built(target, tmp_path / name, DIALECT_BRIDGE_SBOM=str(sbom))
        hashes.add(sha256(made.read_bytes()).hexdigest())
    assert len(hashes) == 1


def test_the_wheel_holds_the_bill_of_materials(sbom: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(built("wheel", tmp_path / "with", DIALECT_BRIDGE_SBOM=str(sbom))) as archive:
        (name,) = (each for each in archive.namelist() if ".dist-info/sboms/" in each)
        assert archive.read(name) == sbom.read_bytes()
    with zipfile.ZipFile(built("wheel", tmp_path / "without", DIALECT_BRIDGE_SBOM="")) as archive:
        assert [each for each in archive.namelist() if "sboms" in each] == []


# ---------------------------------------------------------------------- provenance


def test_the_statement_names_files_and_commit(tmp_path: Path) -> None:
    files = [tmp_path / "b.whl", tmp_path / "a.json"]
    for file in files:
        file.write_bytes(file.name.encode())
    told = script("provenance").statement(files, "c0ffee", EPOCH)
    assert told["_type"] == "https://in-toto.io/Statement/v1"
    assert told["predicateType"] == "https://slsa.dev/provenance/v1"
    assert told["subject"] == [
        {"name": name, "digest": {"sha256": sha256(name.encode()).hexdigest()}} for name in ("a.json", "b.whl")
    ]
    definition = told["predicate"]["buildDefinition"]
    assert definition["resolvedDependencies"][0]["digest"] == {"gitCommit": "c0ffee"}
    assert definition["internalParameters"]["SOURCE_DATE_EPOCH"] == EPOCH


def test_a_changed_work_tree_has_no_provenance(tmp_path: Path) -> None:
    def git(*command: str) -> str:
        names = ("-c", "user.name=a", "-c", "user.email=a@localhost")
        return subprocess.run(
            ["git", *names, *command], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    (tmp_path / "file").write_text("one", encoding="utf-8")
    git("add", "file")
    git("commit", "-q", "-m", "one")
    clean = run(str(RELEASE / "provenance.py"), "file", cwd=tmp_path)
    assert json.loads(clean.stdout)["predicate"]["buildDefinition"]["externalParameters"]["commit"] == (
        git("rev-parse", "HEAD").strip()
    )
    (tmp_path / "file").write_text("two", encoding="utf-8")
    changed = run(str(RELEASE / "provenance.py"), "file", cwd=tmp_path)
    assert changed.returncode == 1
    assert "no commit is the source" in changed.stderr
    assert changed.stdout == ""


# ---------------------------------------------------------------------- audit

_GOOD = {"name": "good", "version": "1", "vulns": []}
_BAD = {"name": "bad", "version": "2", "vulns": [{"id": "PYSEC-1"}]}
_UNKNOWN = {"name": "unknown", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("packages", "desk", "ci", "said"),
    [
        ([_GOOD], 0, 0, "1 versions looked up, 0 of them"),
        ([_GOOD, _BAD], 1, 1, "bad 2: PYSEC-1"),
        ([_BAD, _UNKNOWN], 1, 1, "bad 2: PYSEC-1"),
        ([_GOOD, _UNKNOWN], 2, 0, "NOT AUDITED: the index has no data on 1 of 2: unknown"),
        (None, 2, 0, "NOT AUDITED: the vulnerability service cannot be reached (ConnectionError)"),
    ],
)
def test_only_what_was_looked_up_counts_as_audited(
    packages: list[Mapping[str, Any]] | None, desk: int, ci: int, said: str
) -> None:
    judge = script("audit").judge
    report = None if packages is None else {"dependencies": packages}
    for in_ci, wanted in ((False, desk), (True, ci)):
        status, text = judge(report, "ConnectionError", ci=in_ci)
        assert status == wanted
        assert said in text


# ---------------------------------------------------------------------- image


def test_the_image_names_its_bill_of_materials() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    place = "/app/share/sbom/dialect-bridge.cdx.json"
    assert f'dialect-bridge.sbom="{place}"' in text
    assert f"        {place}\n" in text
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "!deploy/release" in ignored
    assert "COPY deploy/release deploy/release" in text
