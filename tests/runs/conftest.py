"""Both engines of the run store, and what closes with the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bridge.engine.bridge import Bridge
from bridge.run.durable import Runs
from tests.runs.helpers import bridge_of, runs_of
from tests.stores.conftest import postgres  # noqa: F401
from tests.stores.run_engines import RunEngine, run_engine, run_store  # noqa: F401
from tests.stores.s3 import s3_url  # noqa: F401

MakeRuns = Callable[..., Runs]


@pytest.fixture
async def bridge() -> AsyncIterator[Bridge]:
    async with bridge_of() as bridge:
        yield bridge


@pytest.fixture
async def make_runs(bridge: Bridge, run_engine: RunEngine) -> AsyncIterator[MakeRuns]:  # noqa: F811
    """Makes `Runs` on this test's store; each is what another process would have. They are not open yet."""
    async with AsyncExitStack() as stack:

        def make(of: Bridge = bridge, **more: Any) -> Runs:
            runs = runs_of(of, run_engine.store(), **more)
            stack.push_async_callback(runs.close)
            return runs

        yield make


@pytest.fixture
async def runs(make_runs: MakeRuns) -> Runs:
    runs = make_runs()
    await runs.open()
    return runs
