"""Writes where built files come from: an in-toto statement with SLSA provenance, which nobody has signed.

    python deploy/release/provenance.py FILE... > provenance.json

It names the files with their SHA-256, the commit of the source and what the build used. Fails where the work tree has
changes, since the commit would then not be the source.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

_KIND = "urn:dialect-bridge:make-provenance:1"


def statement(files: list[Path], commit: str, epoch: int) -> dict[str, Any]:
    """The statement on these files, built of this commit with this `SOURCE_DATE_EPOCH`."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": f.name, "digest": {"sha256": sha256(f.read_bytes()).hexdigest()}} for f in sorted(files)],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": _KIND,
                "externalParameters": {"command": "make provenance", "commit": commit},
                "internalParameters": {"SOURCE_DATE_EPOCH": epoch, "python": platform.python_version()},
                "resolvedDependencies": [
                    {"uri": "git+dialect-bridge", "digest": {"gitCommit": commit}},
                    {"uri": f"pkg:pypi/hatchling@{version('hatchling')}"},
                ],
            },
            "runDetails": {"builder": {"id": _KIND}},
        },
    }


def _git(*command: str) -> str:
    return subprocess.run(["git", *command], check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Prints the statement on the files that the command line names."""
    if changed := _git("status", "--porcelain"):
        sys.exit(f"The work tree has changes, so that no commit is the source of what is built here:\n{changed}")
    files = [Path(name) for name in sys.argv[1:]]
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    sys.stdout.write(json.dumps(statement(files, _git("rev-parse", "HEAD"), epoch), indent=1) + "\n")


if __name__ == "__main__":
    main()
