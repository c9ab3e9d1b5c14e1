"""A small model of a cluster under load: what N machines hold, and what happens when one of them is lost.

    python bench/simulate.py            # prints what docs/scale.md shows

Everything is reckoned from measured costs (`Costs.of`, read from docs/growth.json) and from the assumptions of `World`,
which are nobody's measurement. One step is one second; numbers of arrivals are drawn with a fixed seed, so that the
same inputs give the same page.
"""

from __future__ import annotations

import json
import random
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from growth_report import table

SEED = 7


@dataclass(frozen=True, slots=True)
class World:
    """What is assumed of the use.

    `seconds`: mean length of a stream. `events`: tokens per second of one stream. `durable`: the share of streams that
    are kept. `reconnect`: seconds within which clients of a lost machine
    come back. `load`: the share of a core that may be used in the steady state, so that the rest can take over.
    """

    seconds: float = 60.0
    events: float = 20.0
    durable: float = 1.0
    reconnect: float = 10.0
    load: float = 0.6
    cores: int = 16
    memory_gib: float = 64.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured: CPU of one event, of opening a stream (seconds), KiB of an open one, `kept` times as dear if durable,
    bytes on disk of a kept event.

    Redis: operations per second that one shard is reckoned to do, and how many it needs for each kept entry.
    """

    event: float
    opening: float
    kib: float
    kept: float
    disk: float
    redis_shard: float = 60_000.0
    redis_each: float = 1.0
    postgres_commits: float = 5_000.0

    @classmethod
    def of(cls, data: dict[str, Any]) -> Costs:
        """From the row of most open streams, and the smallest number of routes."""
        most = data["streams"][-1]
        return cls(
            event=most["cpu_us_event"] / 1e6,
            opening=data["routes"][0]["cpu_us_request"] / 1e6,
            kib=most["kib_stream"],
            kept=data["durable"]["redis"],
            disk=data["durable"]["redis_disk_bytes"],
        )


@dataclass(slots=True)
class Cluster:
    """What so many open streams need."""

    streams: int
    machines: int
    processes: int
    bound: str
    redis_ops: float
    redis_shards: int
    postgres_writes: float
    postgres: int
    disk_mb_s: float


def core_share(costs: Costs, world: World) -> float:
    """Cores that one open stream uses: its events, and its part of the arrivals."""
    kept = 1 + world.durable * (costs.kept - 1)
    return (world.events * costs.event + costs.opening / world.seconds) * kept


def cluster(streams: int, costs: Costs, world: World) -> Cluster:
    cores = streams * core_share(costs, world) / world.load
    by_cpu = cores / world.cores
    by_memory = streams * costs.kib / 2**20 / (world.memory_gib * 0.8)
    entries = streams * world.events * world.durable
    ends = streams / world.seconds
    return Cluster(
        streams,
        max(1, _up(max(by_cpu, by_memory))),
        max(1, _up(cores)),
        "CPU" if by_cpu >= by_memory else "memory",
        entries * costs.redis_each,
        _up(entries * costs.redis_each / costs.redis_shard),
        2 * ends,
        max(1, _up(2 * ends / costs.postgres_commits)),
        entries * costs.disk / 1e6,
    )


def _up(value: float) -> int:
    return int(-(-value // 1)) if value > 0 else 0


@dataclass(slots=True)
class Storm:
    """After the loss of one machine: how long the others are behind, and by how much at most."""

    machines: int
    streams: int
    load_before: float
    peak: float
    behind: int
    latest: float


def storm(machines: int, costs: Costs, world: World, seconds: int = 180) -> Storm:
    """One of the machines goes at second 30. Its clients come back evenly within `reconnect`, and read their runs from
    the first event on: a replayed event is reckoned as a tenth of one that is waited for, being one of many in a write.
    """
    dice = random.Random(SEED)
    capacity = float(world.cores)
    each = int(capacity * world.load / core_share(costs, world))
    kept = 1 + world.durable * (costs.kept - 1)
    left = machines - 1
    arrivals = machines * each / world.seconds
    backlog = peak = latest = 0.0
    behind = 0
    back: deque[float] = deque()
    for second in range(seconds):
        alive = machines if second < 30 else left
        if second == 30:
            back.extend([each / world.reconnect] * int(world.reconnect))
        came = max(0.0, dice.gauss(arrivals, arrivals**0.5))
        replays = back.popleft() if back else 0.0
        gone = sum(back)
        events = (machines * each - gone) * world.events
        work = (events * costs.event + came * costs.opening) * kept
        work += replays * (costs.opening * kept + world.events * world.seconds / 2 * costs.event / 10)
        needed = work + backlog
        peak = max(peak, work / (alive * capacity))
        backlog = max(0.0, needed - alive * capacity)
        behind += backlog > 0
        latest = max(latest, backlog / (alive * capacity))
    return Storm(machines, machines * each, world.load, peak, behind, latest)


def report(data: dict[str, Any]) -> str:
    costs, world = Costs.of(data), World()
    plain = World(durable=0.0)
    rows = []
    for streams in (1_000, 10_000, 100_000, 1_000_000):
        for name, use in (("plain", plain), ("durable", world)):
            c = cluster(streams, costs, use)
            shards = c.redis_shards or "-"
            ops = f"{c.redis_ops:,.0f}" if c.redis_ops else "-"
            rows.append(
                (
                    f"{streams:,}", name, f"{c.processes:,}", c.machines, c.bound, ops, shards,
                    f"{c.postgres_writes:,.0f}", c.postgres, f"{c.disk_mb_s:,.1f}",
                )
            )  # fmt: skip
    head = (
        "open streams", "kind", "processes", "machines", "bound by", "Redis writes/s", "Redis shards",
        "history commits/s", "PostgreSQL", "log MB/s",
    )  # fmt: skip
    storms = []
    for machines in (2, 3, 5, 10):
        found = storm(machines, costs, world)
        late = f"{found.latest:.1f}" if found.behind < 140 else "never catches up"
        storms.append((machines, f"{found.streams:,}", f"{found.peak:.2f}", found.behind, late))
    storm_head = ("machines", "open streams", "load at the peak (1 = full)", "seconds behind", "latest event, s")
    return f"{table(head, rows)}\n\n{table(storm_head, storms)}"


if __name__ == "__main__":
    print(report(json.loads((Path(__file__).resolve().parent.parent / "docs" / "growth.json").read_text())))
