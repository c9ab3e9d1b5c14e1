"""SECURITY.md and THREAT_MODEL.md point at tests and files that are there."""

from __future__ import annotations

import re

import pytest

from tests.docs.helpers import ROOT


@pytest.mark.parametrize("page", ["SECURITY.md", "THREAT_MODEL.md", "docs/reliability.md"])
def test_what_is_pointed_at_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    cells = re.findall(r"`tests/[^|\n]*", text)
    named = [name for cell in cells for name in re.findall(r"`(tests/[\w/]+(?:\.py)?|test_\w+\.py)`", cell)]
    assert named
    for name in named:
        near = [ROOT / name, *(ROOT / "tests").glob(f"*/{name}")]
        assert any(path.exists() for path in near), name
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), target
