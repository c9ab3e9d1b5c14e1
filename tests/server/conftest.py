"""The toy dialect of `examples/`, found through an entry point of its own as an installed package's would be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.contract import registry


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for folder in ("examples", "tests/third_party"):
        monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / folder))
    yield "toy"
    registry.unregister("toy")
