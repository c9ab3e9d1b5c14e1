"""The line that counts pairs says what ran, and what of it failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bridge.contract import registry
from tests.pairs.tally import tally


def report(front: str, back: str, *, when: str = "call", failed: bool = False, **more: Any) -> SimpleNamespace:
    properties = [("pair", f"{front} over {back}"), *more.items()]
    return SimpleNamespace(
        nodeid="tests/pairs/test_any.py::test[x]", when=when, failed=failed, duration=1.26, user_properties=properties
    )


def test_pairs_recordings_cases_and_seconds_are_counted() -> None:
    every = len(registry.served()) * len(registry.called())
    ran = [
        report("aip", "ag-ui"),
        report("aip", "ag-ui", recording="ag-ui/x"),
        report("ag-ui", "aip", recording="aip/x"),
        report("ag-ui", "aip", when="setup"),
        report("somebody else", "ag-ui"),
    ]
    assert tally(ran) == f"2 of {every} pairs, 2 recorded answers, 4 cases, all green, 5 s"
    ran.append(report("ag-ui", "aip", when="setup", failed=True))
    assert tally(ran) == f"2 of {every} pairs, 2 recorded answers, 5 cases, 1 of them red, 6 s"


def test_without_pairs_there_is_no_line() -> None:
    other = report("aip", "ag-ui")
    other.nodeid = "tests/unit/test_fold.py::test_x"
    assert tally([other]) is None
    assert tally([]) is None
