"""Every dialect to every dialect on generated streams and requests."""

from __future__ import annotations

from bridge.codec import registry
from bridge.testing import PairConformance


class TestPairs(PairConformance):
    dialects = registry.names()
    names_losses = True
