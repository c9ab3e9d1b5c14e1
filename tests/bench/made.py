"""A run with made-up figures."""

from __future__ import annotations

from results import RAW, SUBJECT, Measured, Row, TargetInfo

PACED = "stream-paced-c32"


def row(
    target: str,
    costs: list[float | None],
    front: str = "openai-chat",
    back: str = "openai-chat",
    *,
    scenario: str = PACED,
    figure: str = "cpu_us_per_event",
    kept: bool = False,
    apart: str = "",
) -> Row:
    kind = "plain" if scenario.startswith("plain") else "stream"
    return Row(target, front, back, kind, scenario, kept, apart, {figure: costs})


def measured(*rows: Row) -> Measured:
    machine = {
        "date": "2026-01-02 03:04 UTC",
        "commit": "abc1234",
        "processor": "A Processor",
        "cores": 2,
        "memory_gb": 8.0,
        "system": "Linux 6.1",
        "python": "CPython 3.11.7",
        "packages": {"aiohttp": "3.14"},
        "load_at_start": 0.1,
    }
    targets = {name: TargetInfo("", "uvloop") for name in (SUBJECT, RAW, *(r.target for r in rows))}
    return Measured(machine, 3, 1.5, targets=targets, rows=list(rows))
