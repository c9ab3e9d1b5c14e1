"""Every fault of a backend, under every dialect: docs/reliability.md says what comes of it, and is held here.

A commit runs each fault and each dialect, but not each pair of them; `make pairs` and `make reliability` do.
"""

from __future__ import annotations

import pytest

from tests.faults import agents, faults
from tests.faults.agents import AgentFault, agent_outcome
from tests.faults.callers import BACK, FRONT, outcome_at
from tests.faults.faults import LAWFUL, Fault
from tests.faults.measure import Outcome, back_of, outcome
from tests.faults.table import AGENTS, BACKENDS, Table
from tests.faults.wire import SPEAKING

pytestmark = [pytest.mark.sampled(5), pytest.mark.turns(3)]

ROWS = {table.mark: table.rows() for table in (BACKENDS, AGENTS)}


def held(table: Table, fault: Fault | AgentFault, front: str, seen: Outcome) -> None:
    """It failed in the client's dialect, with nothing that is not true, and as the page says."""
    assert seen.verdict in ("error event", "failed task") or seen.verdict.startswith(("HTTP ", "status "))
    assert seen.failure is None or "sk-backend" not in seen.failure.message
    assert "w☀" not in seen.arrived
    row = table.row({front: seen})
    assert row == {column: ROWS[table.mark][fault.name][column] for column in row}, "`make reliability` writes it anew"


@pytest.mark.parametrize("front", BACKENDS.fronts)
@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
async def test_what_a_client_is_told_of_a_broken_backend(fault: Fault, front: str) -> None:
    judge(fault, front, await outcome_at(fault, front))


@pytest.mark.parametrize("front", ["openai-chat", "ag-ui", "openai-responses"])
@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
async def test_the_other_http_client_tells_the_same(fault: Fault, front: str) -> None:
    judge(fault, front, await outcome(fault, front, http_client="httptools"))


def judge(fault: Fault, front: str, seen: Outcome) -> None:
    if (fault.name, BACK if front == FRONT else back_of(front)) in LAWFUL:
        assert seen.verdict == ROWS["faults"][fault.name][front] == "whole"
    else:
        held(BACKENDS, fault, front, seen)


@pytest.mark.parametrize("front", AGENTS.fronts)
@pytest.mark.parametrize("fault", agents.FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
async def test_what_a_client_is_told_of_a_broken_agent(fault: AgentFault, front: str) -> None:
    held(AGENTS, fault, front, await agent_outcome(fault, front))


def test_the_tables_have_every_fault_and_every_dialect() -> None:
    for table, known in ((BACKENDS, faults.FAULTS), (AGENTS, agents.FAULTS)):
        assert list(ROWS[table.mark]) == [fault.name for fault in known]
        assert all(set(row) == set(table.columns) for row in ROWS[table.mark].values())
    assert {back_of(front) for front in SPEAKING} == set(SPEAKING)
    assert all(back_of(front) != front for front in SPEAKING)
