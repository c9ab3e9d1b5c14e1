"""Every dialect that can be found does what every dialect must: a new entry point is tested here by itself."""

from __future__ import annotations

from bridge.contract import registry
from bridge.testing import DialectConformance


class TestConformance(DialectConformance):
    dialects = registry.names()
    names_losses = True
    streams_always = ("agentscope", "agentscope-java")
