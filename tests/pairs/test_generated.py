"""Every dialect to every dialect on generated streams and requests."""

from __future__ import annotations

import pytest

from bridge.contract import registry
from bridge.testing import PairConformance

pytestmark = [pytest.mark.sampled(5), pytest.mark.turns(8)]


class TestPairs(PairConformance):
    dialects = registry.names()
    names_losses = True
