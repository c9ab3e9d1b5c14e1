"""What a long conversation costs in bytecodes, step by step. A count, not a time: a change that adds work shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "bench" / "micro"))

import conversation

MARGIN = 1.1
READ, STAGES, WRITE = "read", "stages", "write"
BYTECODES = {
    "plain -> anthropic-messages": {READ: 13_100, STAGES: 4_400, WRITE: 24_200},
    "plain -> openai-chat": {READ: 13_100, STAGES: 4_100, WRITE: 13_900},
    "agent -> anthropic-messages": {READ: 56_300, STAGES: 28_100, WRITE: 48_800},
    "agent -> openai-chat": {READ: 56_300, STAGES: 17_800, WRITE: 45_000},
}
"""For 100 messages, as measured; lower them when the code gets better."""


@pytest.mark.parametrize("name", BYTECODES)
def test_bytecodes_of_a_long_conversation_do_not_grow(name: str) -> None:
    steps = conversation.passages()[name].steps()
    found = {step: conversation.bytecodes(steps[step]).total() for step in BYTECODES[name]}
    assert {step: number for step, number in found.items() if number > BYTECODES[name][step] * MARGIN} == {}
    assert min(found.values()) > 1_000, "they must be counted at all"


def test_a_plain_conversation_passes_all_stages_without_a_copy() -> None:
    for back in conversation.BACKS:
        passage = conversation.Passage(conversation.plain(), back)
        request = passage.read()
        assert passage.stages(request) is request


@pytest.mark.parametrize("kind", conversation.BODIES)
def test_each_message_costs_the_same(kind: str) -> None:
    """Both are checked for depth, as only bodies with more than 200 objects and lists are."""
    make = conversation.BODIES[kind]
    few, many = (conversation.Passage(make(n), "anthropic-messages").steps() for n in (210, 420))
    for step in (READ, STAGES, WRITE):
        small, large = (conversation.bytecodes(steps[step]).total() for steps in (few, many))
        assert large < 2.1 * small
