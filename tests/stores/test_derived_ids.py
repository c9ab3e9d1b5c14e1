"""Every name that a store takes has the ids that are made of it."""

from __future__ import annotations

import pytest

from bridge.stores.conversation_store import MAX_KEY, derived_id, fits, stored_id

NAMES = ["a", *("x" * size for size in range(MAX_KEY - 14, MAX_KEY + 1)), "\u6a21" * (MAX_KEY // 3), "\0" * 100]


@pytest.mark.parametrize("after", ["\0tasks", "\0push", "\0answers"])
def test_a_long_name_has_an_id_of_its_own(after: str) -> None:
    ids = [derived_id(name, after=after) for name in NAMES]
    assert all(fits(name) and fits(each) for name, each in zip(NAMES, ids, strict=True))
    assert len({stored_id(each, "owner") for each in ids}) == len(NAMES)
    assert not set(ids) & set(NAMES)


def test_no_name_is_the_derived_id_of_another_one() -> None:
    long = "x" * MAX_KEY
    digest = derived_id(long, after="\0tasks").partition("\0")[0]
    assert derived_id(digest, after="\0tasks") != derived_id(long, after="\0tasks")
