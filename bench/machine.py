"""Where a run took place: what a reader must know before comparing its figures with any others. No names, no paths."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGES = ("dialect-bridge", "aiohttp", "orjson", "uvloop", "pydantic", "grpcio")


def _output(*command: str) -> str:
    """What a command prints on either output; empty if it fails or does not exist."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).strip() if done.returncode == 0 else ""


def _git(*arguments: str) -> str:
    return _output("git", "--no-optional-locks", "-C", str(HERE), *arguments)


def _first(path: str, key: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _nginx() -> str:
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    said = re.search(r"nginx/([\d.]+)", _output(found, "-v")) if found else None
    return said[1] if said else "not installed"


def interpreter(python: str) -> str:
    """Return the name and version of another interpreter, or its path's last part if it does not start."""
    said = _output(python, "-c", "import platform as p; print(p.python_implementation(), p.python_version())")
    return said or Path(python).name


def _peers() -> dict[str, str]:
    """The pinned version of each gateway that `make bench` installs in an environment of its own."""
    files = sorted((HERE / "peers").glob("*.txt"))
    pins = (re.search(rf"^({file.stem})==(.+)$", file.read_text(), re.MULTILINE) for file in files)
    return {found[1]: found[2] for found in pins if found}


def machine() -> dict[str, Any]:
    """The processor's model, cores, memory, versions, date and commit."""
    commit = _git("rev-parse", "--short", "HEAD")
    if commit and _git("status", "--porcelain", "--", ":/bridge", ":/adapters", ":/bench"):
        commit += " with uncommitted changes"
    kilobytes = int(_first("/proc/meminfo", "MemTotal").partition(" ")[0] or 0)
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit,
        "processor": _first("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(kilobytes / 2**20, 1),
        "system": f"{platform.system()} {re.match(r'[0-9.]*', platform.release())[0]}",  # type: ignore[index]
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {**{p: _version(p) for p in PACKAGES}, "nginx": _nginx(), **_peers()},
        "load_at_start": round(os.getloadavg()[0], 2),
    }
