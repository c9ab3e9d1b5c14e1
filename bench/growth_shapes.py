"""What each shape of an answer or a request costs per megabyte on the wire, and whether any costs too much.

`sizes` has the shapes that every dialect writes and reads; `growth_recorded` has those that only a backend's own words
make. A cost above the budget means work that grows with the square of a number that a client or a backend chooses.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import growth_recorded

from bridge.contract import WireRequest, registry
from bridge.errors import BridgeError, Unsupported
from bridge.testing import sizes
from bridge.testing.wires import context, encode
from bridge.translation import framing

BUDGET_MS_PER_MB = 600.0
"""CPU milliseconds for each megabyte of the larger wire, on the machine of docs/scale.md with other work on it."""
MOST_GROWTH = 3.0
"""How many times as much a megabyte may cost when there is `MORE` times as much of it: work that grows with the square
costs up to `MORE` times as much, and the memory allocator and the cycle collector up to twice.
"""
SMALL, MORE = 250, 8
RECORDED_SMALL = 60
LEAST_BYTES = 100
"""What an event or an item of a request counts at least: a wire has no words for some."""
LEAST_MS = 40.0
"""Work of less is not judged: what it costs to begin and what other programs do is as large."""

Work = Callable[[int], tuple[Callable[[], Any], int]]
"""Prepares work of a size; returns it and the bytes of its wire."""


def cpu_ms(work: Callable[[], Any]) -> float:
    """The least CPU time of two runs."""
    took = []
    for _ in range(2):
        gc.collect()
        began = time.thread_time()
        work()
        took.append((time.thread_time() - began) * 1e3)
    return min(took)


def judged(dialect: str, role: str, what: str, work: Work, small: int) -> dict[str, Any]:
    """The cost of a work per megabyte when it is small and `MORE` times as large, and whether that is over."""
    costs = []
    for n in (small, small * MORE):
        prepared, size = work(n)
        costs.append((cpu_ms(prepared), size / 1e6))
    (few, small_mb), (ms, mb) = costs
    per_mb, grown = ms / mb, (ms / mb) / max(few / small_mb, 1e-6)
    over = ms > LEAST_MS and (per_mb > BUDGET_MS_PER_MB or grown > MOST_GROWTH)
    return {
        "dialect": dialect,
        "role": role,
        "what": what,
        "n": small * MORE,
        "mb": round(mb, 3),
        "ms_per_mb": round(per_mb, 1),
        "growth": round(grown, 2),
        "over": over,
    }


def _answers(name: str) -> Iterator[dict[str, Any]]:
    dialect = registry.get(name)
    for what, make in sizes.ANSWERS.items():
        if what in ("long_delta", "image"):
            continue

        def front(n: int, make: Any = make) -> tuple[Callable[[], Any], int]:
            events = make(n)
            size = max(len(encode(dialect, events)), LEAST_BYTES * len(events))
            return (lambda: growth_recorded.write(name, events)), size

        def back(n: int, make: Any = make) -> tuple[Callable[[], Any], int]:
            events = make(n)
            wire = encode(dialect, events)
            splitter = framing.of(dialect.framing).Splitter()
            frames = [*splitter.feed(wire), *splitter.close()]
            return (lambda: growth_recorded.read(name, frames)), max(len(wire), LEAST_BYTES * len(events))

        yield judged(name, "front", what, front, SMALL)
        yield judged(name, "back", what, back, SMALL)


def _requests(name: str) -> Iterator[dict[str, Any]]:
    dialect = registry.get(name)
    for what, make in sizes.REQUESTS.items():
        if what == "picture":
            continue

        def back(n: int, make: Any = make) -> tuple[Callable[[], Any], int]:
            request = make(n)
            work = lambda: dialect.encode_request(request, context(dialect.back_options(), request))  # noqa: E731
            return work, max(len(work().body), LEAST_BYTES * n)

        def front(n: int, make: Any = make) -> tuple[Callable[[], Any], int]:
            request = make(n)
            sent = dialect.encode_request(request, context(dialect.back_options(), request))
            wire = WireRequest(headers=sent.headers, body=sent.body)
            size = max(len(sent.body), LEAST_BYTES * n)
            return (lambda: dialect.decode_request(wire, context(dialect.front_options()))), size

        try:
            back(2)
        except Unsupported:
            continue  # this dialect has no word for it
        yield judged(name, "back", what, back, SMALL)
        yield judged(name, "front", what, front, SMALL)


def _recorded(name: str) -> dict[str, Any]:
    """The shapes that cost most of those that the recordings of a dialect make: read, and written for clients of the
    same dialect, which get all of it, and of chat.
    """
    fronts = {"openai-chat", name} & set(registry.served())
    found = []
    for case in growth_recorded.amplified(name):

        def work(n: int, case: Any = case) -> tuple[Callable[[], Any], int]:
            frames = case.frames(n)
            events = growth_recorded.read(name, frames)
            written = sum(len(encode(registry.get(front), events)) for front in fronts)
            size = sum(len(frame if isinstance(frame, bytes) else frame.data) for frame in frames) + written

            def translate() -> None:
                events = growth_recorded.read(name, frames)
                for front in fronts:
                    growth_recorded.write(front, events)

            return translate, size

        try:
            found.append(judged(name, "back", f"{case.kind}, {case.way}", work, RECORDED_SMALL))
        except BridgeError:
            continue  # a stream that this change breaks
    shown = sorted(found, key=lambda row: (row["over"], row["ms_per_mb"]))[-3:]
    return {"dialect": name, "shapes": len(found), "worst": shown}


def measure() -> list[dict[str, Any]]:
    """The shapes of `sizes`, for each dialect and side."""
    found = []
    for name in registry.served():
        found += [*_answers(name), *_requests(name)]
        print(f"  {name}", flush=True)
    return found


def measure_recorded() -> list[dict[str, Any]]:
    """The shapes of recordings, for each backend whose wire is JSON."""
    found = []
    for name in registry.names():
        if name != "aip":
            found.append(_recorded(name))
            print(f"  {name}", flush=True)
    return found


def over_budget(data: dict[str, Any]) -> list[str]:
    """A line for each shape that costs more than the budget."""
    rows = [*data.get("shapes", ()), *(row for each in data.get("recorded", ()) for row in each["worst"])]
    return [
        f"{row['dialect']} ({row['role']}), {row['what']}: {row['ms_per_mb']} ms for each MB of {row['mb']} MB, "
        f"{row['growth']} times what a MB costs of {MORE} times less"
        for row in rows
        if row["over"]
    ]
