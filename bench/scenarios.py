"""What is run on every case, and what a run is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Scenario:
    """`mock` are settings of mock_upstream.py; `kind` says whether cases that stream or that do not are run."""

    name: str
    reads: str
    kind: str
    mock: dict[str, Any]
    concurrency: int
    seconds: float
    cost: str = "cpu_us_per_event"  # the figure whose ratio to the reference is shown
    warm: int = 32  # streams open at once while warming up, at most
    fresh: bool = False  # a new process first: memory once taken is seldom given back


ALL = [
    Scenario(
        "stream-hold-c256",
        "memory per open stream, on a fresh process",
        "stream",
        {"tokens": 8, "delay_ms": 600},
        256,
        4,
        cost="kb_per_stream",
        warm=2,
        fresh=True,
    ),
    Scenario("plain-c1", "a reply in one piece, one at a time", "plain", {"tokens": 20}, 1, 2, "cpu_us_per_request"),
    Scenario("plain-c32", "replies in one piece, kept alive", "plain", {"tokens": 20}, 32, 1.5, "cpu_us_per_request"),
    Scenario("plain-c256", "the same, 256 at once", "plain", {"tokens": 20}, 256, 3, "cpu_us_per_request"),
    Scenario("stream-short", "the fixed price of a stream", "stream", {"tokens": 1}, 32, 1.5, "cpu_us_per_request"),
    Scenario("stream-burst", "deltas without a pause, a write each", "stream", {"tokens": 200}, 32, 3),
    Scenario(
        "stream-burst-32",
        "deltas that arrive 32 to a read, a chunk each",
        "stream",
        {"tokens": 320, "batch": 32},
        32,
        1.5,
    ),
    Scenario("stream-paced-c1", "added latency", "stream", {"tokens": 40, "delay_ms": 20, "stamp": 1}, 1, 4),
    Scenario(
        "stream-paced-c32",
        "the price of one event at the pace of a model",
        "stream",
        {"tokens": 40, "delay_ms": 25, "stamp": 1},
        32,
        1.8,
    ),
    Scenario(
        "stream-paced-c256", "the same, 256 at once", "stream", {"tokens": 40, "delay_ms": 100, "stamp": 1}, 256, 8
    ),
]
BY_NAME = {s.name: s for s in ALL}
QUICK = ["plain-c32", "stream-short", "stream-burst-32", "stream-paced-c32"]


@dataclass(frozen=True, slots=True)
class Budget:
    """What one pair may cost, as a ratio to a reference of the same backend wire in the same run."""

    what: str
    scenario: str
    reference: str
    most: float
    stretch: float | None = None


BUDGETS = [
    Budget("event, paced", "stream-paced-c32", "aiohttp-raw", 1.25, 1.1),
    Budget("event, burst of 32", "stream-burst-32", "aiohttp-raw", 2.0, 1.5),
    Budget("event, burst, a write each", "stream-burst", "aiohttp-raw", 2.0, 1.5),
    Budget("request, kept alive", "plain-c32", "aiohttp-raw", 1.5),
    Budget("short stream (one delta)", "stream-short", "aiohttp-raw", 1.5),
    Budget("event, paced", "stream-paced-c32", "nginx", 3.0),
    Budget("memory of an idle stream", "stream-hold-c256", "aiohttp-raw", 1.25),
]


def choose(text: str) -> list[Scenario]:
    """`quick`, `all` or names with commas; raises `ValueError` that names the unknown ones."""
    names = QUICK if text == "quick" else list(BY_NAME) if text == "all" else text.split(",")
    if unknown := [n for n in names if n not in BY_NAME]:
        raise ValueError(f"unknown scenario {', '.join(unknown)}; known: quick, all, {', '.join(BY_NAME)}")
    return [s for s in ALL if s.name in names]
