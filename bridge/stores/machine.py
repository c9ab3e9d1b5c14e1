"""The clock of leases in an SQLite file.

Processes that share a file share a machine, and with it one monotonic clock (CLOCK_MONOTONIC on Linux,
mach_absolute_time on macOS): it cannot be set, and it stands still while the machine sleeps and no lease can be
renewed. By the wall clock, one process whose clock is a day ahead would end the runs of all others. After a reboot the
clock begins anew, and `bridge.stores.sqlite_file` ends the leases of other boots, as their holders are gone. Redis and
PostgreSQL use their server's clock instead. Ages and retention go by the wall clock everywhere.
"""

from __future__ import annotations

import subprocess
import time
from functools import cache
from pathlib import Path

_LINUX = Path("/proc/sys/kernel/random/boot_id")
_MACOS = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")


def now() -> float:
    """Seconds of the machine's monotonic clock, the same in all of its processes."""
    return time.monotonic()


@cache
def boot() -> str:
    """Names the time since the machine was started; empty where the system has no name for it."""
    try:
        return _LINUX.read_text(encoding="ascii").strip()
    except OSError:
        pass
    try:
        return subprocess.run(_MACOS, capture_output=True, check=True, timeout=5, text=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
