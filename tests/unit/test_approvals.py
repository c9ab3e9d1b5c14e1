"""The forms in which frameworks ask people, and that every client's answer reaches them in their form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model import Interrupted, Message, Request, Resume, Text, ToolCall, interrupt_text
from bridge.model.text import ASKED, question_of
from bridge.run.conversation.interrupts import settle
from bridge.toolkit.approvals import CALLS, mastra_question, question_in

ORIGINAL = {"id": "o", "name": "delete_file", "args": {"path": "a.txt"}}
CONFIRM = {"originalFunctionCall": ORIGINAL, "toolConfirmation": {"hint": "Delete a.txt?", "confirmed": False}}


def asking(name: str, arguments: Any) -> ToolCall:
    return ToolCall("h", name, json.dumps(arguments))


def confirmation() -> Interrupted:
    asked = question_in(asking("adk_request_confirmation", CONFIRM))
    assert asked is not None
    assert asked.call is not None
    return Interrupted("i", asked.reason, asked.payload, asked.call.call_id, {"a2a": {"notes": {"task": "T"}}})


def test_a_confirmation_of_adk_is_a_question_about_the_call_that_waits() -> None:
    asked = question_in(asking("adk_request_confirmation", CONFIRM))
    assert asked is not None
    assert asked.call == ToolCall("o", "delete_file", '{"path":"a.txt"}')
    assert interrupt_text(confirmation()) == "Delete a.txt?"
    silent = question_in(asking("adk_request_confirmation", {"originalFunctionCall": ORIGINAL}))
    assert silent is not None
    assert question_of(Interrupted("i", silent.reason, silent.payload)) == "The agent asks for approval."


@pytest.mark.parametrize(
    ("answer", "yes"),
    [
        (Resume("i", "resolved"), True),
        (Resume("i", "resolved", True), True),
        (Resume("i", "resolved", "yes"), True),
        (Resume("i", "resolved", "Ok."), True),
        (Resume("i", "resolved", {"approved": True}), True),
        (Resume("i", "resolved", {"approve": True}), True),
        (Resume("i", "resolved", {"confirmed": True}), True),
        (Resume("i", "resolved", {"confirmed": "yes", "more": 1}), True),
        (Resume("i", "resolved", False), False),
        (Resume("i", "resolved", "no"), False),
        (Resume("i", "resolved", "only b.txt"), False),
        (Resume("i", "resolved", {"approved": False, "reason": "No."}), False),
        (Resume("i", "resolved", {"confirmed": False}), False),
        (Resume("i", "cancelled"), False),
        (Resume("i", "cancelled", {"approved": False}), False),
    ],
)
def test_every_answer_is_the_confirmation_that_adk_takes(answer: Resume, yes: bool) -> None:
    request = Request("delete it")
    request.resume = [answer]
    (formed,) = settle([confirmation()], request, [], native=True).resume
    assert (formed.decision, formed.payload) == ("resolved", {"confirmed": yes})
    assert formed.extras == {"a2a": {"notes": {"task": "T"}}}


@pytest.mark.parametrize(("word", "yes"), [("yes", True), ("好的", True), ("no", False), ("rather not", False)])
def test_the_words_of_a_user_are_one_too(word: str, yes: bool) -> None:
    new = [Message("user", [Text(word)])]
    (formed,) = settle([confirmation()], Request("x"), new, native=False).resume
    assert formed.payload == {"confirmed": yes}


def test_what_adk_asks_for_is_its_message() -> None:
    schema = {"type": "string"}
    asked = question_in(
        asking("adk_request_input", {"interruptId": "x", "message": "Which?", "responseSchema": schema})
    )
    assert asked is not None
    assert asked.call is None
    assert asked.payload == {"message": "Which?", "responseSchema": schema}
    assert interrupt_text(Interrupted("i", asked.reason, asked.payload)) == "Which?"


def test_questions_of_mastra() -> None:
    data = {"toolCallId": "k", "toolName": "pay", "args": {"n": 1}, "resumeSchema": "{}"}
    found = mastra_question("tool-call-approval", data, None)
    assert found is not None
    call_id, asked = found
    assert call_id == "k"
    assert question_of(Interrupted("k", asked.reason, asked.payload)) == 'pay({"n":1})'
    assert asked.payload["responseSchema"]["required"] == ["approved"]
    suspended = mastra_question("tool-call-suspended", {"toolName": "pay", "suspendPayload": {"message": "Pay?"}}, "k")
    assert suspended is not None
    assert question_of(Interrupted("k", "tool_call", suspended[1].payload)) == "Pay?"
    assert mastra_question("tool-call-approval", {}, None) is None
    assert mastra_question("weather", data, "k") is None


@pytest.mark.parametrize(
    ("reason", "payload", "text"),
    [
        ("tool_call", {"responseSchema": {"type": "object"}}, "The agent asks for approval."),
        ("tool_call", {"expiresAt": "2030-01-01T00:00:00Z"}, "The agent asks for approval."),
        ("confirmation", {"responseSchema": {}, "expiresAt": "x"}, "The agent asks for approval."),
        ("input_required", {"responseSchema": {"type": "object"}}, "The agent waits for an answer."),
        ("input_required", None, "The agent waits for an answer."),
        ("auth_required", None, "The agent waits for an answer."),
        ("input_required", {"city": "?"}, '{"city":"?"}'),
        ("deploy", {"to": "x"}, 'deploy: {"to":"x"}'),
        ("deploy", None, "deploy"),
        ("tool_call", {"message": "Really?", "responseSchema": {}}, "Really?"),
    ],
)
def test_people_read_no_fields_for_programs(reason: str, payload: Any, text: str) -> None:
    assert interrupt_text(Interrupted("i", reason, payload)) == text


def test_a_question_that_the_answer_has_is_not_said_again() -> None:
    asked = Interrupted("i", "input_required", "Which city?", extras={ASKED: {}})
    assert (interrupt_text(asked), question_of(asked)) == ("", "Which city?")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["originalFunctionCall", "toolConfirmation", "name", "args", "hint", "message", "toolCallId"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(st.sampled_from(list(CALLS)), JSON)
def test_any_arguments_of_an_asking_call_are_read(name: str, arguments: Any) -> None:
    asked = question_in(asking(name, arguments))
    if asked is not None:
        assert question_of(Interrupted("i", asked.reason, asked.payload))
    assert question_in(ToolCall("h", name, "not JSON")) is None


@given(st.sampled_from(["tool-call-approval", "tool-call-suspended"]), JSON, JSON)
def test_any_data_part_is_read(kind: str, data: Any, part_id: Any) -> None:
    found = mastra_question(kind, data, part_id)
    if found is not None:
        assert question_of(Interrupted(found[0], found[1].reason, found[1].payload))
