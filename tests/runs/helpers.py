"""Runs without a server: a bridge whose backend is one of `tests.runs.agents`, and what its readers get."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from asyncio.subprocess import PIPE, Process
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


@asynccontextmanager
async def process(url: str, lease: float, concurrent: int = 1000) -> AsyncIterator[Process]:
    """Another process on the same store, ready to take runs; it is killed at the end of the block."""
    script = Path(__file__).with_name("process.py")
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        url,
        str(lease),
        str(concurrent),
        stdin=PIPE,
        stdout=PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"
        yield child
    finally:
        if child.returncode is None:
            child.send_signal(signal.SIGKILL)
        await child.wait()
        child._transport.close()  # type: ignore[attr-defined]
