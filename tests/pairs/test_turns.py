"""Tests that take turns (`pytest.mark.turns`): a commit runs each pair in some of them."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from bridge.contract import registry
from tests.pairs.test_talks import PAIRS

ROOT = Path(__file__).parents[2]
BOTH = set(registry.served()) & set(registry.called())
TALKS = {f"{front} to {back}" for front, back in PAIRS}
GENERATED = {f"{back}-{front}" for back in BOTH for front in BOTH}


@cache
def listed() -> list[str]:
    """The cases of these modules that a commit runs."""
    modules = ("tests/pairs/test_talks.py", "tests/pairs/test_generated.py")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *modules]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("module", "pairs"), [("test_talks.py", TALKS), ("test_generated.py", GENERATED)], ids=["talks", "generated"]
)
def test_every_pair_has_a_turn(module: str, pairs: set[str]) -> None:
    run: dict[str, set[str]] = {}
    for line in listed():
        test, bracket, case = line.rstrip("]").partition("[")
        if f"/{module}::" in test and bracket and case in pairs:
            run.setdefault(test, set()).add(case)
    taking = {test: cases for test, cases in run.items() if len(cases) < len(pairs)}
    assert len(taking) > 8, "these tests take no turns"
    assert set().union(*taking.values()) == pairs
