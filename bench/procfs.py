"""What a process tree has used, read from Linux's /proc."""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICK = os.sysconf("SC_CLK_TCK")


def missing() -> str:
    """Why nothing can be measured here, or an empty string."""
    for name in ("smaps_rollup", "schedstat", "stat"):
        if not os.access(PROC / "self" / name, os.R_OK):
            return f"bench needs Linux: CPU time and memory are read from {PROC}/<pid>/{name}, which is not there"
    return ""


@dataclass(frozen=True, slots=True)
class Cpu:
    """User and system seconds of a tree, twice: in clock ticks with ended threads and children included, and in
    nanoseconds of what is alive."""

    coarse: float
    fine: float

    def since(self, before: Cpu) -> float:
        """The fine figure, unless threads or children that ended took time away with them."""
        coarse, fine = self.coarse - before.coarse, self.fine - before.fine
        return fine if coarse - fine < 0.05 else coarse


def tree(pid: int) -> list[int]:
    """The process and everything below it."""
    children: dict[int, list[int]] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # ended meanwhile
                continue
            children.setdefault(parent, []).append(int(folder.name))
    out, todo = [], [pid]
    while todo:
        one = todo.pop()
        out.append(one)
        todo += children.get(one, [])
    return out


def cpu(pid: int) -> Cpu:
    ticks = nanoseconds = 0
    for one in tree(pid):
        folder = PROC / str(one)
        try:
            ticks += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:15]))
            for thread in (folder / "task").iterdir():
                nanoseconds += int((thread / "schedstat").read_text().split()[0])
        except OSError:  # ended meanwhile
            continue
    return Cpu(ticks / TICK, nanoseconds / 1e9)


def settled(pid: int, busy: float = 0.05, longest: float = 10.0) -> Cpu:
    """Waits until the tree is idle, so that work put off during one scenario (logging, accounting) is billed to that
    one and not to the next."""
    step, end = 0.1, time.monotonic() + longest
    last = cpu(pid)
    while True:
        time.sleep(step)
        now = cpu(pid)
        if now.fine - last.fine < busy * step or time.monotonic() > end:
            return now
        last = now


def written(pid: int) -> int:
    """Bytes that the tree has sent to disks, or made the kernel send later: whole pages, and not what is in memory."""
    total = 0
    for one in tree(pid):
        try:
            found = re.search(r"^write_bytes: (\d+)", (PROC / str(one) / "io").read_text(), re.MULTILINE)
        except OSError:  # ended meanwhile, or another user's
            continue
        total += int(found[1]) if found else 0
    return total


def memory_mb(pid: int, what: str = "Pss") -> float:
    """Resident memory of the tree; pages that processes share are counted once (Pss), or by each (Rss)."""
    kilobytes = 0
    for one in tree(pid):
        try:
            found = re.search(rf"^{what}:\s+(\d+)", (PROC / str(one) / "smaps_rollup").read_text(), re.MULTILINE)
        except OSError:  # ended meanwhile
            continue
        kilobytes += int(found[1]) if found else 0
    return kilobytes / 1024


def event_loop(pid: int) -> str:
    """`uvloop` when a process of the tree has mapped it, `asyncio` for another Python, empty for the rest: targets
    on different loops must not be compared without knowing it."""
    found = ""
    for one in tree(pid):
        try:
            maps = (PROC / str(one) / "maps").read_text()
        except OSError:
            continue
        if "/uvloop/" in maps:
            return "uvloop"
        if "python" in maps:
            found = "asyncio"
    return found


class Sampler(threading.Thread):
    """Peak resident memory of a tree while something runs."""

    def __init__(self, pid: int, every: float = 0.25) -> None:
        super().__init__(daemon=True)
        self.pid, self.every, self.peak = pid, every, 0.0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(self.every):
            self.peak = max(self.peak, memory_mb(self.pid))

    def stop(self) -> float:
        self.ended.set()
        self.join()
        return self.peak
