"""The linters of what is deployed, in an environment of their own: `tests/interop/deploy.txt`, installed by make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.helpers import ROOT

BIN = Path(sys.prefix) / "deploy" / "bin"


def lint(tool: str, *args: str) -> str:
    """What the tool says; empty or a note of success. Fails when it is not installed, or finds something."""
    assert (BIN / tool).exists(), f"{tool} is not installed: make .venv/deploy/.done"
    done = subprocess.run([str(BIN / tool), *args], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout
