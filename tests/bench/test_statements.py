"""What a durable run asks of its database, counted. A change that adds a round trip shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from statements import ALONE, FIRST, NEXT, asked

from tests.stores.conftest import postgres  # noqa: F401

ROUND_TRIPS = {
    "sqlite": {ALONE: 3, FIRST: 12, NEXT: 11},
    "postgresql": {ALONE: 6, FIRST: 42, NEXT: 38},
}
"""As counted; lower them when there are fewer."""


@pytest.mark.parametrize("engine", ROUND_TRIPS)
async def test_round_trips_of_a_durable_run_do_not_grow(engine: str, tmp_path: Path, request: Any) -> None:
    url = f"sqlite:///{tmp_path}/kept.db" if engine == "sqlite" else request.getfixturevalue("postgres")
    found = await asked(url)
    counted = {name: each.round_trips for name, each in found.items()}
    assert {name: count for name, count in counted.items() if count > ROUND_TRIPS[engine][name]} == {}
    assert min(counted.values()) >= 3, "they must be counted at all: a run is created, begins and ends"
