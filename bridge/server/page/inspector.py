"""Traces: what happens in one run, for the page that watches it.

A trace exists while its page reads it, and other runs pay nothing for it: the backend of a watched run is wrapped
(`bridge.server.page.watched`). A trace holds bodies and events, never headers.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import orjson

from bridge.contract import Feature, FeatureSupport, registry
from bridge.engine.bridge import Bridge
from bridge.engine.config.kinds import DEMO
from bridge.engine.watching import RequestEnd, RunWatch, WatchedRequest
from bridge.errors import BackendError, ErrorCode, RequestError
from bridge.run.backend import Backend
from bridge.server.page.loopback import wire_beside
from bridge.server.page.watched import WatchedBackend
from bridge.translation.framing import sse

HEADER = "x-bridge-trace"
"""The request header of a page that watches this run."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]{22,64}", re.ASCII)  # no fewer than 128 bits
_MOST = 2 * 2**20  # bytes in the trace of one run
_TRACES = 16  # at once, in one process
_TRACES_EACH = 2  # of one user, where users are known


class Trace:
    """The trace of one run. `say` never waits; beyond the limit, only the end and a note of the gap are added."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.runs: list[str] = []
        self.over = False
        self.reads = 0
        """The reads of the backend so far, by which the page knows which frames became which events."""
        self.sent: Callable[[], int] = int
        """Returns the bytes of the answer that were written to the client so far."""
        self.answers: Mapping[Feature, FeatureSupport] = {}
        """What the frontend's dialect carries of answers."""
        self._out: list[bytes] = []
        self._size = 0
        self._lost: dict[str, str] = {}
        self._began = time.monotonic()
        self._changed = asyncio.Event()

    def say(self, kind: str, **facts: Any) -> None:
        """One thing that happened, with the milliseconds since the request came."""
        cut = self._size > _MOST
        if self.over or (cut and kind != "end"):
            return
        since = round((time.monotonic() - self._began) * 1000, 1)
        frame = orjson.dumps({"kind": kind, "t": since, **facts})
        self._size += len(frame)
        self._out.append(frame if cut or self._size <= _MOST else orjson.dumps({"kind": "cut"}))
        self._changed.set()

    def begin(self, run_id: str) -> None:
        """A request came with this trace's token; the first one begins the time."""
        if not self.runs:
            self._began = time.monotonic()
        self.runs.append(run_id)

    def lost(self, details: Mapping[str, str], entries: Mapping[Feature, FeatureSupport] | None = None) -> None:
        """Set the losses so far. One without a detail gets the reason of its entry, by default that of `answers`."""
        entries = self.answers if entries is None else entries
        known = {
            name: detail or self._lost.get(name) or (entries[Feature(name)].reason if name in entries else "")
            for name, detail in details.items()
        }
        if known != self._lost:
            self._lost = known
            self.say("lost", lost=known)

    def end(self) -> None:
        """Note that the reader has left."""
        self.over = True
        self._changed.set()

    async def read(self, seconds: float) -> bytes:
        """Return the new entries; a comment after so many seconds of silence."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return b": keep-alive\n\n"
        self._changed.clear()
        out, self._out = self._out, []
        return sse.join(out)


class Inspector:
    """The traces that pages of this process read now."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._open: dict[str, Trace] = {}

    def open(self, owner: str, token: str) -> Trace:
        """A new trace, until it is closed.

        Raises `RequestError` for an ill-formed or used token, `BackendError` for too many of a user or of all.
        """
        if not _TOKEN.fullmatch(token):
            raise RequestError("Expected a trace token of 22 to 64 random characters of A-Z a-z 0-9 _ -.")
        if token in self._open:
            raise RequestError("This trace already has a reader.", status=409)
        if owner and sum(trace.owner == owner for trace in self._open.values()) >= _TRACES_EACH:
            text = f"This key already watches {_TRACES_EACH} runs."
            raise BackendError(text, code=ErrorCode.RATE_LIMITED, headers={"retry-after": "1"})
        if len(self._open) >= _TRACES:
            raise BackendError("Too many runs are being watched.", code=ErrorCode.OVERLOADED)
        trace = self._open[token] = Trace(owner)
        trace.say("ready")
        return trace

    def close(self, token: str) -> None:
        trace = self._open.pop(token)
        trace.end()
        for run_id in trace.runs:
            self._bridge.unwatch(run_id)

    def end(self) -> None:
        """The server stops: readers are let go."""
        for trace in self._open.values():
            trace.end()

    def begin(self, request: WatchedRequest) -> RunWatch | None:
        """Return the trace of the run if its client's page reads one already, by the token in `X-Bridge-Trace`.

        The demo then answers over the wire of a dialect other than that of the client, so that there is a wire to see.
        """
        trace = self._open.get(request.headers.get(HEADER) or "")
        if trace is None or trace.owner != request.owner:
            return None
        trace.begin(request.run_id)
        trace.sent = request.sent
        trace.answers = registry.get(request.front).capabilities.answers
        return _TracedRun(self._bridge, trace, request.front)


class _TracedRun:
    """The part of a trace that is of one run."""

    def __init__(self, bridge: Bridge, trace: Trace, front: str) -> None:
        self._bridge = bridge
        self._trace = trace
        self._front = front

    def watched(self, backend: Backend) -> Backend:
        section = self._bridge.config.backends.get(backend.name)
        demo = section is not None and section.dialect == DEMO
        return cast("Backend", WatchedBackend(backend, self._trace, wire_beside(self._front) if demo else None))

    def ended(self, end: RequestEnd) -> None:
        self._trace.lost(end.lost)
        self._trace.say("end", status=end.status, code=end.code, http=end.http, run_id=end.run_id, backend=end.backend)
