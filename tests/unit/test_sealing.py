"""Values that pass through clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import Sealer

ONE, OTHER = Sealer(b"a" * 32), Sealer(b"b" * 32)


@given(
    purpose=st.text(max_size=8),
    owner=st.text(max_size=8),
    value=st.dictionaries(st.text(max_size=4), st.integers(-9, 9)),
)
def test_a_sealed_value_is_opened_by_who_sealed_it(purpose: str, owner: str, value: dict[str, int]) -> None:
    purpose, owner = purpose.replace("\0", ""), owner.replace("\0", "")
    text = ONE.seal(purpose, owner, value)
    assert text.isascii()
    assert text.isprintable()
    assert ONE.open(purpose, owner, text) == value
    assert OTHER.open(purpose, owner, text) is None
    assert ONE.open(purpose, f"{owner}x", text) is None
    assert ONE.open(f"{purpose}x", owner, text) is None


@pytest.mark.parametrize("text", ["", ".", "a", "a.b", "é.ü", "\ud800.\ud800", "e30.", "x" * 100_000])
def test_other_texts_are_not_opened(text: str) -> None:
    assert ONE.open("p", "o", text) is None
    assert ONE.marked("p", "o", text) is None


def test_every_changed_character_is_noticed() -> None:
    text = ONE.seal("p", "o", {"a": 1})
    name = ONE.mark("p", "o", "thread")
    assert ONE.marked("p", "o", name) == "thread"
    for place in range(len(text)):
        assert ONE.open("p", "o", f"{text[:place]}~{text[place + 1 :]}") is None
    for place in range(len(name)):
        assert ONE.marked("p", "o", f"{name[:place]}~{name[place + 1 :]}") is None
    assert ONE.marked("p", "x", name) is None
    assert OTHER.marked("p", "o", name) is None
