"""`OpenCalls`: which call a result belongs to where the protocol has no ids, or only some."""

from __future__ import annotations

import pytest

from bridge.toolkit.open_calls import OpenCalls


def test_new_ids_are_counted_and_differ_from_those_of_the_conversation() -> None:
    calls = OpenCalls({"call_1", "mine"})
    assert [calls.add("look"), calls.add("look", "mine"), calls.add("find")] == ["call_2", "mine", "call_3"]


@pytest.mark.parametrize(
    ("name", "call_id", "any_tool", "found"),
    [
        ("look", None, False, "call_3"),  # the latest turn first, in its order
        ("find", None, False, "call_2"),  # only an earlier turn has this tool
        ("look", "call_1", False, "call_1"),  # an id counts more than the name
        ("look", "unknown", False, "call_3"),
        ("other", None, False, None),
        ("other", None, True, "call_3"),
        (None, None, True, "call_3"),
        (None, None, False, None),
    ],
)
def test_a_result_finds_its_call(name: str | None, call_id: str | None, any_tool: bool, found: str | None) -> None:
    calls = OpenCalls()
    calls.turn()
    calls.add("look")
    calls.add("find")
    calls.turn()
    calls.add("look")
    calls.add("look")
    taken = calls.take(name, call_id, any_tool=any_tool)
    assert (taken and taken.call_id) == found


def test_each_call_has_one_result() -> None:
    calls = OpenCalls()
    calls.turn()
    ids = [calls.add("look") for _ in range(3)]
    calls.turn()
    taken = [call.call_id for _ in ids if (call := calls.take("look")) is not None]
    assert taken == ids
    assert calls.take("look") is None
    assert calls.take(None, ids[0], any_tool=True) is None
