"""What every test shares: how long generated tests look for a counterexample, and the sum of what pairs proved.

`HYPOTHESIS_PROFILE=long` searches much longer. In CI (the variable `CI` is set) the same examples come every time, so
that a red build is red again; at a desk they differ from run to run.
"""

from __future__ import annotations

import gc
import os
from collections import Counter

import pytest
from aiohttp import web_app
from hypothesis import HealthCheck, settings

from tests.pairs.tally import tally

# Slow machines make slow examples; how long one takes says nothing about the code under test.
_QUIET = (HealthCheck.too_slow,)

settings.register_profile("default", deadline=None, max_examples=60, suppress_health_check=_QUIET)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("long", settings.get_profile("default"), max_examples=3000)

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


# Imports and test items are garbage to nobody: collecting while they are made is a quarter of the time it takes.
gc.disable()

# aiohttp remembers the last thousand pairs of a handler and its applications, and with them whole servers.
_SERVERS = [found for found in vars(web_app).values() if hasattr(found, "cache_clear")]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the cases that `make test` leaves out as slow, and those that a commit leaves out as `rest`.

    `sampled(n)`: all but every n-th case are slow. Where n has no divisor in common with the numbers of frontends and
    backends, each of them is among these cases.

    `turns(n)`: all are rest but every n-th, counted along the diagonals of the table of parameters, so that each row
    and each column of n cases or more has some. Each test of a module begins with another diagonal: where there are n
    tests or more, every case is in some of them. What `make test` runs is never rest.
    """
    cases: Counter[str] = Counter()
    ordinals: dict[tuple[str, str], dict[int, int]] = {}
    tests: dict[str, dict[str, int]] = {}
    marks: dict[str, tuple[pytest.Mark | None, pytest.Mark | None]] = {}
    for item in items:
        test = item.nodeid.partition("[")[0]
        if test not in marks:
            marks[test] = item.get_closest_marker("sampled"), item.get_closest_marker("turns")
        sampled, turns = marks[test]
        left = sampled is None or cases[test] % sampled.args[0] != 0
        cases[test] += 1
        if sampled and left:
            item.add_marker(pytest.mark.slow)
        parameters = item.callspec.params if turns and hasattr(item, "callspec") else {}
        if turns and parameters:
            siblings = tests.setdefault(test.partition("::")[0], {})
            place = siblings.setdefault(test, len(siblings))
            for name, value in parameters.items():
                seen = ordinals.setdefault((test, name), {})
                place += seen.setdefault(id(value), len(seen))
            if place % turns.args[0] and left:
                item.add_marker(pytest.mark.rest)


def pytest_collection_finish() -> None:
    """Takes what was imported and collected out of the garbage collector's sight.

    It would stop every loop under test for half a second each time (measured, on an idle machine), on which clocks run.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """Lets go of the servers of the test: hundreds of them make every later collection take seconds."""
    for found in _SERVERS:
        found.cache_clear()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    kinds = ("passed", "failed", "error")
    reports = [r for kind in kinds for r in terminalreporter.stats.get(kind, ()) if isinstance(r, pytest.TestReport)]
    if line := tally(reports):
        terminalreporter.write_sep("=", f"pairs: {line}")
