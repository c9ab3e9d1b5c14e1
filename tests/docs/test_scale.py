"""The page on scale says what was measured, and no hand has changed a table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules of the harness, which is no package."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import growth_report

    yield growth_report
    sys.modules.pop("growth_report")


@pytest.fixture
def data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "growth.json").read_text())
    return found


def test_the_tables_are_what_was_measured(bench: Any, data: dict[str, Any]) -> None:
    report = bench
    page = (ROOT / "docs" / "scale.md").read_text()
    assert report.filled(page, data) == page, "run: python bench/growth.py tables"
    data["streams"][-1]["cpu_us_event"] += 1
    assert report.filled(page, data) != page


def test_a_page_without_a_place_is_refused(bench: Any, data: dict[str, Any]) -> None:
    report = bench
    with pytest.raises(ValueError, match="no place for codecs"):
        report.filled("# Empty", data)
