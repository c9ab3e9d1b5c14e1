"""A bridge with one agent as a tool, and a client of each kind of revisions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .client import New, Old, config, served


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[New, Old]]:
    async with served(config(tmp_path)) as clients:
        yield clients


@pytest.fixture
async def new(both: tuple[New, Old]) -> New:
    return both[0]


@pytest.fixture
async def old(both: tuple[New, Old]) -> Old:
    await both[1].start()
    return both[1]
