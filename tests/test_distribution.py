"""What is installed: the import package `bridge`, with the folder `adapters/` as `bridge.dialects`, and nothing else.

Nothing here asks a package index. Programs run without the checkout on their path unless a test is about the checkout.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from mypy.modulefinder import FindModuleCache, SearchPaths
from mypy.options import Options

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ENTRY_POINTS: dict[str, str] = PROJECT["project"]["entry-points"]["bridge.dialects"]
FOLDER = "adapters"
LIBRARIES = sysconfig.get_path("purelib")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def run(*command: str, cwd: Path, fails: bool = False) -> str:
    """Runs a command to its end and returns what it prints; what it prints as errors where it is to fail."""
    done = subprocess.run(command, cwd=cwd, env=clean(), capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def clean() -> dict[str, str]:
    """An environment that leads to no checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "MAKE"))}


def python(code: str, *, cwd: Path, site: Path | None = None, fails: bool = False) -> str:
    """Runs code with the libraries of this environment, but not with its own installation of the project.

    `site` is a folder that packages were installed to; without it, `cwd` is the first place of imports.
    """
    first = f"site.addsitedir({str(site)!r})" if site else "sys.path.insert(0, '')"
    start = f"import site, sys; {first}; sys.path.append({LIBRARIES!r})\n"
    return run(sys.executable, "-I", "-S", "-c", start + code, cwd=cwd, fails=fails)


def build(target: str, source: Path, folder: Path) -> Path:
    """Builds a wheel or a source distribution of `source` into `folder`."""
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder), cwd=source)
    (found,) = folder.iterdir()
    return found


def install(folder: Path, *wheels: Path) -> None:
    """Installs wheels into `folder`, one after the other, as pip does."""
    for wheel in wheels:
        pip = ("-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--no-deps", "--no-compile")
        run(sys.executable, *pip, "--target", str(folder), str(wheel), cwd=folder.parent)


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def modules_of(*folders: str) -> Iterator[str]:
    return (path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the source distribution holds."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, folder)) as archive:
        archive.extractall(folder, filter="data")
    (found,) = (path for path in folder.iterdir() if path.is_dir())
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed") / "site"
    install(folder, wheel)
    return folder


# ---------------------------------------------------------------------- the wheel


def test_the_wheel_holds_one_package(wheel: Path) -> None:
    names = names_in(wheel)
    (metadata,) = {name.partition("/")[0] for name in names} - {"bridge"}
    assert metadata == f"dialect_bridge-{PROJECT['project']['version']}.dist-info"
    wanted = {re.sub(rf"^{FOLDER}/", "bridge/dialects/", name) for name in modules_of("bridge", FOLDER)}
    assert {name for name in names if name.endswith(".py")} == wanted
    assert {"bridge/py.typed", "bridge/dialects/openai_chat/page.js"} <= names


def test_the_source_distribution_makes_the_same_wheel(wheel: Path, unpacked: Path, tmp_path: Path) -> None:
    assert (unpacked / FOLDER / "aip" / "codec.py").is_file()
    assert not (unpacked / "bridge" / "dialects").exists()
    other = build("wheel", unpacked, tmp_path)
    assert other.name == wheel.name
    assert names_in(other) == names_in(wheel)


def test_every_entry_point_of_the_wheel_loads(installed: Path, tmp_path: Path) -> None:
    code = """
from importlib.metadata import distribution
for entry in distribution("dialect-bridge").entry_points:
    print(entry.group, entry.name, entry.value, sys.modules[entry.load().__module__].__file__, sep="|")
"""
    lines = [line.split("|") for line in python(code, cwd=tmp_path, site=installed).splitlines()]
    found = {name: value for group, name, value, _ in lines if group == "bridge.dialects"}
    assert found == ENTRY_POINTS
    assert {group for group, *_ in lines} == {"bridge.dialects", "console_scripts"}
    assert [file for *_, file in lines if not Path(file).is_relative_to(installed)] == []


def test_dialects_are_found_by_name_where_the_wheel_is_installed(installed: Path, tmp_path: Path) -> None:
    code = "from bridge.contract import registry\nprint(*(type(registry.get(n)).__module__ for n in registry.names()))"
    modules = python(code, cwd=tmp_path, site=installed).split()
    assert len(modules) == len(ENTRY_POINTS)
    assert [module for module in modules if not module.startswith("bridge.dialects.")] == []


# ---------------------------------------------------------------------- beside AdapterHub


def digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def records(folder: Path) -> dict[str, dict[str, str]]:
    """For each distribution its files in the folder with their digests, without metadata and the command."""
    found = {}
    for path in folder.glob("*.dist-info/RECORD"):
        rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
        found[path.parent.name] = {
            name: sum_ for name, sum_, _ in rows if sum_ and ".dist-info/" not in name and name[0] != "."
        }
    return found


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A wheel with a package `adapters`, modules named as dialects are included, as AdapterHub's may have."""
    files = {
        f"{FOLDER}/__init__.py": b"HUB = True\n",
        f"{FOLDER}/aip/__init__.py": b"HUB = True\n",
        f"{FOLDER}/py.typed": b"hub\n",
        "adapters-1.2.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: adapters\nVersion: 1.2.0\n",
        "adapters-1.2.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{name},{digest(content)},{len(content)}\n" for name, content in files.items()]
    files["adapters-1.2.0.dist-info/RECORD"] = "".join([*lines, "adapters-1.2.0.dist-info/RECORD,,\n"]).encode()
    path = tmp_path / "adapters-1.2.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("first", ["bridge", "hub"])
def test_another_package_called_adapters_stays_whole(first: str, wheel: Path, hub: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    install(folder, *((wheel, hub) if first == "bridge" else (hub, wheel)))
    theirs, ours = (records(folder)[name] for name in sorted(records(folder)))
    assert len(theirs) == 3
    assert len(ours) > 300
    assert theirs.keys() & ours.keys() == set()
    for name, told in {**theirs, **ours}.items():
        assert digest((folder / name).read_bytes()) == told, name
    code = f"import {FOLDER}.aip as hub, bridge.dialects.aip as ours\nprint(hub.HUB, ours.AIP.__module__)"
    assert python(code, cwd=tmp_path, site=folder).split() == ["True", "bridge.dialects.aip.codec"]


# ---------------------------------------------------------------------- the checkout


def test_an_editable_installation_imports_the_checkout(tmp_path: Path) -> None:
    """The wheel is unpacked here, which is what pip does; pip would also remove this environment's installation."""
    code = f"from hatchling.build import build_editable\nbuild_editable({str(tmp_path)!r})"
    run(sys.executable, "-c", code, cwd=ROOT)
    (editable,) = tmp_path.glob("*.whl")
    folder = tmp_path / "site"
    with zipfile.ZipFile(editable) as archive:
        archive.extractall(folder)
    code = "import bridge.dialects.aip as aip\nprint(aip.__file__, aip.AIP.__module__, sep='|')"
    file, module = python(code, cwd=tmp_path, site=folder).strip().split("|")
    assert Path(file) == ROOT / "bridge" / "dialects" / "aip" / "__init__.py"
    assert Path(file).resolve() == ROOT / FOLDER / "aip" / "__init__.py"
    assert module == "bridge.dialects.aip.codec"
    assert not (folder / "bridge").exists(), "a copy that would not follow the checkout"


@pytest.mark.parametrize("module", [FOLDER, f"{FOLDER}.aip", f"{FOLDER}.openai_chat.codec"])
def test_the_folder_cannot_be_imported_under_a_second_name(module: str) -> None:
    told = python(f"import {module}", cwd=ROOT, fails=True)
    assert told.splitlines()[-1].startswith("ImportError: ")
    assert told.splitlines()[-1].endswith("import bridge.dialects")


def texts() -> Iterable[Path]:
    places = (FOLDER, "bench", "bridge", "deploy", "docs", "examples", "tests")
    files = [path for place in places for path in (ROOT / place).rglob("*")]
    kinds = {".py", ".md", ".toml", ".yaml", ".yml", ".json", ".js", ".txt", ""}
    return [
        path
        for path in (*files, *ROOT.glob("*"))
        if path.suffix in kinds and path.is_file() and not {"node_modules", "captures", "crashers"} & {*path.parts}
    ]


def test_nothing_names_the_folder_as_a_package() -> None:
    spelled = rf"""(?<![\w.\-/]){FOLDER}\.[a-z_{{"']|from {FOLDER} import|^\s*import {FOLDER}\b"""
    named = re.compile(spelled, re.MULTILINE)
    assert named.search(f"from {FOLDER}.aip import Agent")
    assert named.search(f"x = 1\nimport {FOLDER}")
    assert not named.search(f"`{FOLDER}/aip/README.md`, and the {FOLDER}.")
    files = texts()
    assert len(files) > 700
    written = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in files}
    renamed = re.compile(r"^\|.*\n", re.MULTILINE)  # the table of old and new names has to say it
    written[Path("CHANGELOG.md")] = renamed.sub("", written[Path("CHANGELOG.md")])
    assert [path for path, text in written.items() if named.search(text)] == []


@pytest.mark.parametrize("before", ["nothing", "a file"])
def test_make_restores_the_link(before: str, tmp_path: Path) -> None:
    """The source distribution has no link; where links are not supported, git leaves a file with its target."""
    (tmp_path / "bridge").mkdir()
    (tmp_path / FOLDER).symlink_to(ROOT / FOLDER)
    (tmp_path / "bridge" / "__init__.py").touch()
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    if before == "a file":
        (tmp_path / "bridge" / "dialects").write_text(f"../{FOLDER}", encoding="utf-8")
    run("make", "bridge/dialects/__init__.py", cwd=tmp_path)
    assert python("import bridge.dialects\nprint(bridge.dialects.__name__)", cwd=tmp_path).strip() == "bridge.dialects"
    assert (tmp_path / "bridge" / "dialects").readlink() == Path("..", FOLDER)
    assert "up to date" in run("make", "bridge/dialects/__init__.py", cwd=tmp_path)
    for stamp in (".run", ".dev"):
        assert "bridge/dialects/__init__.py" in re.findall(
            rf"^\$\(VENV\)/{re.escape(stamp)}:.*\| (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
        )


def test_mypy_finds_each_dialect_once() -> None:
    assert PROJECT["tool"]["mypy"]["packages"] == ["bridge"]
    finder = FindModuleCache(SearchPaths((str(ROOT),), (), (), ()), None, Options())
    found = [source for source in finder.find_modules_recursive("bridge") if "dialects" in source.module.split(".")]
    assert len({source.module for source in found}) == len(found) == len(list(modules_of(FOLDER)))
    assert len({os.path.realpath(str(source.path)) for source in found}) == len(found)
