from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.server.harness import FakeBackend, fake_backend


@pytest.fixture
async def backend() -> AsyncIterator[FakeBackend]:
    async with fake_backend() as backend:
        yield backend
