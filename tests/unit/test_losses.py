"""Losses keep each detail of a feature, up to a bound."""

from __future__ import annotations

from bridge.contract import Feature, Losses
from bridge.contract.context import MOST_DETAILS


def test_different_details_of_a_feature_are_kept() -> None:
    lost = Losses()
    for detail in ("fields of other dialects", "prompt cache markers", "fields of other dialects", ""):
        lost.add(Feature.EXTRAS, detail)
    lost.add(Feature.STATE)
    assert lost.names == ["extras", "state"]
    assert lost.details == {"extras": "fields of other dialects; prompt cache markers", "state": ""}


def test_a_copy_is_not_changed_with_the_original() -> None:
    lost = Losses()
    lost.add(Feature.EXTRAS, "one")
    before = lost.copy()
    lost.add(Feature.EXTRAS, "two")
    assert before.details == {"extras": "one"}
    lost.rewind(before)
    lost.add(Feature.EXTRAS, "three")
    assert (lost.details, before.details) == ({"extras": "one; three"}, {"extras": "one"})


def test_the_details_are_bounded() -> None:
    lost = Losses()
    for number in range(100):
        lost.add(Feature.RAW, f"event {number}")
    assert lost.details["raw"].count(";") == MOST_DETAILS - 1
