"""Questions of a run to a person: how they are told, and how the answer is understood."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from bridge.errors import ErrorCode, RequestError
from bridge.model import Interrupted, Message, Request, Resume, Text, ToolResult, interrupt_text
from bridge.run.conversation.interrupts import settle

ASKED = Interrupted("int-1", "confirmation", {"message": "Go on?"})
CALL = Interrupted("int-2", "tool_call", None, "call_1")
SEND = {"name": "send", "args": {}}
SUSPENDED = {"toolName": "process_expense", "args": {"amount": 250}}


def user(text: str) -> Message:
    return Message("user", [Text(text)])


def result(call_id: str, text: str) -> Message:
    return Message("tool", [ToolResult(call_id, [Text(text)])])


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (ASKED, "Go on?"),
        (Interrupted("i", "r", {"question": "Which?", "more": 1}), "Which?"),
        (Interrupted("i", "r", "In words"), "In words"),
        (CALL, "The agent asks for approval."),
        (Interrupted("i", "r", {"message": " ", "a": 1}), 'r: {"message":" ","a":1}'),
        (Interrupted("i", "approval", {"name": "wipe", "arguments": '{"a":1}'}), 'approval: wipe({"a":1})'),
        (Interrupted("i", "approval", {"name": "wipe", "arguments": {"a": 1}}), 'approval: wipe({"a":1})'),
        (
            Interrupted("i", "approval", {"name": "wipe", "arguments": "{}", "message": "Sure?"}),
            "wipe({})\n\nSure?",
        ),
        (
            Interrupted("i", "mastra:tool_suspend", {"message": "Pay?", "metadata": {"mastra": SUSPENDED}}),
            'process_expense({"amount":250})\n\nPay?',
        ),
        (
            Interrupted("i", None, {"action_requests": [SEND, {**SEND, "description": "Send it?"}]}),
            "send({})\n\nSend it?",
        ),
        (
            Interrupted("i", "suspend", {"metadata": {"mastra": SUSPENDED}}),
            'suspend: process_expense({"amount":250})',
        ),
        (
            Interrupted("i", "suspend", {"metadata": {"mastra": {**SUSPENDED, "suspendPayload": {"message": "Pay?"}}}}),
            'process_expense({"amount":250})\n\nPay?',
        ),
        (
            Interrupted("i", "suspend", {"metadata": {"mastra": {**SUSPENDED, "suspendPayload": {"limit": 9}}}}),
            'process_expense({"amount":250})\n\n{"limit":9}',
        ),
        (Interrupted("i", None, [1, 2]), "[1,2]"),
        (Interrupted("i", None, 0), "0"),
        (Interrupted("i", "why"), "why"),
        (Interrupted("i"), "The agent waits for an answer."),
    ],
)
def test_how_a_question_is_told(event: Interrupted, text: str) -> None:
    assert interrupt_text(event) == text


@pytest.mark.parametrize(
    ("payload", "agrees"),
    [
        (None, True),
        (True, True),
        (False, False),
        ({"approve": True}, True),
        ({"approved": True, "note": "x"}, True),
        ({}, True),
        ({"approved": False}, False),
        ({"approve": "no"}, False),
        ({"approved": "Yes"}, True),
        ({"approve": 1}, False),
        ({"confirmed": False}, False),  # google-adk
        ({"accepted": False, "steps": []}, False),  # CopilotKit, microsoft/agent-framework
        ({"accepted": True, "steps": []}, True),
        ({"allow": "no"}, False),
        ({"action": "decline"}, False),  # MCP
        ({"action": "accept", "content": {}}, True),
        ({"type": "ignore", "args": None}, False),  # LangGraph, before decisions
        ({"type": "accept", "args": None}, True),
        ({"decisions": [{"type": "approve"}, {"type": "reject"}]}, False),  # LangChain
        ({"decisions": [{"type": "approve"}]}, True),
        ({"decisions": []}, False),
        ({"decision": "REJECT"}, False),
        ({"answer": False}, False),
        ({"sure": False}, False),
        ({"path": "b.txt", "always": False}, True),
        ("yes", True),
        (" OK! ", True),
        ("同意。", True),
        ("no", False),
        ("yes, but only the first one", False),
        ("", False),
        (1, False),
        ([], False),
    ],
)
def test_what_is_a_yes(payload: Any, agrees: bool) -> None:
    assert Resume("i", "resolved", payload).agrees is agrees
    assert Resume("i", "cancelled", payload).agrees is False


def test_an_answer_by_id() -> None:
    answer = Resume("int-1", "resolved", "x")
    settled = settle([ASKED, CALL], Request([], resume=[answer]), [], native=True)
    assert (settled.resume, settled.unanswered) == ([answer], [])


def test_an_answer_without_an_id_means_the_open_one() -> None:
    settled = settle([ASKED], Request([], resume=[Resume("", "resolved", "x")]), [], native=True)
    assert settled.resume == [Resume("int-1", "resolved", "x")]


def test_an_answer_without_an_id_means_all_that_no_other_answer_names() -> None:
    named, unnamed = Resume("int-1", "resolved", "x"), Resume("", "resolved", "y")
    other = replace(ASKED, interrupt_id="int-2")
    settled = settle([ASKED, other], Request([], resume=[unnamed]), [], native=True)
    assert settled.resume == [Resume("int-1", "resolved", "y"), Resume("int-2", "resolved", "y")]
    settled = settle([ASKED, other], Request([], resume=[named, unnamed]), [], native=True)
    assert settled.resume == [named, Resume("int-2", "resolved", "y")]


@pytest.mark.parametrize("name", ["int-9", ""])
def test_an_answer_to_nothing_is_a_conflict(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        settle([] if name == "" else [ASKED], Request([], resume=[Resume(name, "resolved")]), [], native=True)
    assert caught.value.code is ErrorCode.CONFLICT


def test_old_answers_of_a_client_that_repeats_the_talk_are_no_conflict() -> None:
    request = Request([user("old"), user("new")], resume=[Resume("int-0", "resolved"), Resume("int-1", "resolved")])
    settled = settle([ASKED], request, [user("new")], native=True)
    assert [r.interrupt_id for r in settled.resume] == ["int-1"]


def test_an_answer_that_is_given_again_is_a_conflict_also_where_the_client_repeats_the_talk() -> None:
    request = Request([user("old")], resume=[Resume("int-0", "resolved")])
    with pytest.raises(RequestError, match="no open interrupt 'int-0'") as caught:
        settle([], request, [], native=True)
    assert caught.value.code is ErrorCode.CONFLICT


def test_a_native_client_that_says_something_else_has_answered_nothing() -> None:
    settled = settle([ASKED], Request([]), [user("Hello?")], native=True)
    assert (settled.resume, settled.messages, settled.unanswered) == ([], [user("Hello?")], [ASKED])


def test_a_native_client_may_answer_a_call_by_its_result() -> None:
    settled = settle([CALL], Request([]), [result("call_1", "done")], native=True)
    assert (settled.resume, settled.messages, settled.unanswered) == ([], [result("call_1", "done")], [])


def test_words_answer_for_a_client_without_interrupts() -> None:
    settled = settle([ASKED], Request([]), [user("yes")], native=False)
    assert (settled.resume, settled.messages) == ([Resume("int-1", "resolved", "yes")], [])


def test_results_and_words_together() -> None:
    new = [result("call_1", '{"approved":true}'), result("call_2", "mine"), user("go")]
    settled = settle([ASKED, CALL], Request([]), new, native=False)
    assert settled.resume == [Resume("int-2", "resolved", {"approved": True}), Resume("int-1", "resolved", "go")]
    assert settled.messages == [result("call_2", "mine")]


def test_without_interrupts_nothing_changes() -> None:
    settled = settle([], Request([]), [user("go")], native=False)
    assert (settled.resume, settled.messages, settled.unanswered) == ([], [user("go")], [])


APPROVAL = {"type": "object", "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}}}
CHOICE = {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "answer", "formed"),
    [
        ({**APPROVAL, "required": ["approved"]}, "yes", {"approved": True}),
        ({**APPROVAL, "required": ["approved"]}, "no, better not", {"approved": False, "reason": "no, better not"}),
        ({**APPROVAL, "required": ["approved"]}, {"approve": True, "id": "1"}, {"approved": True}),
        ({**APPROVAL, "required": ["approved"]}, {"approved": False, "x": 1}, {"approved": False, "x": 1}),
        ({**APPROVAL, "required": ["approved", "reason"]}, "yes", "yes"),
        (APPROVAL, "yes", "yes"),
        ({**CHOICE, "required": ["city"]}, "Paris", {"city": "Paris"}),
        ({**CHOICE, "required": ["city"]}, 3, {"city": "3"}),
        ({**CHOICE, "required": ["city"]}, [3], [3]),
        ({**APPROVAL, "required": ["approved"]}, {"approved": "yes"}, {"approved": True}),
        ({**APPROVAL, "required": ["approved"]}, {"approved": "not yet"}, {"approved": False}),
        ({**CHOICE, "required": ["country"]}, "Paris", "Paris"),
        ({"type": "boolean"}, "yes", True),
        ({"type": "boolean"}, "no", False),
        ({"type": "string"}, "Paris", "Paris"),
        ("nonsense", "yes", "yes"),
    ],
)
@pytest.mark.parametrize("native", [True, False], ids=["by id", "in words"])
def test_an_answer_takes_the_form_that_the_question_asks_for(
    schema: object, answer: object, formed: object, native: bool
) -> None:
    asked = Interrupted("int-1", "approval", {"message": "Go on?", "responseSchema": schema})
    if native:
        request = Request([], resume=[Resume("int-1", "resolved", answer)])
    elif isinstance(answer, str):
        request = Request([user(answer)])
    else:
        asked = Interrupted("int-1", "approval", asked.payload, "call_1")
        request = Request([result("call_1", orjson.dumps(answer).decode())])
    (given,) = settle([asked], request, request.messages, native=native).resume
    assert given.payload == formed


def test_a_cancelled_answer_keeps_its_payload() -> None:
    asked = Interrupted("int-1", "approval", {"responseSchema": {**APPROVAL, "required": ["approved"]}})
    (given,) = settle([asked], Request([], resume=[Resume("int-1", "cancelled", "no")]), [], native=True).resume
    assert given.payload == "no"


@pytest.mark.parametrize(
    ("schema", "decision", "payload"),
    [
        ({"type": ["string", "boolean"]}, "resolved", False),
        ({**APPROVAL, "required": ["approved"]}, "resolved", {"approved": False, "reason": "too dear"}),
        ({"type": "string"}, "cancelled", {"approve": False, "reason": "too dear"}),
    ],
)
def test_a_no_by_a_button_is_the_no_of_the_schema(schema: dict[str, Any], decision: str, payload: Any) -> None:
    """The agent goes on from it; cancelled, the question would end its turn."""
    asked = Interrupted("i", "tool_call", {"responseSchema": schema})
    said = Resume("i", "cancelled", {"approve": False, "reason": "too dear"})
    (given,) = settle([asked], Request([], resume=[said]), [], native=True).resume
    assert given == Resume("i", decision, payload)


SEVERAL = ["string", "boolean"]
FIELD = {"properties": {"answer": {"type": SEVERAL}}, "required": ["answer"]}


@pytest.mark.parametrize(
    ("schema", "said", "sent"),
    [
        ({"type": SEVERAL}, "make it blue", "make it blue"),
        ({"type": SEVERAL}, "yes", "yes"),
        ({"type": SEVERAL}, True, True),
        ({"type": SEVERAL}, {"approved": True}, True),
        ({"type": SEVERAL}, None, True),
        ({"type": ["boolean", "null"]}, "yes", True),
        ({"type": ["boolean", "null"]}, "no", False),
        ({"type": ["boolean", "null"]}, None, None),
        ({"type": "boolean"}, "no, not yet", False),
        ({"type": ["integer", "boolean"]}, 5, 5),
        ({"type": ["number", "boolean"]}, 5, 5),
        (FIELD, "make it blue", {"answer": "make it blue"}),
        (FIELD, {"approved": False}, {"answer": False}),
        ({"type": [7, None]}, "x", "x"),
    ],
)
def test_a_schema_may_take_several_types(schema: dict[str, Any], said: Any, sent: Any) -> None:
    asked = Interrupted("i", "input", {"responseSchema": schema})
    settled = settle([asked], Request([], resume=[Resume("i", "resolved", said)]), [], native=True)
    assert settled.resume == [Resume("i", "resolved", sent)]


OPTIONAL = {"anyOf": [{"type": "string"}, {"type": "null"}]}
COLOURS = {"type": "string", "enum": ["red", "Blue"]}
DECISION = {"enum": ["approve", "reject", "edit"], "type": "string"}
BUTTON = {"approve": True, "id": "i"}
FORM = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}


def needed(field_schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"answer": field_schema}, "required": ["answer"], **more}


@pytest.mark.parametrize(
    ("schema", "said", "sent"),
    [
        ({"type": ["integer", "null"]}, "7", 7),
        ({"type": "integer"}, "seven", "seven"),
        ({"type": "integer"}, "7.5", "7.5"),
        ({"type": "string"}, "7", "7"),
        (needed({"type": "number"}), "3.5", {"answer": 3.5}),
        (needed({"type": "number"}), "much", "much"),
        (needed({"type": "array"}), '["a"]', {"answer": ["a"]}),
        (needed(OPTIONAL), "Rome", {"answer": "Rome"}),
        (OPTIONAL, "Rome", "Rome"),
        ({"type": "boolean"}, "false", False),
        (needed(COLOURS), "blue.", {"answer": "Blue"}),
        (needed(COLOURS), "green", "green"),
        ({"enum": [1, 2]}, "2", 2),
        (DECISION, "yes", "approve"),
        (DECISION, "no, thanks", "reject"),
        (DECISION, "Edit", "edit"),
        (needed(DECISION), BUTTON, {"answer": "approve"}),
        (needed(DECISION), {**BUTTON, "approve": False}, {"answer": "reject"}),
        (needed(DECISION), {"answer": "edit", "more": 1}, {"answer": "edit", "more": 1}),
        (needed({"$ref": "#/$defs/D"}, **{"$defs": {"D": DECISION}}), "yes", {"answer": "approve"}),
        (needed({"anyOf": [DECISION, {"type": "null"}]}), "ok", {"answer": "approve"}),
        (needed({"$ref": "#/$defs/E"}), "yes", "yes"),
        (FORM, '{"name":"Bo","age":7}', {"name": "Bo", "age": 7}),
        (FORM, "Bo, 7", "Bo, 7"),
    ],
)
def test_what_a_person_says_in_the_form_of_the_schema(schema: dict[str, Any], said: Any, sent: Any) -> None:
    asked = Interrupted("i", "input", {"message": "?", "responseSchema": schema}, "call_1")
    settled = settle([asked], Request([], resume=[Resume("i", "resolved", said)]), [], native=True)
    assert settled.resume == [Resume("i", "resolved", sent)]
    if isinstance(said, str) and schema != {"type": "boolean"}:
        settled = settle([asked], Request([]), [user(said)], native=True)
        assert settled.resume == [Resume("i", "resolved", sent)], "typed, where there are buttons"


def test_a_schema_with_one_field_needs_that_field() -> None:
    asked = Interrupted(
        "i", "mastra:tool_suspend", {"responseSchema": {"properties": {"approved": {"type": "boolean"}}}}
    )
    assert settle([asked], Request([]), [user("yes")], native=False).resume == [
        Resume("i", "resolved", {"approved": True})
    ]


def test_a_result_answers_a_question_that_names_no_call() -> None:
    """The agent gets the result as a message, too: it may wait for that one."""
    said = result("call_9", '{"city": "Rome"}')
    settled = settle([ASKED], Request([]), [said], native=False)
    assert settled.resume == [Resume("int-1", "resolved", {"city": "Rome"})]
    assert settled.messages == [said]


def test_a_result_of_another_call_leaves_the_question_about_a_call_open() -> None:
    said = result("call_9", "fine")
    settled = settle([CALL], Request([]), [said], native=False)
    assert (settled.resume, settled.messages, settled.unanswered) == ([], [said], [CALL])


@pytest.mark.parametrize(
    ("asked", "typed"),
    [
        (Interrupted("i", "input_required", {"message": "Which city?"}), True),
        (Interrupted("i", None, "Which city?"), True),
        (Interrupted("i", None, {"question": "Which city?"}), True),
        (Interrupted("i", "hitl", {"message": "Which?", "responseSchema": {"type": SEVERAL}}, "call_1"), True),
        (Interrupted("i", "form", {"responseSchema": FIELD}), True),
        (Interrupted("i", "confirmation", "Go on?"), False),
        (Interrupted("i", "approval", {"name": "wipe", "arguments": "{}"}), False),
        (Interrupted("i", "hitl", {"message": "Sure?", "responseSchema": {"type": "boolean"}}), False),
        (Interrupted("i", "tool_call", {"message": "Which?"}, "call_1"), False),
        (Interrupted("i", "tool_call", {"responseSchema": {"type": "object"}}, "call_1"), False),
        (Interrupted("i", "tool_call", {"responseSchema": APPROVAL}, "call_1"), False),
        (Interrupted("i", None, {"steps": []}), False),
    ],
)
def test_a_native_client_answers_a_free_question_by_typing(asked: Interrupted, typed: bool) -> None:
    settled = settle([asked], Request([]), [user("Paris")], native=True)
    if typed:
        assert [r.payload for r in settled.resume] in (["Paris"], [{"answer": "Paris"}])
        assert (settled.messages, settled.unanswered) == ([], [])
    else:
        assert (settled.resume, settled.messages, settled.unanswered) == ([], [user("Paris")], [asked])


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("said", "decision"),
    [("yes", {"type": "approve"}), ("not today", {"type": "reject", "message": "not today"}), ("", {"type": "reject"})],
)
def test_an_answer_is_a_decision_on_each_action(said: str, decision: dict[str, str], native: bool) -> None:
    asked = Interrupted("i", None, {"action_requests": [SEND, SEND], "review_configs": []})
    request = Request([], resume=[Resume("i", "resolved", said)]) if native else Request([user(said)])
    (given,) = settle([asked], request, request.messages, native=native).resume
    assert given == Resume("i", "resolved", {"decisions": [decision, decision]})


def test_decisions_and_buttons_on_actions() -> None:
    asked = Interrupted("i", None, {"action_requests": [SEND]})
    decided = {"decisions": [{"type": "edit", "edited_action": SEND}]}
    for answer, payload in (
        (Resume("i", "resolved", decided), decided),
        (
            Resume("i", "cancelled", {"approve": False, "reason": "no"}),
            {"decisions": [{"type": "reject", "message": "no"}]},
        ),
        (Resume("i", "cancelled"), {"decisions": [{"type": "reject"}]}),
    ):
        (given,) = settle([asked], Request([], resume=[answer]), [], native=True).resume
        assert given == Resume("i", "resolved", payload)
