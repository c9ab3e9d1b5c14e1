"""The versions of the page are those that are installed for the tests."""

from __future__ import annotations

import json
import re

import pytest

from tests.docs.tables import ROOT

PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
INTEROP = ROOT / "tests" / "interop"
_ROW = re.compile(r"^\| [^|]*`([\w@/-]+)`[^|]* \| (\d[^|(]*)", re.MULTILINE)
ROWS = _ROW.findall(PAGE)


def installed() -> dict[str, set[str]]:
    """Every package that a file names with a version of its own, and all these versions."""
    found: dict[str, set[str]] = {}
    for path in INTEROP.glob("*.txt"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                name, version = line.split("==")
                found.setdefault(name, set()).add(version)
    for path in INTEROP.glob("*/package.json"):
        for name, version in json.loads(path.read_text(encoding="utf-8"))["dependencies"].items():
            alias = re.fullmatch(r"npm:(.+)@(.+)", version)
            package, number = (alias[1], alias[2]) if alias else (name, version)
            found.setdefault(package, set()).add(number)
    return found


@pytest.mark.parametrize(("package", "versions"), ROWS, ids=[f"{package} {n}" for n, (package, _) in enumerate(ROWS)])
def test_versions_are_those_of_the_tests(package: str, versions: str) -> None:
    assert set(versions.strip().split(", ")) <= installed()[package]


def test_the_page_has_rows() -> None:
    assert len(ROWS) >= 9


def test_files_that_the_page_names_are_there() -> None:
    names = re.findall(r"`(tests/[\w./-]+)`", PAGE)
    assert len(names) > 5
    assert [name for name in names if not (ROOT / name).exists()] == []
