"""Who may come in: API keys, and how many at once."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from bridge.errors import BackendError, ErrorCode, RequestError


@dataclass(frozen=True, slots=True)
class Key:
    """One API key; `digest` is the SHA-256 of it, `routes` the mount paths it opens ("*" = all)."""

    name: str
    digest: bytes = field(repr=False)
    routes: frozenset[str]

    def opens(self, mount: str) -> str:
        """The key's name when it may use the route at `mount`. Raises `RequestError` (forbidden)."""
        if "*" not in self.routes and mount not in self.routes:
            raise RequestError("This API key does not open this route.", code=ErrorCode.FORBIDDEN)
        return self.name


class Keys:
    """The API keys of a server."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = keys

    def __bool__(self) -> bool:
        return bool(self._keys)

    @staticmethod
    def digest(key: str) -> bytes:
        return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()

    def find(self, sent: str) -> Key | None:
        """The key with this text."""
        digest = self.digest(sent)
        found: Key | None = None
        for key in self._keys:
            # All are compared, each in constant time: how long it takes tells nothing.
            if hmac.compare_digest(digest, key.digest):
                found = key
        return found


class Gate:
    """At most `concurrent` runs at once and `queue` waiting; None = no limit. Used as an async context manager."""

    def __init__(self, concurrent: int | None, queue: int | None) -> None:
        self._places = asyncio.Semaphore(concurrent) if concurrent else None
        self._queue = queue
        self._waiting = 0

    async def __aenter__(self) -> None:
        """Takes a place. Raises `BackendError` (overloaded) when the queue is full."""
        places = self._places
        if places is None:
            return
        if places.locked():
            if self._queue is not None and self._waiting >= self._queue:
                raise BackendError(
                    "The bridge is at its limit of runs at once; try again in a moment.",
                    code=ErrorCode.OVERLOADED,
                    headers={"retry-after": "1"},
                )
            self._waiting += 1
            try:
                await places.acquire()
            finally:
                self._waiting -= 1
        else:
            await places.acquire()

    async def __aexit__(self, *exc: object) -> None:
        if self._places is not None:
            self._places.release()
