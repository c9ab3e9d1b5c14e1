#!/usr/bin/env python3
"""Measures the store of durable runs: `run_store.py {entries|queue|sweep} {sqlite|postgresql}`.

entries: processes with many streams each append to one database, as fast as they can and at the pace of a model.
queue: a backlog of runs is created, taken and canceled. sweep: ended runs are deleted beside live ones.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import with_postgres

from bridge.stores import RunKey, open_runs
from bridge.stores.scripts import Script

BODY = '[17,[["TD","msg_7fd7d5580b7157cba3b7a08656eed427-0","a word or two "]]]'
LEASE = 10.0
_CALLS = 200


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else 0.0


def ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


@contextmanager
def database(engine: str) -> Iterator[str]:
    if engine == "postgresql":
        with with_postgres.running() as url:
            yield url
    else:
        with tempfile.TemporaryDirectory(prefix="run-store-", dir=os.environ.get("BENCH_FOLDER")) as folder:
            yield f"sqlite:///{folder}/runs.db"


async def wal(url: str) -> int:
    """Bytes that PostgreSQL has written to its log."""
    import asyncpg

    db = await asyncpg.connect(url)
    try:
        return int(await db.fetchval("SELECT pg_current_wal_lsn() - '0/0'"))
    finally:
        await db.close()


# ---------------------------------------------------------------------- entries


async def stream(store: Any, key: RunKey, token: str, until: float, pause: float, times: list[float]) -> None:
    position = 0
    clock = time.perf_counter
    await asyncio.sleep(pause * hash(key.run_id) % 1000 / 1000)
    while time.time() < until:
        began = clock()
        await store.append(key, token, position, [BODY])
        times.append(clock() - began)
        position += 1
        if pause:
            await asyncio.sleep(max(0.0, pause - (clock() - began)))


async def worker(url: str, name: str, streams: int, seconds: float, rate: float) -> None:
    store = open_runs(url)
    await store.open()
    keys = [RunKey(f"owner{n}", "/x", f"{name}-{n}", f"{name}-{n}") for n in range(streams)]
    await asyncio.gather(*(store.create(key, "f", "{}", token=name, lease=600) for key in keys))
    print("ready", flush=True)
    until = float(await asyncio.to_thread(sys.stdin.readline)) + seconds
    times: list[float] = []
    used = resource.getrusage(resource.RUSAGE_SELF)
    written = io_bytes()
    await asyncio.gather(*(stream(store, key, name, until, 1 / rate if rate else 0, times) for key in keys))
    now = resource.getrusage(resource.RUSAGE_SELF)
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    print(json.dumps({"times": times, "cpu": cpu, "written": io_bytes() - written}), flush=True)
    await store.close()


def io_bytes() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def entries(engine: str, processes: int, streams: int, seconds: float, rate: float) -> dict[str, Any]:
    with database(engine) as url:
        asyncio.run(opened(url))
        command = [sys.executable, __file__, "--worker", url, str(streams), str(seconds), str(rate)]
        workers = [
            subprocess.Popen([*command, f"p{n}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for n in range(processes)
        ]
        for each in workers:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        before = asyncio.run(wal(url)) if engine == "postgresql" else 0
        start = time.time() + 0.3
        for each in workers:
            assert each.stdin is not None
            each.stdin.write(f"{start}\n")
            each.stdin.flush()
        told = [json.loads(each.stdout.readline()) for each in workers if each.stdout is not None]
        written = asyncio.run(wal(url)) - before if engine == "postgresql" else sum(each["written"] for each in told)
        for each in workers:
            each.wait()
    times = [second for each in told for second in each["times"]]
    return {
        "engine": engine,
        "processes": processes,
        "streams": streams,
        "pace": f"{rate:g}/s" if rate else "fastest",
        "entries_s": round(len(times) / seconds),
        "p50_ms": ms(quantile(times, 0.5)),
        "p99_ms": ms(quantile(times, 0.99)),
        "cpu_us_per_entry": round(sum(each["cpu"] for each in told) / len(times) * 1e6, 1),
        "bytes_per_entry": round(written / len(times)),
    }


async def opened(url: str) -> None:
    store = open_runs(url)
    await store.open()
    await store.close()


# ---------------------------------------------------------------------- the queue, and retention


async def timed(works: Any) -> list[float]:
    times = []
    for work in works:
        began = time.perf_counter()
        await work
        times.append(time.perf_counter() - began)
    return times


async def queue(url: str, count: int) -> dict[str, Any]:
    """Times of single calls while few runs wait, and while `count` do."""
    store = open_runs(url)
    await store.open()
    keys = [RunKey(f"owner{n % 100}", "/x", f"t{n}", f"r{n}") for n in range(count + _CALLS)]
    few, many = {}, {}
    few["create"] = await timed(store.create(key, "f", "{}") for key in keys[:_CALLS])
    for n in range(_CALLS, count, 100):
        await asyncio.gather(*(store.create(key, "f", "{}") for key in keys[n : n + 100]))
    many["create"] = await timed(store.create(key, "f", "{}") for key in keys[count:])
    many["pulse"] = await timed(store.pulse() for _ in range(_CALLS))
    many["cancel"] = await timed(store.cancel(key) for key in keys[-_CALLS:])
    many["claim"] = await timed(store.claim("me", 600) for _ in range(_CALLS))
    for _ in range((count - 2 * _CALLS) // 20):
        await asyncio.gather(*(store.claim("me", 600) for _ in range(20)))
    few["pulse"] = await timed(store.pulse() for _ in range(_CALLS))
    few["cancel"] = await timed(store.cancel(key) for key in keys[-_CALLS:])
    few["claim"] = await timed(store.claim("me", 600) for _ in range(_CALLS))
    await store.close()
    out: dict[str, Any] = {"waiting": count}
    for name in ("create", "claim", "cancel", "pulse"):
        out[name] = [ms(statistics.median(times[name])) for times in (few, many)]
    return out


def _ended_runs(count: int) -> Script[None]:
    """Runs that ended now, with ten entries each."""
    yield (
        "INSERT INTO run_threads (owner, scope, thread_id, updated_at)"
        " {values t (owner text, scope text, thread text, at double precision)}",
        {"t": [("o", "/x", f"ended{n}", 0.0) for n in range(count)]},
    )
    yield (
        "INSERT INTO runs (thread, run_id, task_id, fingerprint, created_at, holder, ended_at, entries, kept, owner,"
        " route) SELECT id, 'r', thread_id, 'f', {wall}, 'gone', {wall}, 10, 2, owner, scope FROM run_threads",
        {},
    )
    yield "INSERT INTO run_plans (run, body) SELECT id, 'plan' FROM runs", {}
    yield (
        "INSERT INTO run_entries (run, position, body) SELECT r.id, k.position, k.body"
        " FROM runs r CROSS JOIN {rows k (position bigint, body text)}",
        {"k": [(n, BODY) for n in range(10)]},
    )


async def sweep(url: str, count: int, live: int) -> dict[str, Any]:
    store: Any = open_runs(url)
    other = open_runs(url)
    await store.open()
    await store._database.write(lambda: _ended_runs(count))
    keys = [RunKey("o", "/x", f"live{n}", f"live{n}") for n in range(live)]
    for key in keys:
        await other.create(key, "f", "{}", token="live", lease=LEASE)
    times: list[float] = []
    renewals: list[float] = []
    until = time.time() + 3600
    streams = [asyncio.create_task(stream(other, key, "live", until, 0.05, times)) for key in keys]

    async def renew() -> None:
        while True:
            await other.renew("live", LEASE)
            renewals.append(time.perf_counter())
            await asyncio.sleep(0.2)

    renewing = asyncio.create_task(renew())
    await asyncio.sleep(3)
    quiet, times[:] = list(times), []
    began = time.perf_counter()
    swept = await store.sweep(0.0, 1e9)
    took = time.perf_counter() - began
    for task in (*streams, renewing):
        task.cancel()
    await asyncio.gather(*streams, renewing, return_exceptions=True)
    await store.close()
    await other.close()
    gaps = [b - a for a, b in itertools.pairwise(renewals)]
    return {
        "ended": count,
        "live": live,
        "swept": swept,
        "seconds": round(took, 1),
        "longest_time_between_renewals_s": round(max(gaps), 2),
        "append_p99_ms_before": ms(quantile(quiet, 0.99)),
        "append_p99_ms_meanwhile": ms(quantile(times, 0.99)),
        "append_max_ms_meanwhile": ms(max(times)),
    }


def measure() -> dict[str, list[dict[str, Any]]]:
    """All tables of docs/scale.md, in a few minutes."""
    found: dict[str, list[dict[str, Any]]] = {"entries": [], "queue": [], "sweep": []}
    for engine in ("sqlite", "postgresql"):
        fastest, paced = ((n, 200, 0.0) for n in (1, 2, 4, 8)), ((n, 50, 20.0) for n in (1, 4))
        for processes, streams, rate in (*fastest, *paced):
            found["entries"].append(entries(engine, processes, streams, 5.0, rate))
        with database(engine) as url:
            found["queue"].append({"engine": engine, **asyncio.run(queue(url, 10_000))})
        with database(engine) as url:
            found["sweep"].append({"engine": engine, **asyncio.run(sweep(url, 100_000, 100))})
    return found


def main() -> None:
    if sys.argv[1] == "--worker":
        url, streams, seconds, rate, name = sys.argv[2:]
        asyncio.run(worker(url, name, int(streams), float(seconds), float(rate)))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("entries", "queue", "sweep"))
    parser.add_argument("engine", choices=("sqlite", "postgresql"))
    parser.add_argument("--processes", default="1,2,4")
    parser.add_argument("--streams", type=int, default=200, help="of each process")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=0.0, help="entries of a stream in a second; 0 = the fastest")
    parser.add_argument("--count", type=int, help="runs that wait, or have ended")
    asked = parser.parse_args()
    if asked.what == "entries":
        for number in map(int, asked.processes.split(",")):
            print(json.dumps(entries(asked.engine, number, asked.streams, asked.seconds, asked.rate)), flush=True)
        return
    with database(asked.engine) as url:
        work = queue(url, asked.count or 10_000) if asked.what == "queue" else sweep(url, asked.count or 100_000, 100)
        print(json.dumps({"engine": asked.engine, **asyncio.run(work)}), flush=True)


if __name__ == "__main__":
    main()
