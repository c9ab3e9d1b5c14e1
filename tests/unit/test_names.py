"""Tool names that a backend forbids."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import ANSWER_FEATURES, REQUEST_FEATURES, Capabilities, Losses, entries, registry
from bridge.model import (
    Message,
    PartKind,
    PartStarted,
    Request,
    TextDelta,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
    ToolResult,
    ToolResulted,
)
from bridge.translation.policies.names import tool_names
from bridge.translation.policies.stages import StageContext, prepare
from bridge.translation.survey import Survey, surveyed

PATTERN = "[a-zA-Z0-9_-]{1,64}"
FREE = Capabilities(entries(ANSWER_FEATURES), entries(REQUEST_FEATURES))
STRICT = replace(FREE, tool_names=PATTERN)
LEGAL = re.compile(PATTERN).fullmatch


def test_every_place_of_a_name_is_changed_and_changed_back() -> None:
    request = Request(
        [
            Message("assistant", [ToolCall("c1", "get.weather", "{}"), ToolCall("c2", "fine", "{}")]),
            Message("tool", [ToolResult("c1", [], "get.weather")], name="get.weather"),
        ],
        tools=[Tool("get.weather"), Tool("fine")],
        tool_choice=ToolChoice(ToolMode.REQUIRED, ["get.weather"]),
    )
    names = tool_names(request, surveyed(request.messages), LEGAL)
    assert names is not None
    sent = names.request
    assert sent.tools is not None
    assert sent.tool_choice is not None
    theirs = sent.tools[0].name
    assert re.fullmatch("get_weather_[0-9a-f]{8}", theirs)
    assert sent.tools[1].name == "fine"
    assert sent.tool_choice.names == [theirs]
    assert [p.name for p in sent.messages[0].parts if isinstance(p, ToolCall)] == [theirs, "fine"]
    assert (sent.messages[1].name, sent.messages[1].parts) == (theirs, [ToolResult("c1", [], theirs)])
    # The client's own request is left as it was.
    assert request.tools is not None
    assert request.tools[0].name == "get.weather"
    events = [
        PartStarted("p", "m", PartKind.TOOL_CALL, "c3", theirs),
        PartStarted("q", "m", PartKind.TOOL_CALL, "c4", "of its own"),
        ToolResulted("c3", [], theirs),
        TextDelta("t", theirs),
    ]
    assert [getattr(e, "name", None) for e in names.restore(events)] == [
        "get.weather",
        "of its own",
        "get.weather",
        None,
    ]
    assert events[0] == PartStarted("p", "m", PartKind.TOOL_CALL, "c3", theirs)


@given(st.lists(st.text(max_size=80), unique=True, max_size=8))
def test_names_stay_legal_and_apart_whatever_they_are(wanted: list[str]) -> None:
    request = Request([], tools=[Tool(n) for n in wanted])
    names = tool_names(request, surveyed(request.messages), LEGAL)
    sent = [t.name for t in (names.request if names else request).tools or ()]
    assert all(re.fullmatch(PATTERN, n) for n in sent)
    assert len(set(sent)) == len(wanted)
    if names is not None:
        back = names.restore([ToolResulted("c", [], n) for n in sent])
        assert [e.name for e in back if isinstance(e, ToolResulted)] == wanted


@pytest.mark.parametrize(("front", "back"), [(FREE, FREE), (STRICT, STRICT)], ids=["any name will do", "one dialect"])
def test_nothing_is_changed_where_nothing_must(front: Capabilities, back: Capabilities) -> None:
    context = StageContext(Request([], tools=[Tool("get.weather")]), front, back, None, Losses())
    assert prepare((), context).request.tools == [Tool("get.weather")]


def test_legal_names_are_left_alone() -> None:
    assert tool_names(Request([], tools=[Tool("get_weather")]), Survey(), LEGAL) is None


BACKS = [name for name in registry.called() if registry.get(name).capabilities.tool_names is not None]


@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize("name", ["21st_builder", "-x", "9", ".", "4" * 70, "a" * 140, "béta tool", ""])
def test_a_name_is_legal_from_its_first_character_and_comes_back(back: str, name: str) -> None:
    card = registry.get(back).capabilities
    assert card.tool_names is not None
    names = tool_names(Request([], tools=[Tool(name)]), Survey(), re.compile(card.tool_names).fullmatch)
    sent = (names.request if names is not None else Request([], tools=[Tool(name)])).tools
    assert sent is not None
    assert re.fullmatch(card.tool_names, sent[0].name)
    if names is not None:
        assert names.restore([ToolResulted("c", [], sent[0].name)]) == [ToolResulted("c", [], name)]
