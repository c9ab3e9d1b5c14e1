"""How much the tests of pairs proved, in one line under their results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bridge.contract import registry

FOLDER = "tests/pairs/"


def tally(reports: Iterable[Any]) -> str | None:
    """The line for these reports of pytest; None where no case of a pair ran.

    A pair is two dialects that are installed: who they are as people and agents (a client that names its talk, the
    second generation of a protocol) makes more cases of it. Seconds are the cases' own, added up.
    """
    mine = [r for r in reports if r.nodeid.startswith(FOLDER) and (r.when == "call" or r.failed)]
    every = {f"{front} over {back}" for front in registry.served() for back in registry.called()}
    told = {property for report in mine for property in report.user_properties}
    pairs = {value for name, value in told if name == "pair"} & every
    if not pairs:
        return None
    recordings = {value for name, value in told if name == "recording"}
    red = sum(report.failed for report in mine)
    return (
        f"{len(pairs)} of {len(every)} pairs, {len(recordings)} recorded answers, {len(mine)} cases, "
        f"{f'{red} of them red' if red else 'all green'}, {sum(r.duration for r in mine):.0f} s"
    )
