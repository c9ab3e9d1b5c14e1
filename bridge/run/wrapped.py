"""Base classes of backends and calls that wrap others, and delegate everything that a subclass does not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bridge.contract import Context, FrameLike, WireRequest, WireResponse
from bridge.errors import Failure
from bridge.model import Event
from bridge.run.backend import Backend, Call


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
    def awaits_whole(self) -> bool:
        return self.inner.awaits_whole

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

    def pass_deltas(self, take: Callable[[list[Event]], bool]) -> None:
        """As of `inner`. A subclass that must see or change deltas replaces this."""
        self.inner.pass_deltas(take)

    def fail(self, failure: Failure) -> list[Event]:
        return self.inner.fail(failure)

    async def close(self) -> None:
        await self.inner.close()


class WrappedBackend:
    """The backend `inner`, but for what a subclass defines; type checkers need a cast to `Backend`."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
