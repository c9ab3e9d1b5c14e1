"""What a durable run asks of its database, counted. A change that adds a statement or a round trip shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from statements import ALONE, FIRST, NEXT, asked

from tests.stores.conftest import postgres  # noqa: F401

ROUND_TRIPS = {
    "sqlite": {ALONE: 3, FIRST: 14, NEXT: 14},
    "postgresql": {ALONE: 6, FIRST: 43, NEXT: 39},
}
"""As counted; lower them when there are fewer. In SQLite, some share a transaction if they come at once."""
STATEMENTS = {
    "sqlite": {ALONE: 10, FIRST: 30, NEXT: 28},
    "postgresql": {ALONE: 6, FIRST: 43, NEXT: 39},
}
"""Without the beginnings and ends of transactions in SQLite."""


@pytest.mark.parametrize("engine", ROUND_TRIPS)
async def test_what_a_durable_run_asks_does_not_grow(engine: str, tmp_path: Path, request: Any) -> None:
    url = f"sqlite:///{tmp_path}/kept.db" if engine == "sqlite" else request.getfixturevalue("postgres")
    found = await asked(url)
    of_none = ("BEGIN IMMEDIATE", "BEGIN", "COMMIT") if engine == "sqlite" else ()
    trips = {name: each.round_trips for name, each in found.items()}
    statements = {name: sum(text not in of_none for text in each.statements) for name, each in found.items()}
    for counted, most in ((trips, ROUND_TRIPS[engine]), (statements, STATEMENTS[engine])):
        assert {name: count for name, count in counted.items() if count > most[name]} == {}
        assert min(counted.values()) >= 3, "they must be counted at all: a run is created, begins and ends"
