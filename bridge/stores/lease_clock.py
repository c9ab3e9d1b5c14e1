"""The clock of leases in an SQLite file.

Processes that share a file share a machine, and with it one monotonic clock (CLOCK_MONOTONIC on Linux,
mach_absolute_time on macOS): it cannot be set, and it stops while the machine sleeps and no lease can be renewed. With
the wall clock, a process whose clock is a day ahead would end the runs of all others. A reboot resets the clock, so
`bridge.stores.sqlite_file` then ends the leases of earlier boots, whose holders are gone. PostgreSQL uses
its server's clock instead. Ages and retention are measured by the wall clock everywhere.
"""

from __future__ import annotations

import subprocess
import time
from functools import cache
from pathlib import Path

_LINUX = Path("/proc/sys/kernel/random/boot_id")
_MACOS = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")


def now() -> float:
    """Return the seconds of the machine's monotonic clock, the same in all of its processes."""
    return time.monotonic()


@cache
def boot() -> str:
    """Return an id of the current boot of the machine; empty where the system provides none."""
    try:
        return _LINUX.read_text(encoding="ascii").strip()
    except OSError:
        pass
    try:
        return subprocess.run(_MACOS, capture_output=True, check=True, timeout=5, text=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
