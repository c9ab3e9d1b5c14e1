"""The goals for the cost of dialect-bridge, and whether a run met them. They are reported; no test asserts them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from results import RAW, SUBJECT, Measured, median, ratio


@dataclass(frozen=True, slots=True)
class Budget:
    """A goal for the cost of a scenario, as a ratio to aiohttp-raw over the same backend wire in the same run.

    `kept` restricts it to the pairs that store conversations, or to those that do not; None applies to all.
    """

    what: str
    scenario: str
    goal: float
    stretch: float
    kept: bool | None = None


PER_PAIR = (
    Budget("event, paced, 32 streams", "stream-paced-c32", 1.3, 1.0),
    Budget("event, burst of 32", "stream-burst-32", 1.7, 1.1),
    Budget("short stream, nothing kept", "stream-short", 2.0, 1.6, kept=False),
    Budget("plain request, nothing kept", "plain-c32", 2.0, 1.6, kept=False),
    Budget("short stream, conversation kept in SQLite", "stream-short", 3.0, 2.2, kept=True),
    Budget("memory of an idle stream, 256 open", "stream-hold-c256", 1.5, 1.25),
    Budget("memory of an idle stream, 5,000 open", "stream-hold-c5000", 1.5, 1.25),
)
START = (("CPU seconds until /healthz answers", "start_cpu_s", 0.7), ("MB resident after the start", "rss_mb", 65.0))
COUNTED = "openai-chat -> openai-chat"
BYTECODES, BYTECODES_STRETCH = 8000, 6500


def state(found: float | None, goal: float, stretch: float | None = None) -> str:
    """Returns `met`, `met, stretch too`, `missed` or `not measured`. A figure equal to the goal meets it."""
    if found is None:
        return "not measured"
    # Compared as shown, with two decimals.
    if round(found, 2) > goal:
        return "missed"
    return "met, stretch too" if stretch is not None and round(found, 2) <= stretch else "met"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the table of budgets: `found` is a ratio, or what `what` names; `spread` its range over repeats."""

    what: str
    case: str
    goal: float
    stretch: float | None
    found: float | None
    spread: tuple[float, float] | None
    state: str
    apart: str = ""


def judged(measured: Measured, budget: Budget) -> Iterator[Verdict]:
    """Yields a verdict for each case of the bridge that the budget applies to and that has a reference."""
    for row in measured.of(budget.scenario, SUBJECT):
        base = measured.reference_of(row, RAW)
        if base is None or budget.kept not in (None, row.kept):
            continue
        found = ratio(row, base, measured.cost(budget.scenario))
        middle = found.middle if found else None
        spread = (found.least, found.most) if found else None
        said = "no budget" if row.apart else state(middle, budget.goal, budget.stretch)
        yield Verdict(budget.what, row.case, budget.goal, budget.stretch, middle, spread, said, row.apart)


def starts(measured: Measured) -> Iterator[Verdict]:
    """Yields the verdicts about the start of the process, by the median of all starts."""
    target = measured.targets.get(SUBJECT)
    for what, figure, goal in START:
        known = [v for v in (target.starts.get(figure, []) if target else []) if v is not None]
        middle = median(known)
        spread = (min(known), max(known)) if known else None
        yield Verdict(what, "", goal, None, middle, spread, state(middle, goal))


def bytecodes(measured: Measured) -> Verdict:
    """Returns the verdict about the bytecodes that the bridge's own functions run for a stream without a token."""
    found = measured.bytecodes
    said = state(found, BYTECODES, BYTECODES_STRETCH)
    return Verdict("bytecodes of ours for one stream", COUNTED, BYTECODES, BYTECODES_STRETCH, found, None, said)


def every(measured: Measured) -> list[Verdict]:
    """Returns all verdicts of a run, budget by budget."""
    return [*(v for b in PER_PAIR for v in judged(measured, b)), *starts(measured), bytecodes(measured)]
