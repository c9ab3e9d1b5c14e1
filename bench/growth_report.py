"""The tables of docs/scale.md, from docs/growth.json."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

Tables = dict[str, Callable[[dict[str, Any]], str]]


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _size(n: float) -> str:
    return f"{n:,.0f}"


def _times(values: Sequence[float]) -> str:
    """The ratio of the last value to the one before it."""
    return f"{values[-1] / values[-2]:.1f}" if values[-2] else "-"


def codecs(data: dict[str, Any]) -> str:
    """A row for each kind of item: the most expensive dialect of each side, and the growth from n to 2n over all."""
    rows = []
    for what in dict.fromkeys(r["what"] for r in data["codecs"]):
        for role in ("front", "back"):
            found = [r for r in data["codecs"] if (r["what"], r["role"]) == (what, role)]
            worst = max(found, key=lambda r: r["ms"][-1])
            middle = sorted(r["ms"][-1] for r in found)[len(found) // 2]
            longest = max(found, key=lambda r: r["longest_ms"][-1])
            steepest = max(float(r["ms"][-1]) / max(0.5, r["ms"][-2]) for r in found)
            rows.append(
                (
                    f"`{what}`", role, _size(worst["n"][-1]), middle, f"{worst['ms'][-1]} ({worst['dialect']})",
                    longest["longest_ms"][-1], f"{steepest:.1f}",
                )
            )  # fmt: skip
    head = (
        "what",
        "side",
        "n",
        "ms, median dialect",
        "ms, most expensive dialect",
        "longest step, ms",
        "most for 2n / n",
    )
    return table(head, rows)


def shapes(data: dict[str, Any]) -> str:
    """A row for each shape and side: what a megabyte costs most, and the most that its cost grows."""
    rows = []
    for what, role in dict.fromkeys((r["what"], r["role"]) for r in data["shapes"]):
        found = [r for r in data["shapes"] if (r["what"], r["role"]) == (what, role)]
        worst = max(found, key=lambda r: r["ms_per_mb"])
        dearest = f"{worst['ms_per_mb']} ({worst['dialect']})"
        rows.append((f"`{what}`", role, _size(worst["n"]), dearest, max(r["growth"] for r in found)))
    return table(("what", "side", "n", "ms per MB, most expensive dialect", "most for 8n / n"), rows)


def recorded(data: dict[str, Any]) -> str:
    rows = []
    for each in data["recorded"]:
        worst = max(each["worst"], key=lambda r: r["ms_per_mb"])
        rows.append((each["dialect"], each["shapes"], worst["ms_per_mb"], max(r["growth"] for r in each["worst"])))
    return table(("backend", "shapes", "ms per MB, most expensive shape", "most for 8n / n"), rows)


def stores(data: dict[str, Any]) -> str:
    rows = []
    for row in data["stores"]:
        cells = [f"{us:,.0f}" if us >= 10 else f"{us:g}" for us in row["us"]]
        rows.append((row["engine"], row["what"], *cells, f"{row['us'][-1] / row['us'][0]:.1f}"))
    return table(("engine", "what", "first", "x10", "x100", "x1,000", "last / first"), rows)


def streams(data: dict[str, Any]) -> str:
    rows = [
        (
            _size(r["n"]),
            _size(r["events_s"]),
            r["cpu_us_event"],
            r["kib_stream"] if r["n"] >= 100 else "-",
            r["loop_ms"],
        )
        for r in data["streams"]
    ]
    return table(
        ("open streams", "events/s", "CPU us per event", "KiB per stream", "longest block of the loop, ms"), rows
    )


def routes(data: dict[str, Any]) -> str:
    rows = [(_size(r["n"]), r["cpu_us_request"], r["mib"]) for r in data["routes"]]
    return table(("routes", "CPU us per request", "MiB of the process"), rows)


def histories(data: dict[str, Any]) -> str:
    rows = [(_size(r["n"]), r["cpu_ms_request"], r["us_message"], r["loop_ms"]) for r in data["histories"]]
    return table(("messages", "CPU ms per request", "us per message", "longest block of the loop, ms"), rows)


def holds(data: dict[str, Any]) -> str:
    rows = [
        (f"`{r['what']}`", r["front"], r["back"], r["mib"], r["loop_ms"])
        for r in sorted(data["holds"], key=lambda r: (r["what"], -r["loop_ms"]))
    ]
    return table(("what", "frontend", "backend", "MiB sent", "longest block of the loop, ms"), rows)


def durable(data: dict[str, Any]) -> str:
    found = data["durable"]
    rows = [(engine, found[engine], _size(found[f"{engine}_disk_bytes"])) for engine in ("sqlite", "postgresql")]
    return table(("stored in", "times a plain event", "disk bytes per event"), rows)


def start(data: dict[str, Any]) -> str:
    found = data["start"]
    rows = [("CPU seconds until /healthz answers", found["cpu_s"]), ("MiB then", found["mib"])]
    return table(("what", "measured"), rows)


def run_store(data: dict[str, Any]) -> str:
    """Entries by many processes, a backlog and a sweep: what `run_store.py` has measured."""
    head = ("database", "processes", "streams of each", "entries of a stream", "entries/s", "p50, ms", "p99, ms",
            "CPU of the client, µs per entry", "bytes written per entry")  # fmt: skip
    rows = [
        (r["engine"], r["processes"], r["streams"], r["pace"], _size(r["entries_s"]), r["p50_ms"], r["p99_ms"],
         r["cpu_us_per_entry"], _size(r["bytes_per_entry"]))
        for r in data["run_store"]["entries"]
    ]  # fmt: skip
    return table(head, rows)


def run_queue(data: dict[str, Any]) -> str:
    names = ("create", "claim", "cancel", "pulse")
    rows = [
        (r["engine"], _size(r["waiting"]), *(" / ".join(map(str, r[name])) for name in names))
        for r in data["run_store"]["queue"]
    ]  # fmt: skip
    head = ("database", "runs that wait", *names)
    return table(head, rows)


def run_sweep(data: dict[str, Any]) -> str:
    rows = [
        (r["engine"], _size(r["ended"]), r["live"], r["seconds"], r["longest_time_between_renewals_s"],
         r["append_p99_ms_before"], r["append_p99_ms_meanwhile"], r["append_max_ms_meanwhile"])
        for r in data["run_store"]["sweep"]
    ]  # fmt: skip
    head = ("database", "ended runs", "live runs", "seconds", "longest time between renewals, s",
            "append before, p99 ms", "meanwhile, p99 ms", "meanwhile, longest ms")  # fmt: skip
    return table(head, rows)


def owners(data: dict[str, Any]) -> str:
    rows = [
        (r["engine"], _size(r["owners"]), r["turn_ms"], r["begin_ms"], r["find_ms"], r["latest_ms"], r["prune_s"],
         r["longest_time_between_renewals_s"], r["turn_p99_ms_before"], r["turn_p99_ms_meanwhile"])
        for r in data["owners"]
    ]  # fmt: skip
    head = ("database", "owners", "turn, ms", "first turn, ms", "find by digest, ms", "latest, ms", "deletion, s",
            "longest time between renewals, s", "turn before, p99 ms", "meanwhile, p99 ms")  # fmt: skip
    return table(head, rows)


TABLES: Tables = {
    "codecs": codecs,
    "shapes": shapes,
    "recorded": recorded,
    "stores": stores,
    "owners": owners,
    "streams": streams,
    "routes": routes,
    "histories": histories,
    "holds": holds,
    "durable": durable,
    "start": start,
    "run_store": run_store,
    "run_queue": run_queue,
    "run_sweep": run_sweep,
}


def filled(page: str, data: dict[str, Any]) -> str:
    """The page with each table between its marks rewritten."""
    for name, make in TABLES.items():
        mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not mark.search(page):
            raise ValueError(f"the page has no place for {name}: expected <!-- {name} --> and <!-- /{name} -->")
        page = mark.sub(lambda found, make=make: f"{found[1]}{make(data)}\n{found[2]}", page)
    return page
