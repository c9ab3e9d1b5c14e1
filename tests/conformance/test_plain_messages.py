"""Messages that are one text take a shorter way than others, and come out the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.contract import WireRequest, registry
from bridge.errors import RequestError, Unsupported
from bridge.model import Message, Request, Text
from bridge.model.error_paths import note_places, place_of
from bridge.model.jsontext import dumps
from bridge.model.parts import plain_text
from bridge.testing.wires import context
from bridge.toolkit.plain import plain_message
from bridge.translation.requirements import encoded

TEXTS = st.one_of(st.sampled_from(["", " ", "\n\t", "\u3000", "x", " x ", "你好"]), st.text(max_size=8))
ROLES = st.sampled_from(["user", "assistant", "system", "developer", "tool", "x", ""])
VALUES = st.recursive(st.one_of(st.none(), st.integers(), TEXTS), lambda each: st.lists(each, max_size=2), max_leaves=3)
FIELDS: dict[str, st.SearchStrategy[Any]] = {"role": st.one_of(ROLES, VALUES), "content": st.one_of(TEXTS, VALUES)}
NULL = {"openai-chat": "name", "anthropic-messages": "name", "openai-responses": "id", "ag-ui": "name"}
"""A field of a message that says nothing where it is null, and makes the message one that is not plain."""


def read(front: str, *messages: dict[str, Any]) -> Any:
    """The messages of a request with these, and their places; or the error."""
    body = {"model": "m", "max_tokens": 5, ("input" if front == "openai-responses" else "messages"): list(messages)}
    if front == "ag-ui":
        body |= {"threadId": "t", "runId": "r", "tools": [], "context": [], "state": {}, "forwardedProps": {}}
    dialect = registry.get(front)
    wire = WireRequest("POST", "", {"content-type": "application/json"}, body=dumps(body))
    try:
        request = dialect.decode_request(wire, context(dialect.front_options()))
    except RequestError as error:
        return error.failure
    note_places(request)
    return request.messages, [place_of(request.messages, part) for each in request.messages for part in each.parts]


@pytest.mark.parametrize("front", NULL)
@given(st.data())
def test_a_plain_message_is_read_as_one_with_a_null(front: str, data: st.DataObject) -> None:
    names = {"id": st.sampled_from(["m1", "", None, 5])} if front == "ag-ui" else {}
    message = data.draw(st.fixed_dictionaries({**names, **FIELDS}))
    assert read(front, message) == read(front, {**message, NULL[front]: None})


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@given(st.sampled_from(["c1", "c2", "", None, 5]), FIELDS["content"])
def test_a_plain_result_of_chat_is_read_as_one_with_a_null(call_id: Any, content: Any) -> None:
    calls = [CALL, {**CALL, "id": "c3"}]
    result = {"role": "tool", "tool_call_id": call_id, "content": content}
    unnamed = {"role": "tool", "content": "which?"}  # of the first call that has no result by then
    found = []
    for message in (result, {**result, "id": None}):
        found.append(read("openai-chat", {"role": "assistant", "content": None, "tool_calls": calls}, message, unnamed))
    assert found[0] == found[1]


def test_what_is_plain() -> None:
    def found(value: Any) -> bool:
        return plain_message(value, {"user"}) is not None

    assert found({"role": "user", "content": "x"})
    assert found({"content": " ", "role": "user"})
    assert not found({"role": "user", "content": ""})
    assert not found({"role": "user", "content": "x", "name": None})
    assert not found({"role": "assistant", "content": "x"})
    assert not found({"role": ["user"], "content": "x"})
    assert not found({"role": "user", "content": ["x"]})
    assert not found({"role": "user"})
    assert not found("x")


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
