"""Signed URLs with limited lifetime: HMAC-SHA256 over method, bucket, path and expiry."""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bridge.errors import ConfigError
from bridge.stores.attachments import forbidden

_EXPIRES = re.compile(r"[0-9]{1,12}", re.ASCII)
_SIZE = 32  # bytes of a generated secret


class Signer:
    """Signs and verifies with one secret. `clock` returns seconds since 1970."""

    def __init__(self, secret: bytes, clock: Callable[[], float]) -> None:
        self._secret = secret
        self._clock = clock

    def query(self, bucket: str, path: str, life: float) -> str:
        """Return the query of a URL that is valid for `life` seconds."""
        expires = str(int(self._clock() + life))
        return f"expires={expires}&sig={self._signature(bucket, path, expires)}"

    def verify(self, bucket: str, path: str, expires: str, signature: str) -> None:
        """Raise `RequestError` (forbidden) if invalid or expired, with the same message in all cases."""
        good = hmac.compare_digest(
            self._signature(bucket, path, expires).encode(), signature.encode("utf-8", "surrogateescape")
        )
        if not good or not _EXPIRES.fullmatch(expires) or int(expires) < self._clock():
            raise forbidden("This link is invalid or has expired.")

    def _signature(self, bucket: str, path: str, expires: str) -> str:
        text = f"GET\n{bucket}\n{path}\n{expires}".encode("utf-8", "surrogateescape")
        return hmac.digest(self._secret, text, "sha256").hex()


def kept_secret(path: Path) -> bytes:
    """Return the secret in this file, which only its owner may read; generate one if there is none.

    Concurrent processes get the same secret: the file is created atomically and once. Raises `ConfigError` for a file
    without a secret, `OSError`.
    """
    with suppress(FileNotFoundError):
        return _read(path)
    draft = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_hex(_SIZE).encode())
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
    return _read(path)


def _read(path: Path) -> bytes:
    secret = path.read_bytes().strip()
    if len(secret) < _SIZE:
        raise ConfigError(f"{path} contains no secret for signed URLs; delete it to create a new one")
    return secret
