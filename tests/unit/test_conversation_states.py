"""Which stored conversation a whole one goes on from."""

from __future__ import annotations

from bridge.model import Message, Reasoning, Text
from bridge.run.conversation.comparison import digest, states_before


def said(role: str, words: str) -> Message:
    return Message(role, [Text(words)])


ONE, TWO, THREE = said("user", "one"), said("assistant", "two"), said("user", "three")


def test_an_answer_without_content_is_no_part_of_a_conversation() -> None:
    for empty in (Message("assistant", []), said("assistant", " "), Message("assistant", [Reasoning("Hm.")])):
        assert digest([ONE, empty]) == digest([ONE])
        assert digest([ONE, empty, THREE]) == digest([ONE, THREE])
    assert digest([ONE, TWO]) != digest([ONE])


def test_the_last_turn_of_a_client_follows_an_answer_that_it_may_have_left_out() -> None:
    assert states_before([ONE]) == []
    assert states_before([ONE, TWO, THREE]) == [[ONE, TWO]]
    assert states_before([ONE, THREE]) == [[ONE]]
    assert states_before([ONE, TWO, ONE, THREE]) == [[ONE, TWO], [ONE, TWO, ONE]]
    assert states_before([ONE, TWO, *[THREE] * 3]) == [[ONE, TWO], [ONE, TWO, THREE, THREE], [ONE, TWO, THREE]]
    assert len(states_before([ONE] * 50)) == 3
