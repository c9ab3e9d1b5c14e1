"""Bytes <-> frames, sans-IO. One module per framing."""

from bridge.framing import sse

__all__ = ["sse"]
