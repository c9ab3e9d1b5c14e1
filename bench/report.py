#!/usr/bin/env python3
"""Figures to pages: `python bench/report.py` writes docs/performance.md, docs/performance-budgets.md and their pictures
anew from what was measured.

Made of docs/performance.json and the words of method.md and missed.md, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import budgets
import pictures
from results import ELSEWHERE, PEERS, RAW, SUBJECT, Measured, Ratio, Row, median, ratio
from scenarios import Scenario

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
METHOD = HERE / "method.md"
MISSED = HERE / "missed.md"
NAME = "performance"

COLUMNS: dict[str, list[tuple[str, str]]] = {
    "plain": [
        ("requests/s", "rps"),
        ("CPU us/request", "cpu_us_per_request"),
        ("cores", "cores"),
        ("p50 ms", "total_ms.p50"),
        ("p99 ms", "total_ms.p99"),
        ("peak MB", "mb_peak"),
    ],
    "stream": [
        ("events/s", "events_per_s"),
        ("CPU us/event", "cpu_us_per_event"),
        ("CPU us/stream", "cpu_us_per_request"),
        ("cores", "cores"),
        ("TTFT p50 ms", "ttft_ms.p50"),
        ("TTFT p99 ms", "ttft_ms.p99"),
        ("lag p50 ms", "lag_ms.p50"),
        ("lag p99 ms", "lag_ms.p99"),
        ("disk B/event", "disk_bytes_per_event"),
        ("peak MB", "mb_peak"),
        ("KiB/stream", "kb_per_stream"),
        ("merged", "merged"),
    ],
}


def number(x: float | None) -> str:
    return "" if x is None else f"{x:.0f}" if x >= 1000 else f"{x:.3g}"


def times(repeats: int) -> str:
    return "one repeat" if repeats == 1 else f"{repeats} interleaved repeats"


def row(*cells: object) -> str:
    return "| " + " | ".join(str(c) for c in cells) + " |"


def table(names: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """Nothing where there are no rows."""
    lines = [row(*cells) for cells in rows]
    names = list(names)
    return [row(*names), "|" + "---|" * len(names), *lines, ""] if lines else []


def spread(found: Ratio | None) -> str:
    return f"{found.least:.2f}-{found.most:.2f}" if found else ""


# ---- budgets


def goals(measured: Measured) -> list[str]:
    """A line for each budget and pair: the goal, the figure, and whether it is met."""
    verdicts = budgets.every(measured)
    apart: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.apart and verdict.case not in (cases := apart.setdefault(verdict.apart, [])):
            cases.append(verdict.case)
    return [
        *table(
            ("what", "pair", "goal", "stretch", "measured", "range", "state"),
            (
                (
                    v.what,
                    v.case,
                    _figure(v.goal),
                    _figure(v.stretch),
                    _figure(v.found),
                    f"{v.spread[0]:.2f}-{v.spread[1]:.2f}" if v.spread else "",
                    f"**{v.state}**" if v.state == "missed" else v.state,
                )
                for v in verdicts
            ),
        ),
        *(f"No budget for {', '.join(cases)}: {why}." for why, cases in apart.items()),
        "",
    ]


def _figure(x: float | None) -> str:
    return "" if x is None else f"{x:,.0f}" if x >= 1000 else f"{x:.2f}"


def summary(measured: Measured) -> str:
    states = [v.state.partition(",")[0] for v in budgets.every(measured)]
    counts = {name: states.count(name) for name in ("met", "missed", "not measured") if name in states}
    return ", ".join(f"{n} {name}" for name, n in counts.items()) + "."


# ---- other gateways

OTHERS = [
    "## Compared with LiteLLM and other gateways",
    "",
    f"CPU time per request or per event, as a ratio to `{RAW}`, a proxy in the same framework that only copies bytes.",
    "Less is better; an empty cell was not measured.",
    "",
]


def others(measured: Measured) -> list[str]:
    """The pairs that other gateways have too, each target's cost as a ratio to aiohttp-raw."""
    targets = ("nginx", "aiohttp-translate", SUBJECT, *PEERS)
    lines: dict[tuple[str, str], dict[str, float]] = {}
    for what in measured.scenarios.values():
        for r in measured.of(what.name):
            found = ratio(r, measured.reference_of(r, RAW), what.cost) if r.target in targets else None
            if found is not None:
                lines.setdefault((what.name, r.case), {})[r.target] = found.middle
    lines = {key: found for key, found in lines.items() if found.keys() & set(PEERS)}
    shown = [t for t in targets if any(t in found for found in lines.values())]
    cells = ([*key, *(number(found.get(t)) for t in shown)] for key, found in lines.items())
    made = table(("scenario", "pair", *shown), cells)
    used = [what for what in measured.scenarios.values() if any(what.name in key for key in lines)]
    legend = [f"- `{what.name}`: {what.reads}" for what in used]
    return [*OTHERS, *legend, "", *made] if made else []


# ---- interpreters


def interpreters(measured: Measured) -> list[str]:
    """Return the CPU times on this interpreter and on Debian's; nothing if the latter were not measured."""
    own_raw, own_bridge = ELSEWHERE[RAW], ELSEWHERE[SUBJECT]
    lines = []
    for what in measured.scenarios.values():
        for row in measured.of(what.name, own_bridge):
            raw, bridge, there = (measured.reference_of(row, name) for name in (RAW, SUBJECT, own_raw))
            costs = [number(r.median(what.cost) if r else None) for r in (raw, bridge, there, row)]
            ratios = [ratio(r, base, what.cost) if r else None for r, base in ((bridge, raw), (row, there))]
            lines.append([what.name, row.case, *costs, *(number(r.middle if r else None) for r in ratios)])
    if not lines:
        return []
    here, elsewhere = measured.machine["python"], measured.targets[own_bridge].version.rpartition(" on ")[2]
    names = [f"{target}, {python}" for python in (here, elsewhere) for target in (RAW, SUBJECT)]
    return [
        "## On Debian's interpreter",
        "",
        "CPU us per request or per event, and the ratio of the two, with the same packages on both interpreters.",
        "",
        *table(("scenario", "pair", *names, f"ratio, {here}", f"ratio, {elsewhere}"), lines),
    ]


# ---- tables


def machine(measured: Measured) -> list[str]:
    where = measured.machine
    packages = ", ".join(f"{name} {version}" for name, version in where["packages"].items())
    out = [
        f"- {where['date']}, commit {where['commit'] or 'unknown'}, {times(measured.repeats)}, "
        f"{measured.minutes:g} minutes",
        f"- {where['processor']}, {where['cores']} cores, {where['memory_gb']:g} GiB, {where['system']}; load before "
        f"the run: {where['load_at_start']:g}",
        f"- {where['python']}, {packages}",
        "",
    ]
    if measured.short:
        out = ["**A short trial run, not a full benchmark.**", "", *out]
    return out


def targets(measured: Measured) -> list[str]:
    rows = []
    for name, t in measured.targets.items():
        if t.missing:
            rows.append([name, f"**not measured**: {t.missing}", "", "", "", "", ""])
            continue
        starts = [number(median(t.starts.get(k, []))) for k in ("start_s", "start_cpu_s", "idle_mb", "rss_mb")]
        rows.append([name, t.version, t.event_loop, *starts])
    names = ("target", "what", "event loop", "healthy after s", "CPU s to start", "MB then (PSS)", "MB (RSS)")
    out = table(names, rows)
    loops = {t.event_loop for n, t in measured.targets.items() if t.event_loop and n in (SUBJECT, RAW)}
    if len(loops) > 1:
        out += [f"**Not like for like**: {SUBJECT} and {RAW} run on different event loops.", ""]
    return out


def reference_of(measured: Measured, row: Row) -> Row | None:
    """Returns the row of the target's own reference if it has the same backend wire, otherwise that of the run's."""
    own = measured.targets[row.target].reference
    found = measured.reference_of(row, own) if own else None
    return found or measured.reference_of(row, measured.reference)


def scenario(measured: Measured, what: Scenario) -> list[str]:
    rows = measured.of(what.name)
    if not rows:
        return []
    columns = [c for c in COLUMNS[what.kind] if any(r.median(c[1]) for r in rows)]
    columns = [c for c in columns if c[1] != "kb_per_stream" or c[1] == what.cost]
    mock = ", ".join(f"{k} {v}" for k, v in what.mock.items())
    lines = []
    for r in rows:
        base = reference_of(measured, r)
        found = ratio(r, base, what.cost) if base is not r else None
        beside = "" if base is None or base is r or base.target == measured.reference else f" (of {base.target})"
        shown = f"{found.middle:.2f}{beside}" if found else ""
        lines.append([r.target, r.case, *(number(r.median(c)) for _, c in columns), shown, spread(found)])
    return [
        f"### {what.name}",
        "",
        f"{what.reads[0].upper()}{what.reads[1:]}. Mock: {mock}; {what.concurrency} at once.",
        "",
        *table(("target", "case", *(c for c, _ in columns), f"x {measured.reference}", "range"), lines),
    ]


def slope(measured: Measured) -> list[str]:
    """Two scenarios give the price of one more event, free of the price of the stream."""
    lines = []
    for one in measured.of("stream-short"):
        further = [_further(measured, one, name) for name in ("stream-burst-32", "stream-paced-c32")]
        if any(f is not None for f in further):
            lines.append([one.target, one.case, number(one.median("cpu_us_per_request")), *map(number, further)])
    names = (
        "target",
        "case",
        "CPU us, stream of one delta",
        "each further event in a burst",
        "each further event, paced",
    )
    shown = table(names, lines)
    return ["### Cost of a stream and of one more event", "", *shown] if shown else []


def _further(measured: Measured, short: Row, name: str) -> float | None:
    row = next((r for r in measured.of(name, short.target) if r.case == short.case), None)
    fixed, whole = short.median("cpu_us_per_request"), row and row.median("cpu_us_per_request")
    if not fixed or not whole:
        return None
    return (whole - fixed) / (
        measured.scenarios[name].mock["tokens"] - measured.scenarios[short.scenario].mock["tokens"]
    )


def codec(measured: Measured) -> list[str]:
    sizes = list(measured.codec)
    names = list(measured.codec[sizes[0]]) if sizes else []
    lines = [[name, *(number(measured.codec[size].get(name)) for size in sizes)] for name in names]
    shown = table(("codecs", *(f"ns/event, {size} in a read" for size in sizes)), lines)
    return ["### Without sockets", "", *shown] if shown else []


def faults(measured: Measured) -> list[str]:
    """Every wrong or missing reply, by case and scenario. What the reply said stays in bench/out."""
    out = [
        f"- {r.target}, {r.case}, {r.scenario}: " + ", ".join(f"{what} x {n}" for what, n in r.wrong.items())
        for r in measured.rows
        if r.wrong
    ]
    return ["## Wrong or missing replies", "", *out, ""] if out else []


# ---- the pages


def page(measured: Measured) -> str:
    """What users want to know: the costs compared with other gateways, and how they are measured.

    Nothing in it names a place or a host: what a row says comes from the harness alone.
    """
    first, _, how = METHOD.read_text(encoding="utf-8").strip().partition("\n\n")
    out = [
        "# Performance benchmarks",
        "",
        first,
        "",
        *drawn(measured, pictures.OTHERS_FILE),
        *others(measured),
        *absent(measured),
        *interpreters(measured),
        "[Performance budgets](performance-budgets.md) has the figures of every pair and scenario.",
        "",
        "## Machine",
        "",
        *machine(measured),
        "## How it is measured",
        "",
        how,
        "",
        "## Targets",
        "",
        *targets(measured),
    ]
    return "\n".join(out).rstrip() + "\n"


def budget_page(measured: Measured) -> str:
    """What maintainers want to know: the budgets, and all figures."""
    out = [
        "# Performance budgets",
        "",
        "For maintainers: the goals of each pair, and all figures of the run of [Performance](performance.md).",
        "",
        *machine(measured),
        f"Ratios of medians to `{RAW}` with the same backend dialect, except for the start and the count of bytecodes: "
        f"{summary(measured)}",
        "",
        *drawn(measured, *(f"{NAME}-{name}.svg" for name in pictures.PER_PAIR.values())),
        *goals(measured),
        *faults(measured),
        *MISSED.read_text(encoding="utf-8").splitlines(),
        "",
        "## All figures",
        "",
        "Medians over the repeats; the range is that of the ratios of single repeats.",
        "",
        *[line for what in measured.scenarios.values() for line in scenario(measured, what)],
        *slope(measured),
        *codec(measured),
    ]
    return "\n".join(out).rstrip() + "\n"


def drawn(measured: Measured, *files: str) -> list[str]:
    shown = [d for d in pictures.drawings(measured) if d.file in files]
    return [line for d in shown for line in (f"![{d.told}](images/{d.file})", "")]


def absent(measured: Measured) -> list[str]:
    """The gateways that this run has no figures of."""
    names = [name for name in PEERS if name not in measured.targets or measured.targets[name].missing]
    return [f"Not measured in this run: {', '.join(names)}.", ""] if names else []


def write(measured: Measured, folder: Path) -> None:
    """`performance.json`, `performance.md`, `performance-budgets.md` and their pictures below `images`."""
    (folder / f"{NAME}.json").write_text(measured.text(), encoding="utf-8")
    (folder / f"{NAME}.md").write_text(page(measured), encoding="utf-8")
    (folder / f"{NAME}-budgets.md").write_text(budget_page(measured), encoding="utf-8")
    (folder / "images").mkdir(exist_ok=True)
    for drawing in pictures.drawings(measured):
        (folder / "images" / drawing.file).write_text(drawing.svg, encoding="utf-8")


if __name__ == "__main__":
    write(Measured.read(DOCS / f"{NAME}.json"), DOCS)
