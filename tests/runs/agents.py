"""Agents for runs: what they say is known, and when they go on is decided by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from bridge.errors import ErrorCode, Failure
from bridge.model import Part, Reasoning, Request, RunFailed, Text, ToolCall
from bridge.run.backends.local_backend import Yielded

WORDS = [f"w{n} " for n in range(20)]
LONG = [f"w{n} " for n in range(100)]
SLOW = [f"w{n} " for n in range(30)]
PACE = 0.1
"""Seconds between two words of a long answer."""


def asked(request: Request) -> str:
    """The text of the last message."""
    return "".join(part.text for part in request.messages[-1].parts if isinstance(part, Text))


async def run(request: Request) -> AsyncIterator[Yielded]:
    """`count`: words at a backend's pace. `long`: many of them at that of a model. `slow`: one in a second.
    `hang`: some words, then nothing.

    Other words: other kinds.
    """
    match asked(request):
        case "count":
            for word in WORDS:
                await asyncio.sleep(0.002)
                yield word
        case "long":
            for word in LONG:
                await asyncio.sleep(PACE)
                yield word
        case "slow":
            for word in SLOW:
                await asyncio.sleep(10 * PACE)
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


def _all_kinds() -> list[Part | str]:
    return [Reasoning("hm, é"), "one ", "two ", ToolCall("c", "look", '{"a": 1}'), "three"]
