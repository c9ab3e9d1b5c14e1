"""The toy dialect of `tests/third_party`, found through its own entry point as an installed package's would be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.codec import registry


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "third_party"))
    yield "toy"
    registry.unregister("toy")
