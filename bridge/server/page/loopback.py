"""A run of the demo over a wire, for the page: its events are encoded in another dialect and decoded again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from bridge.contract import (
    Context,
    Dialect,
    Feature,
    FeatureSupport,
    FrameLike,
    Losses,
    Operation,
    Support,
    WireRequest,
    WireResponse,
    offers,
    registry,
)
from bridge.contract.dialect import Framing
from bridge.errors import Failure
from bridge.model import Event, Request
from bridge.model.events import TERMINAL
from bridge.run.backend import Backend, Call, CallInfo
from bridge.translation import AnswerDecoder
from bridge.translation.framing import sse


@cache
def wire_beside(front: str) -> Dialect | None:
    """Return the dialect other than `front` in which an answer over server-sent events keeps the most features."""
    others = [registry.get(name) for name in registry.over_http() if name != front]
    fit = [d for d in others if d.framing is Framing.SSE and offers(d.surface, Operation.RUN)]
    kept = {d.name: [e.support for e in d.capabilities.answers.values()].count(Support.EXACT) for d in fit}
    return max(fit, key=lambda dialect: kept[dialect.name], default=None)


Entries = Mapping[Feature, FeatureSupport]


class LoopbackCall:
    """A call of a backend inside the process whose request and answer go over the wire of a dialect.

    A loss of that wire counts (`lost`) only if the frontend's dialect cannot carry the feature either, as `front` says:
    no other client of the route takes this way.

    Raises `Unsupported` for a request that the dialect cannot carry.
    """

    def __init__(
        self, backend: Backend, dialect: Dialect, request: Request, info: CallInfo, lost: Losses, front: Entries
    ) -> None:
        model = backend.model_for(request.model)
        self._lost = lost
        self._front = front
        lost = self._detour = Losses()
        self.context = Context(
            info.run_id, info.thread_id, info.created_at, dialect.back_options(), model, request, lost
        )
        self.sent: WireRequest | None = dialect.encode_request(request, self.context)
        there = Context(info.run_id, info.thread_id, info.created_at, dialect.front_options(), model, lost=lost)
        there.request = dialect.decode_request(self.sent, there)
        self._call: Call = backend.call(there.request, info, Losses())
        self._encoder = dialect.encoder(there)
        self._decoder = AnswerDecoder(dialect, self.context, {"content-type": "text/event-stream"})
        self.whole: WireResponse | None = None

    @property
    def frames(self) -> list[FrameLike]:
        return self._decoder.frames

    @frames.setter
    def frames(self, frames: list[FrameLike]) -> None:
        self._decoder.frames = frames

    @property
    def awaits_whole(self) -> bool:
        return self._call.awaits_whole

    @property
    def wire_ended(self) -> bool:
        return self._decoder.wire_ended

    @property
    def received(self) -> int:
        return self._call.received

    async def open(self) -> None:
        await self._call.open()

    async def read(self) -> list[Event]:
        return self._over(await self._call.read())

    def pass_deltas(self, take: Callable[[list[Event]], bool]) -> None:
        """Each delta passes the wire of this call, in `read`."""

    def fail(self, failure: Failure) -> list[Event]:
        return self._decoder.close(failure)

    async def close(self) -> None:
        await self._call.close()

    def _over(self, events: list[Event]) -> list[Event]:
        decoded = self._decoder.receive(sse.join(self._encoder.encode(events)))
        if events and type(events[-1]) in TERMINAL and not self._decoder.ended:
            shown = self._decoder.frames
            decoded += self._decoder.close()
            self._decoder.frames = shown
        self._tell()
        return decoded

    def _tell(self) -> None:
        for feature in map(Feature, self._detour.details):
            entry = self._front.get(feature)
            if entry is not None and entry.support is not Support.EXACT and feature is not Feature.EXTRAS:
                self._lost.add(feature)
