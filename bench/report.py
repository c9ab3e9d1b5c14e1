"""Figures to Markdown: tables of a run, the budgets beside what was measured, and where it was measured."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from scenarios import ALL, BUDGETS, BY_NAME, Budget, Scenario
from targets import HERE, Case, Target

Run = dict[str, Any]
Results = dict[tuple[str, Case, str], list[Run]]  # target, case, scenario: one run per repeat

PACKAGES = ["dialect-bridge", "aiohttp", "orjson", "uvloop", "pydantic", "openai"]
SUBJECT = "dialect-bridge"
COLUMNS: dict[str, list[tuple[str, str]]] = {
    "plain": [
        ("req/s", "rps"),
        ("CPU us/request", "cpu_us_per_request"),
        ("cores", "cores"),
        ("p50 ms", "total_ms.p50"),
        ("p99 ms", "total_ms.p99"),
        ("peak MB", "mb_peak"),
    ],
    "stream": [
        ("streams/s", "rps"),
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
        ("KB/stream", "kb_per_stream"),
        ("merged", "merged"),
    ],
}


# ---- where


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(HERE), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _first(path: str, key: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def machine() -> dict[str, Any]:
    """What a reader must know before comparing these figures with any others."""
    commit = _git("rev-parse", "--short", "HEAD")
    if commit and _git("status", "--porcelain"):
        commit += " with uncommitted changes"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit,
        "processor": _first("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": os.cpu_count(),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {p: _version(p) for p in PACKAGES},
        "load_at_start": round(os.getloadavg()[0], 2),
    }


# ---- figures


def value(run: Run, path: str) -> float | None:
    found: Any = run
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def median(runs: list[Run], path: str) -> float | None:
    found = [v for r in runs if (v := value(r, path)) is not None]
    return statistics.median(found) if found else None


def ratio(own: list[Run], reference: list[Run], path: str) -> tuple[float, float, float] | None:
    """Ratio of the medians, with the smallest and largest ratio inside one repeat."""
    a, b = median(own, path), median(reference, path)
    if not a or not b:
        return None
    by_repeat = {r["repeat"]: v for r in reference if (v := value(r, path))}
    inside = [v / by_repeat[r["repeat"]] for r in own if (v := value(r, path)) and r["repeat"] in by_repeat]
    return a / b, min(inside, default=a / b), max(inside, default=a / b)


def reference_of(results: Results, name: str, case: Case, scenario: str) -> list[Run]:
    """The runs of the reference target over the same backend wire and of the same kind."""
    for (target, other, at), runs in results.items():
        if (target, at, other.back, other.kind) == (name, scenario, case.back, case.kind):
            return runs
    return []


def number(x: float | None) -> str:
    return "" if x is None else f"{x:.0f}" if x >= 1000 else f"{x:.3g}"


def brief(reason: str) -> str:
    """What happened and, where a program's output follows, its last line."""
    lines = reason.splitlines()
    return lines[0] if len(lines) == 1 else f"{lines[0]} `{lines[-1].strip()[:300]}`"


def times(repeats: int) -> str:
    return "one repeat" if repeats == 1 else f"{repeats} repeats"


def row(*cells: object) -> str:
    return "| " + " | ".join(str(c) for c in cells) + " |"


def header(*cells: str) -> list[str]:
    return [row(*cells), "|" + "---|" * len(cells)]


# ---- tables


def starts(targets: list[Target], skipped: dict[str, str]) -> list[str]:
    out = ["## Targets", "", *header("target", "what", "event loop", "healthy after s", "CPU s to start", "idle MB")]
    for t in targets:
        if t.name in skipped:
            out.append(row(t.name, f"**not measured**: {brief(skipped[t.name])}", "", "", "", ""))
        else:
            figures = [number(median(t.starts, k)) for k in ("start_s", "start_cpu_s", "idle_mb")]
            out.append(row(t.name, t.version, t.loop, *figures))
    return out


def scenario_table(results: Results, scenario: Scenario, reference: str) -> list[str]:
    rows = {(t, c): runs for (t, c, s), runs in results.items() if s == scenario.name}
    if not rows:
        return []
    columns = [c for c in COLUMNS[scenario.kind] if c[1] != "kb_per_stream" or c[1] == scenario.cost]
    if not any(value(run, "disk_bytes_per_event") for runs in rows.values() for run in runs):
        columns = [c for c in columns if c[1] != "disk_bytes_per_event"]
    mock = ", ".join(f"{k} {v}" for k, v in scenario.mock.items())
    out = ["", f"## {scenario.name}", "", f"{scenario.reads}; mock: {mock}; {scenario.concurrency} at once", ""]
    out += header("target", "case", *(c for c, _ in columns), f"x {reference}", "failed")
    for (target, case), runs in rows.items():
        found = ratio(runs, reference_of(results, reference, case, scenario.name), scenario.cost)
        bad = sum(r.get("bad", 0) for r in runs)
        cells = [number(median(runs, path)) for _, path in columns]
        out.append(row(target, case.name, *cells, f"{found[0]:.2f}" if found else "", bad or ""))
    return out


def slope(results: Results, reference: str) -> list[str]:
    """Two scenarios give the price of one more event, free of the price of the stream."""
    short, burst = BY_NAME["stream-short"], BY_NAME["stream-burst-32"]
    prices: dict[tuple[str, Case], tuple[float, float]] = {}
    for (target, case, at), runs in results.items():
        if at != burst.name or (target, case, short.name) not in results:
            continue
        one, many = median(results[target, case, short.name], "cpu_us_per_request"), median(runs, "cpu_us_per_request")
        if one and many:
            prices[target, case] = one, (many - one) / (burst.mock["tokens"] - short.mock["tokens"])
    if not prices:
        return []
    out = ["", "## Price of a stream and of one more event in a burst", ""]
    out += header("target", "case", "CPU us, stream of one delta", "CPU us per further event", f"x {reference}")
    for (target, case), (fixed, further) in prices.items():
        base = [p for (t, c), (_, p) in prices.items() if t == reference and c.back == case.back]
        shown = f"{further / base[0]:.2f}" if base and base[0] > 0 else ""
        out.append(row(target, case.name, f"{fixed:.0f}", f"{further:.2f}", shown))
    return out


def _budget_row(results: Results, budget: Budget, case: Case) -> str:
    cost = BY_NAME[budget.scenario].cost
    own = results.get((SUBJECT, case, budget.scenario), [])
    base = reference_of(results, budget.reference, case, budget.scenario)
    found = ratio(own, base, cost)
    most = f"<= {budget.most:g}" + (f", stretch {budget.stretch:g}" if budget.stretch else "")
    if found is None:
        return row(case.name, budget.what, budget.reference, "not measured", "", most, "")
    state = (
        "over" if found[0] > budget.most else "within the stretch" if found[0] <= (budget.stretch or 0) else "within"
    )
    return row(
        case.name, budget.what, budget.reference, f"{found[0]:.2f}", f"{found[1]:.2f}-{found[2]:.2f}", most, state
    )


def budgets(results: Results, subject: Target | None, skipped: dict[str, str], repeats: int) -> list[str]:
    """Reported, never asserted: a figure of one machine on one day decides nothing by itself."""
    out = ["", "## Budgets", "", f"Ratio of medians, {times(repeats)}; the range is that of single repeats. "]
    out[-1] += "Nothing fails by a figure here. " + ("Judge by five repeats or more." if repeats < 5 else "")
    if subject is None:
        return [*out, "", f"{SUBJECT} was not asked for."]
    out += ["", *header("pair", "what", "reference", "ratio", "range", "budget", "state")]
    ran = {s for _, _, s in results}
    measured = {t for t, _, _ in results}
    for budget in BUDGETS:
        kind = BY_NAME[budget.scenario].kind
        if budget.scenario in ran and (budget.reference == "aiohttp-raw" or budget.reference in measured):
            out += [_budget_row(results, budget, c) for c in subject.cases if c.kind == kind]
    if SUBJECT in skipped:
        out += ["", f"{SUBJECT} was not measured: {brief(skipped[SUBJECT])}"]
    return out


def faults(results: Results) -> list[str]:
    """Every wrong or missing reply, by case and scenario."""
    out = []
    for (target, case, scenario), runs in results.items():
        errors: dict[str, int] = {}
        for run in runs:
            for what, times in run.get("errors", {}).items():
                errors[what] = errors.get(what, 0) + times
        if errors:
            shown = ", ".join(f"{what} x {times}" for what, times in errors.items())
            out.append(f"- {target}, {case.name}, {scenario}: {shown}")
            out += [f"  `{n.splitlines()[0][:300]}`" for r in runs if (n := r.get("note"))][:1]
    return ["", "## Wrong or missing replies", "", *out] if out else []


def markdown(
    where: dict[str, Any],
    targets: list[Target],
    results: Results,
    skipped: dict[str, str],
    repeats: int,
    reference: str,
) -> str:
    packages = ", ".join(f"{k} {v}" for k, v in where["packages"].items())
    load = f"{where['load_at_start']} before, {round(os.getloadavg()[0], 2)} after"
    out = [
        "# Measured",
        "",
        f"{where['date']}, commit {where['commit'] or 'unknown'}, {times(repeats)}.",
        "",
    ]
    out += [f"- {where['processor']}, {where['cores']} cores, {where['memory']}, {where['kernel']}; load {load}"]
    out += [f"- {where['python']}, {packages}", "", *starts(targets, skipped)]
    if len(loops := {t.loop for t in targets if t.loop}) > 1:
        out += ["", f"**Not like for like**: the targets run on different event loops ({', '.join(sorted(loops))})."]
    for scenario in ALL:
        out += scenario_table(results, scenario, reference)
    out += slope(results, reference)
    subject = next((t for t in targets if t.name == SUBJECT), None)
    out += budgets(results, subject, skipped, repeats) + faults(results)
    return "\n".join(out) + "\n"
