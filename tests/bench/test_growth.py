"""What growth takes from a run of the bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import growth_server

TARGETS = Path(growth_server.__file__).parent / "durable.json"


def test_a_kept_event_is_compared_with_a_plain_one() -> None:
    costs = {"not-kept": 100.0, "kept-sqlite": 450.0, "kept-redis": 600.0}
    results: list[dict[str, Any]] = [
        {
            "target": target["name"],
            "case": f"{case['front']} -> {case['back']}",
            "runs": [{"cpu_us_per_event": costs[target["name"]], "disk_bytes_per_event": 10.4}],
        }
        for target in json.loads(TARGETS.read_text())["targets"]
        for case in target["cases"]
    ]
    assert growth_server.kept(results) == {
        "sqlite": 4.5,
        "sqlite_disk_bytes": 10,
        "redis": 6.0,
        "redis_disk_bytes": 10,
    }
