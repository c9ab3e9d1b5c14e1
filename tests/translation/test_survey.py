"""One look at the messages of a request finds what rules ask for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.model import Data, Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from bridge.toolkit.caching import CACHE, marked
from bridge.translation.survey import SYSTEM, surveyed

EXTRAS = st.sampled_from([None, {}, {"one": {"a": 1}}, marked(None, 300)])
TEXT = st.builds(Text, st.sampled_from(["", "x"]), EXTRAS)
PARTS: st.SearchStrategy[Part] = st.one_of(
    TEXT,
    st.builds(Refusal, st.just("no"), EXTRAS),
    st.builds(Reasoning, st.just("so"), st.none(), st.none(), EXTRAS),
    st.builds(Data, st.just(1), EXTRAS),
    st.builds(ToolCall, st.just("c"), st.sampled_from(["", "f", "g"]), st.just("{}"), extras=EXTRAS),
    st.builds(ToolResult, st.just("c"), st.lists(TEXT, max_size=2), st.sampled_from([None, "h"]), extras=EXTRAS),
)
MESSAGES = st.lists(
    st.builds(
        Message,
        st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
        st.lists(PARTS, max_size=3),
        name=st.sampled_from([None, "", "me"]),
    ),
    max_size=5,
)


@given(MESSAGES)
def test_a_survey_names_all_that_is_there(messages: list[Message]) -> None:
    found = surveyed(messages)
    parts = [part for message in messages for part in message.parts]
    inner = [part for result in parts if isinstance(result, ToolResult) for part in result.parts]
    assert found.kinds >= set(map(type, parts))
    assert found.kinds <= {Text, *map(type, parts)}
    assert found.extras == {name for part in [*parts, *inner] for name in part.extras or ()}
    assert found.names == {p.name for p in parts if isinstance(p, (ToolCall, ToolResult)) and p.name}
    assert found.has_names == any(message.name for message in messages)
    roles = [message.role in SYSTEM for message in messages]
    assert found.has_several_systems == (sum(roles) > 1)
    assert found.has_later_system == (roles != sorted(roles, reverse=True))
    assert found.is_mixed == any(len(m.parts) > 1 or any(isinstance(p, ToolResult) for p in m.parts) for m in messages)
    assert (CACHE in found.extras) == any(CACHE in (part.extras or {}) for part in [*parts, *inner])
