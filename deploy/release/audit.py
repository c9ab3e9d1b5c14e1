"""Looks for known vulnerabilities of the versions in constraints.txt with pip-audit, and says what could not be asked.

    python deploy/release/audit.py REQUIREMENTS

Exit status 1: a vulnerability is known. 2: some versions could not be looked up; with `CI` set this is 0, since a
network that is missing says nothing of the change. A version that the index has no data on was not looked up: pip-audit
itself calls that "no known vulnerabilities".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def judge(report: dict[str, Any] | None, told: str, *, ci: bool) -> tuple[int, str]:
    """The exit status and what to print, from pip-audit's report; None where there is none, for the reason `told`."""
    if report is None:
        return (0 if ci else 2), f"NOT AUDITED: the vulnerability service cannot be reached ({told})."
    packages = report["dependencies"]
    vulnerable = [each for each in packages if each.get("vulns")]
    skipped = [each["name"] for each in packages if "skip_reason" in each]
    lines = [f"{p['name']} {p['version']}: {', '.join(v['id'] for v in p['vulns'])}" for p in vulnerable]
    if skipped:
        lines.append(f"NOT AUDITED: the index has no data on {len(skipped)} of {len(packages)}: {', '.join(skipped)}.")
    lines.append(
        f"{len(packages) - len(skipped)} versions looked up, {len(vulnerable)} of them with known vulnerabilities."
    )
    return (1 if vulnerable else 2 if skipped and not ci else 0), "\n".join(lines)


def main() -> int:
    """Asks about the requirements file that the command line names."""
    options = ("--no-deps", "--disable-pip", "--progress-spinner", "off", "--timeout", "30", "--format", "json")
    command = [sys.executable, "-m", "pip_audit", "--requirement", sys.argv[1], *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
    try:
        report = json.loads(done.stdout)
    except ValueError:
        report = None
        if "requests.exceptions." not in done.stderr and "ServiceError" not in done.stderr:
            sys.stderr.write(done.stderr)
            return 1
    status, text = judge(report, last.partition(":")[0], ci=bool(os.environ.get("CI")))
    sys.stdout.write(text + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
