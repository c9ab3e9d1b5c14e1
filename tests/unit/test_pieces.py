"""A text in pieces knows its length and its beginning without being joined for each piece."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.toolkit.pieces import Pieces


@given(st.lists(st.tuples(st.sampled_from(("append", "size", "text", "begins")), st.text("ab", max_size=3))))
def test_pieces_are_their_text(steps: list[tuple[str, str]]) -> None:
    pieces, text = Pieces(), ""
    for what, more in steps:
        if what == "append":
            pieces.append(more)
            text += more
        elif what == "size":
            assert pieces.size == len(text)
        elif what == "text":
            assert pieces.text == text
        else:
            for other in (more, text, text + more):
                assert pieces.begins(other) is other.startswith(text)
    assert (pieces.size, pieces.text) == (len(text), text)


def test_a_shorter_text_is_not_compared() -> None:
    pieces = Pieces("aaa", "bbb")
    assert not pieces.begins("aaab")
    assert len(pieces) == 2, "joined in vain"
