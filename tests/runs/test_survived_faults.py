"""No fault of a database ends a run of a process that lives.

Separate from `test_storm.py`, because the tests of one file run one after another.
"""

from __future__ import annotations

import os

import pytest

from tests.runs.storm import FOR_ROOT, LEASE, OF_SERVERS, storm

STREAMS = 6
SURVIVED = ["clock", "restarted", "slow", "crowded", "switched", "failover", "server_clock", "power", "full"]
"""Faults that end no run, but that of the power of a machine with a file."""

pytestmark = pytest.mark.slow


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
