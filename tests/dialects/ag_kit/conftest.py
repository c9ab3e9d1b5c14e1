"""Generation 2 finds the dialect `ag-ui` by name; here it is made known whatever is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bridge.contract import registry
from bridge.dialects.ag_ui import dialect


@pytest.fixture(autouse=True, scope="session")
def _ag_ui() -> Iterator[None]:
    registry.register(dialect)
    yield
    registry.unregister("ag-ui")
