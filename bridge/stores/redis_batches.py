"""A Redis script whose concurrent calls share round trips: calls that arrive while one is under way are sent together.

So a process that writes a thousand runs needs neither as many connections nor as many wake-ups.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redis.asyncio import Redis

from redis.exceptions import NoScriptError

_MOST = 64
"""Maximum number of calls in one round trip, so that later ones do not wait too long."""


@dataclass(slots=True, eq=False)
class _Call:
    words: tuple[Any, ...]
    waiter: asyncio.Future[Any]


class BatchedScript:
    """Each call is its own transaction, with its own result or failure."""

    def __init__(self, client: Redis, script: str) -> None:
        self._client = client
        self._script = script
        self._digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        self._waiting: deque[_Call] = deque()
        self._sending: asyncio.Task[None] | None = None

    async def call(self, keys: list[str], *arguments: Any) -> Any:
        """Return the result of the script. Raises what the client raises."""
        call = _Call((len(keys), *keys, *arguments), asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send(), name="run-appends")
        return await call.waiter

    async def _send(self) -> None:
        try:
            while self._waiting:
                calls = [self._waiting.popleft() for _ in range(min(_MOST, len(self._waiting)))]
                try:
                    results = await self._results(calls)
                except Exception as error:
                    results = [error] * len(calls)
                _set_results(calls, results)
        finally:
            self._sending = None

    async def _results(self, calls: list[_Call]) -> list[Any]:
        if len(calls) == 1:
            return [await self._call_one(calls[0])]
        async with self._client.pipeline(transaction=False) as pipe:
            for call in calls:
                pipe.evalsha(self._digest, *call.words)
            results: list[Any] = await pipe.execute(raise_on_error=False)
        return [
            await self._call_one(call) if isinstance(result, NoScriptError) else result
            for call, result in zip(calls, results, strict=True)
        ]

    async def _call_one(self, call: _Call) -> Any:
        """Return the result of one call, or its exception."""
        try:
            try:
                return await self._client.evalsha(self._digest, *call.words)
            except NoScriptError:  # lost when Redis was restarted
                return await self._client.eval(self._script, *call.words)
        except Exception as error:
            return error


def _set_results(calls: list[_Call], results: list[Any]) -> None:
    for call, result in zip(calls, results, strict=True):
        if call.waiter.done():
            continue
        if isinstance(result, BaseException):
            call.waiter.set_exception(result)
        else:
            call.waiter.set_result(result)
