"""Measures every fault and writes the table of docs/reliability.md anew: `make reliability`."""

from __future__ import annotations

import asyncio

from tests.faults.faults import FAULTS
from tests.faults.measure import outcome, row_of
from tests.faults.table import PAGE, written
from tests.faults.wire import SPEAKING


async def main() -> None:
    rows = {}
    for fault in FAULTS:
        rows[fault.name] = row_of({front: await outcome(fault, front) for front in SPEAKING})
    PAGE.write_text(written(rows), encoding="utf-8")


asyncio.run(main())
