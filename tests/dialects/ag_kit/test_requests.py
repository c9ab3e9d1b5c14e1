"""Bodies of generation 1 -> requests, requests -> bodies, and everything that is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import WireRequest
from bridge.dialects.ag_kit import dialect
from bridge.dialects.ag_kit.options import BackOptions
from bridge.errors import RequestError, Unsupported
from bridge.model import (
    Data,
    FileRef,
    HistoryMode,
    Inline,
    Media,
    MediaKind,
    Message,
    Origin,
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
from bridge.model.dump import dump, load_request
from bridge.translation.requirements import encoded

from .helpers import CASES, asked, context, sent

SCHEMA = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"conversationId": "c1", "messages": list(messages), **fields}


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def wire_call(name: str) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}


# ---------------------------------------------------------------------- as the front


def test_the_whole_body() -> None:
    request = asked(
        body(
            {"role": "system", "content": "Be brief."},
            user("blue"),
            {"role": "assistant", "id": "a1", "content": None, "toolCalls": [wire_call("c1")]},
            {"role": "assistant", "content": "Well."},
            {"role": "tool", "content": "done", "toolCallId": "c1"},
            tools=[{"name": "set-color", "description": "Sets it", "parameters": json.dumps(SCHEMA)}],
        )
    )
    assert [(m.role, m.id, m.parts) for m in request.messages] == [
        ("system", None, [Text("Be brief.")]),
        ("user", None, [Text("blue")]),
        ("assistant", "a1", [ToolCall("c1", "f", "{}")]),
        ("assistant", None, [Text("Well.")]),
        ("tool", None, [ToolResult("c1", [Text("done")])]),
    ]
    assert request.tools == [Tool("set-color", "Sets it", SCHEMA)]
    assert (request.thread_id, request.history, request.stream) == ("c1", HistoryMode.DELTA, True)
    assert request.resume == []


ACCEPTED = [
    n
    for n, c in CASES.items()
    if c["generation"] == 1 and c["response"]["status"] == 200 and c["request"]["path"] == "/send-message"
]


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_reference_accepted_we_accept_and_ask_in_the_same_words(name: str) -> None:
    """But for what is written out where it was absent."""
    said = CASES[name]["request"]["body"]
    wanted, written = {"messages": [], **said}, sent(asked(said))
    for tool in [*wanted.get("tools", ()), *written.get("tools", ())]:
        tool["parameters"] = json.loads(tool["parameters"])
    assert written == wanted


@pytest.mark.parametrize("messages", [None, []])
@pytest.mark.parametrize(("tools", "offered"), [(None, None), ([], [])])
def test_absent_and_null_fields(messages: Any, tools: Any, offered: Any) -> None:
    request = asked({"conversationId": "", "messages": messages, "tools": tools, "resume": None})
    assert (request.thread_id, request.messages, request.tools, request.resume) == ("", [], offered, [])
    assert asked({"conversationId": "c"}).messages == []


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"content": "Let me see.", "toolCalls": [wire_call("c")]}, [Text("Let me see."), ToolCall("c", "f", "{}")]),
        ({"content": "", "toolCalls": [wire_call("c")]}, [ToolCall("c", "f", "{}")]),
        ({"content": ""}, [Text("")]),
        ({"content": None}, []),
        ({}, []),
    ],
)
def test_an_assistant_says_something_or_calls_or_both(fields: dict[str, Any], parts: list[Any]) -> None:
    assert asked(body({"role": "assistant", **fields})).messages[0].parts == parts


@pytest.mark.parametrize("name", [5, "", None, ["m"]])
def test_what_is_no_id_of_a_message_is_ignored(name: Any) -> None:
    assert asked(body({"role": "assistant", "id": name, "content": "x"})).messages[0].id is None


@pytest.mark.parametrize("field", ["name", "description", "parameters"])
def test_what_a_tool_lacks_is_missing_and_what_is_wrong_is_not(field: str) -> None:
    """The reference's `detail` tells the two apart by `type`."""
    for tool, kind in (({k: v for k, v in TOOL.items() if k != field}, "missing"), ({**TOOL, field: 5}, "value_error")):
        with pytest.raises(RequestError) as caught:
            asked(body(tools=[tool]))
        (item,) = json.loads(dialect.encode_error(caught.value.failure).body)["detail"]
        assert (item["type"], item["loc"]) == (kind, ["body", "tools", 0, field])


@pytest.mark.parametrize(
    ("parameters", "schema"),
    [
        ("", {"type": "object", "properties": {}}),
        (" \n", {"type": "object", "properties": {}}),
        ('{"$schema":"x"}', {"$schema": "x"}),
        ({"type": "object"}, {"type": "object"}),
        ("{}", {}),
        # Many brackets make no depth.
        (
            json.dumps({"properties": {f"p{n}": {} for n in range(500)}}),
            {"properties": {f"p{n}": {} for n in range(500)}},
        ),
    ],
)
def test_parameters(parameters: Any, schema: Any) -> None:
    request = asked(body(tools=[{"name": "f", "description": "", "parameters": parameters}]))
    assert request.tools == [Tool("f", "", schema)]


@pytest.mark.parametrize("payload", ["yes", {"ok": True}, None, [1], 5])
def test_resume(payload: Any) -> None:
    request = asked({"conversationId": "c", "resume": {"interruptId": "i", "payload": payload}})
    assert request.resume == [Resume("i", "resolved", payload)]


@pytest.mark.parametrize(
    ("sent", "said", "agrees"),
    [
        ('"yes"', "yes", True),
        ('{"approved":true}', {"approved": True}, True),
        ('{"approved":false}', {"approved": False}, False),
        ("true", True, True),
        ("null", None, True),
        ('"make it blue"', "make it blue", False),
        ("[1]", [1], False),
        ("7", 7, False),
    ],
)
def test_an_answer_that_is_json_in_a_string(sent: str, said: Any, agrees: bool) -> None:
    """AG-Kit's web client sends `JSON.stringify(answer)`; an AG-Kit server gets it as it came."""
    request = asked({"conversationId": "c", "resume": {"interruptId": "i", "payload": sent}})
    (answer,) = request.resume
    assert (answer.payload, answer.agrees) == (said, agrees)
    written, _ = ask(resume=request.resume)
    assert written["resume"]["payload"] == sent
    assert load_request(dump(request)).resume == request.resume


@pytest.mark.parametrize("text", ["no", "{broken", "12 apples", '"open', "", "[" * 100_000])
def test_an_answer_that_is_no_json_stays_a_text(text: str) -> None:
    request = asked({"conversationId": "c", "resume": {"interruptId": "i", "payload": text}})
    assert request.resume == [Resume("i", "resolved", text)]


def test_unknown_fields_are_ignored_and_reach_the_same_dialect() -> None:
    said = body(
        {**user("hi"), "name": "Ann", "id": 7},
        tools=[{"name": "f", "description": "d", "parameters": "{}", "icon": "x"}],
        botId="b1",
    )
    assert sent(asked(said)) == said


TOOL = {"name": "f", "description": "d", "parameters": "{}"}


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"conversationId": 5}, "conversationId"),
        (body(messages=5), "messages"),
        (body("hi"), "messages[0]"),
        (body({"content": "x"}), "messages[0].role"),
        (body({"role": None, "content": "x"}), "messages[0].role"),
        (body({"role": "developer", "content": "x"}), "messages[0].role"),
        (body(user("x"), {"role": "user"}), "messages[1].content"),
        (body({"role": "user", "content": [{"type": "text", "text": "x"}]}), "messages[0].content"),
        (body({"role": "system", "content": None}), "messages[0].content"),
        (body({"role": "tool", "content": "x"}), "messages[0].toolCallId"),
        (body({"role": "tool", "toolCallId": "c"}), "messages[0].content"),
        (body({"role": "tool", "toolCallId": 1, "content": ""}), "messages[0].toolCallId"),
        (body({"role": "assistant", "content": []}), "messages[0].content"),
        (body({"role": "assistant", "toolCalls": {}}), "messages[0].toolCalls"),
        (body({"role": "assistant", "toolCalls": [{"id": "c"}]}), "messages[0].toolCalls[0].function"),
        (body({"role": "assistant", "toolCalls": [{**wire_call("c"), "id": None}]}), "messages[0].toolCalls[0].id"),
        (body({"role": "assistant", "toolCalls": [{**wire_call("c"), "type": "x"}]}), "messages[0].toolCalls[0].type"),
        (
            body({"role": "assistant", "toolCalls": [{"id": "c", "function": {"name": "f"}}]}),
            "messages[0].toolCalls[0].function.arguments",
        ),
        (body(tools={}), "tools"),
        (body(tools=["f"]), "tools[0]"),
        (body(tools=[{k: v for k, v in TOOL.items() if k != "name"}]), "tools[0].name"),
        (body(tools=[{k: v for k, v in TOOL.items() if k != "description"}]), "tools[0].description"),
        (body(tools=[{k: v for k, v in TOOL.items() if k != "parameters"}]), "tools[0].parameters"),
        (body(tools=[TOOL, {**TOOL, "parameters": "{"}]), "tools[1].parameters"),
        (body(tools=[{**TOOL, "parameters": "[]"}]), "tools[0].parameters"),
        (body(tools=[{**TOOL, "parameters": 5}]), "tools[0].parameters"),
        (body(tools=[{**TOOL, "parameters": None}]), "tools[0].parameters"),
        (body(tools=[{**TOOL, "parameters": '{"a":' + "[" * 220 + "]" * 220 + "}"}]), "tools[0].parameters"),
        (body(resume="yes"), "resume"),
        (body(resume={"payload": "x"}), "resume.interruptId"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(wrong: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        asked(wrong)
    failure = caught.value.failure
    assert failure.param == param
    assert failure.message.startswith(param)
    assert "expected" in failure.message or "deeper" in failure.message
    wire = dialect.encode_error(failure)
    detail = json.loads(wire.body)["detail"]
    assert wire.status == 422
    assert set(detail[0]) == {"type", "loc", "msg"}
    assert detail[0]["loc"][0] == "body"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\xff", b"NaN", b'{"conversationId":' + b"[" * 5000 + b"]" * 5000 + b"}"]
)
def test_a_body_that_is_no_json_object(data: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        asked(data)
    assert dialect.encode_error(caught.value.failure).status == 422


def test_a_body_of_another_type() -> None:
    with pytest.raises(RequestError, match="application/json"):
        dialect.decode_request(WireRequest(headers={"content-type": "text/plain"}, body=b"{}"), context())


def test_the_example_is_a_request() -> None:
    request = dialect.decode_request(dialect.example_request("hello"), context())
    assert request.messages[-1].parts == [Text("hello")]


# ---------------------------------------------------------------------- as the back


def ask(*messages: Message, options: Any = None, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    request = Request(list(messages), **fields)
    ctx = context(request=request, options=BackOptions(**(options or {})))
    return json.loads(encoded(dialect, request, ctx).body), ctx.lost.names


def one(text: str, role: str = "user") -> Message:
    return Message(role, [Text(text)])


def test_where_a_request_goes() -> None:
    def path(**options: Any) -> str:
        request = Request([one("x")])
        return dialect.encode_request(request, context(request=request, options=BackOptions(**options))).path

    assert path() == "/send-message"
    assert path(path="/api/send-message") == "/api/send-message"
    assert path(bot_id="bot 1/x") == "/v1/aibot/bots/bot%201%2Fx/send-message"


def test_conversations() -> None:
    def conversation(ctx_thread: str | None, thread: str | None, **fields: Any) -> str:
        request = Request([one("x")], thread_id=thread, **fields)
        return json.loads(dialect.encode_request(request, context(thread_id=ctx_thread)).body)["conversationId"]

    assert conversation("a", "b") == "a"
    assert conversation(None, "b") == "b"
    assert conversation(None, None) == "run1"
    # Elsewhere an empty id is no id, and all who have none must not meet in one conversation.
    assert conversation("", "") == "run1"
    assert sent(asked({"conversationId": ""}))["conversationId"] == ""


def test_text_is_joined_and_developers_are_systems() -> None:
    written, lost = ask(
        Message("developer", [Text("a"), Text("b")], name="n"),
        Message("user", [Text("c"), Data({"d": 1}), Refusal("e")]),
        Message("user", []),
    )
    assert written["messages"] == [
        {"role": "system", "content": "ab"},
        {"role": "user", "content": 'c{"d":1}e'},
        {"role": "user", "content": ""},
    ]
    assert lost == ["message_name", "data", "refusal_history"]


@pytest.mark.parametrize("source", [Url("https://x.example/a"), Inline("aGk="), FileRef("f")])
@pytest.mark.parametrize("kind", MediaKind)
def test_media_are_refused_by_their_place_or_told(kind: MediaKind, source: Any) -> None:
    message = Message("user", [Text("see "), Media(kind, source)])
    with pytest.raises(Unsupported, match="send it as text, or leave it out") as caught:
        ask(one("x"), message)
    assert caught.value.failure.param == "messages[1].content[1]"
    written, lost = ask(message, options={"unsupported_media": "text"})
    assert written["messages"][0]["content"].startswith("see ")
    assert len(written["messages"][0]["content"]) > 6
    wanted = "file_ref" if isinstance(source, FileRef) else f"{kind}_{'url' if isinstance(source, Url) else 'inline'}"
    assert lost == [wanted]


def test_what_an_assistant_showed_is_text() -> None:
    picture = Media(MediaKind.IMAGE, Url("https://x.example/a.png"))
    written, lost = ask(
        Message("assistant", [Reasoning("hm"), picture], "m1"), Message("assistant", [Reasoning("x")]), one("ok")
    )
    assert written["messages"] == [
        {"role": "assistant", "id": "m1", "content": "![image](https://x.example/a.png)"},
        {"role": "user", "content": "ok"},
    ]
    assert lost == ["reasoning_history", "image_url"]


def call(name: str) -> ToolCall:
    return ToolCall(name, "f", '{"x":1}')


def result(name: str, text: str = "r") -> Message:
    return Message("tool", [ToolResult(name, [Text(text)])])


def test_a_round_that_waits_for_the_server_keeps_its_form() -> None:
    written, lost = ask(one("q"), one("Let me see.", "assistant"), Message("assistant", [call("a")], "m1"),
                        Message("assistant", [call("b")]), result("a", "A"), result("b", "B"))  # fmt: skip
    assert written["messages"] == [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "id": "m1",
            "content": "Let me see.",
            "toolCalls": [
                {"id": n, "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}} for n in ("a", "b")
            ],
        },
        {"role": "tool", "content": "A", "toolCallId": "a"},
        {"role": "tool", "content": "B", "toolCallId": "b"},
    ]
    assert lost == []


def test_rounds_that_are_over_become_text() -> None:
    written, lost = ask(
        one("q"), Message("assistant", [Text("Let me see."), call("a"), call("b")], "m1"), result("b", "B"),
        result("a", "A"), Message("assistant", [Text("It is A.")], "m2"), one("and?"),
        Message("assistant", [call("c")]), result("c", "C"),
    )  # fmt: skip
    assert written["messages"] == [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "id": "m1",
            "content": 'Let me see.\nf({"x":1}) -> A\nf({"x":1}) -> B\nIt is A.',
        },
        {"role": "user", "content": "and?"},
        {
            "role": "assistant",
            "id": "msg_run1",
            "content": None,
            "toolCalls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}],
        },
        {"role": "tool", "content": "C", "toolCallId": "c"},
    ]
    assert lost == ["tool_history"]


def test_a_round_that_a_user_answered_instead() -> None:
    written, _ = ask(Message("assistant", [call("a")], "m1"), one("never mind"))
    assert written["messages"] == [
        {"role": "assistant", "id": "m1", "content": 'f({"x":1})'},
        {"role": "user", "content": "never mind"},
    ]


def test_results_of_calls_that_the_server_holds() -> None:
    """An increment: the calls are in the server's history, wherever the results stand."""
    written, _ = ask(result("a"), one("and go on"), Message("user", [ToolResult("b", [Text("B")]), Text("ok")]))
    assert written["messages"] == [
        {"role": "tool", "content": "r", "toolCallId": "a"},
        {"role": "user", "content": "and go on"},
        {"role": "tool", "content": "B", "toolCallId": "b"},
        {"role": "user", "content": "ok"},
    ]


def test_messages_of_an_assistant_stay_apart_and_results_alone_are_no_message_of_a_user() -> None:
    written, lost = ask(
        Message("assistant", [Text("a")], "m1"), Message("assistant", [Text("b")], "m2"),
        Message("user", [ToolResult("x", [Text("X")], is_error=True)]), Message("tool", []),
    )  # fmt: skip
    assert written["messages"] == [
        {"role": "assistant", "id": "m1", "content": "a"},
        {"role": "assistant", "id": "m2", "content": "b"},
        {"role": "tool", "content": "X", "toolCallId": "x"},
    ]
    assert lost == ["tool_history"]


def test_who_offered_a_tool_is_not_said() -> None:
    origin = ToolCall("a", "f", "{}", origin=Origin.MCP)
    assert ask(Message("assistant", [origin], "m1"), result("a"))[1] == ["tool_origin"]


def test_tools_have_a_description_and_a_schema_in_a_string() -> None:
    written, lost = ask(one("q"), tools=[Tool("f"), Tool("g", "d", SCHEMA, True)])
    assert [(t["name"], t["description"], json.loads(t["parameters"])) for t in written["tools"]] == [
        ("f", "", {"type": "object", "properties": {}}),
        ("g", "d", SCHEMA),
    ]
    assert all(isinstance(t["parameters"], str) for t in written["tools"])
    assert lost == ["tools"], "of which one is strict"
    assert "tools" not in ask(one("q"))[0]
    assert ask(one("q"), tools=[])[0]["tools"] == []


def test_tool_choice() -> None:
    tools = [Tool("f")]
    written, lost = ask(one("q"), tools=tools, tool_choice=ToolChoice(ToolMode.NONE))
    assert ("tools" in written, lost) == (False, [])
    assert ask(one("q"), tools=tools, tool_choice=ToolChoice(ToolMode.AUTO))[1] == []
    assert ask(one("q"), tools=tools, tool_choice=ToolChoice(ToolMode.REQUIRED))[1] == ["tool_choice"]
    assert ask(one("q"), tools=tools, tool_choice=ToolChoice(ToolMode.AUTO, ["f"]))[1] == ["tool_choice"]


def test_what_has_no_field_is_recorded() -> None:
    _, lost = ask(
        one("q"),
        sampling=Sampling(temperature=0.5, n=1),
        parallel_tool_calls=False,
        reasoning_effort="low",
        user_id="u",
        metadata={"a": "b"},
        context=[{"description": "d", "value": "v"}],
        state={"a": 1},
    )
    assert sorted(lost) == [
        "context",
        "metadata",
        "parallel_tool_calls",
        "reasoning_effort",
        "sampling",
        "state",
        "user_id",
    ]


def test_several_answers_are_refused() -> None:
    for n in (2, 3):
        with pytest.raises(Unsupported, match=f"{n} were requested") as caught:
            ask(one("q"), sampling=Sampling(n=n))
        assert caught.value.failure.param == "n"


def test_what_every_answer_is_anyway_is_no_loss() -> None:
    """One answer, in text, is all that this wire has."""
    assert ask(one("q"), sampling=Sampling(n=1))[1] == []
    assert ask(one("q"), response_format=ResponseFormat("text"))[1] == []
    assert ask(one("q"), response_format=ResponseFormat("json"))[1] == ["response_format"]


@pytest.mark.parametrize(
    ("answer", "payload"),
    [
        (Resume("i", "resolved", "yes"), "yes"),
        (Resume("i", "resolved", {"ok": True}), '{"ok":true}'),
        (Resume("i", "resolved", None), "null"),
        (Resume("i", "cancelled", None), "cancelled"),
        (Resume("i", "cancelled", "no"), "no"),
    ],
)
def test_an_answer_to_an_interrupt_is_a_string(answer: Resume, payload: str) -> None:
    written, _ = ask(resume=[answer])
    assert written == {"conversationId": "run1", "messages": [], "resume": {"interruptId": "i", "payload": payload}}


def test_two_answers_at_once_are_refused() -> None:
    with pytest.raises(Unsupported, match="one interrupt"):
        ask(resume=[Resume("i", "resolved"), Resume("j", "resolved")])


@pytest.mark.parametrize("said", [{}, {"conversationId": None}], ids=["absent", "null"])
def test_a_request_without_a_conversation_begins_one(said: dict[str, Any]) -> None:
    request = asked({"messages": [user("hi")], **said})
    assert request.thread_id
    assert request.thread_id == asked({"messages": [user("hi")], **said}).thread_id, "the same one for the same run"
    assert request.thread_id != asked({"messages": [user("hi")], **said}, run_id="run2").thread_id
    assert asked({"conversationId": "", "messages": []}).thread_id == ""


def test_only_unknown_fields_are_kept_beside_a_request() -> None:
    assert asked(body(user("hi"))).extras == {"ag-kit": {"notes": {"generation": 1}}}
    assert asked({**body(user("hi")), "botId": "b"}).extras == {
        "ag-kit": {"notes": {"generation": 1}, "fields": {"botId": "b"}}
    }
