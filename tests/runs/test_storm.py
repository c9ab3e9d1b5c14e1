"""Nothing acknowledged is lost or doubled, and no live run is ended: two processes on one database, and one fault."""

from __future__ import annotations

import pytest

from tests.runs.storm import LEASE, storm

STREAMS = 6
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_the_runs_of_a_process_that_dies_are_lost_and_no_others(engine: str) -> None:
    seen = await storm(engine, 2, STREAMS, "kill")
    assert seen.wrong == []
    assert (seen.finished, seen.lost) == (STREAMS, STREAMS)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_a_process_that_stops_for_three_leases_loses_its_own_runs_at_most(engine: str) -> None:
    """All of them, unless the other process was itself too slow to call it dead."""
    seen = await storm(engine, 2, STREAMS, "stop")
    assert seen.wrong == []
    assert seen.finished >= STREAMS
    assert seen.finished + seen.lost == 2 * STREAMS


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_a_database_that_is_away_for_longer_than_a_lease_ends_nothing(engine: str) -> None:
    seen = await storm(engine, 2, STREAMS, "away", seconds=2 * LEASE)
    assert seen.wrong == []
    assert (seen.finished, seen.lost) == (2 * STREAMS, 0)
    assert seen.silence > LEASE
