"""Who may come in: API keys."""

from __future__ import annotations

import hashlib
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
        self._keys = {key.digest: key for key in keys}

    def __bool__(self) -> bool:
        return bool(self._keys)

    @staticmethod
    def digest(key: str) -> bytes:
        return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()

    def find(self, sent: str) -> Key | None:
        """The key with this text. Looked up by its digest, however many there are: how long that takes tells at most
        how a digest begins, from which no key can be made."""
        return self._keys.get(self.digest(sent))
