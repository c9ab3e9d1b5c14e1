"""Whatever breaks in these tests, nothing may be left of it: no task, no socket, no file."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator

import pytest

from tests.faults.wire import ask
from tests.server.harness import serving

_warm = False


def descriptors() -> int:
    """How many files and sockets this process has open."""
    return len(os.listdir("/proc/self/fd"))


async def settled(count: int) -> int:
    """The open descriptors, once they are back to `count`; after five seconds those there are."""
    loop = asyncio.get_running_loop()
    end = loop.time() + 5
    while (now := descriptors()) > count and loop.time() < end:
        gc.collect()
        await asyncio.sleep(0.02)
    return now


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    await _warmed()
    tasks, files = asyncio.all_tasks(), descriptors()
    yield
    assert await settled(files) <= files
    left = asyncio.all_tasks() - tasks - {asyncio.current_task()}
    assert not left, left


async def _warmed() -> None:
    """What is opened once and kept by libraries is no leak."""
    global _warm
    if not _warm:
        from bridge.codec import registry

        demo = {
            "backends": {"it": {"dialect": "demo"}},
            "routes": [{"dialect": "openai-chat", "path": "/it", "backend": "it"}],
        }
        async with serving(demo) as base:
            await ask(base, registry.get("openai-chat"), "/it")
        _warm = True
