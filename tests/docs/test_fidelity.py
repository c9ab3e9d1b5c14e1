"""docs/fidelity.md is what the cards say now, and has a section for every pair."""

from __future__ import annotations

import re

from bridge.contract import registry
from tests.docs.fidelity import PAGE, page
from tests.docs.helpers import run
from tests.docs.tables import dialects

WRITTEN = PAGE.read_text(encoding="utf-8")


def test_the_page_is_current() -> None:
    assert page() == WRITTEN, "`make fidelity` writes it anew"


def test_make_fidelity_writes_it() -> None:
    assert run("make", "-n", "fidelity").stdout.decode().endswith("python -m tests.docs.fidelity\n")


def test_every_pair_has_its_section_and_a_link_to_it() -> None:
    every = [registry.get(name) for name in dialects()]
    pairs = [(front.name, back.name) for front in every if front.served for back in every if back.called]
    assert re.findall(r"^### (\S+) over (\S+)$", WRITTEN, re.MULTILINE) == pairs
    assert re.findall(r"\]\(#(\S+)-over-(\S+?)\)", WRITTEN) == pairs
