"""The health of the backends, checked when a page requests it, at a limited rate."""

from __future__ import annotations

import asyncio
import time

from bridge.errors import BridgeError
from bridge.run.backend import Backend

_FRESH = 10.0  # seconds
_PATIENCE = 5.0  # seconds


class BackendHealth:
    """The last answer of each backend; pages that ask at the same time share the question."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, asyncio.Task[dict[str, str]]]] = {}

    async def of(self, backends: dict[str, Backend]) -> dict[str, dict[str, str]]:
        """By name: `state` (ok, failing) and of a failing one `code` and `message`, which name no address."""
        tasks = {name: self._probe(name, backend) for name, backend in backends.items()}
        found = await asyncio.gather(*map(asyncio.shield, tasks.values()))
        return dict(zip(tasks, found, strict=True))

    async def close(self) -> None:
        tasks = [task for _, task in self._known.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _probe(self, name: str, backend: Backend) -> asyncio.Task[dict[str, str]]:
        now = time.monotonic()
        known = self._known.get(name)
        if known is not None and (not known[1].done() or now - known[0] < _FRESH):
            return known[1]
        task = asyncio.get_running_loop().create_task(_check(backend))
        self._known[name] = (now, task)
        return task


async def _check(backend: Backend) -> dict[str, str]:
    try:
        async with asyncio.timeout(_PATIENCE):
            await backend.check()
    except BridgeError as error:
        return {"state": "failing", "code": str(error.code), "message": error.message}
    except TimeoutError:
        return {"state": "failing", "code": "backend_timeout", "message": "The backend could not be reached in time."}
    return {"state": "ok"}
