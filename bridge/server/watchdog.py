"""A stream that is being written, looked after beside its pump: silence of the backend, silence of the client."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from aiohttp import web

from bridge.pipeline import Run
from bridge.server.writing import abort
from bridge.translation import Translation

if TYPE_CHECKING:
    from bridge.config import Server


class StreamWatchdog:
    """Looks after a stream beside its pump, with one timer and none per event.

    Silence while the backend thinks: writes what keeps the connection warm. A write that does not end because the
    client does not read: cuts the connection, for each such client holds a backend busy.

    The run knows since when (monotonic) the backend is waited for; the pump notes it of the client, in `blocked`.
    """

    def __init__(
        self, http: web.Request, run: Run, response: web.StreamResponse, translation: Translation, server: Server
    ) -> None:
        self._http = http
        self._run = run
        self._response = response
        self._translation = translation
        self._server = server
        self._beaten = 0.0
        self.blocked: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._every = min(filter(None, (server.keepalive, server.slow_reader)), default=None)
        if self._every:
            self._timer = asyncio.get_running_loop().call_later(self._every, self._check)

    def _check(self) -> None:
        now, server = time.monotonic(), self._server
        if server.slow_reader and self.blocked is not None and now - self.blocked >= server.slow_reader:
            abort(self._http)
            return
        due = [self._every or 1.0]
        if server.keepalive and self._run.waiting is not None:
            left = max(self._run.waiting, self._beaten) + server.keepalive - now
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
