"""Tests that failed run once more if they are few, and only after a run of all tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.again import again, failed

FAILS_ONCE = """
import pathlib
import pytest

@pytest.mark.parametrize("name", ["a b", "[x]", "\\u00e9::"])
def test_late(name):
    seen = pathlib.Path(__file__).with_name(f"seen {name}")
    if not seen.exists():
        seen.touch()
        pytest.fail("it is late")

def test_right():
    pathlib.Path(__file__).with_name("runs").open("a").write("x")
"""


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """To load them takes longer than all of these tests."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder whose three tests failed a moment ago and would pass now."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_some.py").write_text(FAILS_ONCE)
    done = subprocess.run([sys.executable, "-m", "pytest"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 1
    return tmp_path


def test_a_few_that_pass_now_are_no_failure(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert len(failed(project)) == 3
    assert again(1, 3, project) == 0
    out = capfd.readouterr().out
    assert "test_some.py::test_late[[x]]" in out
    assert "3 passed" in out
    assert (project / "runs").read_text() == "x"
    assert again(1, 3, project) == 1, "nothing failed that could run again"


def test_one_that_fails_again_is_a_failure(project: Path) -> None:
    (project / "seen a b").unlink()
    assert again(1, 3, project) == 1


@pytest.mark.parametrize(("code", "most"), [(1, 2), (2, 3), (3, 3), (5, 3)])
def test_many_or_a_run_that_did_not_end_are_a_failure(project: Path, code: int, most: int) -> None:
    assert again(code, most, project) == code
    assert len(failed(project)) == 3
