"""What codecs cost as an answer or a request grows, for each dialect as frontend and as backend. Without sockets."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bridge.contract import Dialect, WireRequest, registry
from bridge.errors import Unsupported
from bridge.testing import sizes
from bridge.testing.wires import context, encode
from bridge.translation import framing

READ = 64 * 1024
REPEATS = 3
ANSWERS = {
    "long_delta": (5 * 1024, 10 * 1024, 20 * 1024),
    "image": (1280, 2560, 5120),
    "deltas": (2500, 5000, 10_000),
    "fragments": (2500, 5000, 10_000),
    "calls": (250, 500, 1000),
}
REQUESTS = {"history": (250, 500, 1000), "tool_history": (250, 500, 1000), "picture": (1280, 2560, 5120)}


class Clock:
    """CPU milliseconds of a work of many pieces, and of its longest piece: for so long nothing else can happen."""

    def __init__(self) -> None:
        self.total = self.longest = 0.0

    def __call__(self, piece: Callable[[], Any]) -> Any:
        began = time.thread_time()
        out = piece()
        took = (time.thread_time() - began) * 1e3
        self.total += took
        self.longest = max(self.longest, took)
        return out


def write(dialect: Dialect, events: list[Any], clock: Clock) -> None:
    encoder, join = dialect.encoder(context(dialect.front_options())), framing.of(dialect.framing).join
    for event in events:
        clock(lambda event=event: join(encoder.encode([event])))


def read(dialect: Dialect, wire: bytes, clock: Clock) -> None:
    splitter = framing.of(dialect.framing).Splitter()
    decoder = dialect.decoder(context(dialect.back_options()))
    for place in range(0, len(wire), READ):
        piece = wire[place : place + READ]
        clock(lambda piece=piece: decoder.feed(splitter.feed(piece)))
    clock(lambda: [decoder.feed(splitter.close()), decoder.close()])


def best(work: Callable[[Clock], Any]) -> Clock:
    """The cheapest of some repeats: the others were disturbed."""
    found = []
    for _ in range(REPEATS):
        clock = Clock()
        work(clock)
        found.append(clock)
    return min(found, key=lambda c: c.total)


def row(
    dialect: str, role: str, what: str, counts: tuple[int, ...], work: Callable[[int], Callable[[Clock], Any]]
) -> dict[str, Any]:
    clocks = [best(work(n)) for n in counts]
    return {
        "dialect": dialect,
        "role": role,
        "what": what,
        "n": list(counts),
        "ms": [round(c.total, 2) for c in clocks],
        "longest_ms": [round(c.longest, 2) for c in clocks],
    }


def answers(dialect: Dialect) -> list[dict[str, Any]]:
    return [found for what in ANSWERS for found in _answer(dialect, what)]


def _answer(dialect: Dialect, what: str) -> list[dict[str, Any]]:
    counts, make = ANSWERS[what], sizes.ANSWERS[what]

    def front(n: int) -> Callable[[Clock], Any]:
        events = make(n)
        return lambda clock: write(dialect, events, clock)

    def back(n: int) -> Callable[[Clock], Any]:
        wire = encode(dialect, make(n))
        return lambda clock: read(dialect, wire, clock)

    return [row(dialect.name, "front", what, counts, front), row(dialect.name, "back", what, counts, back)]


def requests(dialect: Dialect) -> list[dict[str, Any]]:
    return [found for what in REQUESTS for found in _request(dialect, what)]


def _request(dialect: Dialect, what: str) -> list[dict[str, Any]]:
    counts, make = REQUESTS[what], sizes.REQUESTS[what]

    def back(n: int) -> Callable[[Clock], Any]:
        request = make(n)
        return lambda clock: clock(lambda: dialect.encode_request(request, context(dialect.back_options(), request)))

    def front(n: int) -> Callable[[Clock], Any]:
        request = make(n)
        sent = dialect.encode_request(request, context(dialect.back_options(), request))
        wire = WireRequest(headers=sent.headers, body=sent.body)
        return lambda clock: clock(lambda: dialect.decode_request(wire, context(dialect.front_options())))

    try:
        back(1)(Clock())
    except Unsupported:
        return []  # this dialect has no word for it
    return [row(dialect.name, "back", what, counts, back), row(dialect.name, "front", what, counts, front)]


def measure() -> list[dict[str, Any]]:
    found = []
    for name in registry.names():
        dialect = registry.get(name)
        found += answers(dialect) + requests(dialect)
        print(f"  {name}", flush=True)
    return found
