"""Agents for runs: what they say is known, and when they go on is decided by the test."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

from bridge.errors import ErrorCode, Failure
from bridge.model import Part, Reasoning, Request, RunFailed, Text, ToolCall
from bridge.run.backends.local_backend import Yielded

WORDS = [f"w{n} " for n in range(20)]
LONG = [f"w{n} " for n in range(100)]
PACE = 0.1
"""Seconds between two words of a long answer."""


def spoken(asked: str) -> list[str]:
    """The words of a long answer: `long`, or `slow` with their number and the seconds between two of them."""
    return LONG[: int(asked.split()[1])] if asked.startswith("slow") else LONG


def asked(request: Request) -> str:
    """The text of the last message."""
    return "".join(part.text for part in request.messages[-1].parts if isinstance(part, Text))


async def run(request: Request) -> AsyncIterator[Yielded]:
    """`count`: words at a backend's pace. `long`: many of them at that of a model. `slow 20 3`: 20, every 3 seconds,
    with a path all but the first once there is such a file.
    `hang`: some words, then nothing.

    Other words: other kinds.
    """
    match question := asked(request):
        case "count":
            for word in WORDS:
                await asyncio.sleep(0.002)
                yield word
        case "long":
            for word in LONG:
                await asyncio.sleep(PACE)
                yield word
        case str() if question.startswith("slow "):
            _, _, pace, *gate = question.split()
            first, *words = spoken(question)
            yield first
            if gate:
                await _opened(Path(gate[0]))
                await asyncio.sleep(random.uniform(0, float(pace)))
            for word in words:
                await asyncio.sleep(float(pace))
                yield word
        case "hang":
            for word in WORDS[:5]:
                yield word
            await asyncio.Event().wait()
        case "silent":
            await asyncio.Event().wait()
            yield "never"
        case "fail":
            yield "half"
            yield RunFailed(Failure(ErrorCode.BACKEND_ERROR, "the agent gave up"))
        case "raise":
            yield "half"
            raise RuntimeError("a secret of the agent")
        case "refuse":
            yield RunFailed(Failure(ErrorCode.RATE_LIMITED, "not now"))
        case _:
            for part in _all_kinds():
                yield part


_gates: dict[Path, asyncio.Task[None]] = {}


async def _opened(gate: Path) -> None:
    """Wait for this file, which is looked for once for all that do."""

    async def wait() -> None:
        while not os.path.exists(gate):  # noqa: ASYNC240 - a local file
            await asyncio.sleep(0.1)

    if gate not in _gates:
        _gates[gate] = asyncio.create_task(wait())
    await asyncio.shield(_gates[gate])


def _all_kinds() -> list[Part | str]:
    return [Reasoning("hm, é"), "one ", "two ", ToolCall("c", "look", '{"a": 1}'), "three"]
