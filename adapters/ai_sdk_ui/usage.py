"""Usage and model, which by convention are in the metadata of a message."""

from __future__ import annotations

from typing import Any

from bridge.dialects.ai_sdk_ui.wire import Wire, noted
from bridge.model import UsageReported
from bridge.toolkit.counts import counts_in

_FIELDS = ("input", "output", "total", "cached", "reasoning")
_NAMES = ("inputTokens", "outputTokens", "totalTokens", "cachedInputTokens", "reasoningTokens")
_DETAILS = (
    ("inputTokenDetails", "cacheReadTokens", "cached"),
    ("inputTokenDetails", "cacheWriteTokens", "written"),
    ("outputTokenDetails", "reasoningTokens", "reasoning"),
)
_KEYS = ("totalUsage", "usage")


def write_usage(usage: UsageReported) -> Wire:
    """The metadata with the counts, in the flat form of version 5 beside the nested one of later versions."""
    values = zip(_NAMES, (getattr(usage, name) for name in _FIELDS), strict=True)
    counts: Wire = {name: value for name, value in values if value is not None}
    for group, name, field in _DETAILS:
        if (count := getattr(usage, field)) is not None:
            counts.setdefault(group, {})[name] = count
    return {"usage": counts} if counts else {}


def read_usage(metadata: Wire) -> UsageReported | None:
    """The counts in the metadata; None if it holds none."""
    found = next((v for k in _KEYS if isinstance(v := metadata.get(k), dict)), None)
    if found is None:
        return None
    counts = counts_in(found)
    return UsageReported(**counts) if "input" in counts or "output" in counts else None


class Metadata:
    """The metadata of a backend's message, merged as clients do."""

    def __init__(self) -> None:
        self._values: Wire = {}

    def add(self, value: Any) -> None:
        """Merge one more piece; anything but an object is ignored."""
        if isinstance(value, dict):
            self._values = _merged(self._values, value)

    @property
    def usage(self) -> UsageReported | None:
        return read_usage(self._values)

    @property
    def extras(self) -> dict[str, Wire] | None:
        """All of it, for clients of this dialect."""
        return noted({"metadata": self._values or None})


def _merged(old: Wire, new: Wire) -> Wire:
    out = dict(old)
    for name, value in new.items():
        known = out.get(name)
        out[name] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return out


def told(usage: UsageReported | None, native: Wire) -> Wire:
    """Return the metadata at the end of an answer: the backend's own, or the bridge's counts if it has none."""
    if usage is None or any(key in native for key in _KEYS):
        return native
    return {**native, **write_usage(usage)}
