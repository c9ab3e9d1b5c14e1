"""Requests in both directions: what is read, what is refused and where, what a backend gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import ResponseInputParam, ToolParam
from pydantic import TypeAdapter

from bridge.contract import WireRequest
from bridge.dialects.openai_chat import dialect as chat
from bridge.dialects.openai_responses import dialect
from bridge.dialects.openai_responses.client_tools import KINDS, read_output
from bridge.dialects.openai_responses.read_messages import ItemReader
from bridge.errors import RequestError, Unsupported
from bridge.model import (
    Data,
    FileRef,
    HistoryMode,
    Inline,
    Media,
    MediaKind,
    Message,
    Reasoning,
    Refusal,
    Request,
    ResponseFormat,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
    ToolResult,
    Url,
)
from bridge.toolkit import Node
from bridge.translation.requirements import encoded

from .helpers import asked, back, front, request, sent

PNG = "iVBORw0KGgo="
USER = Message("user", [Text("Hi")])
WEATHER = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}

# Everything that a client may say, in the shape in which it must arrive at a backend of the same dialect.
RICH: dict[str, Any] = {
    "model": "m",
    "instructions": "Be short.",
    "input": [
        {"type": "message", "role": "developer", "content": "Rules."},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look:"},
                {"type": "input_image", "detail": "high", "image_url": "https://x.test/a.png"},
                {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG}"},
                {"type": "input_image", "detail": "low", "file_id": "file-1"},
                {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"},
                {"type": "input_file", "file_url": "https://x.test/a.pdf"},
                {"type": "input_file", "file_id": "file-2"},
                {"type": "input_audio", "input_audio": {"data": PNG, "format": "mp3"}},
                {"type": "novel_part", "a": 1},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
            "encrypted_content": "enc+/==",
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [
                {
                    "type": "output_text",
                    "text": "I look.",
                    "annotations": [{"type": "file_path", "file_id": "f", "index": 0}],
                },
                {"type": "refusal", "refusal": "Not that."},
            ],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "f",
            "arguments": '{"a": 1}',
            "status": "completed",
        },
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "not json"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [
                {"type": "input_text", "text": "x"},
                {"type": "input_image", "detail": "auto", "file_id": "file-3"},
            ],
        },
        {"type": "novel_item", "b": [1, None]},
        {"type": "message", "role": "user", "content": "And now?"},
    ],
    "tools": [
        {**WEATHER, "defer_loading": True},
        {"type": "function", "name": "bare"},
        {"type": "web_search", "user_location": {"type": "approximate"}},
        {"type": "mcp", "server_label": "s", "server_url": "https://mcp.test"},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "s"}]},
    "parallel_tool_calls": False,
    "temperature": 0.5,
    "top_p": 0.9,
    "max_output_tokens": 9,
    "text": {
        "format": {
            "type": "json_schema",
            "name": "n",
            "schema": {"type": "object"},
            "strict": True,
            "description": "d",
        },
        "verbosity": "low",
    },
    "reasoning": {"effort": "high", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "metadata": {"k": "v"},
    "user": "u",
    "service_tier": "flex",
    "truncation": "auto",
    "stream": True,
    "novel": {"x": None},
}


def test_a_request_of_this_dialect_arrives_as_it_was() -> None:
    assert sent(request(RICH)) == {**RICH, "store": False}


def test_a_part_of_another_type_with_a_text_alone_is_sent_as_it_came() -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "memo", "text": "x"}]}
    assert sent(request(asked([item])))["input"] == [item]


def test_what_of_it_has_a_place_in_the_model() -> None:
    r = request(RICH)
    assert [m.role for m in r.messages] == [
        "system", "developer", "user", "assistant", "assistant", "assistant", "assistant", "assistant", "tool", "tool",
        "assistant", "user",
    ]  # fmt: skip
    user = [p for p in r.messages[2].parts if isinstance(p, Media)]
    assert [(p.kind, p.source, p.mime, p.filename) for p in user] == [
        (MediaKind.IMAGE, Url("https://x.test/a.png"), None, None),
        (MediaKind.IMAGE, Inline(PNG), "image/png", None),
        (MediaKind.IMAGE, FileRef("file-1"), None, None),
        (MediaKind.FILE, Inline(PNG), "application/pdf", "a.pdf"),
        (MediaKind.FILE, Url("https://x.test/a.pdf"), None, None),
        (MediaKind.FILE, FileRef("file-2"), None, None),
        (MediaKind.AUDIO, Inline(PNG), "audio/mpeg", None),
    ]
    thought = r.messages[3].parts[0]
    assert isinstance(thought, Reasoning)
    assert (thought.text, thought.signature) == ("a\n\nb", "enc+/==")
    assert [type(p) for p in r.messages[4].parts] == [Text, Refusal]
    assert isinstance(r.messages[6].parts[0], ToolCall)
    assert r.messages[6].parts[0].arguments == "not json"
    result = r.messages[8].parts[0]
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.name, result.parts) == ("c1", "f", [Text("sunny")])
    assert [(t.name, t.kind, t.strict) for t in r.tools or []] == [
        ("f", "function", True),
        ("bare", "function", None),
        ("web_search", "web_search", None),
        ("mcp", "mcp", None),
    ]
    assert r.response_format == ResponseFormat("json_schema", "n", {"type": "object"}, True, "d")
    assert (r.reasoning_effort, r.user_id, r.metadata, r.history) == ("high", "u", {"k": "v"}, HistoryMode.FULL)
    assert (r.sampling.temperature, r.sampling.top_p, r.sampling.max_tokens) == (0.5, 0.9, 9)


@pytest.mark.parametrize("value", ["Hi", [{"role": "user", "content": "Hi"}]])
def test_the_short_forms(value: Any) -> None:
    read = request({"input": value}, front(model="default"))
    assert (read.messages, read.model, read.stream) == ([USER], None, False)


def test_a_stored_prompt_may_name_the_model() -> None:
    assert request({"input": "Hi", "prompt": {"id": "pmpt_1"}}).model is None


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        ("auto", ToolChoice(ToolMode.AUTO)),
        ("none", ToolChoice(ToolMode.NONE)),
        ("required", ToolChoice(ToolMode.REQUIRED)),
        ({"type": "function", "name": "f"}, ToolChoice(ToolMode.REQUIRED, ["f"])),
        ({"type": "web_search"}, ToolChoice(ToolMode.REQUIRED, ["web_search"])),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            ToolChoice(ToolMode.AUTO, ["f"]),
        ),
    ],
)
def test_tool_choice(choice: Any, read: ToolChoice) -> None:
    r = request(asked(tools=[WEATHER, {"type": "web_search"}], tool_choice=choice))
    assert r.tool_choice == read
    assert sent(r)["tool_choice"] == choice


@pytest.mark.parametrize(
    ("body", "param", "expected"),
    [
        ({}, "input", "required, expected a string or a list of items"),
        (asked(text={"verbosity": 1}), "text.verbosity", "a string"),
        (asked(prompt_cache_retention=1), "prompt_cache_retention", "a string"),
        (asked(None), "input", "a string or a list of items, got null"),
        (asked([]), "input", "at least one item"),
        (asked(["x"]), "input[0]", "an object, got 'x'"),
        (asked([{"content": "x"}]), "input[0].type", "a type, or a role"),
        (asked([{"role": "robot", "content": "x"}]), "input[0].role", "one of assistant, developer, system, user"),
        (asked([{"role": "user"}]), "input[0].content", "required"),
        (asked([{"role": "user", "content": 1}]), "input[0].content", "a list of parts, got 1"),
        (asked([{"role": "user", "content": [{}]}]), "input[0].content[0].type", "required"),
        (asked([{"role": "user", "content": [{"type": "input_text"}]}]), "input[0].content[0].text", "a string"),
        (asked([{"role": "user", "content": [{"type": "input_image"}]}]), "input[0].content[0].image_url", "file_id"),
        (asked([{"role": "user", "content": [{"type": "input_file"}]}]), "input[0].content[0].file_data", "file_url"),
        (
            asked([{"role": "user", "content": [{"type": "input_audio"}]}]),
            "input[0].content[0].input_audio",
            "an object",
        ),
        (asked([{"type": "function_call", "name": "f"}]), "input[0].call_id", "required"),
        (asked([{"type": "function_call_output", "call_id": "c"}]), "input[0].output", "required"),
        (asked([{"type": "reasoning", "summary": "x"}]), "input[0].summary", "a list"),
        (asked([{"type": "item_reference", "id": "x"}]), "input[0].type", "item_reference needs stored responses"),
        (asked(model=1), "model", "a string, got 1"),
        (asked(stream="yes"), "stream", "true or false"),
        (asked(temperature="hot"), "temperature", "a number, got 'hot'"),
        (asked(max_output_tokens=1.5), "max_output_tokens", "a whole number"),
        (asked(tools={}), "tools", "a list"),
        (asked(tools=[{"name": "f"}]), "tools[0].type", "required"),
        (asked(tools=[{"type": "function"}]), "tools[0].name", "required"),
        (asked(tool_choice="maybe"), "tool_choice", "one of auto, none, required"),
        (asked(tool_choice=[1]), "tool_choice", "none, auto, required or an object"),
        (asked(tool_choice={"type": "function"}), "tool_choice.name", "required"),
        (asked(tool_choice="required"), "tool_choice", "the request has no tools"),
        (asked(tool_choice={"type": "web_search"}), "tool_choice", "the request has no tools"),
        (
            asked(tools=[{"type": "function", "name": "f"}], tool_choice={"type": "function", "name": "g"}),
            "tool_choice",
            "a tool of the request, got 'g'",
        ),
        (asked(text={"format": {"type": "json_schema", "name": "n"}}), "text.format.schema", "required"),
        (asked(reasoning="high"), "reasoning", "an object"),
        (asked(metadata=[]), "metadata", "an object"),
        (asked(instructions=["x"]), "instructions", "a string"),
        (asked(previous_response_id="resp_1"), "previous_response_id", "stores no responses"),
        (asked(conversation={"id": "conv_1"}), "conversation", "stores no responses"),
        (asked(store=True), "store", "stores no responses"),
        (asked(background=True), "background", "stores no responses"),
        (b"{", None, "not valid JSON"),
        (b"[]", None, "must be a JSON object"),
    ],
)
def test_mistakes_name_their_place(body: Any, param: str | None, expected: str) -> None:
    with pytest.raises(RequestError) as caught:
        request(body)
    failure = caught.value.failure
    assert failure.param == param
    assert expected in failure.message
    shown = dialect.encode_error(failure)
    assert shown.status == 400
    error = json.loads(shown.body)["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")


@pytest.mark.parametrize(
    "fine", [{"store": False}, {"store": None}, {"background": False}, {"previous_response_id": None}]
)
def test_nulls_and_defaults_are_fine(fine: dict[str, Any]) -> None:
    assert sent(request(asked(**fine)))["store"] is False


def test_what_the_backend_stores_is_left_to_it() -> None:
    body = asked(
        [{"type": "item_reference", "id": "msg_1"}, {"type": "message", "role": "user", "content": "Hi"}],
        previous_response_id="resp_1",
        conversation="conv_1",
        store=True,
    )
    context = front({"stored": "backend"})
    got = sent(request(body, context))
    assert {name: got[name] for name in body} == body
    with pytest.raises(RequestError, match="background"):
        request(asked(background=True), context)


# ---------------------------------------------------------------------- towards backends


def test_a_talk_of_another_dialect() -> None:
    messages = [
        Message("system", [Text("Be short.")]),
        USER,
        Message(
            "assistant",
            [Reasoning("hm", "sig"), Text("I look."), ToolCall("c1", "f", "{}"), ToolCall("c2", "f", '{"a":1}')],
        ),
        Message("tool", [ToolResult("c1", [Text("sunny")])]),
        Message("tool", [ToolResult("c2", [Text("see "), Media(MediaKind.IMAGE, Inline(PNG))])]),
        Message("assistant", [Text("Done."), Refusal("No more.")]),
        Message("user", [Text("Thanks"), Data({"a": 1})]),
    ]
    context = back()
    body = sent(Request(messages), context=context)
    assert body["instructions"] == "Be short."
    assert body["input"] == [
        {"type": "message", "role": "user", "content": "Hi"},
        {"type": "message", "role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [
                {"type": "input_text", "text": "see "},
                {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PNG}"},
            ],
        },
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_run1",
            "status": "completed",
            "content": [
                {"type": "output_text", "text": "Done.", "annotations": []},
                {"type": "refusal", "refusal": "No more."},
            ],
        },
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Thanks"}, {"type": "input_text", "text": '{"a":1}'}],
        },
    ]
    TypeAdapter(ResponseInputParam).validate_python(body["input"])
    assert context.lost.names == ["data", "reasoning_history"]
    plain = sent(Request(messages[:2]), {"instructions": "message"})
    assert "instructions" not in plain
    assert plain["input"][0] == {"type": "message", "role": "system", "content": "Be short."}


@pytest.mark.parametrize(
    ("part", "item"),
    [
        (Reasoning("hm", "sig"), None),
        (Reasoning("hm", extras={"openai-responses": {"id": "rs_1", "form": "summary"}}), None),
        (
            Reasoning("hm", "e", extras={"openai-responses": {"id": "rs_1", "form": "summary"}}),
            {"summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "e"},
        ),
        (
            Reasoning("hm", extras={"openai-responses": {"id": "rs_1", "form": "content"}}),
            {"summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        ),
    ],
)
def test_earlier_reasoning_goes_back_where_it_can_be_read(part: Reasoning, item: Any) -> None:
    context = back()
    got = sent(Request([Message("assistant", [part]), USER]), context=context)["input"]
    assert got[:-1] == ([{"type": "reasoning", "id": "rs_1", **item}] if item else [])
    assert context.lost.names == ([] if item else ["reasoning_history"])


def test_functions_of_other_dialects_are_not_strict_unless_they_say_so() -> None:
    tools = [Tool("a"), Tool("b", "d", {"type": "object"}, True)]
    body = sent(Request([USER], tools=tools, tool_choice=ToolChoice(ToolMode.REQUIRED, ["a", "b"])))
    assert body["tools"] == [
        {"type": "function", "name": "a", "parameters": {"type": "object", "properties": {}}, "strict": False},
        {"type": "function", "name": "b", "description": "d", "parameters": {"type": "object"}, "strict": True},
    ]
    TypeAdapter(list[ToolParam]).validate_python(body["tools"])
    assert body["tool_choice"]["type"] == "allowed_tools"
    assert "tool_choice" not in sent(Request([USER], tool_choice=ToolChoice(ToolMode.AUTO)))


def test_what_the_wire_has_no_field_for_is_recorded() -> None:
    wanted = Request(
        [Message("user", [Text("x")], name="ann")],
        sampling=Sampling(stop=["x"], seed=1, n=2),
        thread_id="t",
        context=[{"a": 1}],
        state={},
        metadata={"n": 1},
        extras={"other": {"a": 1}},
    )
    context = back()
    body = sent(wanted, context=context)
    assert set(body) == {"input", "stream", "store"}
    assert context.lost.names == ["message_name", "metadata", "thread_id", "context", "sampling", "extras"]
    assert context.lost.details["sampling"] == "stop, seed, n"


@pytest.mark.parametrize(
    "media",
    [
        Media(MediaKind.VIDEO, Url("https://x.test/a.mp4")),
        Media(MediaKind.VIDEO, Inline(PNG)),
        Media(MediaKind.AUDIO, Url("https://x.test/a.mp3")),
    ],
)
def test_media_it_cannot_carry(media: Media) -> None:
    wanted = Request([USER, Message("user", [Text("x"), media])])
    with pytest.raises(Unsupported) as caught:
        sent(wanted)
    assert caught.value.failure.param == "messages[1].content[1]"
    body = sent(wanted, {"unsupported_media": "text"})
    assert body["input"][1]["content"][1]["type"] == "input_text"


# ---------------------------------------------------------------------- between the two APIs of OpenAI


def to_chat(body: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = json.loads(encoded(chat, request(body), back()).body)
    return out


def test_a_request_for_chat() -> None:
    """The table of the protocol page, row by row."""
    body = {k: v for k, v in RICH.items() if k not in ("tools", "tool_choice", "input")}
    got = to_chat(
        {
            **body,
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Look"}, RICH["input"][1]["content"][1]]},
                RICH["input"][2],
                {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
                *RICH["input"][4:6],
                RICH["input"][7],
                {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "x"}]},
            ],
            "tools": [WEATHER],
            "tool_choice": {"type": "function", "name": "f"},
        }
    )
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    assert got["messages"] == [
        {"role": "system", "content": "Be short."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look"},
                {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "high"}},
            ],
        },
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "a\n\nb",
            "tool_calls": [
                {"id": "c1", **call},
                {"id": "c2", "type": "function", "function": {"name": "f", "arguments": '{"INVALID_JSON":"not json"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "c2", "content": "x"},
    ]
    function = {k: v for k, v in WEATHER.items() if k != "type"}
    function["parameters"] = {"type": "object", "properties": {}}
    assert got["tools"] == [{"type": "function", "function": function}]
    assert got["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert got["response_format"]["json_schema"] == {
        "name": "n", "schema": {"type": "object"}, "strict": True, "description": "d",
    }  # fmt: skip
    same = ("temperature", "top_p", "parallel_tool_calls", "user", "service_tier", "stream")
    assert {name: got[name] for name in same} == {name: RICH[name] for name in same}
    assert (got["max_tokens"], got["reasoning_effort"], got["verbosity"]) == (9, "high", "low")
    assert got["stream_options"] == {"include_usage": True}
    assert got.keys().isdisjoint({"store", "metadata"})  # metadata is refused without store


def test_a_request_from_chat() -> None:
    body = {
        "model": "m",
        "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}],
        "response_format": {"type": "json_object"},
        "verbosity": "low",
        "service_tier": "flex",
        "max_completion_tokens": 9,
    }
    read = chat.decode_request(WireRequest(body=json.dumps(body).encode()), front())
    context = back()
    assert sent(read, context=context) == {
        "model": "m",
        "instructions": "Be short.",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "stream": False,
        "store": False,
        "max_output_tokens": 9,
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "service_tier": "flex",
    }
    assert context.lost.names == []


@pytest.mark.parametrize("name", ["ag-kit", "ag-ui", "agentscope", "openai-chat"])
def test_hosted_tools_are_not_told_as_functions(name: str) -> None:
    from bridge.contract import registry

    wanted = request(asked(tools=[WEATHER, {"type": "web_search"}]), front({"hosted_tools": "keep"}))
    with pytest.raises(Unsupported, match="got 'web_search'") as caught:
        registry.get(name).encode_request(wanted, back())
    assert caught.value.failure.param == "tools[1].type"
    context = front({"hosted_tools": "drop"})
    left = request(asked(tools=[WEATHER, {"type": "web_search"}], tool_choice={"type": "web_search"}), context)
    assert ([t.name for t in left.tools or []], left.tool_choice) == (["f"], None)
    assert context.lost.names == ["tools"]
    registry.get(name).encode_request(left, back())


@pytest.mark.parametrize("name", ["ag-kit", "ag-ui", "agentscope", "openai-chat"])
def test_items_of_built_in_tools_break_no_other_dialect(name: str) -> None:
    from bridge.contract import registry

    conversation = [
        {"role": "user", "content": "Hi"},
        RICH["input"][6],
        {"type": "computer_call_output", "output": {}},
        RICH["input"][10],
    ]
    assert registry.get(name).encode_request(request(asked(conversation)), back()).body


def test_a_body_that_says_it_is_no_json() -> None:
    wire = WireRequest(headers={"content-type": "text/plain"}, body=json.dumps(asked()).encode())
    with pytest.raises(RequestError) as refused:
        dialect.decode_request(wire, front())
    assert refused.value.failure.status == 415


def test_a_result_has_the_name_of_a_call_in_the_stored_conversation() -> None:
    before = [Message("assistant", [ToolCall("c1", "f", "{}")])]
    output = {"type": "function_call_output", "call_id": "c1", "output": "42"}
    (message,) = ItemReader(before).read(Node({"input": [output]}))
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    assert result.name == "f"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("service_tier", 1),
        ("safety_identifier", []),
        ("max_tool_calls", "2"),
        ("top_logprobs", 1.5),
        ("presence_penalty", "high"),
        ("truncation", "sometimes"),
    ],
)
def test_fields_that_answers_repeat_have_their_types(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"^{name}: expected") as error:
        request(asked(**{name: value}))
    assert error.value.failure.param == name


@pytest.mark.parametrize("kind", [tool.output for tool in KINDS.values()])
def test_a_result_of_a_clients_tool_names_its_call(kind: str) -> None:
    field = "tools" if kind == "tool_search_output" else "output"
    assert read_output({"type": kind, "call_id": "c1", "id": "i1", field: "x"}) == ("c1", [Text("x")], False)
    by_id = read_output({"type": kind, "id": "i1", field: "x"})
    assert by_id == (("i1", [Text("x")], False) if kind == "local_shell_call_output" else None)
