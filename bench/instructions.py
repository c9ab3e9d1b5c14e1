#!/usr/bin/env python3
"""Counts the instructions of the whole server for one request, with callgrind.

    python bench/instructions.py                     # all that ASKED lists
    python bench/instructions.py --requests 300      # more of each
    python bench/instructions.py --only history-off,history-sqlite    # what it costs to keep a conversation

Instructions of all threads in user space, on one connection; the kernel, caches and waiting are not in them. They vary
by about 0.5% from run to run, so that differences of 2% are seen where times say nothing. Needs valgrind.

Under callgrind a request takes fifty times as long, and what a server does by the clock, such as looking for queued
runs, has fifty times its share. So the same time is counted once more without requests, and taken off.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent / "micro"))

import conversation
from targets import HERE, Case, Mock, Target, read

RAW, SUBJECT = "aiohttp-raw", "dialect-bridge"
RAW_DEBIAN, DEBIAN = "raw-debian", "bridge-debian"
OFF, KEPT = "history-off", "history-sqlite"
FILES = [HERE / name for name in ("baselines.json", "bridge.json", "debian.json", "kept.json")]
WARM, COUNTED = 60, 150
START_TIMEOUT = 180
_TOTALS = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked, of which of a target's cases; `body` replaces the case's.

    `turns`: how many turns each conversation has had when it is counted; by default every request begins a new one.
    """

    name: str
    target: str
    case: str
    body: dict[str, Any] | None = None
    turns: int = 0


def _long() -> dict[str, Any]:
    return {**json.loads(conversation.plain()), "stream": False}


ASKED = [
    Asked("plain", SUBJECT, "openai-chat -> openai-chat, plain"),
    Asked("plain", RAW, "openai-chat -> openai-chat, plain"),
    Asked("short stream", SUBJECT, "openai-chat -> openai-chat"),
    Asked("short stream", RAW, "openai-chat -> openai-chat"),
    Asked("100 messages, plain", SUBJECT, "openai-chat -> openai-chat, plain", _long()),
    Asked("plain", DEBIAN, "openai-chat -> openai-chat, plain"),
    Asked("plain", RAW_DEBIAN, "openai-chat -> openai-chat, plain"),
    Asked("short stream", DEBIAN, "openai-chat -> openai-chat"),
    Asked("short stream", RAW_DEBIAN, "openai-chat -> openai-chat"),
    Asked("short stream of a client that sends increments", OFF, "agentscope -> openai-chat"),
    Asked("its conversation begins", KEPT, "agentscope -> openai-chat"),
    Asked("its third turn", KEPT, "agentscope -> openai-chat", turns=2),
]


class Counter:
    """The instructions that a process under callgrind has executed since the last look."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid = pid
        self._folder = folder

    def control(self, *options: str) -> None:
        subprocess.run(["callgrind_control", *options, str(self._pid)], check=True, capture_output=True, timeout=120)

    def dumped(self) -> int:
        """Return what was counted, and start at zero."""
        self.control("-d")
        total = 0
        for file in self._folder.glob("callgrind.*"):
            found = _TOTALS.findall(file.read_text(errors="replace"))
            total += int(found[-1]) if found else 0
            file.unlink()
        return total


def ask(target: Target, case: Case, body: Path, requests: int, *, ids: int = 0) -> None:
    command = [sys.executable, str(HERE / "load.py"), "--url", target.base + target.fill(case.path)]
    command += ["--dialect", case.front, "--body", f"@{body}", "--expect-tokens", "1", "--concurrency", "1"]
    command += ["--requests", str(requests), "--timeout", "120", *([] if case.stream else ["--no-stream"])]
    command += ["--ids", str(ids)] if ids else []
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{target.name}, {case.name}: {done.stdout}{done.stderr}")


def counts(requests: int, only: str) -> dict[tuple[str, str], int]:
    """Return instructions for one request, by what is asked and target; `only` names targets, with commas."""
    found: dict[tuple[str, str], int] = {}
    with Mock() as mock, tempfile.TemporaryDirectory(prefix="bench-callgrind-") as out:
        mock.set(tokens=1, stamp=0)
        fill = {"upstream": mock.url, "here": str(HERE), "python": sys.executable, "venv": sys.prefix}
        for target in read(FILES, only, fill):
            if absent := target.absent():
                print(f"{target.name} is left out: {absent} is not installed", file=sys.stderr)
                continue
            folder = Path(out) / target.name
            folder.mkdir()
            tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/callgrind.%p"]
            target.spec["start"] = [*tool, *target.spec["start"]]
            target.spec["start_timeout"] = START_TIMEOUT
            target.start()
            try:
                assert target.pid is not None
                counter = Counter(target.pid, folder)
                counter.control("-i", "on")
                for asked in (each for each in ASKED if each.target == target.name):
                    case = next(each for each in target.cases if each.name == asked.case and not each.apart)
                    body = mock.folder / "body"
                    body.write_text(target.fill(json.dumps(asked.body or case.payload())))
                    ids = requests if asked.turns else 0
                    ask(target, case, body, requests * asked.turns or WARM, ids=ids)
                    counter.dumped()
                    began = time.monotonic()
                    ask(target, case, body, requests, ids=ids)
                    seconds, counted = time.monotonic() - began, counter.dumped()
                    time.sleep(seconds)
                    found[asked.name, asked.target] = (counted - counter.dumped()) // requests
            finally:
                target.clean()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=COUNTED)
    parser.add_argument(
        "--only", default=",".join(dict.fromkeys(each.target for each in ASKED)), help="targets, with commas between"
    )
    args = parser.parse_args()
    if shutil.which("valgrind") is None or shutil.which("callgrind_control") is None:
        parser.error("valgrind is not installed")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for (what, target), number in counts(args.requests, args.only).items():
        print(f"{number:12,}  {what}, {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
