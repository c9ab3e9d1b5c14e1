#!/usr/bin/env python3
"""Measures the bridge beside its baselines: `make bench`, or `make bench BENCH="--repeats 1 --only aiohttp-raw,..."`.

Without options it is the run to judge by: all targets, all scenarios, five repeats, about twenty minutes. It writes
docs/performance.json, docs/performance.md and their pictures. With any option that makes it shorter it writes the
same to bench/out only, unless --docs is given, too. bench/out/bench.json has every single figure in any case.

Exit status 1 when a reply was wrong or missing (a target that did not start is missing all of them), 2 for wrong
usage; never by a figure.
"""

from __future__ import annotations

import argparse
import compileall
import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import budgets
import bytecodes
import procfs
import report
import scenarios
import with_postgres
from machine import interpreter, machine
from measure import failed, measure
from results import RAW, Measured, Row, TargetInfo, rounded
from scenarios import Scenario
from targets import HERE, Case, Mock, NotStarted, Target, read

FILES = tuple(HERE / f"{name}.json" for name in ("baselines", "bridge", "debian", "durable", "grpc", "peers"))
REPEATS = 5


def log(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


class Bench:
    """Drives the targets through the scenarios and keeps what came of it."""

    def __init__(self, targets: list[Target], mock: Mock, args: argparse.Namespace) -> None:
        self.targets, self.mock, self.args = targets, mock, args
        self.results: dict[tuple[str, Case, str], list[dict[str, Any]]] = {}
        self.skipped: dict[str, str] = {}
        self.mute: set[Case] = set()  # gave no reply at all; waiting for more of that would take hours
        self.broken = False
        self.begun = time.monotonic()
        self.measured = Measured(machine(), 0, reference=args.reference, short=not args.judged)
        self.measured.scenarios = {s.name: s for s in args.chosen}

    def up(self, target: Target) -> bool:
        """Starts a target; one that does not come up is out of the run, and the run has failed."""
        if target.name in self.skipped:
            return False
        try:
            target.start()
        except NotStarted as e:
            self.skipped[target.name] = "did not start"
            self.broken = True
            log(f"\n!!! {target.name} did not start: {e}\n")
            return False
        return True

    def one(self, target: Target, case: Case, scenario: Scenario) -> None:
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
        if not result["ok"]:
            self.mute.add(case)
        self.results.setdefault((target.name, case, scenario.name), []).append(result)
        unit = "event" if scenario.cost == "cpu_us_per_event" else "request"
        cpu = result.get(f"cpu_us_per_{unit}")
        figures = f"{result.get('rps', 0):>8.0f}/s" + (f" {cpu:>8.2f} us/{unit}" if cpu else "")
        wrong = f"  WRONG: {result['errors']} {result.get('note', '')}" if result["bad"] else ""
        log(f"  {scenario.name:18} {target.name:18} {case.name:46} {figures}{wrong}")

    def repeat(self, number: int, targets: list[Target]) -> None:
        """The targets take turns inside each scenario, every second repeat backwards, so that whatever else the
        machine does at the time hits a target and its reference alike."""
        for scenario in self.args.chosen:
            if number >= (scenario.repeats or number + 1):
                continue
            jobs = [(t, c) for t in targets for c in t.cases if c.wants(scenario)]
            for target, case in jobs[::-1] if number % 2 else jobs:
                if target.name not in self.skipped and case not in self.mute:
                    self.one(target, case, scenario)

    def run(self) -> None:
        for target in self.targets:
            if absent := target.absent():
                self.skipped[target.name] = f"{absent} is not installed"
                log(f"\n!!! SKIPPED: target {target.name}, because {absent} is not installed\n")
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
            self.measured.repeats = number + 1
            self.write()

    def write(self) -> None:
        """After every repeat, so that a run that is broken off leaves what it has."""
        measured = self.measured
        measured.minutes = round((time.monotonic() - self.begun) / 60, 1)
        measured.targets = {t.name: self.described(t) for t in self.targets}
        measured.rows = [Row.of(t, c, s, runs) for (t, c, s), runs in self.results.items()]
        out: Path = self.args.out
        out.mkdir(parents=True, exist_ok=True)
        runs = [{"target": t, "case": c.name, "scenario": s, "runs": runs} for (t, c, s), runs in self.results.items()]
        (out / "bench.json").write_text(json.dumps(runs, indent=1) + "\n")
        report.write(measured, out)

    def described(self, target: Target) -> TargetInfo:
        names = target.starts[0] if target.starts else {}
        starts = {name: [rounded(start[name]) for start in target.starts] for name in names}
        missing = self.skipped.get(target.name, "")
        return TargetInfo(target.version, target.loop, target.reference, starts, missing)

    def count(self) -> None:
        """Counts what does not depend on the load of the machine: the bytecodes of one stream."""
        log("bytecodes of one stream")
        self.measured.bytecodes = round(bytecodes.of_one_stream(budgets.COUNTED))

    def codec(self) -> None:
        """Measures the codecs without sockets, in a process of their own, because it is pure CPU time."""
        log("codecs without sockets")
        command = [sys.executable, str(HERE / "micro" / "pairs.py"), str(3 * self.args.repeats), "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        self.measured.codec = json.loads(done.stdout)

    @property
    def wrong(self) -> bool:
        return self.broken or any(r["bad"] for runs in self.results.values() for r in runs)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", type=Path, help="JSON files with targets (README.md)")
    parser.add_argument("--scenarios", help="all (default), or names with commas")
    parser.add_argument("--repeats", type=int, help=f"default: {REPEATS}")
    parser.add_argument("--seconds", type=float, help="overrides every scenario's length")
    parser.add_argument("--only", help="target names with commas")
    parser.add_argument("--reference", default=RAW, help="target the ratio column divides by")
    parser.add_argument("--out", type=Path, default=HERE / "out", help="a folder")
    parser.add_argument("--docs", action="store_true", help="write docs/performance.* although the run is a short one")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="fills {NAME} in targets")
    parser.add_argument(
        "--together",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="all targets run at once and take turns (default); otherwise each is started, measured and stopped",
    )
    args = parser.parse_args()
    args.whole = not (args.targets or args.scenarios or args.only)
    args.judged = args.whole and not (args.repeats or args.seconds)
    args.targets = args.targets or list(FILES)
    args.repeats = REPEATS if args.repeats is None else args.repeats
    if args.repeats < 1:
        parser.error("--repeats must be 1 or more")
    if any("=" not in s for s in args.set):
        parser.error("--set wants NAME=VALUE")
    args.out = args.out.resolve()
    try:
        args.chosen = scenarios.choose(args.scenarios or "all")
    except ValueError as e:
        parser.error(str(e))
    for scenario in args.chosen if args.seconds else []:
        scenario.seconds = args.seconds
    return args


def open_files(chosen: list[Scenario]) -> list[Scenario]:
    """Takes as many open files as there may be; gives the scenarios for which they are enough."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    enough = [s for s in chosen if most == resource.RLIM_INFINITY or s.files <= most]
    for scenario in chosen:
        if scenario not in enough:
            log(f"\n!!! SKIPPED: {scenario.name} needs {scenario.files} open files, and {most} are allowed\n")
    return enough


def compile_checkout() -> None:
    """Byte code for what is started from this checkout, as pip makes it of what it installs. Where Python itself may
    write none (PYTHONDONTWRITEBYTECODE), each start would compile all of it anew.
    """
    for folder in (HERE.parent / "bridge", HERE.parent / "bridge" / "dialects", HERE):
        compileall.compile_dir(folder, quiet=1)


def main() -> int:
    args = arguments()
    if why := procfs.missing():
        log(why)
        return 2
    args.chosen = open_files(args.chosen)
    # A terminated runner must not leave its children behind: SystemExit runs the clean-up below.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    compile_checkout()
    try:
        grpc = any("{upstream_grpc}" in file.read_text() for file in args.targets if file.is_file())
        with Mock(grpc=grpc) as mock:
            fill = {
                "upstream": mock.url,
                "upstream_port": str(mock.port),
                "upstream_grpc": mock.agent,
                "here": str(HERE),
                "python": sys.executable,
                "venv": sys.prefix,
                "debian": f"Debian's {interpreter(f'{sys.prefix}/debian/bin/python')}",
                "postgres": str((with_postgres.binaries() or Path()) / "postgres"),
            }
            fill.update(s.split("=", 1) for s in args.set)
            try:
                targets = read(args.targets, args.only, fill)
            except (OSError, ValueError) as e:
                log(f"bench: {e}")
                return 2
            bench = Bench(targets, mock, args)
            try:
                bench.run()
            finally:
                for target in targets:
                    target.clean()
        if args.whole:
            bench.codec()
            bench.count()
            bench.write()
    except NotStarted as e:
        log(f"bench: {e}")
        return 1
    except KeyboardInterrupt:
        log("bench: interrupted")
        return 130
    if args.judged or args.docs:
        report.write(bench.measured, report.DOCS)
    print(report.page(bench.measured))
    log(f"{bench.measured.minutes} minutes; written to {args.out}" + (" and docs/" if args.judged or args.docs else ""))
    return 1 if bench.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
