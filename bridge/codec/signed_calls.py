"""Signatures of tool calls: opaque values that the backend that made a call wants back with it.

Gemini signs calls. Its own protocol and chat completions have a field for the signature, so calls carry it for all
dialects, under the key `SIGNATURE` of their extras.
"""

from __future__ import annotations

from bridge.model import Extras

SIGNATURE = "signature"
GOOGLE = "google"
"""The only vendor that signs calls."""


def signed(extras: Extras | None, signature: str | None) -> Extras | None:
    """Return `extras` with the signature of a call, unchanged if there is none."""
    return {**(extras or {}), SIGNATURE: {GOOGLE: signature}} if signature else extras


def signature_of(extras: Extras | None) -> str | None:
    """Return the signature of a call; None if it has none."""
    return extras[SIGNATURE].get(GOOGLE) if extras and SIGNATURE in extras else None


def unsigned(extras: Extras | None) -> Extras | None:
    """Return `extras` without the signature of a call."""
    return {name: values for name, values in (extras or {}).items() if name != SIGNATURE} or None
