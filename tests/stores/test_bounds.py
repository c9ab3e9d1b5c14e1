"""What goes when a talk is over its bounds, as a rule of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.stores import Bounds
from bridge.stores.bounds import MessageSize, surplus


@dataclass
class Dialogue:
    entries: list[MessageSize] = field(default_factory=list)
    commit: int = 1
    calls: int = 0

    def add(self, role: str, size: int = 1, calls: tuple[str, ...] = (), results: tuple[str, ...] = ()) -> None:
        self.entries.append(MessageSize(role, size, self.commit, calls, results))


@st.composite
def conversations(draw: st.DrawFn) -> list[MessageSize]:
    """Late, missing and repeated results, ids used twice, failed runs, calls and results in one message."""
    conversation = Dialogue()
    waiting: list[str] = []
    for kind in draw(st.lists(st.sampled_from("suuaacccrrn"), max_size=30)):
        size = draw(st.integers(1, 9))
        if kind == "n":
            conversation.commit += 1
        elif kind == "c":
            ids = tuple(draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=2, unique=True)))
            both = draw(st.booleans())
            conversation.add("assistant", size, ids, ids[:1] if both else ())
            waiting += ids[1:] if both else ids
        elif kind == "r":
            results = tuple(waiting.pop(draw(st.integers(0, len(waiting) - 1))) for _ in waiting[:1]) or ("unknown",)
            conversation.add(draw(st.sampled_from(("tool", "user"))), size, (), results)
        else:
            conversation.add({"s": "system", "u": "user", "a": "assistant"}[kind], size)
    return conversation.entries


def pairs(entries: list[MessageSize]) -> list[tuple[int, int]]:
    """Places of calls and of their results."""
    out, called = [], {}
    for place, entry in enumerate(entries):
        # A result in the message of its call belongs to an older call of that id when there is one, else to none.
        out += [(called[call_id], place) for call_id in entry.results if call_id in called]
        called |= dict.fromkeys(entry.calls, place)
    return out


@given(conversations(), st.integers(1, 20), st.integers(1, 80))
def test_the_rules_hold(entries: list[MessageSize], messages: int, size: int) -> None:
    bounds = Bounds(messages=messages, size=size)
    gone = surplus(entries, bounds)
    assert gone == sorted(set(gone))
    kept = [n for n in range(len(entries)) if n not in set(gone)]
    fits = len(entries) <= messages and sum(e.size for e in entries) <= size
    assert not (fits and gone)
    for call, result in pairs(entries):
        assert (call in kept) == (result in kept)
    lead = next((n for n, e in enumerate(entries) if e.role not in ("system", "developer") or e.commit != 1), None)
    assert set(range(lead or 0)) <= set(kept)
    asked = [n for n, e in enumerate(entries) if e.role == "user"]
    if asked and not any(e.role == "system" for e in entries[asked[-1] :]):
        assert asked[-1] in kept, "the newest question"
    if entries:
        assert len(entries) - 1 in kept, "the newest message"
    again = [entries[n] for n in kept]
    assert surplus(again, bounds) == [], "done once, done"


def test_no_more_goes_than_must() -> None:
    entries = [MessageSize("system", 1, 1)]
    for n in range(10):
        entries += [MessageSize("user", 1, n + 1), MessageSize("assistant", 1, n + 1)]
    assert surplus(entries, Bounds(messages=21)) == []
    assert surplus(entries, Bounds(messages=20)) == [1, 2]
    assert surplus(entries, Bounds(messages=5, size=100)) == list(range(1, 17))
    assert surplus(entries, Bounds(messages=100, size=5)) == list(range(1, 17))
    assert surplus(entries, Bounds(messages=1)) == list(range(1, 19))


def test_questions_of_failed_runs_are_turns() -> None:
    entries = [MessageSize("user", 1, n // 2) for n in range(10)]
    assert surplus(entries, Bounds(messages=3)) == list(range(8)), "two that came together stay together"
    entries = [MessageSize("system", 1, n) for n in range(10)]
    assert surplus(entries, Bounds(messages=3)) == list(range(1, 8))


def test_an_open_call_waits_for_its_result() -> None:
    old = [
        MessageSize("user", 1, 1),
        MessageSize("assistant", 1, 1, ("a",)),
        MessageSize("user", 1, 2),
        MessageSize("assistant", 1, 2),
    ]
    assert surplus(old, Bounds(messages=2)) == [0, 1], "nobody will answer it"
    now = [MessageSize("user", 1, 1), MessageSize("assistant", 1, 1, ("a",)), MessageSize("assistant", 1, 1)]
    assert surplus(now, Bounds(messages=1)) == []


@pytest.mark.parametrize("count", [20_000])
def test_large_talks_take_no_time(count: int) -> None:
    """Quadratic work would run into the test's time limit."""
    roles = ("user", "assistant", "tool", "assistant")
    links: list[dict[str, tuple[str, ...]]] = [{}, {"calls": ("a",)}, {"results": ("a",)}, {}]
    entries = [MessageSize(roles[n % 4], 1, n // 4, **links[n % 4]) for n in range(count)]
    assert len(surplus(entries, Bounds(messages=8))) == count - 8
