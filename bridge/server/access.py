"""Who may come in: API keys."""

from __future__ import annotations

import hashlib
import hmac
import secrets
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
        self._secret = secrets.token_bytes(32)
        self._keys = {self._place(key.digest): key for key in keys}

    def __bool__(self) -> bool:
        return bool(self._keys)

    @staticmethod
    def digest(key: str) -> bytes:
        return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()

    def _place(self, digest: bytes) -> bytes:
        return hmac.digest(self._secret, digest, "sha256")

    def find(self, sent: str) -> Key | None:
        """The key with this text, looked up however many there are.

        What is looked up is made with a secret of this process, so that how long it takes tells nothing: nobody
        outside can choose, or even know, what is compared.
        """
        return self._keys.get(self._place(self.digest(sent)))
