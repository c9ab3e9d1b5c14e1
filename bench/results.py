"""What a run measured, as it is kept in a file: rows with one figure for each repeat, and what a reader must know.

A page and its pictures are made of this and of nothing else, so that they can be made again and checked.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scenarios import BY_NAME, Scenario

SUBJECT = "dialect-bridge"
RAW = "aiohttp-raw"
ELSEWHERE = {SUBJECT: "bridge-debian", RAW: "raw-debian"}
"""The same targets on Debian's interpreter."""
PEERS = ("nemo-switchyard", "llm-rosetta", "litellm")
KEPT = (
    "cpu_us_per_event",
    "cpu_us_per_request",
    "rps",
    "events_per_s",
    "cores",
    "total_ms.p50",
    "total_ms.p99",
    "ttft_ms.p50",
    "ttft_ms.p99",
    "lag_ms.p50",
    "lag_ms.p99",
    "disk_bytes_per_event",
    "mb_peak",
    "kb_per_stream",
    "merged",
)
Figures = list[float | None]


def value(run: dict[str, Any], path: str) -> float | None:
    found: Any = run
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def rounded(x: float | None) -> float | None:
    """Four digits: more are noise, and the file is kept."""
    return None if x is None else float(f"{x:.4g}")


@dataclass(frozen=True, slots=True)
class Row:
    """One case of one target in one scenario; `kept` and `apart` as in `Case`.

    `figures` maps each name to one figure for each repeat; None means not measured.
    """

    target: str
    front: str
    back: str
    kind: str
    scenario: str
    kept: bool = False
    apart: str = ""
    figures: dict[str, Figures] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)

    @property
    def pair(self) -> str:
        return f"{self.front} -> {self.back}"

    @property
    def case(self) -> str:
        return self.pair + ("" if self.kind == "stream" else ", plain")

    def median(self, name: str) -> float | None:
        return median(self.figures.get(name, []))

    @classmethod
    def of(cls, target: str, case: Any, scenario: str, runs: list[dict[str, Any]]) -> Row:
        """`case` is one of targets.py, `runs` what measure.py gave, in the order of the repeats."""
        figures = {name: [rounded(value(run, name)) for run in runs] for name in KEPT}
        wrong: dict[str, int] = {}
        for run in runs:
            for what, times in run.get("errors", {}).items():
                wrong[what] = wrong.get(what, 0) + times
        known = {name: found for name, found in figures.items() if any(v is not None for v in found)}
        return cls(target, case.front, case.back, case.kind, scenario, case.kept, case.apart, known, wrong)


@dataclass(slots=True)
class TargetInfo:
    """`starts` has the figures of each start of its process; `missing` says why nothing was measured."""

    version: str
    event_loop: str = ""
    reference: str = ""
    starts: dict[str, Figures] = field(default_factory=dict)
    missing: str = ""


@dataclass(slots=True)
class Measured:
    """A whole run.

    `codec` holds nanoseconds of one event without sockets, by name and events in a read; `bytecodes` the bytecodes of
    the bridge's own functions for one stream, None if they were not counted.
    """

    machine: dict[str, Any]
    repeats: int
    minutes: float = 0.0
    reference: str = RAW
    short: bool = False  # a trial of the harness, not a run to judge by
    scenarios: dict[str, Scenario] = field(default_factory=lambda: dict(BY_NAME))
    targets: dict[str, TargetInfo] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    codec: dict[str, dict[str, float]] = field(default_factory=dict)
    bytecodes: float | None = None

    def cost(self, scenario: str) -> str:
        """The figure whose ratio is shown."""
        return self.scenarios[scenario].cost

    def of(self, scenario: str, target: str | None = None) -> list[Row]:
        return [r for r in self.rows if r.scenario == scenario and target in (None, r.target)]

    def reference_of(self, row: Row, name: str) -> Row | None:
        """The row of target `name` with the same scenario and backend wire; with the same frontend if any."""
        same = [r for r in self.of(row.scenario, name) if (r.back, r.kind) == (row.back, row.kind)]
        return next((r for r in same if r.front == row.front), same[0] if same else None)

    # ------------------------------------------------------------------ the file

    def text(self) -> str:
        """JSON, a line for each row: a new run is read as a difference."""
        head = {
            "machine": self.machine,
            "repeats": self.repeats,
            "minutes": self.minutes,
            "reference": self.reference,
            "short": self.short,
            "scenarios": {name: asdict(s) for name, s in self.scenarios.items()},
            "targets": {name: asdict(t) for name, t in self.targets.items()},
            "codec": self.codec,
            "bytecodes": self.bytecodes,
        }
        rows = ",\n  ".join(json.dumps(asdict(r)) for r in self.rows)
        return json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n  {rows}\n ]\n}}\n'

    @classmethod
    def read(cls, path: Path) -> Measured:
        found = json.loads(path.read_text(encoding="utf-8"))
        targets = {name: TargetInfo(**t) for name, t in found.pop("targets").items()}
        known = {name: Scenario(**s) for name, s in found.pop("scenarios").items()}
        rows = [Row(**r) for r in found.pop("rows")]
        return cls(scenarios=known, targets=targets, rows=rows, **found)


# ---------------------------------------------------------------------- arithmetic


def median(found: Sequence[float | None]) -> float | None:
    known = [v for v in found if v is not None]
    return statistics.median(known) if known else None


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of the medians, with the smallest and largest inside one repeat."""

    middle: float
    least: float
    most: float


def ratio(own: Row, reference: Row | None, figure: str) -> Ratio | None:
    """None where one of the two was not measured."""
    if reference is None or not (a := own.median(figure)) or not (b := reference.median(figure)):
        return None
    pairs = zip(own.figures[figure], reference.figures[figure], strict=False)
    inside = [x / y for x, y in pairs if x and y]
    return Ratio(a / b, min(inside, default=a / b), max(inside, default=a / b))
