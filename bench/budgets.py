"""What we allow ourselves to cost, and whether a run stayed within it. Reported, never asserted by a test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from results import RAW, SUBJECT, Measured, Ratio, median, ratio

TWO_WORKERS = "bridge-2-workers"
LEAST = "tight"  # the line of micro/pairs.py that stands for the least work


@dataclass(frozen=True, slots=True)
class Budget:
    """A ratio of one scenario's cost to that of a reference over the same backend wire in the same run."""

    what: str
    scenario: str
    reference: str
    most: float
    stretch: float | None = None
    subject: str = SUBJECT

    @property
    def allowed(self) -> str:
        return f"<= {self.most:.3g}x" + (f", stretch {self.stretch:g}x" if self.stretch else "")


PER_PAIR = [
    Budget("event, paced, 32 streams", "stream-paced-c32", RAW, 1.25, 1.1),
    Budget("event, burst of 32", "stream-burst-32", RAW, 2.0, 1.5),
    Budget("short stream", "stream-short", RAW, 1.5),
    Budget("plain request, kept alive", "plain-c32", RAW, 1.5),
    Budget("event, paced, beside nginx", "stream-paced-c32", "nginx", 3.0),
]
SINGLE = [
    Budget("event, paced, 1 stream", "stream-paced-c1", RAW, 1.25, 1.1),
    Budget("event, paced, 256 streams", "stream-paced-c256", RAW, 1.25, 1.1),
    Budget("event, burst, a write each", "stream-burst", RAW, 2.0, 1.5),
    Budget("plain request, one at a time", "plain-c1", RAW, 1.5),
    Budget("plain request, 256 at once", "plain-c256", RAW, 1.5),
    Budget("request of 1 KB", "request-1kb", RAW, 1.5),
    Budget("memory of an idle stream, 256 open", "stream-hold-c256", RAW, 1.25),
    Budget("memory of an idle stream, 5,000 open", "stream-hold-c5000", RAW, 1.25),
    # 0.9 of twice the events for twice the CPU time: an event may cost 1/0.9 of what it costs with one worker.
    Budget("event, paced, with 2 workers", "stream-paced-c32", SUBJECT, 1 / 0.9, subject=TWO_WORKERS),
    Budget("event, paced, 256 streams, with 2 workers", "stream-paced-c256", SUBJECT, 1 / 0.9, subject=TWO_WORKERS),
    Budget("event, burst of 32, with 2 workers", "stream-burst-32", SUBJECT, 1 / 0.9, subject=TWO_WORKERS),
]
CODEC = 1.3  # times the tight line, without sockets
START = (("CPU seconds until /healthz answers", "start_cpu_s", 0.7), ("MB resident after the start", "rss_mb", 60.0))


def state(found: float | None, most: float, stretch: float | None = None) -> str:
    """`met`, `missed` or `not measured`; met by the stretch is told, too. The limit itself is met."""
    if found is None:
        return "not measured"
    # Judged as it is shown: two digits behind the point.
    if round(found, 2) > round(most, 2):
        return "missed"
    return "met, stretch too" if stretch is not None and round(found, 2) <= stretch else "met"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the budgets. `found` is a ratio, or seconds, or MB; `spread` the range of it over the repeats."""

    what: str
    case: str
    reference: str
    found: float | None
    spread: tuple[float, float] | None
    allowed: str
    state: str
    apart: str = ""


def _verdict(budget: Budget, case: str, found: Ratio | None, apart: str = "") -> Verdict:
    middle = found.middle if found else None
    spread = (found.least, found.most) if found else None
    said = "no budget" if apart else state(middle, budget.most, budget.stretch)
    return Verdict(budget.what, case, budget.reference, middle, spread, budget.allowed, said, apart)


def judged(measured: Measured, budget: Budget) -> Iterator[Verdict]:
    """One verdict for each case that was run under the budget's scenario and has such a reference."""
    for row in measured.of(budget.scenario, budget.subject):
        base = measured.reference_of(row, budget.reference)
        if base is not None:
            yield _verdict(budget, row.case, ratio(row, base, measured.cost(budget.scenario)), row.apart)


def starts(measured: Measured) -> Iterator[Verdict]:
    target = measured.targets.get(SUBJECT)
    for what, figure, most in START:
        known = [v for v in (target.starts.get(figure, []) if target else []) if v is not None]
        middle = median(known)
        spread = (min(known), max(known)) if known else None
        yield Verdict(what, "", "", middle, spread, f"<= {most:g}", state(middle, most))


def codec(measured: Measured) -> Iterator[Verdict]:
    """Our codec pairs beside the least work, without sockets."""
    for per_read, lines in measured.codec.items():
        least = lines.get(LEAST)
        for name, nanoseconds in lines.items():
            if least and name != LEAST:
                found = nanoseconds / least
                what = f"codec pair, {per_read} events in a read"
                yield Verdict(what, name, LEAST, found, None, f"<= {CODEC:g}x", state(found, CODEC))


def every(measured: Measured) -> list[Verdict]:
    """All verdicts of a run."""
    out = [v for budget in (*PER_PAIR, *SINGLE) for v in judged(measured, budget)]
    return [*out, *starts(measured), *codec(measured)]
