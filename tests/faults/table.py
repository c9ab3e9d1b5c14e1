"""The table of docs/reliability.md: `make reliability` writes it anew, `test_backends.py` holds it row by row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.faults.wire import SPEAKING

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
_SPAN = re.compile(r"(<!-- faults -->\n).*?(<!-- /faults -->)", re.DOTALL)

Row = Mapping[str, str]
"""Column -> cell, without the fault's name."""

COLUMNS = (*SPEAKING, "backend saw", "of what it had said, the client got")


def written(rows: Mapping[str, Row]) -> str:
    """The page with this table."""
    head = ["| fault | " + " | ".join(f"`{c}`" if c in SPEAKING else c for c in COLUMNS) + " |"]
    head.append("|---" * (len(COLUMNS) + 1) + "|")
    lines = [f"| {name} | " + " | ".join(row[c] for c in COLUMNS) + " |" for name, row in rows.items()]
    text, found = _SPAN.subn(
        lambda m: f"{m[1]}" + "\n".join([*head, *lines]) + f"\n{m[2]}", PAGE.read_text(encoding="utf-8"), count=1
    )
    assert found, "docs/reliability.md has no <!-- faults --> ... <!-- /faults -->"
    return text


def rows() -> dict[str, dict[str, str]]:
    """The table as it stands on the page."""
    found = _SPAN.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    lines = found[0].split("\n")[3:-1]
    return {cells[0]: dict(zip(COLUMNS, cells[1:], strict=True)) for cells in map(_cells, lines)}


def _cells(line: str) -> Sequence[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
