"""Runs the tests that failed once more, if they are few: `python -m tests.again CODE MOST [ROOT]`.

CODE is the exit code of the run before, whose names of failed tests pytest keeps in its cache. A plugin that repeats
tests within the run costs each test two messages between processes, which is more than most tests take.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def failed(root: Path) -> list[str]:
    """Return the tests that failed last in the folder `root`."""
    kept = root / ".pytest_cache/v/cache/lastfailed"
    return list(json.loads(kept.read_text())) if kept.exists() else []


def again(code: int, most: int, root: Path) -> int:
    """Return 0 if at most `most` tests failed and all of them pass now, else an exit code that is not 0."""
    names = failed(root)
    # Any other code is no run of all tests: it was interrupted, or pytest itself failed.
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(names) <= most:
        return code
    sys.stdout.write("\n  ".join(["\nThese tests failed (tracebacks are above) and run once more:", *names]) + "\n")
    sys.stdout.flush()
    # Not `--last-failed`, which runs all tests if none of the names exists any more.
    return subprocess.run([sys.executable, "-m", "pytest", "-v", *names], cwd=root, check=False).returncode


if __name__ == "__main__":
    sys.exit(again(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3] if sys.argv[3:] else ".")))
