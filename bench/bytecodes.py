#!/usr/bin/env python3
"""Profiling: bytecodes that CPython runs for a stream and for one event, by function, as docs/profile.md.

    python bench/bytecodes.py                              # all pairs of bridge.json, beside aiohttp-raw: the page
    python bench/bytecodes.py --case "ag-ui -> openai-chat"    # one pair, all of its functions, printed

They are nearly the same in every run (what clocks start is in them, too), however busy the machine is, so that a small
change is seen; but one bytecode may call into C for long, and the kernel's share is not in them: `make bench` has time.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counted import BEGIN, END
from growth_report import table
from machine import machine
from targets import HERE, Case, Mock, Target, read

DOCS = HERE.parent / "docs" / "profile.md"
RAW = "aiohttp-raw"
TOKENS = 20
WARM, COUNTED = 3, 5
"""Streams before it is counted, and while it is."""
IDLE = 4
"""Seconds in which is counted what a target does by the clock."""
DELAY_MS = 15
"""Long enough for each token to be a read of its own while bytecodes are counted."""
SHOWN = 25
DETAILED = ("openai-chat -> openai-chat", "agentscope -> openai-chat")
"""The plainest pair, and the one whose streams cost most beside the reference."""
PACKAGE = "bridge"

Counts = dict[str, float]
"""Bytecodes by function, `file:name`."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What one stream without a token costs, and one token."""

    stream: Counts
    event: Counts


def room(function: str) -> str:
    """What a function belongs to: a room of ours, or a package."""
    file = function.partition(":")[0]
    parts = Path(file).parts
    if parts[0] == PACKAGE and len(parts) > 1:
        return "/".join(parts[: 3 if parts[1] == "dialects" else 2]).removesuffix(".py")
    if file.startswith("<"):
        return "generated `__init__`"
    return parts[0].removesuffix(".py")


def is_ours(function: str) -> bool:
    """Functions that dataclasses make are ours; aiohttp has next to none of those in a request."""
    return function.startswith((f"{PACKAGE}/", "<string>"))


def bytecodes(target: Target, file: Path, work: Callable[[], object], idle: Counts | None = None) -> Counts:
    """While `work` is done. What a target does by the clock is taken off: `idle` is that of one second."""
    pid = target.pid
    assert pid is not None
    file.unlink(missing_ok=True)
    os.kill(pid, BEGIN)
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    os.kill(pid, END)
    while not file.exists():
        if target.dead:
            raise RuntimeError(f"{target.name} ended by itself")
        time.sleep(0.02)
    found = json.loads(file.read_text())
    return {name: max(0.0, run - seconds * (idle or {}).get(name, 0)) for name, run in found.items()}


def counted(target: Target, case: Case, mock: Mock, file: Path, tokens: int, idle: Counts) -> Counts:
    """For one stream of so many tokens."""
    mock.set(tokens=tokens, delay_ms=DELAY_MS, stamp=0, batch=1)
    body = mock.folder / "body"
    body.write_text(target.fill(json.dumps(case.payload())))

    def ask(requests: int) -> None:
        command = [sys.executable, str(HERE / "load.py"), "--url", target.base + target.fill(case.path)]
        command += ["--dialect", case.front, "--body", f"@{body}", "--expect-tokens", str(tokens)]
        command += ["--follow", case.follow] if case.follow else []
        command += [] if case.stream else ["--no-stream"]
        command += ["--concurrency", "1", "--requests", str(requests), "--timeout", "60"]
        env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300, check=False)
        if done.returncode:
            raise RuntimeError(f"{target.name}, {case.name}: {done.stdout}{done.stderr}")

    ask(WARM)
    return {name: run / COUNTED for name, run in bytecodes(target, file, lambda: ask(COUNTED), idle).items()}


def profile(target: Target, case: Case, mock: Mock, file: Path, idle: Counts) -> Profile:
    """The difference of two lengths is the tokens; what remains of the short one is the stream.

    All of a whole answer is the former.
    """
    if not case.stream:
        return Profile(counted(target, case, mock, file, 1, idle), {})
    short, long = (counted(target, case, mock, file, n, idle) for n in (1, 1 + TOKENS))
    each = {name: (long[name] - short.get(name, 0)) / TOKENS for name in long}
    return Profile({name: run - each.get(name, 0) for name, run in short.items()}, each)


def profiles(only: str | None) -> dict[tuple[str, str], Profile]:
    """By target and pair: every streamed one of the bridge that is told apart, and the reference of its wire.

    `only`: this one, streamed or not.
    """
    found = {}
    with Mock() as mock:
        fill = {"upstream": mock.url, "here": str(HERE), "python": sys.executable}
        for target in read([HERE / "baselines.json", HERE / "bridge.json"], f"{RAW},dialect-bridge", fill):
            file = mock.folder / f"{target.name}.json"
            command = target.spec["start"]
            target.spec["start"] = [command[0], str(HERE / "counted.py"), str(file), *command[1:]]
            cases = {c.name: c for c in target.cases if (c.stream or c.name == only) and not c.apart and not c.follow}
            target.start()
            try:
                time.sleep(1)  # what a start leaves behind
                resting = bytecodes(target, file, lambda: time.sleep(IDLE))
                idle = {name: run / IDLE for name, run in resting.items()}
                for name, case in cases.items():
                    if only in (None, name) or (
                        target.name == RAW and name.split(" -> ")[-1] == only.split(" -> ")[-1]
                    ):
                        print(f"{target.name}: {name}", file=sys.stderr, flush=True)
                        found[target.name, name] = profile(target, case, mock, file, idle)
            finally:
                target.clean()
    return found


def of_one_stream(pair: str) -> float:
    """Counts the bytecodes of ours for one stream of `pair` without a token."""
    return _sum(profiles(pair)["dialect-bridge", pair].stream, ours=True)


def _sum(counts: Counts, *, ours: bool = False) -> float:
    return sum(number for name, number in counts.items() if not ours or is_ours(name))


def _reference(found: dict[tuple[str, str], Profile], pair: str) -> Profile:
    back, _, kind = pair.split(" -> ")[1].partition(", ")
    return found[RAW, f"{back} -> {back}{', ' + kind if kind else ''}"]


def _pairs(found: dict[tuple[str, str], Profile]) -> str:
    rows = []
    for target, pair in found:
        if target == RAW:
            continue
        own, raw = found[target, pair], _reference(found, pair)
        row: list[Any] = [pair]
        for mine, its in ((own.stream, raw.stream), (own.event, raw.event)):
            total, beside = _sum(mine), _sum(its)
            row += [
                f"{total:,.0f}",
                f"{_sum(mine, ours=True):,.0f}",
                f"{beside:,.0f}",
                f"{total / beside:.2f}" if beside else "-",
            ]
        rows.append(row)
    head = ["pair", "a stream, once", "of it ours", RAW, "ratio", "an event", "of it ours", RAW, "ratio"]
    return table(head, rows)


def _rooms(own: Counts, raw: Counts) -> list[tuple[str, float, float]]:
    mine: defaultdict[str, float] = defaultdict(float)
    its: defaultdict[str, float] = defaultdict(float)
    for total, counts in ((mine, own), (its, raw)):
        for name, number in counts.items():
            total[room(name)] += number
    return [(name, mine[name], its[name]) for name in sorted({*mine, *its}, key=lambda n: -mine[n])]


def _detail(pair: str, own: Profile, raw: Profile, shown: int) -> str:
    once, each = _rooms(own.stream, raw.stream), {n: (m, r) for n, m, r in _rooms(own.event, raw.event)}
    rows = [
        (name, *(f"{x:,.0f}" for x in (mine, its, *each.get(name, (0, 0)))))
        for name, mine, its in once
        if max(mine, its, *each.get(name, (0, 0))) >= 0.5
    ]
    text = [f"## {pair}\n", table(["", "a stream, once", RAW, "an event", RAW], rows)]
    for what, counts, beside in (("a stream, once", own.stream, raw.stream), ("an event", own.event, raw.event)):
        top = sorted(counts, key=lambda n: -counts[n])[:shown]
        lines = [(f"`{n}`", f"{counts[n]:,.0f}", f"{beside.get(n, 0):,.0f}") for n in top if counts[n] >= 0.5]
        text += ["", table([f"most of {what}", "bytecodes", RAW], lines)]
    return "\n".join(text)


def page(found: dict[tuple[str, str], Profile], where: dict[str, Any]) -> str:
    """The whole of docs/profile.md."""
    packages = where["packages"]
    parts = [
        "# Profiling",
        "Bytecodes that CPython executes in the event loop's thread; `make profile` counts them and writes this page. "
        "Unlike times, the counts are nearly the same in every run, and they show which functions cost most. They do "
        "not include work in C code and in the kernel: [Performance](performance.md) has the times.",
        f"- commit {where['commit']}, {where['python']}, aiohttp {packages['aiohttp']}\n"
        f"- {RAW} copies bytes in the same framework, from the same backend\n"
        "- *a stream, once* is the cost of a stream without tokens; *an event* is the cost of one more token in a "
        "separate read\n"
        "- *ours* is code of `bridge`, including generated dataclass methods; the rest is aiohttp, logging, "
        "prometheus_client and the standard library",
        _pairs(found),
        *(_detail(p, found["dialect-bridge", p], _reference(found, p), SHOWN) for p in DETAILED),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", help="one pair, as docs/performance.md names it")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found = profiles(args.case)
    if args.case:
        if ("dialect-bridge", args.case) not in found:
            parser.error(f"no such pair: {args.case}")
        print(_pairs(found))
        print(_detail(args.case, found["dialect-bridge", args.case], _reference(found, args.case), 100))
    else:
        DOCS.write_text(page(found, machine()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
