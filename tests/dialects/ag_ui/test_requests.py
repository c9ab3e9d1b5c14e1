"""RunAgentInput in and out, in all versions (section 2); wrong bodies named by their place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import WireRequest
from bridge.dialects.ag_ui import dialect
from bridge.errors import Failure, RequestError
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
    ResponseFormat,
    Resume,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
    ToolResult,
    Url,
)
from bridge.run.conversation.interrupts import settle
from tests.strategies import json_values, requests

from .helpers import asked, back, front, heard, read, sent

USER = {"id": "u", "role": "user", "content": "Hi"}


def user(*parts: Any) -> dict[str, Any]:
    return {"id": "u", "role": "user", "content": list(parts)}


# ------------------------------------------------------------------ in


def test_all_there_is() -> None:
    request = read(
        asked(
            {"id": "1", "role": "developer", "content": "d", "name": "n"},
            {"id": "2", "role": "system", "content": "s", "metadata": {"k": 1}},
            USER,
            {"id": "4", "role": "reasoning", "content": "hm", "encryptedValue": "sig"},
            {
                "id": "5",
                "role": "assistant",
                "encryptedValue": "e",
                "toolCalls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}],
            },
            {"id": "6", "role": "tool", "toolCallId": "c", "content": "", "error": "boom"},
            parentRunId="r0",
            state={"a": 1},
            context=[{"description": "d", "value": "v"}],
            tools=[{"name": "f", "description": "F", "parameters": {"type": "object"}, "metadata": {"m": 1}}],
            resume=[{"interruptId": "i", "status": "resolved", "payload": {"ok": True}, "metadata": {"z": 1}}],
            forwardedProps={"temperature": 1},
            future=[1],
        )
    )
    assert request.messages == [
        Message("developer", [Text("d")], "1", "n"),
        Message("system", [Text("s")], "2", None, {"k": 1}),
        Message("user", [Text("Hi")], "u"),
        Message("assistant", [Reasoning("hm", "sig")], "4"),
        Message("assistant", [ToolCall("c", "f", "{")], "5", extras={"ag-ui": {"encryptedValue": "e"}}),
        Message(
            "tool", [ToolResult("c", [Text('{"error":"boom"}')], "f", True)], "6", extras={"ag-ui": {"error": "boom"}}
        ),
    ]
    assert (request.thread_id, request.run_id, request.parent_run_id) == ("t1", "r1", "r0")
    assert request.tools == [Tool("f", "F", {"type": "object"}, extras={"ag-ui": {"metadata": {"m": 1}}})]
    assert request.resume == [Resume("i", "resolved", {"ok": True})]
    assert (request.state, request.context) == ({"a": 1}, [{"description": "d", "value": "v"}])
    assert request.extra("ag-ui") == {
        "protocolVersion": "1.0",
        "future": [1],
        "forwardedProps": {"temperature": 1},
        "resume": {"i": {"metadata": {"z": 1}}},
    }
    assert request.stream


@pytest.mark.parametrize(
    ("part", "media"),
    [
        (
            {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
            Media(MediaKind.IMAGE, Inline("aGk="), "image/png"),
        ),
        (
            {"type": "image", "source": {"type": "url", "value": "data:image/gif;base64,aGk="}},
            Media(MediaKind.IMAGE, Inline("aGk="), "image/gif"),
        ),
        (
            {"type": "audio", "source": {"type": "url", "value": "https://x.test/a"}, "metadata": {"filename": "a"}},
            Media(MediaKind.AUDIO, Url("https://x.test/a"), None, "a", {"ag-ui": {"metadata": {"filename": "a"}}}),
        ),
        (
            {"type": "document", "source": {"type": "file", "value": "f1", "provider": "p", "mime_type": "a/b"}},
            Media(MediaKind.FILE, FileRef("f1"), "a/b", None, {"ag-ui": {"provider": "p"}}),
        ),
        (
            {"type": "binary", "mimeType": "video/mp4", "url": "https://x.test/v", "filename": "v"},
            Media(MediaKind.VIDEO, Url("https://x.test/v"), "video/mp4", "v"),
        ),
        (
            {"type": "binary", "mime_type": "application/pdf", "data": "aGk="},
            Media(MediaKind.FILE, Inline("aGk="), "application/pdf"),
        ),
        ({"type": "binary", "mimeType": "image/png", "id": "f1"}, Media(MediaKind.IMAGE, FileRef("f1"), "image/png")),
    ],
)
def test_media_of_every_version(part: dict[str, Any], media: Media) -> None:
    assert read(asked(user(part))).messages[0].parts == [media]


def test_names_with_underscores() -> None:
    request = read(
        {
            "thread_id": "t",
            "run_id": "r",
            "parent_run_id": "p",
            "forwarded_props": {"a": 1},
            "messages": [
                {
                    "id": "1",
                    "role": "assistant",
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
                },
                {"id": "2", "role": "tool", "tool_call_id": "c", "content": "r"},
            ],
            "resume": [{"interrupt_id": "i", "status": "cancelled"}],
        }
    )
    assert (request.thread_id, request.run_id, request.parent_run_id) == ("t", "r", "p")
    assert request.messages[0].parts == [ToolCall("c", "f", '{"a":1}')]
    assert request.resume == [Resume("i", "cancelled")]
    assert request.extra("ag-ui") == {"forwardedProps": {"a": 1}}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"threadId": None}, "threadId"),
    ({"runId": 3}, "runId"),
    ({"messages": None}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": [3]}, "messages[0]"),
    ({"messages": [{"id": "1", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"id": "1", "role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"id": 1, "role": "user", "content": "x"}]}, "messages[0].id"),
    ({"messages": [{"id": "1", "role": "user"}]}, "messages[0].content"),
    ({"messages": [{"id": "1", "role": "user", "content": 3}]}, "messages[0].content"),
    ({"messages": [USER, user({"type": "text"})]}, "messages[1].content[0].text"),
    ({"messages": [user({"type": "hologram"})]}, "messages[0].content[0].type"),
    ({"messages": [user({"type": "image"})]}, "messages[0].content[0].source"),
    ({"messages": [user({"type": "image", "source": {"type": "x"}})]}, "messages[0].content[0].source.type"),
    ({"messages": [user({"type": "image", "source": {"type": "url"}})]}, "messages[0].content[0].source.value"),
    ({"messages": [user({"type": "binary", "mimeType": "a/b"})]}, "messages[0].content[0]"),
    ({"messages": [{"id": "1", "role": "assistant", "toolCalls": [{}]}]}, "messages[0].toolCalls[0].id"),
    (
        {"messages": [{"id": "1", "role": "assistant", "toolCalls": [{"id": "c", "function": {}}]}]},
        "messages[0].toolCalls[0].function.name",
    ),
    ({"messages": [{"id": "1", "role": "tool", "content": "x"}]}, "messages[0].toolCallId"),
    ({"messages": [{"id": "1", "role": "tool", "content": "x", "toolCallId": "c", "error": 1}]}, "messages[0].error"),
    ({"tools": "x"}, "tools"),
    ({"tools": [{}]}, "tools[0].name"),
    ({"tools": [{"name": "f", "parameters": "x"}]}, "tools[0].parameters"),
    ({"context": [{"description": "d"}]}, "context[0].value"),
    ({"resume": [{"status": "resolved"}]}, "resume[0].interruptId"),
    ({"resume": [{"interruptId": "i", "status": "maybe"}]}, "resume[0].status"),
    ({"forwardedProps": {"temperature": "hot"}}, "forwardedProps.temperature"),
    ({"forwardedProps": {"tool_choice": "some"}}, "forwardedProps.tool_choice"),
    ({"forwardedProps": {"response_format": {"type": "x"}}}, "forwardedProps.response_format.type"),
]


@pytest.mark.parametrize(("fields", "place"), WRONG, ids=[p for _, p in WRONG])
def test_a_wrong_body_is_422_with_its_place(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(asked(**fields), {"forwarded_props": ["temperature", "tool_choice", "response_format"]})
    assert caught.value.failure.param == place
    wire = dialect.encode_error(caught.value.failure)
    assert (wire.status, wire.content_type) == (422, "application/json")


PROPS = {
    "model": "m",
    "temperature": 0.5,
    "max_tokens": 10,
    "stop": ["x"],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}},
    "reasoning_effort": "low",
    "parallel_tool_calls": False,
    "user": "me",
    "own": {"x": 1},
}


def test_forwarded_props_by_permission_only() -> None:
    request = read(asked(forwardedProps=PROPS))
    assert (request.model, request.sampling, request.user_id) == (None, Sampling(), None)
    assert request.extra("ag-ui")["forwardedProps"] == PROPS
    request = read(asked(forwardedProps=PROPS), {"forwarded_props": [k for k in PROPS if k != "own"]})
    assert (request.model, request.user_id, request.reasoning_effort) == ("m", "me", "low")
    assert request.sampling == Sampling(temperature=0.5, max_tokens=10, stop=["x"])
    assert request.tool_choice == ToolChoice(ToolMode.REQUIRED, ["f"])
    assert request.response_format == ResponseFormat("json_schema", "n", {}, True)
    assert request.parallel_tool_calls is False
    assert request.extra("ag-ui")["forwardedProps"] == {"own": {"x": 1}}
    assert sent(request)["forwardedProps"] == PROPS


# ------------------------------------------------------------------ out


def test_what_a_backend_of_any_version_gets() -> None:
    request = Request([Message("user", [Text("Hi")])])
    body = sent(request)
    assert body["messages"][0].pop("id").startswith("msg-")
    assert body == {
        "threadId": "run1",
        "runId": "run1",
        "state": {},
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    wire = dialect.encode_request(request, back())
    assert (wire.method, wire.path, wire.headers["accept"]) == ("POST", "", "text/event-stream")
    assert sent(request, {"protocol_version": "1.0"})["protocolVersion"] == "1.0"
    assert sent(request, thread_id="stored")["threadId"] == "stored"


def test_ids_are_kept_or_stable() -> None:
    first = Request([Message("user", [Text("Hi")]), Message("assistant", [Text("Yes?")], "mine")])
    later = Request([*first.messages, Message("user", [Text("Hi")])])
    before, after = [m["id"] for m in sent(first)["messages"]], [m["id"] for m in sent(later)["messages"]]
    assert after[:2] == before
    assert before[1] == "mine"
    assert len(set(after)) == 3


def test_one_message_of_many_parts_becomes_several() -> None:
    message = Message(
        "assistant",
        [Reasoning("hm", "sig"), Text("a"), Refusal("b"), ToolCall("c", "f", "{}"), ToolResult("c", [Data({"r": 1})])],
        "m",
    )
    wires = sent(Request([message]))["messages"]
    assert wires == [
        {"id": "m-0", "role": "reasoning", "content": "hm", "encryptedValue": "sig"},
        {
            "id": "m",
            "role": "assistant",
            "content": "ab",
            "toolCalls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"id": "m-2", "role": "tool", "content": '{"r":1}', "toolCallId": "c"},
    ]
    context = back({"reasoning_history": False})
    dialect.encode_request(Request([message]), context)
    assert context.lost.names == ["reasoning_history", "refusal_history"]


def test_parts_by_style() -> None:
    parts = [
        Text("see"),
        Media(MediaKind.IMAGE, Inline("aGk=")),
        Media(MediaKind.FILE, Url("https://x.test/a.pdf"), "application/pdf", "a.pdf"),
        Media(MediaKind.FILE, FileRef("f1")),
        Data(1),
    ]
    request = Request([Message("user", parts, "u")])
    told = sent(request)["messages"][0]["content"]
    assert sent(request, {"protocol_version": "1.0"})["messages"][0]["content"] == told
    assert told == [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
        {
            "type": "document",
            "source": {"type": "url", "value": "https://x.test/a.pdf", "mimeType": "application/pdf"},
            "metadata": {"filename": "a.pdf"},
        },
        {"type": "document", "source": {"type": "file", "value": "f1"}},
        {"type": "text", "text": "1"},
    ]
    assert sent(request, {"part_style": "binary"})["messages"][0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "binary", "mimeType": "image/png", "data": "aGk="},
        {"type": "binary", "mimeType": "application/pdf", "url": "https://x.test/a.pdf", "filename": "a.pdf"},
        {"type": "binary", "mimeType": "application/octet-stream", "id": "f1"},
        {"type": "text", "text": "1"},
    ]
    texts = Request([Message("user", [Text("a"), Text("b")])])
    assert sent(texts)["messages"][0]["content"] == "a\nb"


def test_results_and_errors_of_tools() -> None:
    picture = Media(MediaKind.IMAGE, Url("https://x.test/a.png"))
    request = Request([Message("tool", [ToolResult("c", [Text("no"), picture], None, True)], "t")])
    old, new = sent(request)["messages"][0], sent(request, {"protocol_version": "1.0"})["messages"][0]
    assert (old["content"], old["error"]) == ("no![image](https://x.test/a.png)",) * 2
    assert [p["type"] for p in new["content"]] == ["text", "image"]
    body = asked({"id": "t", "role": "tool", "toolCallId": "c", "content": "", "error": "boom"})
    assert sent(read(body), {"protocol_version": "1.0"})["messages"] == body["messages"]


def test_fields_without_a_place_are_named_or_forwarded() -> None:
    request = Request(
        [Message("user", [Text("Hi")])],
        sampling=Sampling(temperature=0.1),
        tool_choice=ToolChoice(ToolMode.NONE),
        response_format=ResponseFormat("json"),
        model="m",
        user_id="u",
        metadata={"a": "b"},
        extras={"other": {"x": 1}},
    )
    context = back()
    dialect.encode_request(request, context)
    assert context.lost.names == ["tool_choice", "response_format", "user_id", "metadata", "sampling", "extras"]
    props = sent(request, {"forward_props": True})["forwardedProps"]
    assert props == {
        "model": "m",
        "temperature": 0.1,
        "tool_choice": "none",
        "response_format": {"type": "json_object"},
        "user": "u",
    }


def test_what_an_ag_ui_client_says_besides_goes_on() -> None:
    activity = {"id": "x", "role": "activity", "activityType": "PLAN", "content": {"a": 1}}
    last = {"id": "a", "role": "assistant", "content": "Hello", "subagentRunId": "s"}
    body = asked(activity, USER, activity | {"id": "y"}, last, future={"a": 1}, forwardedProps=[1], state=None)
    again = sent(read(body), {"protocol_version": "1.0"}, thread_id="t1")
    assert again == {**body, "state": {}}


@given(requests())
def test_any_request_is_read_again_as_what_was_sent(request: Request) -> None:
    for options in (None, {"protocol_version": "1.0", "forward_props": True}):
        body = sent(request, options, thread_id="t")
        wired = read(body, {"forwarded_props": ["temperature", "stop", "tool_choice", "response_format"]})
        ids = [m.id for m in wired.messages]
        assert len(set(ids)) == len(ids)
        assert [t.name for t in wired.tools or ()] == [t.name for t in request.tools or ()]
        assert wired.resume == request.resume
        assert wired.context == request.context
        assert calls(wired) == calls(request)
        if options:
            assert wired.sampling.temperature == request.sampling.temperature
            assert media(wired) == media(request)
        assert sent(wired, options, thread_id="t") == body


def calls(request: Request) -> list[tuple[str, str, str]]:
    return [(p.call_id, p.name, p.arguments) for m in request.messages for p in m.parts if isinstance(p, ToolCall)]


def media(request: Request) -> list[Any]:
    found = [p for m in request.messages if m.role == "user" for p in m.parts if isinstance(p, Media)]
    return [(p.kind, p.source, p.filename) for p in found]


@given(
    st.dictionaries(
        st.sampled_from(["messages", "tools", "context", "resume", "state", "forwardedProps"]), json_values()
    )
)
def test_no_body_raises_anything_else(fields: dict[str, Any]) -> None:
    request: Request | None = None
    failure: Failure | None = None
    try:
        request = read(asked(**fields), {"forwarded_props": ["temperature", "model"]})
    except RequestError as error:
        failure = error.failure
    if request is None:
        assert failure is not None
        assert failure.param
    else:
        sent(request)


@given(st.binary(max_size=40))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with pytest.raises(RequestError):
        dialect.decode_request(WireRequest(body=data), front())


@pytest.mark.parametrize(
    ("answer", "resume"),
    [
        (Resume("on_interrupt_r1", "resolved", {"city": "Rome"}), {"city": "Rome"}),
        (Resume("on_interrupt_r1", "resolved"), True),
        (Resume("on_interrupt_r1", "cancelled"), False),
    ],
)
def test_an_interrupt_without_an_id_is_answered_where_langgraph_reads_it(answer: Resume, resume: Any) -> None:
    body = sent(Request([Message("user", [Text("x")])], resume=[answer]))
    assert body["forwardedProps"] == {"command": {"resume": resume}}
    # Where an agent reads both, it takes this one: a cancellation would be an object there, and no "no".
    assert body["resume"] == [{"interruptId": "on_interrupt_r1", "status": "resolved", "payload": resume}]
    body = sent(Request([Message("user", [Text("x")])], resume=[Resume("int-1", "resolved", "x")]))
    assert body["forwardedProps"] == {}


def test_a_suspended_call_of_mastra_goes_on_by_its_run() -> None:
    """Adapters up to 1.0 read no `resume`; all take the event that asked in `command.interruptEvent`."""
    answer = Resume("on_interrupt_r7::call_1", "resolved", {"city": "Rome"})
    asked = {"type": "mastra_suspend", "toolCallId": "call_1", "runId": "r7"}
    body = sent(Request([Message("user", [Text("x")])], resume=[answer]))
    assert body["forwardedProps"] == {"command": {"resume": {"city": "Rome"}, "interruptEvent": asked}}


def test_the_metadata_of_a_question_comes_back_with_its_answer() -> None:
    """AG2 checks a proof in it (`require_resume_proof`)."""
    interrupt = {"id": "i", "reason": "tool_call", "metadata": {"ag2": {"proof": "p"}}}
    outcome = {"type": "interrupt", "interrupts": [interrupt]}
    asked = heard({"type": "RUN_FINISHED", "outcome": outcome}, ends=False).interrupts
    settled = settle(asked, Request([]), [Message("user", [Text("yes")])], native=False)
    body = sent(Request([], resume=settled.resume))
    assert body["resume"] == [
        {"interruptId": "i", "status": "resolved", "payload": "yes", "metadata": {"ag2": {"proof": "p"}}}
    ]
