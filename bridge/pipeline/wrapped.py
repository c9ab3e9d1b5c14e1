"""Base classes of backends and calls that wrap others: they delegate everything that a subclass does not change."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.codec import Context, Dialect, FrameLike, Losses, ModelInfo, WireRequest, WireResponse
from bridge.errors import Failure
from bridge.model import Event, Request
from bridge.pipeline.backend import Backend, Call, CallInfo


class WrappedCall:
    """A `Call` that is `inner` in every respect."""

    def __init__(self, inner: Call) -> None:
        self.inner = inner

    @property
    def context(self) -> Context:
        return self.inner.context

    @property
    def frames(self) -> list[FrameLike]:
        return self.inner.frames

    @frames.setter
    def frames(self, frames: list[FrameLike]) -> None:
        self.inner.frames = frames

    @property
    def whole(self) -> WireResponse | None:
        return self.inner.whole

    @property
    def wire_ended(self) -> bool:
        return self.inner.wire_ended

    @property
    def received(self) -> int:
        return self.inner.received

    @property
    def sent(self) -> WireRequest | None:
        return self.inner.sent

    async def open(self) -> None:
        await self.inner.open()

    async def read(self) -> list[Event]:
        return await self.inner.read()

    def fail(self, failure: Failure) -> list[Event]:
        return self.inner.fail(failure)

    async def close(self) -> None:
        await self.inner.close()


class WrappedBackend:
    """A `Backend` that is `inner` in every respect."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.name = inner.name
        self.capabilities = inner.capabilities
        self.names = inner.names
        self.timeouts = inner.timeouts
        self.retry = inner.retry
        self.budget = inner.budget
        self.breaker = inner.breaker

    def model_for(self, requested: str | None) -> str | None:
        return self.inner.model_for(requested)

    def call(self, request: Request, info: CallInfo, lost: Losses) -> Call:
        return self.inner.call(request, info, lost)

    def forwards(self, headers: Mapping[str, str], front: Dialect) -> dict[str, str]:
        return self.inner.forwards(headers, front)

    async def models(self) -> list[ModelInfo]:
        return await self.inner.models()

    async def count(self, request: Request, info: CallInfo) -> int | None:
        return await self.inner.count(request, info)

    async def check(self) -> None:
        await self.inner.check()

    async def start(self) -> None:
        await self.inner.start()

    async def close(self) -> None:
        await self.inner.close()
