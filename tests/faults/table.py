"""The tables of docs/reliability.md: `make reliability` writes them anew, the tests hold them row by row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.callers import FRONT
from tests.faults.measure import Outcome, row_of
from tests.faults.wire import SPEAKING

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"

Row = Mapping[str, str]
"""Column -> cell, without the fault's name."""


@dataclass(frozen=True)
class Table:
    """One table of the page, between `<!-- mark -->` and `<!-- /mark -->`; its last columns are `saw` and `got`."""

    mark: str
    fronts: Sequence[str]
    saw: str
    got: str = "part of its content that the client got"

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.fronts, self.saw, self.got)

    def row(self, outcomes: dict[str, Outcome]) -> dict[str, str]:
        return row_of(outcomes, self.saw, self.got)

    def write(self, rows: Mapping[str, Row]) -> None:
        """Puts these rows on the page."""
        head = ["| fault | " + " | ".join(f"`{c}`" if c in self.fronts else c for c in self.columns) + " |"]
        head.append("|---" * (len(self.columns) + 1) + "|")
        lines = [f"| {name} | " + " | ".join(row[c] for c in self.columns) + " |" for name, row in rows.items()]
        table = "\n".join([*head, *lines])
        before, _, after = self._parts()
        PAGE.write_text(f"{before}\n{table}\n{after}", encoding="utf-8")

    def rows(self) -> dict[str, dict[str, str]]:
        """The table as it stands on the page."""
        lines = self._parts()[1].strip().split("\n")[2:]
        return {cells[0]: dict(zip(self.columns, cells[1:], strict=True)) for cells in map(_cells, lines)}

    def _parts(self) -> tuple[str, str, str]:
        found = re.fullmatch(
            rf"(.*<!-- {self.mark} -->)\n(.*?)(<!-- /{self.mark} -->.*)", PAGE.read_text(encoding="utf-8"), re.DOTALL
        )
        assert found is not None, f"docs/reliability.md has no <!-- {self.mark} --> ... <!-- /{self.mark} -->"
        return found[1], found[2], found[3]


def _cells(line: str) -> Sequence[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


BACKENDS = Table("faults", (*SPEAKING, FRONT), "backend saw")
AGENTS = Table("agents", SPEAKING, "agent saw")
