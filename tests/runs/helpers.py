"""Runs without a server: a bridge whose backend is one of `tests.runs.agents`, and what its readers get."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bridge.contract import registry
from bridge.engine.bridge import Bridge
from bridge.engine.route import RunCaller
from bridge.model import Event, Message, Request, Text, TextDelta, verify
from bridge.model.events import TERMINAL
from bridge.run.durable import START, Cursor, RunKey, Runs, Subscription
from bridge.stores import RunStore
from bridge.translation.framing import sse
from tests.forkserver import ForkedProcess

ROOT = Path(__file__).parents[2]
FRONT = "ag-ui"


def bridge_of(front: str = FRONT, **backend: Any) -> Bridge:
    """A bridge with one route; durable routes bring a store of their own, which these tests do not use."""
    return Bridge.from_config(
        {
            "backends": {"mine": {"dialect": "python", "target": "tests.runs.agents:run", **backend}},
            "routes": [{"dialect": front, "path": "/x", "backend": "mine"}],
        }
    )


def runs_of(bridge: Bridge, store: RunStore, **more: Any) -> Runs:
    return Runs(store, bridge._drive, **more)


async def begin(bridge: Bridge, runs: Runs, text: str, run: str | None = None, owner: str = "o") -> RunKey:
    """Starts a run of thread `t` that asks for `text`."""
    request = Request([Message("user", [Text(text)])], thread_id="t", run_id=run or uuid.uuid4().hex)
    assert request.run_id is not None
    key, plan = bridge.plan(bridge.routes[0], request, RunCaller(owner, run_id=request.run_id, created_at=1.5))
    await runs.start(key, plan, text)
    return key


def subscribe(runs: Runs, key: RunKey, cursor: Cursor = START, front: str = FRONT) -> Subscription:
    dialect = registry.get(front)
    return runs.subscribe(key, dialect, dialect.front_options(), cursor)


async def frames_of(subscription: Subscription) -> list[bytes]:
    """Every frame as it goes over the wire, to the end of the run."""
    out: list[bytes] = []
    async with asyncio.timeout(60):
        async for _, frames in subscription:
            out += [sse.join([frame]) for frame in frames]
    return out


def cursor_of(frame: bytes) -> Cursor | None:
    """The id of a frame; None for a comment."""
    line = frame.split(b"\n", 1)[0].decode()
    return Cursor.parse(line.removeprefix("id: ")) if line.startswith("id: ") else None


async def events_of(runs: Runs, key: RunKey) -> list[Event]:
    """The run's events to its end, which are a well-formed stream with one terminal event."""
    reader = runs.follow(key)
    events: list[Event] = []
    async with asyncio.timeout(60):
        while not reader.done:
            for _, batch in await reader.read(30):
                events += batch.events
    verify(events)
    assert sum(type(event) in TERMINAL for event in events) == 1
    return events


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


class Worker(ForkedProcess):
    """Another process that takes runs of a store."""

    def __init__(self, url: str, lease: float, concurrent: int) -> None:
        command = (sys.executable, str(Path(__file__).with_name("process.py")), url, str(lease), str(concurrent))
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        (stdin, self._input), (output, stdout) = os.pipe(), os.pipe()
        with open(stdin, "rb") as given, open(stdout, "wb") as printed:
            super().__init__(command, cwd=ROOT, env=env, stdin=given, stdout=printed, stderr=2)
        with open(output, "rb") as said:
            assert said.readline() == b"ready\n"

    def end_input(self) -> None:
        """Stop in order."""
        os.close(self._input)
        self._input = -1

    def remove(self) -> None:
        """Kill it, if it still runs."""
        self.kill()
        self.wait()
        if self._input >= 0:
            self.end_input()


@asynccontextmanager
async def process(url: str, lease: float, concurrent: int = 1000) -> AsyncIterator[Worker]:
    """Another process on the same store, ready to take runs; it is killed at the end of the block."""
    worker = await asyncio.to_thread(Worker, url, lease, concurrent)
    try:
        yield worker
    finally:
        await asyncio.to_thread(worker.remove)
