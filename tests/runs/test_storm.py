"""Nothing acknowledged is lost or doubled, and no live run is ended: two processes on one database, and one fault."""

from __future__ import annotations

import os

import pytest

from tests.runs.storm import FOR_ROOT, LEASE, OF_SERVERS, storm

STREAMS = 6
SURVIVED = ["clock", "restarted", "slow", "crowded", "switched", "failover", "server_clock", "power", "full"]
"""Faults that end no run, but that of the power of a machine with a file."""

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


@pytest.mark.parametrize(
    ("engine", "fault"),
    [
        (engine, fault)
        for engine in ("sqlite", "postgresql")
        for fault in SURVIVED
        if (engine == "postgresql" or fault not in OF_SERVERS) and (os.geteuid() == 0 or fault not in FOR_ROOT)
    ],
)
async def test_no_fault_of_a_database_loses_anything(engine: str, fault: str) -> None:
    """The processes of a file lose their power with it, and their runs; what their readers got is on its disk."""
    # Longer than a process of a busy machine may get no CPU: else it is taken for dead, as it should be.
    seen = await storm(engine, 2, STREAMS, fault, "slow 20 0.5", seconds=3 * LEASE, lease=2 * LEASE)
    assert seen.wrong == []
    lost = 2 * STREAMS if (engine, fault) == ("sqlite", "power") else 0
    assert (seen.finished, seen.lost) == (2 * STREAMS - lost, lost)
