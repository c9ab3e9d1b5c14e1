"""The page on scale says what was measured and reckoned, and no hand has changed a table."""

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
    import simulate

    yield growth_report, simulate
    for name in ("growth_report", "simulate"):
        sys.modules.pop(name)


@pytest.fixture
def data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "growth.json").read_text())
    return found


def test_the_tables_are_what_was_measured(bench: Any, data: dict[str, Any]) -> None:
    report, _ = bench
    page = (ROOT / "docs" / "scale.md").read_text()
    assert report.filled(page, data) == page, "run: python bench/growth.py tables"
    data["streams"][-1]["cpu_us_event"] += 1
    assert report.filled(page, data) != page


def test_a_page_without_a_place_is_refused(bench: Any, data: dict[str, Any]) -> None:
    report, _ = bench
    with pytest.raises(ValueError, match="no place for codecs"):
        report.filled("# Empty", data)


def test_the_model_of_a_cluster(bench: Any, data: dict[str, Any]) -> None:
    _, simulate = bench
    costs, world = simulate.Costs.of(data), simulate.World()
    small, large = (simulate.cluster(n, costs, world) for n in (10_000, 1_000_000))
    assert 95 <= large.processes / small.processes <= 105
    assert large.redis_shards == -(-1_000_000 * world.events // costs.redis_shard)
    storms = [simulate.storm(n, costs, world) for n in (2, 10)]
    assert storms == [simulate.storm(n, costs, world) for n in (2, 10)], "the same each time"
    assert storms[0].peak > 2 * world.load > storms[1].peak > world.load
