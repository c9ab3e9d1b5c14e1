"""Small values that pass through a client and must come back unchanged: signed, and bound to a purpose and an owner."""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Any

from bridge.model.jsontext import dumps, read_json

_SIGNATURE = 16
"""Bytes of a signature: an attacker can only guess it by asking the server."""
_SHORT = 6
"""Bytes of the signature of a name, which models copy from one call to the next."""


class Sealer:
    """Signs with one secret. Nothing is encrypted: do not seal what its client must not read."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def seal(self, purpose: str, owner: str, value: dict[str, Any]) -> str:
        """Return a value as text of letters, digits, `-`, `_` and one dot."""
        body = _text(dumps(value))
        return f"{body}.{_text(self._sign(purpose, owner, body)[:_SIGNATURE])}"

    def open(self, purpose: str, owner: str, text: str) -> dict[str, Any] | None:
        """Return the value of a text of `seal` with the same purpose and owner; None for any other text."""
        body, _, signature = text.partition(".")
        if not hmac.compare_digest(_text(self._sign(purpose, owner, body)[:_SIGNATURE]).encode(), _bytes(signature)):
            return None
        try:
            value = read_json(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (binascii.Error, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def mark(self, purpose: str, owner: str, name: str) -> str:
        """Return a name with a short signature, so that `marked` knows that it was made here."""
        return f"{name}-{self._short(purpose, owner, name)}"

    def marked(self, purpose: str, owner: str, text: str) -> str | None:
        """Return the name in a text of `mark` with the same purpose and owner; None for any other text."""
        name, _, signature = text.rpartition("-")
        good = hmac.compare_digest(self._short(purpose, owner, name).encode(), _bytes(signature))
        return name if good else None

    def _short(self, purpose: str, owner: str, name: str) -> str:
        return self._sign(purpose, owner, name)[:_SHORT].hex()

    def _sign(self, purpose: str, owner: str, text: str) -> bytes:
        return hmac.digest(self._secret, _bytes("\0".join((purpose, owner, text))), "sha256")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
