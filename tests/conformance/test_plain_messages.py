"""Messages that are one text take a shorter way than others, and come out the same."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.codec import registry
from bridge.codec.check import Node
from bridge.dialects.openai_chat.messages import MessageReader, plain_message
from bridge.errors import RequestError, Unsupported
from bridge.model import Message, Request, Text
from bridge.model.parts import plain_text
from bridge.testing.wires import context
from bridge.translation.requirements import encoded

TEXTS = st.one_of(st.sampled_from(["", " ", "\n\t", "\u3000", "x", " x ", "你好"]), st.text(max_size=8))
ROLES = st.sampled_from(["user", "assistant", "system", "developer", "tool", "x"])
VALUES = st.recursive(st.one_of(st.none(), st.integers(), TEXTS), lambda each: st.lists(each, max_size=2), max_leaves=3)
WIRE = st.one_of(
    st.fixed_dictionaries({"role": ROLES, "content": TEXTS}),
    st.dictionaries(st.sampled_from(["role", "content", "name", "refusal"]), st.one_of(ROLES, VALUES), max_size=4),
    VALUES,
)


def read(value: dict[str, Any]) -> Message | None:
    with suppress(RequestError):
        return MessageReader(str).read(Node(value, "messages[0]"))
    return None


@settings(max_examples=300, deadline=None)
@given(WIRE)
def test_a_plain_message_of_chat_is_read_as_any_other(value: Any) -> None:
    found = plain_message(value)
    if found is not None:
        assert found == read(value)
    assert (found is not None) == (
        isinstance(value, dict)
        and value.keys() == {"role", "content"}
        and value["role"] in ("user", "assistant", "system", "developer")
        and isinstance(value["content"], str)
        and value["content"] != ""
    )


SAID = st.tuples(st.sampled_from(["user", "assistant", "system"]), TEXTS)


@pytest.mark.parametrize("name", registry.called())
@settings(max_examples=40, deadline=None)
@given(st.lists(SAID, min_size=1, max_size=6))
def test_a_message_with_a_field_of_an_unknown_dialect_is_written_as_one_without(
    name: str, said: list[tuple[str, str]]
) -> None:
    """The field makes the message one that is not plain, and says nothing to a dialect that does not know it."""
    dialect = registry.get(name)
    plain = [Message(role, [Text(text)], f"m{n}") for n, (role, text) in enumerate(said)]
    noted = [replace(message, extras={"unknown": {"x": 1}}) for message in plain]
    assert None not in map(plain_text, plain)
    assert set(map(plain_text, noted)) == {None}
    written: list[Any] = []
    for messages in (plain, noted):
        request = Request(messages, model="m")
        try:
            wire = encoded(dialect, request, context(dialect.back_options(), request))
        except Unsupported as error:
            written.append(error.message)
        else:
            written.append((wire.path, wire.body))
    assert written[0] == written[1]
