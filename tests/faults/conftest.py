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


async def settled(count: int, before: set[asyncio.Task[object]]) -> tuple[int, set[asyncio.Task[object]]]:
    """The open descriptors and the tasks that were not there `before`, once these are back to `count` and none.

    What is closing may end a little later: after 15 seconds what there is.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + 15
    while ((now := descriptors()) > count or _new(before)) and loop.time() < end:
        gc.collect()
        await asyncio.sleep(0.02)
    return now, _new(before)


def _new(before: set[asyncio.Task[object]]) -> set[asyncio.Task[object]]:
    return {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()}


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    await _warmed()
    tasks, files = asyncio.all_tasks(), descriptors()
    yield
    opened, left = await settled(files, tasks)
    assert opened <= files
    assert not left, left


async def _warmed() -> None:
    """What is opened once and kept by libraries is no leak."""
    global _warm
    if not _warm:
        from bridge.contract import registry

        demo = {
            "backends": {"it": {"dialect": "demo"}},
            "routes": [{"dialect": "openai-chat", "path": "/it", "backend": "it"}],
        }
        async with serving(demo) as base:
            await ask(base, registry.get("openai-chat"), "/it")
        _warm = True
