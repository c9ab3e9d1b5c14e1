"""Measures every fault and writes the tables of docs/reliability.md anew: `make reliability`."""

from __future__ import annotations

import asyncio

from tests.faults import agents, faults
from tests.faults.agents import agent_outcome
from tests.faults.callers import outcome_at
from tests.faults.table import AGENTS, BACKENDS


async def main() -> None:
    backends = {
        fault.name: BACKENDS.row({front: await outcome_at(fault, front) for front in BACKENDS.fronts})
        for fault in faults.FAULTS
    }
    called = {
        fault.name: AGENTS.row({front: await agent_outcome(fault, front) for front in AGENTS.fronts})
        for fault in agents.FAULTS
    }
    BACKENDS.write(backends)
    AGENTS.write(called)


asyncio.run(main())
