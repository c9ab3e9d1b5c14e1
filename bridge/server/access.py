"""Who may come in: API keys."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from bridge.errors import ErrorCode, RequestError


@dataclass(frozen=True, slots=True)
class Key:
    """One API key; `digest` is the SHA-256 of it, `routes` the mount paths it opens ("*" = all)."""

    name: str
    digest: bytes = field(repr=False)
    routes: frozenset[str]

    def opens(self, *mounts: str) -> str:
        """The key's name when it may use one of the routes at `mounts`. Raises `RequestError` (forbidden)."""
        if "*" not in self.routes and self.routes.isdisjoint(mounts):
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
