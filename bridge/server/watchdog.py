"""A stream that is being written, looked after beside its pump: silence of the backend, silence of the client."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from bridge.pipeline import Run
from bridge.server.limits import Rules
from bridge.translation import Translation


class StreamWatchdog:
    """Looks after a stream beside its pump, with one timer and none per event.

    Silence while the backend thinks: writes what keeps the connection warm. A write that does not end because the
    client does not read: cuts the connection, for each such client holds a backend busy.

    The run knows since when (monotonic) the backend is waited for; the pump notes it of the client, in `blocked`.
    """

    __slots__ = (
        "_beaten",
        "_every",
        "_http",
        "_response",
        "_rules",
        "_run",
        "_task",
        "_timer",
        "_translation",
        "blocked",
    )

    def __init__(
        self, http: web.Request, run: Run, response: web.StreamResponse, translation: Translation, rules: Rules
    ) -> None:
        self._http = http
        self._run = run
        self._response = response
        self._translation = translation
        self._rules = rules
        self._beaten = 0.0
        self.blocked: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._every = min(filter(None, (rules.keepalive, rules.slow_reader)), default=None)
        if self._every:
            self._timer = asyncio.get_running_loop().call_later(self._every, self._check)

    def _check(self) -> None:
        now, rules = time.monotonic(), self._rules
        if rules.slow_reader and self.blocked is not None and now - self.blocked >= rules.slow_reader:
            if self._http.transport is not None:
                self._http.transport.abort()
            return
        due = [self._every or 1.0]
        if rules.keepalive and self._run.waiting is not None:
            left = max(self._run.waiting, self._beaten) + rules.keepalive - now
            if left <= 0 and (self._task is None or self._task.done()):
                self._task = asyncio.get_running_loop().create_task(self._beat())
                self._beaten = now
            else:
                due.append(max(left, 0.02))
        self._timer = asyncio.get_running_loop().call_later(min(due), self._check)

    async def _beat(self) -> None:
        out = self._translation.heartbeat()
        if not out or self._run.waiting is None:
            return
        try:
            await self._response.write(out)
        except ConnectionError:
            # The pump learns of it by itself.
            return

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
