"""What is run on every case, and what only on the cases that ask for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Scenario:
    """`mock` are settings of mock_upstream.py; `kind` says whether cases that stream or that do not are run."""

    name: str
    reads: str
    kind: str
    concurrency: int
    seconds: float
    mock: dict[str, Any] = field(default_factory=lambda: {"tokens": 20})
    cost: str = "cpu_us_per_event"  # the figure whose ratio to the reference is shown
    body_kb: int = 0  # size of the request; 0: a few words
    warm: int = 32  # streams open at once while warming up, at most
    fresh: bool = False  # a new process first: memory once taken is seldom given back
    asked: bool = False  # only cases that name it in `also` are run
    repeats: int | None = None  # at most
    files: int = 0  # open files that a process needs for it


PACED = {"tokens": 50, "stamp": 1}  # longer than `seconds`: each worker reads one stream
REQUEST = "cpu_us_per_request"
ALL = [
    Scenario("plain-c32", "replies that are not streamed, over kept-alive connections", "plain", 32, 0.8, cost=REQUEST),
    Scenario("stream-short", "the fixed cost of a stream", "stream", 32, 0.8, {"tokens": 1}, REQUEST),
    Scenario(
        "stream-burst-32",
        "32 deltas per read, one chunk each",
        "stream",
        32,
        0.8,
        {"tokens": 320, "batch": 32},
    ),
    Scenario(
        "stream-paced-c32",
        "the cost of one event at the pace of a model",
        "stream",
        32,
        1.0,
        {**PACED, "delay_ms": 25},
    ),
    Scenario("plain-c1", "a reply that is not streamed, one at a time", "plain", 1, 1.5, cost=REQUEST, asked=True),
    Scenario("plain-c256", "the same, 256 at once", "plain", 256, 1.5, cost=REQUEST, asked=True),
    Scenario("request-1kb", "requests of 1 KB", "plain", 4, 1.0, cost=REQUEST, body_kb=1, asked=True),
    Scenario(
        "request-100kb",
        "requests of 100 KB, a long conversation",
        "plain",
        4,
        1.0,
        cost=REQUEST,
        body_kb=100,
        asked=True,
    ),
    Scenario(
        "request-5mb",
        "requests of 5 MB, with an image",
        "plain",
        4,
        1.5,
        cost=REQUEST,
        body_kb=5000,
        warm=2,
        asked=True,
    ),
    Scenario("stream-burst", "deltas without a pause, one write each", "stream", 32, 1.5, {"tokens": 200}, asked=True),
    Scenario("stream-paced-c1", "added latency", "stream", 1, 2.0, {**PACED, "delay_ms": 20}, asked=True),
    Scenario("stream-paced-c256", "256 at once", "stream", 256, 2.0, {**PACED, "delay_ms": 50}, asked=True),
    Scenario(
        "stream-hold-c256",
        "memory per open stream, on a fresh process",
        "stream",
        256,
        2,
        {"tokens": 8, "delay_ms": 350},
        cost="kb_per_stream",
        warm=2,
        fresh=True,
        asked=True,
    ),
    Scenario(
        "stream-hold-c5000",
        "the same, 5,000 open streams",
        "stream",
        5000,
        30,  # nobody begins a stream later: all must have by then
        {"tokens": 4, "delay_ms": 8000},
        cost="kb_per_stream",
        warm=2,
        fresh=True,
        asked=True,
        repeats=3,
        files=10200,
    ),
]
BY_NAME = {s.name: s for s in ALL}


def choose(text: str) -> list[Scenario]:
    """`all` or names with commas; raises `ValueError` that names the unknown ones."""
    names = list(BY_NAME) if text == "all" else text.split(",")
    if unknown := [n for n in names if n not in BY_NAME]:
        raise ValueError(f"unknown scenario {', '.join(unknown)}; known: all, {', '.join(BY_NAME)}")
    return [s for s in ALL if s.name in names]
