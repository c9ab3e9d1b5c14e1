"""A backend whose calls are recorded in a trace, wrapped around the real one for one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bridge.contract import Dialect, Losses, WireRequest
from bridge.errors import BackendError, BridgeError, Failure
from bridge.model import Event, Request, pretty
from bridge.model.pretty import pretty_request
from bridge.run.backend import Backend, Call, CallInfo
from bridge.run.wrapped import WrappedBackend, WrappedCall
from bridge.server.page.loopback import LoopbackCall
from bridge.translation.framing import sse

if TYPE_CHECKING:
    from bridge.server.page.inspector import Trace


class WatchedBackend(WrappedBackend):
    """A backend whose calls are traced."""

    def __init__(self, backend: Backend, trace: Trace, wire: Dialect | None = None) -> None:
        """`wire`: the dialect over which its runs go, for a backend inside the process."""
        super().__init__(backend)
        self._wire = wire
        self._trace = trace

    def call(self, request: Request, info: CallInfo, lost: Losses) -> WatchedCall:
        return WatchedCall(self._call(request, info, lost), self, request, lost, self._trace)

    def _call(self, request: Request, info: CallInfo, lost: Losses) -> Call:
        if self._wire is not None:
            try:
                return LoopbackCall(self.inner, self._wire, request, info, lost, self._trace.answers)
            except BridgeError:
                self._wire = None  # This request does not fit on it.
        return self.inner.call(request, info, lost)

    @property
    def dialect(self) -> str | None:
        """The dialect; None inside this process."""
        dialect = self._wire or getattr(self.inner, "dialect", None)
        return dialect.name if isinstance(dialect, Dialect) else None


class WatchedCall(WrappedCall):
    """A call that is traced: its request, the bytes that arrive and the events that they are decoded to."""

    def __init__(self, call: Call, backend: WatchedBackend, request: Request, lost: Losses, trace: Trace) -> None:
        super().__init__(call)
        self._backend = backend
        self._lost = lost
        self._trace = trace
        self._sent = call.sent
        trace.say("asked", text=pretty_request(request))
        trace.say("sent", backend=backend.name, dialect=backend.dialect, **_sent_by(call.sent))
        trace.lost(lost.details, backend.capabilities.requests)

    async def open(self) -> None:
        try:
            await self.inner.open()
        except BackendError as error:
            self._trace.say("failed", code=str(error.code), message=error.message)
            raise
        finally:
            if self.inner.sent is not self._sent:
                # The id of a queued run is known once it was requested.
                self._sent = self.inner.sent
                self._trace.say(
                    "sent", backend=self._backend.name, dialect=self._backend.dialect, **_sent_by(self._sent)
                )

    async def read(self) -> list[Event]:
        call = self.inner
        self._trace.reads += 1
        sent = self._trace.sent()  # the events of earlier reads have been written: up to here
        events = await call.read()
        self._trace.say("read", read=self._trace.reads, sent=sent)
        for frame in call.frames:
            self._trace.say("frame", text=_text(sse.join([frame])), read=self._trace.reads)
        if call.whole is not None:
            self._trace.say("whole", text=_text(call.whole.body), read=self._trace.reads)
        self._heard(events)
        return events

    def pass_deltas(self, take: Callable[[list[Event]], bool]) -> None:
        """Nothing: every event is shown."""

    def fail(self, failure: Failure) -> list[Event]:
        events = self.inner.fail(failure)
        self._heard(events)
        return events

    async def close(self) -> None:
        await self.inner.close()
        self._trace.lost(self._lost.details)

    def _heard(self, events: Sequence[Event]) -> None:
        if events:
            self._trace.say("events", text=pretty(events), read=self._trace.reads)
        self._trace.lost(self._lost.details)


def _sent_by(wire: WireRequest | None) -> dict[str, str]:
    """Method, path and body: headers and queries may hold keys."""
    return {"head": f"{wire.method} {wire.path}", "text": _text(wire.body)} if wire is not None else {}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
