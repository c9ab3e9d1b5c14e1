"""Work that is finished although its caller is canceled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Do work that a cancellation of the caller does not interrupt: it is raised when the work is done."""
    task = asyncio.create_task(work)
    canceled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            canceled = not task.cancelled()
    if canceled:
        raise asyncio.CancelledError
    task.result()
