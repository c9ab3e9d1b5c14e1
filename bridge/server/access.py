"""Who may come in: API keys, and how many at once."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from dataclasses import dataclass

from aiohttp import web

from bridge.errors import BackendError, ErrorCode, RequestError


@dataclass(frozen=True, slots=True)
class Key:
    """One API key; `digest` is the SHA-256 of it, `routes` the mount paths it opens ("*" = all)."""

    name: str
    digest: bytes
    routes: frozenset[str]


class Keys:
    """The keys of a server. Without any, everybody may come in."""

    def __init__(self, keys: list[Key] | None) -> None:
        self._keys = keys

    @staticmethod
    def digest(key: str) -> bytes:
        return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()

    def check(self, http: web.Request, mount: str) -> str | None:
        """The key's name. Raises `RequestError` (unauthorized, forbidden)."""
        if self._keys is None:
            return None
        sent = _sent_key(http)
        if not sent:
            raise RequestError(
                "An API key is needed: send it as 'Authorization: Bearer <key>' or 'x-api-key: <key>'.",
                code=ErrorCode.UNAUTHORIZED,
            )
        digest = self.digest(sent)
        found: Key | None = None
        for key in self._keys:
            # All are compared, each in constant time: how long it takes tells nothing.
            if hmac.compare_digest(digest, key.digest):
                found = key
        if found is None:
            raise RequestError("The API key is not known here.", code=ErrorCode.UNAUTHORIZED)
        if "*" not in found.routes and mount not in found.routes:
            raise RequestError("This API key does not open this route.", code=ErrorCode.FORBIDDEN)
        return found.name


def _sent_key(http: web.Request) -> str:
    scheme, _, token = http.headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    # Anthropic's spelling, and Azure's of OpenAI's.
    return (http.headers.get("x-api-key") or http.headers.get("api-key") or "").strip()


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
