"""Every fault of a backend, under every dialect: docs/reliability.md says what comes of it, and is held here."""

from __future__ import annotations

import pytest

from tests.faults.faults import FAULTS, LAWFUL, Fault
from tests.faults.measure import back_of, outcome, row_of
from tests.faults.table import COLUMNS, rows
from tests.faults.wire import SPEAKING

ROWS = rows()


@pytest.mark.parametrize("front", SPEAKING)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
async def test_what_a_client_is_told_of_a_broken_backend(fault: Fault, front: str) -> None:
    seen = await outcome(fault, front)
    lawful = (fault.name, back_of(front)) in LAWFUL
    assert (seen.verdict == "whole") is lawful
    assert lawful or seen.verdict in ("error event", "cut") or seen.verdict.startswith("HTTP ")
    assert seen.failure is None or "sk-backend" not in seen.failure.message
    assert seen.arrived != "'Hello w☀'"
    row = row_of({front: seen})
    assert row == {column: ROWS[fault.name][column] for column in row}, "`make reliability` writes the table anew"


def test_the_table_has_every_fault_and_every_dialect() -> None:
    assert list(ROWS) == [fault.name for fault in FAULTS]
    assert all(set(row) == set(COLUMNS) for row in ROWS.values())
    assert {back_of(front) for front in SPEAKING} == set(SPEAKING)
    assert all(back_of(front) != front for front in SPEAKING)
