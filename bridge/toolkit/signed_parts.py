"""Signatures of tool calls, texts and media: opaque values that the backend that made a part wants back with it.

Gemini signs parts, and requires the signatures of calls. Its own protocol has a field for all of them, its chat
completions have one for calls. All dialects keep the value under the key `SIGNATURE` of a part's extras.
"""

from __future__ import annotations

from bridge.model import Extras

SIGNATURE = "signature"
GOOGLE = "google"
"""The only vendor that signs parts."""


def signed(extras: Extras | None, signature: str | None) -> Extras | None:
    """Return `extras` with the signature of a part, unchanged if there is none."""
    return {**(extras or {}), SIGNATURE: {GOOGLE: signature}} if signature else extras


def signature_of(extras: Extras | None) -> str | None:
    """Return the signature of a part; None if it has none."""
    return extras[SIGNATURE].get(GOOGLE) if extras and SIGNATURE in extras else None


def unsigned(extras: Extras | None) -> Extras | None:
    """Return `extras` without the signature of a part."""
    return {name: values for name, values in (extras or {}).items() if name != SIGNATURE} or None
