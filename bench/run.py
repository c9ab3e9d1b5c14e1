#!/usr/bin/env python3
"""Measures the bridge beside its baselines: `make bench`, or `make bench BENCH="--scenarios all --repeats 5"`.

Without options: the quick scenarios, three repeats, all targets of baselines.json and bridge.json, a few minutes.
Prints the tables and writes bench/out/bench.md and bench/out/bench.json. Exit status 1 when a reply was wrong or
missing (a target that did not start is missing all of them), 2 for wrong usage; never by a figure.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import procfs
import report
import scenarios
from measure import failed, measure
from scenarios import Scenario
from targets import HERE, Case, Mock, NotStarted, Target, read


def log(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


class Bench:
    """Drives the targets through the scenarios and keeps what came of it."""

    def __init__(self, targets: list[Target], chosen: list[Scenario], mock: Mock, args: argparse.Namespace) -> None:
        self.targets, self.chosen, self.mock, self.args = targets, chosen, mock, args
        self.results: report.Results = {}
        self.skipped: dict[str, str] = {}
        self.mute: set[Case] = set()  # gave no reply at all; waiting for more of that would take hours
        self.broken = False
        self.where = report.machine()

    def up(self, target: Target) -> bool:
        """Starts a target; one that does not come up is out of the run, and the run has failed."""
        if target.name in self.skipped:
            return False
        try:
            target.start()
        except NotStarted as e:
            self.skipped[target.name] = f"did not start: {e}"
            self.broken = True
            log(f"\n!!! {target.name} did not start: {e}\n")
            return False
        return True

    def jobs(self, targets: list[Target], scenario: Scenario) -> list[tuple[Target, Case]]:
        return [(t, c) for t in targets for c in t.cases if c.kind == scenario.kind and scenario.name not in c.skip]

    def one(self, target: Target, case: Case, scenario: Scenario, repeat: int) -> None:
        if scenario.fresh:
            target.stop()
            if not self.up(target):
                return
        if target.dead:
            result = failed("the target ended by itself")
        else:
            try:
                result = measure(target, case, scenario, self.mock)
            except OSError as e:  # the mock upstream is gone, or no process can be made
                result = failed(repr(e)[:200])
        result["repeat"] = repeat
        if not result["ok"]:
            self.mute.add(case)
        self.results.setdefault((target.name, case, scenario.name), []).append(result)
        unit = "event" if scenario.cost == "cpu_us_per_event" else "request"
        cpu = result.get(f"cpu_us_per_{unit}")
        figures = f"{result.get('rps', 0):>8.0f}/s" + (f" {cpu:>8.2f} us/{unit}" if cpu else "")
        errors = f"  WRONG: {result['errors']}" if result["bad"] else ""
        log(f"  {scenario.name:18} {target.name:18} {case.name:33} {figures}{errors}")

    def repeat(self, number: int, targets: list[Target]) -> None:
        """The targets take turns inside each scenario, every second repeat backwards, so that whatever else the
        machine does at the time hits a target and its reference alike."""
        for scenario in self.chosen:
            jobs = self.jobs(targets, scenario)
            for target, case in jobs[::-1] if number % 2 else jobs:
                if target.name not in self.skipped and case not in self.mute:
                    self.one(target, case, scenario, number)

    def run(self) -> None:
        for target in self.targets:
            if absent := target.absent():
                self.skipped[target.name] = f"{absent} is not installed"
                log(f"!!! SKIPPED: target {target.name}, because {absent} is not installed")
        together = [t for t in self.targets if self.up(t)] if self.args.together else []
        for number in range(self.args.repeats):
            log(f"repeat {number + 1} of {self.args.repeats}")
            if self.args.together:
                self.repeat(number, together)
            else:
                for target in self.targets:
                    if self.up(target):
                        self.repeat(number, [target])
                        target.stop()
            self.write(number + 1)

    def write(self, repeats: int) -> str:
        """After every repeat, so that a run that is broken off leaves what it has."""
        out: Path = self.args.out
        out.parent.mkdir(parents=True, exist_ok=True)
        text = report.markdown(self.where, self.targets, self.results, self.skipped, repeats, self.args.reference)
        out.with_suffix(".md").write_text(text)
        described: dict[str, Any] = {
            "machine": {**self.where, "load_at_end": round(os.getloadavg()[0], 2)},
            "repeats": repeats,
            "reference": self.args.reference,
            "targets": {t.name: {"version": t.version, "event_loop": t.loop, "starts": t.starts} for t in self.targets},
            "skipped": self.skipped,
            "scenarios": [asdict(s) for s in self.chosen],
            "budgets": [asdict(b) for b in scenarios.BUDGETS],
            "results": [
                {"target": t, "case": c.name, "front": c.front, "back": c.back, "scenario": s, "runs": runs}
                for (t, c, s), runs in self.results.items()
            ],
        }
        out.with_suffix(".json").write_text(json.dumps(described, indent=1) + "\n")
        return text

    @property
    def wrong(self) -> bool:
        return self.broken or any(r["bad"] for runs in self.results.values() for r in runs)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = [HERE / "baselines.json", HERE / "bridge.json"]
    parser.add_argument("targets", nargs="*", type=Path, default=default, help="JSON files with targets (README.md)")
    parser.add_argument("--scenarios", default="quick", help="quick (default), all, or names with commas")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="overrides every scenario's length")
    parser.add_argument("--only", help="target names with commas")
    parser.add_argument("--reference", default="aiohttp-raw", help="target the ratio column divides by")
    parser.add_argument("--out", type=Path, default=HERE / "out" / "bench", help="without a suffix")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="fills {NAME} in targets")
    parser.add_argument(
        "--together",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="all targets run at once and take turns (default); otherwise each is started, measured and stopped",
    )
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error("--repeats must be 1 or more")
    if any("=" not in s for s in args.set):
        parser.error("--set wants NAME=VALUE")
    args.out = args.out.resolve()
    try:
        args.chosen = scenarios.choose(args.scenarios)
    except ValueError as e:
        parser.error(str(e))
    for scenario in args.chosen if args.seconds else []:
        scenario.seconds = args.seconds
    return args


def main() -> int:
    args = arguments()
    if why := procfs.missing():
        log(why)
        return 2
    # A terminated runner must not leave its children behind: SystemExit runs the clean-up below.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begun = time.monotonic()
    try:
        grpc = any("{upstream_grpc}" in file.read_text() for file in args.targets if file.is_file())
        with Mock(grpc=grpc) as mock:
            fill = {
                "upstream": mock.url,
                "upstream_port": str(mock.port),
                "upstream_grpc": mock.agent,
                "here": str(HERE),
                "python": sys.executable,
            }
            fill.update(s.split("=", 1) for s in args.set)
            try:
                targets = read(args.targets, args.only, fill)
            except (OSError, ValueError) as e:
                log(f"bench: {e}")
                return 2
            bench = Bench(targets, args.chosen, mock, args)
            try:
                bench.run()
            finally:
                for target in targets:
                    target.clean()
    except NotStarted as e:
        log(f"bench: {e}")
        return 1
    except KeyboardInterrupt:
        log("bench: interrupted")
        return 130
    print(bench.write(args.repeats))
    log(f"{time.monotonic() - begun:.0f} s; written: {args.out.with_suffix('.md')} and .json")
    return 1 if bench.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
