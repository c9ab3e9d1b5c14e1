"""What growth takes from a run of the bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import growth_recorded
import growth_server
import growth_shapes

from bridge.contract import FrameLike

TARGETS = Path(growth_server.__file__).parent / "durable.json"


def test_a_kept_event_is_compared_with_a_plain_one() -> None:
    costs = {"not-kept": 100.0, "kept-sqlite": 450.0, "kept-postgresql": 600.0}
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
        "postgresql": 6.0,
        "postgresql_disk_bytes": 10,
    }


def test_what_costs_too_much_is_named() -> None:
    row = {"dialect": "ag-ui", "role": "back", "what": "calls", "mb": 1.0, "ms_per_mb": 900.0, "growth": 7.5}
    data = {"shapes": [{**row, "over": True}, {**row, "over": False}], "recorded": [{"worst": [{**row, "over": True}]}]}
    lines = growth_shapes.over_budget(data)
    assert len(lines) == 2
    assert all("ag-ui (back), calls: 900.0 ms for each MB" in line for line in lines)
    assert growth_shapes.over_budget({}) == []


def test_recorded_answers_grow_in_every_way() -> None:
    shapes = growth_recorded.amplified("anthropic-messages")
    assert {shape.way for shape in shapes} > growth_recorded.WAYS.keys()
    for shape in shapes[:20]:
        small, large = shape.frames(2), shape.frames(40)
        assert len(b"".join(map(data_of, large))) > len(b"".join(map(data_of, small)))
        assert growth_recorded.read(shape.dialect, large)


def data_of(frame: FrameLike) -> bytes:
    return frame if isinstance(frame, bytes) else frame.data
