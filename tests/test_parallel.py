"""Tests that run in forks have the results, the order and the fixtures that they have in one process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.helpers import environment

ROOT = Path(__file__).parents[1]
INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="expected an operating system where forks are safe")

SHARED = """
import os, pathlib, pytest

HERE = pathlib.Path(__file__).parent

@pytest.fixture(scope="session")
def server():
    yield os.getpid()
    (HERE / "ended").open("a").write(f"server {os.getpid()}\\n")

@pytest.fixture(scope="module")
def database(request):
    yield
    (HERE / "ended").open("a").write(f"{request.node.name} {os.getpid()}\\n")
"""
FILE = """
import atexit, os, pathlib, pytest

def note(line):
    (pathlib.Path(__file__).parent / "ran").open("a").write(f"{os.path.basename(__file__)} {line} {os.getpid()}\\n")

@pytest.mark.parametrize("number", range(3))
def test_each(server, database, number, tmp_path):
    assert server == os.getpid()
    note(number)
    if number == 1:
        atexit.register(note, "left")

def test_wrong(database, record_property):
    record_property("place", "here")
    print("what it printed")
    assert [1, 2] == [1, 3], "a tale"

@pytest.mark.skip(reason="not today")
def test_skipped():
    raise NotImplementedError
"""
DIES = """
import os, signal, pytest

@pytest.mark.parametrize("number", range(4))
def test_each(number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 2:
        os._exit(0)
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text(INI)
    command = [sys.executable, "-m", "pytest", "-p", "tests.parallel", "-p", "no:xdist", "-rA", *arguments]
    variables = environment(PYTHONPATH=str(ROOT))
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=100)


def test_results_are_those_of_one_process(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(SHARED)
    for name in "abcde":
        (tmp_path / f"test_{name}.py").write_text(FILE)
    done = run(tmp_path, "--processes", "3", "--junitxml", "results.xml", "--basetemp", str(tmp_path / "temporary"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "5 failed, 15 passed, 5 skipped" in done.stdout
    assert done.stdout.count("AssertionError: a tale") == 10, "the traceback and the line of the summary"
    assert done.stdout.count("\nwhat it printed\n") == 5
    assert "PASSED test_a.py::test_each[0]" in done.stdout
    suite = ElementTree.parse(tmp_path / "results.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("25", "5", "5")
    assert len(suite.findall("testcase/properties/property")) == 5
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    processes = {pid for _, _, pid in ran}
    assert len(processes) == 3
    for name in "abcde":
        of_file = [(word, pid) for file, word, pid in ran if file == f"test_{name}.py"]
        assert [word for word, _ in of_file] == ["0", "1", "2", "left"]
        assert len({pid for _, pid in of_file}) == 1
    ended = [line.split() for line in (tmp_path / "ended").read_text().splitlines()]
    assert sorted(pid for what, pid in ended if what == "server") == sorted(processes)
    assert sorted(what for what, _ in ended if what != "server") == [f"test_{name}.py" for name in "abcde"]
    folders = {file.relative_to(tmp_path / "temporary").parts[0] for file in tmp_path.glob("temporary/*/test_each*")}
    assert folders == {"process-1", "process-2", "process-3"}


def test_a_process_that_ends_fails_its_test_only(tmp_path: Path) -> None:
    (tmp_path / "test_dies.py").write_text(DIES)
    (tmp_path / "test_lives.py").write_text("def test_it():\n    pass\n")
    done = run(tmp_path, "--processes", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    results = re.findall(r"^(PASSED|FAILED) (\S+)", done.stdout, re.MULTILINE)
    assert sorted(results) == [
        ("FAILED", "test_dies.py::test_each[1]"),
        ("FAILED", "test_dies.py::test_each[2]"),
        ("PASSED", "test_dies.py::test_each[0]"),
        ("PASSED", "test_dies.py::test_each[3]"),
        ("PASSED", "test_lives.py::test_it"),
    ]
    assert "the process of this test ended with exit code -9" in done.stdout
    assert "the process of this test ended with exit code 0" in done.stdout


def test_a_run_that_ends_early_ends_its_fixtures(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(SHARED)
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(FILE)
    done = run(tmp_path, "--processes", "2", "--maxfail", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "stopping after 1 failures" in done.stdout
    ended = (tmp_path / "ended").read_text().splitlines()
    assert len([line for line in ended if line.startswith("server")]) == 2


def test_a_file_that_cannot_be_imported_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("import not_there")
    (tmp_path / "test_b.py").write_text("def test_it():\n    pass\n")
    done = run(tmp_path, "--processes", "2")
    assert done.returncode == 2
    assert "1 error during collection" in done.stdout
    assert "passed" not in done.stdout


def test_what_a_fork_cannot_end_is_an_error(tmp_path: Path) -> None:
    ends = "import atexit, os\n\ndef test_it():\n    atexit.register(os._exit, 7)\n"
    (tmp_path / "test_a.py").write_text(ends)
    done = run(tmp_path, "--processes", "2")
    assert done.returncode == 3
    assert "expected exit code 0 of a process after its last test, got 7" in done.stdout + done.stderr
