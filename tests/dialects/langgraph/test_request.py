"""What a request is on the wire: messages, answers to questions, and what options send of the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Feature, Losses
from bridge.contract.context import Context
from bridge.dialects.langgraph import dialect
from bridge.dialects.langgraph.options import BackOptions
from bridge.dialects.langgraph.write_request import Open, command_of, formed, open_in
from bridge.errors import RequestError
from bridge.model import (
    Data,
    FileRef,
    Inline,
    Media,
    MediaKind,
    Message,
    Reasoning,
    Refusal,
    Request,
    Resume,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Url,
)
from bridge.model.request import Sampling
from tests.recorded import CAPTURES


def sent(request: Request, lost: Losses | None = None, **options: Any) -> Any:
    made = Context(
        "run1", request.thread_id, 1.0, BackOptions(**options), "m", request, Losses() if lost is None else lost
    )
    return json.loads(dialect.encode_request(request, made).body)


def messages(*given: Message) -> Any:
    return sent(Request(list(given), thread_id="t"))["input"]["messages"]


@pytest.mark.parametrize("name", ["text", "tool", "reasoning"])
def test_a_request_is_in_the_form_that_was_recorded(name: str) -> None:
    head, _, body = (CAPTURES / "langgraph" / f"{name}.request.http").read_bytes().partition(b"\r\n\r\n")
    recorded = json.loads(body)
    recorded.pop("config", None)
    text = recorded["input"]["messages"][0]["content"]
    thread = head.split(b"/")[2].decode()
    request = Request(text, thread_id=thread)
    assert sent(request) == recorded
    wire = dialect.encode_request(request, Context("run1", thread, 1.0, BackOptions(), "m", request))
    assert f"{wire.method} {wire.path} HTTP/1.1".encode() == head.splitlines()[0]


def test_messages_have_the_roles_of_the_model_and_keep_their_ids_and_names() -> None:
    assert messages(
        Message("system", "Be kind."),
        Message("developer", "Be brief."),
        Message("user", "Hi", id="u1", name="ann"),
        Message("assistant", "Hello", id="a1"),
    ) == [
        {"role": "system", "content": "Be kind."},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi", "id": "u1", "name": "ann"},
        {"role": "assistant", "content": "Hello", "id": "a1"},
    ]


def test_calls_have_objects_and_their_results_are_messages() -> None:
    call = ToolCall("c1", "f", '{"a": 1}')
    failed = ToolResult("c2", [Text("no")], "g", is_error=True)
    assert messages(
        Message("assistant", [Reasoning("hm"), Text("Look"), call, ToolCall("c2", "g", "oops")]),
        Message("tool", [ToolResult("c1", [Text("21")])], id="t1"),
        Message("user", [failed, Text("And?")], id="u2"),
    ) == [
        {"role": "assistant", "content": "Look", "tool_calls": [
            {"name": "f", "args": {"a": 1}, "id": "c1", "type": "tool_call"},
            {"name": "g", "args": {"INVALID_JSON": "oops"}, "id": "c2", "type": "tool_call"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "21", "status": "success", "id": "t1"},
        {"role": "tool", "tool_call_id": "c2", "content": "no", "status": "error", "name": "g"},
        {"role": "user", "content": "And?", "id": "u2"},
    ]  # fmt: skip


def test_media_are_blocks() -> None:
    image = Media(MediaKind.IMAGE, Inline("iVBO"), "image/png", detail="low")
    parts = [
        Text("See"),
        image,
        Media(MediaKind.IMAGE, Url("https://x.example/a.png")),
        Media(MediaKind.IMAGE, FileRef("f0")),
        Media(MediaKind.AUDIO, Inline("UklG"), "audio/wav"),
        Media(MediaKind.VIDEO, Url("https://x.example/a.mp4")),
        Media(MediaKind.FILE, Inline("JVBE"), "application/pdf", "a.pdf"),
        Media(MediaKind.FILE, FileRef("f1")),
    ]
    (message,) = messages(Message("user", parts))
    assert message["content"] == [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
        {"type": "image", "file_id": "f0"},
        {"type": "audio", "base64": "UklG", "mime_type": "audio/wav"},
        {"type": "video", "url": "https://x.example/a.mp4"},
        {"type": "file", "base64": "JVBE", "mime_type": "application/pdf", "filename": "a.pdf"},
        {"type": "file", "file_id": "f1"},
    ]
    (result,) = messages(Message("tool", [ToolResult("c", [Text("See"), image])]))
    assert [block["type"] for block in result["content"]] == ["text", "image_url"]


def test_other_parts_are_text_or_left_to_the_thread() -> None:
    lost = Losses()
    given = [Message("assistant", [Reasoning("hm"), Refusal("No.")]), Message("assistant", [Reasoning("hm")])]
    request = Request([*given, Message("user", [Data({"a": 1})])], thread_id="t")
    assert sent(request, lost)["input"]["messages"] == [
        {"role": "assistant", "content": "No."},
        {"role": "user", "content": '{"a":1}'},
    ]
    assert {Feature.REASONING_HISTORY, Feature.REFUSAL_HISTORY, Feature.DATA} == set(lost.names)


FULL = Request(
    "Hi",
    thread_id="t",
    tools=[Tool("f", "does", {"type": "object"})],
    model="gpt",
    user_id="ann",
    sampling=Sampling(temperature=0.5, max_tokens=9),
    reasoning_effort="low",
    state={"count": 1, "messages": ["never these"]},
    context=[{"description": "place", "value": "Paris"}],
    metadata={"team": "x"},
)


def test_what_the_graph_decides_is_not_sent_and_named_as_lost() -> None:
    lost = Losses()
    body = sent(FULL, lost)
    assert body["input"] == {"messages": [{"role": "user", "content": "Hi"}]}
    assert body["metadata"] == {"team": "x"}
    assert not {"config", "context", "multitask_strategy"} & body.keys()
    assert set(lost.names) == {
        Feature.TOOLS, Feature.SAMPLING, Feature.REASONING_EFFORT, Feature.USER_ID, Feature.STATE, Feature.CONTEXT,
    }  # fmt: skip


def test_options_send_it() -> None:
    lost = Losses()
    body = sent(
        FULL, lost, assistant_id="a1", configurable=["model", "temperature", "max_tokens", "reasoning_effort", "seed"],
        tools="state", state=True, context=True, user_id=True, metadata=False, multitask_strategy="reject",
        recursion_limit=9,
    )  # fmt: skip
    function = {"name": "f", "description": "does", "parameters": {"type": "object"}}
    assert body["assistant_id"] == "a1"
    assert body["input"] == {
        "count": 1,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": function}],
    }
    given = {"model": "m", "temperature": 0.5, "max_tokens": 9, "reasoning_effort": "low", "place": "Paris"}
    assert body["context"] == {**given, "user_id": "ann"}, "a server may refuse a request with both"
    assert body["config"] == {"recursion_limit": 9}
    assert body["multitask_strategy"] == "reject"
    assert set(lost.names) == {Feature.METADATA}
    assert sent(FULL, user_id=True)["config"] == {"configurable": {"user_id": "ann"}}


# ------------------------------------------------------------------ answers to questions

ACTIONS = {"action_requests": [{"name": "f"}, {"name": "g"}]}
REJECTED = {"decisions": [{"type": "reject", "message": "too late"}] * 2}
OLD = [{"action_request": {"action": "f", "args": {}}, "config": {}}]


@pytest.mark.parametrize(
    ("question", "decision", "payload", "value"),
    [
        ("Name?", "resolved", "Bob", "Bob"),
        ("Name?", "resolved", {"a": 1}, {"a": 1}),
        ("Go on?", "resolved", None, True),
        ("Go on?", "cancelled", None, False),
        (ACTIONS, "resolved", {"approved": True}, {"decisions": [{"type": "approve"}] * 2}),
        (ACTIONS, "resolved", None, {"decisions": [{"type": "approve"}] * 2}),
        (ACTIONS, "cancelled", "too late", REJECTED),
        (ACTIONS, "resolved", {"approved": False, "reason": "too late"}, REJECTED),
        (ACTIONS, "resolved", {"decisions": [{"type": "edit"}]}, {"decisions": [{"type": "edit"}]}),
        (OLD, "resolved", {"approved": True}, [{"type": "accept", "args": None}]),
        (OLD, "cancelled", None, [{"type": "ignore", "args": None}]),
        (OLD, "resolved", "use another", [{"type": "response", "args": "use another"}]),
        (OLD, "resolved", [{"type": "edit", "args": {}}], [{"type": "edit", "args": {}}]),
    ],
)  # fmt: skip
def test_an_answer_has_the_form_that_the_question_wants(question: Any, decision: str, payload: Any, value: Any) -> None:
    assert formed(question, Resume("i", decision, payload)) == value


def command(waits: Open | None, *answers: Resume) -> Any:
    return command_of(Request([], thread_id="t", resume=list(answers)), waits)


def test_one_answer_without_a_name_answers_all_questions_that_no_other_names() -> None:
    waits = Open({"1": "A?", "2": "B?", "3": "C?"})
    assert command(waits, Resume("", "resolved", "x")) == {"resume": {"1": "x", "2": "x", "3": "x"}}
    named = [Resume("2", "resolved", "y"), Resume("", "resolved", "x")]
    assert command(waits, *named) == {"resume": {"1": "x", "2": "y", "3": "x"}}
    assert command(None, *named[:1]) == {"resume": {"2": "y"}}
    assert command(None, Resume("", "resolved", "x")) == {"resume": "x"}


def test_old_servers_get_a_plain_answer() -> None:
    waits = open_in({"next": ["a"], "tasks": [{"interrupts": [{"value": "A?", "resumable": True}]}]})
    assert command(waits, Resume("unnamed-interrupt-0", "resolved", "x")) == {"resume": "x"}
    assert command(None, Resume("unnamed-interrupt-0", "resolved", "x")) == {"resume": "x"}


def test_a_state_may_say_nothing() -> None:
    for state in (None, [], {}, {"tasks": None, "next": []}, {"tasks": [], "next": 7}):
        assert open_in(state) is None
    assert open_in({"tasks": [7, {"interrupts": 7}, {"interrupts": [7]}], "next": []}) == Open({})
    assert open_in({"tasks": [], "next": ["tools"]}) == Open({}, at_breakpoint=True)
    with pytest.raises(RequestError):
        command(Open({}), Resume("", "resolved", "x"))
