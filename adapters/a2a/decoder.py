"""Streams of agents -> events."""

from __future__ import annotations

from typing import Any

from bridge.codec import JsonDecoder


class A2ADecoder(JsonDecoder):
    """One per run."""

    def read(self, event: dict[str, Any], name: str | None) -> None:
        raise NotImplementedError
