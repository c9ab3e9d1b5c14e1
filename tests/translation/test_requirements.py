"""What the APIs of backends demand of schemas, media, system messages and fields, from every client that can ask it."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import Losses, registry
from bridge.contract.demands import Demands, SchemaDemands, SystemPlace
from bridge.model import (
    Inline,
    Media,
    MediaKind,
    Message,
    Part,
    Reasoning,
    Request,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Url,
)
from bridge.translation.library import Translator
from bridge.translation.requirements import required
from bridge.translation.schemas import SchemaWriter

BACKS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]


def sent(front: str, back: str, body: dict[str, Any], **options: Any) -> tuple[dict[str, Any], list[str]]:
    """The body for the backend of a client's request, and what was lost."""
    translator = Translator(back, front, model="m", backend_options=options)
    path = "/v1beta/models/m:generateContent" if front == "gemini" else ""
    return json.loads(translator.request(json.dumps(body).encode(), client=front, path=path)), translator.lost


def asked(front: str, said: str = "hi", tool: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A client's request with one text and one tool whose schema is `tool`."""
    described = {"name": "f", "description": "d"}
    match front:
        case "openai-chat":
            tools = [{"type": "function", "function": {**described, "parameters": tool}}]
            return {
                "messages": [{"role": "user", "content": said}],
                **({"tools": tools} if tool is not None else {}),
                **more,
            }
        case "openai-responses":
            tools = [{"type": "function", **described, "parameters": tool}]
            return {"input": said, **({"tools": tools} if tool is not None else {}), **more}
        case "anthropic-messages":
            tools = [{**described, "input_schema": tool}]
            messages = [{"role": "user", "content": said}]
            return {"max_tokens": 9, "messages": messages, **({"tools": tools} if tool is not None else {}), **more}
        case "gemini":
            tools = [{"functionDeclarations": [{**described, "parametersJsonSchema": tool}]}]
            contents = [{"role": "user", "parts": [{"text": said}]}]
            return {"contents": contents, **({"tools": tools} if tool is not None else {}), **more}
        case "ag-ui":
            messages = [{"id": "1", "role": "user", "content": said}]
            tools = [] if tool is None else [{**described, "parameters": tool}]
            run = {"threadId": "t", "runId": "r", "state": {}, "context": [], "forwardedProps": {}}
            return {**run, "messages": messages, "tools": tools, **more}
    tools = [{"type": "function", "function": {**described, "parameters": tool}}]
    message = {"role": "user", "type": "message", "content": [{"type": "text", "text": said}]}
    return {"input": [message], "session_id": "s", **({"tools": tools} if tool is not None else {}), **more}


def schema_in(body: dict[str, Any]) -> dict[str, Any]:
    tool = body["tools"][0]
    found: dict[str, Any] = tool.get("function", tool).get("parameters") or tool.get("input_schema")
    return found


FRONTS = ["openai-chat", "openai-responses", "anthropic-messages", "gemini", "ag-ui", "agentscope"]

# ---------------------------------------------------------------------- schemas of tools

WHOLE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "object"}, {"type": "object", "properties": {}}),
    ({"type": "object", "description": "x"}, {"type": "object", "properties": {}, "description": "x"}),
    ({"properties": {"a": {"type": "string"}}}, {"type": "object", "properties": {"a": {"type": "string"}}}),
    ({"type": None, "properties": None}, {"type": "object", "properties": {}}),
    ({"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
    (
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {}}}}},
        {"type": "object", "properties": {"a": {}}, "$defs": {"A": {"type": "object", "properties": {"a": {}}}}},
    ),
]  # fmt: skip


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("back", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize(("given", "wanted"), WHOLE, ids=[json.dumps(given) for given, _ in WHOLE])
def test_the_schema_of_a_tool_is_an_object_with_properties(
    front: str, back: str, given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    assert schema_in(sent(front, back, asked(front, tool=given))[0]) == wanted


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("given", [{"type": "object"}, {"properties": {}}, {"type": None}])
def test_the_schema_of_a_tool_has_a_type_for_anthropic(front: str, given: dict[str, Any]) -> None:
    assert schema_in(sent(front, "anthropic-messages", asked(front, tool=given))[0]) == {**given, "type": "object"}


A, B = {"type": "string"}, {"type": "integer"}
CHOICES: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({"properties": {"a": A, "b": B}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": A, "b": B}, []),
    (
        {"oneOf": [{"properties": {"a": A, "k": A}, "required": ["a", "k"]}, {"required": ["k"]}]},
        {"a": A, "k": A}, ["k"],
    ),
    ({"properties": {"a": A}, "allOf": [{"properties": {"b": B}, "required": ["b"]}]}, {"a": A, "b": B}, ["b"]),
    ({"anyOf": [{"properties": {"a": A}}, {"properties": {"a": B}}]}, {"a": {"anyOf": [A, B]}}, []),
    ({"oneOf": [{"$ref": "#/$defs/X"}], "$defs": {"X": {"properties": {"a": A}, "required": ["a"]}}}, {"a": A}, ["a"]),
    ({"allOf": [{"anyOf": [{"properties": {"a": A}}, {"properties": {"b": B}}]}]}, {"a": A, "b": B}, []),
    ({"allOf": [{"$ref": "#"}], "properties": {"a": A}}, {"a": A}, []),
    ({"anyOf": "wrong", "oneOf": [1, None]}, {}, []),
]  # fmt: skip


@pytest.mark.parametrize("front", [front for front in FRONTS if front != "anthropic-messages"])
@pytest.mark.parametrize(("given", "properties", "needed"), CHOICES, ids=range(len(CHOICES)))
def test_choices_at_the_root_are_merged(
    front: str, given: dict[str, Any], properties: dict[str, Any], needed: list[str]
) -> None:
    body, lost = sent(front, "anthropic-messages", asked(front, tool={"type": "object", **given}))
    schema = schema_in(body)
    assert schema.keys().isdisjoint({"anyOf", "oneOf", "allOf", "$ref"})
    assert (schema["type"], schema.get("properties", {}), schema.get("required", [])) == ("object", properties, needed)
    assert "tools" in lost


def test_choices_inside_a_schema_stay() -> None:
    schema = {"type": "object", "properties": {"a": {"anyOf": [A, B]}}}
    assert schema_in(sent("openai-chat", "anthropic-messages", asked("openai-chat", tool=schema))[0]) == schema


@pytest.mark.parametrize("back", ["anthropic-messages", "gemini"])
def test_of_tools_with_one_name_the_first_is_sent(back: str) -> None:
    body = asked("openai-chat", tool={"type": "object", "properties": {"a": A}})
    body["tools"].append({"type": "function", "function": {"name": "f", "description": "second"}})
    body["tools"].append({"type": "function", "function": {"name": "g"}})
    found, lost = sent("openai-chat", back, body)
    written = json.dumps(found["tools"])
    assert (written.count('"f"'), written.count('"g"'), "second" in written) == (1, 1, False)
    assert "tools" in lost


# ---------------------------------------------------------------------- schemas of answers

FORMATS = {
    "openai-chat": lambda s: {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": s}}},
    "openai-responses": lambda s: {"text": {"format": {"type": "json_schema", "name": "n", "schema": s}}},
    "gemini": lambda s: {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": s}},
}


@pytest.mark.parametrize("front", FORMATS)
def test_schemas_of_answers_are_closed_and_without_limits(front: str) -> None:
    schema = {
        "type": "object", "required": ["age"],
        "properties": {
            "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 9},
            "minimum": {"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 3, "maxItems": 4},
            "in": {"anyOf": [{"type": "object", "properties": {"x": A}}, {"type": ["object", "null"]}]},
        },
        "$defs": {"D": {"properties": {}, "additionalProperties": True}},
    }  # fmt: skip
    body, lost = sent(front, "anthropic-messages", asked(front, **FORMATS[front](schema)))
    assert body["output_config"]["format"]["schema"] == {
        "type": "object", "required": ["age"], "additionalProperties": False,
        "properties": {
            "age": {"type": "integer"},
            "minimum": {"type": "array", "items": A},
            "in": {"anyOf": [
                {"type": "object", "properties": {"x": A}, "additionalProperties": False},
                {"type": ["object", "null"], "additionalProperties": False},
            ]},
        },
        "$defs": {"D": {"properties": {}, "additionalProperties": False}},
    }  # fmt: skip
    assert "response_format" in lost


_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["object", "#", "#/$defs/a", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["type", "properties", "anyOf", "oneOf", "allOf", "$ref", "$defs", "items", "required", "a",
                         "minItems", "additionalProperties"]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip
_ALL = SchemaDemands(True, True, True, True, frozenset({"minimum"}), 1)


@given(st.dictionaries(st.sampled_from(["type", "properties", "anyOf", "allOf", "$ref", "$defs", "required"]), _JSON))
def test_any_schema_becomes_an_object_and_stays_what_it_became(schema: dict[str, Any]) -> None:
    written = SchemaWriter(_ALL).write(schema)
    assert (written["type"], type(written["properties"])) == ("object", dict)
    assert written.keys().isdisjoint({"anyOf", "oneOf", "allOf"})
    assert SchemaWriter(_ALL).write(written) == written


def test_references_that_multiply_are_followed_once() -> None:
    levels = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2, "properties": {f"p{n}": A}} for n in range(60)}
    writer = SchemaWriter(SchemaDemands(plain_root=True))
    written = writer.write({"allOf": [{"$ref": "#/$defs/d0"}], "$defs": levels})
    assert written["properties"].keys() == {f"p{n}" for n in range(60)}
    assert writer.looks < 60 * 60 * 2


# ---------------------------------------------------------------------- system messages

SYSTEM = {
    "openai-chat": {"messages": [{"role": "system", "content": "Say hi."}]},
    "openai-responses": {"input": [{"role": "developer", "content": "Say hi."}]},
    "ag-ui": {**asked("ag-ui"), "messages": [{"id": "1", "role": "system", "content": "Say hi."}]},
}


@pytest.mark.parametrize("front", SYSTEM)
@pytest.mark.parametrize("back", ["anthropic-messages", "gemini"])
def test_a_request_of_system_text_alone_asks_with_it(front: str, back: str) -> None:
    body, _ = sent(front, back, SYSTEM[front])
    said = body["messages"] if "messages" in body else body["contents"]
    assert [m["role"] for m in said] == ["user"]
    assert said[0].get("content", said[0].get("parts")) in ("Say hi.", [{"text": "Say hi."}])


INSIDE = {
    "openai-chat": {"messages": [
        {"role": "system", "content": "A"}, {"role": "user", "content": "q"}, {"role": "system", "content": "B"},
    ]},
    "anthropic-messages": {"max_tokens": 9, "system": "A", "messages": [
        {"role": "user", "content": "q"}, {"role": "system", "content": "B"},
    ]},
    "openai-responses": {"instructions": "A", "input": [
        {"role": "developer", "content": "B"}, {"role": "user", "content": "q"},
    ]},
    "ag-ui": {**asked("ag-ui"), "messages": [
        {"id": "1", "role": "system", "content": "A"}, {"id": "2", "role": "user", "content": "q"},
        {"id": "3", "role": "developer", "content": "B"},
    ]},
}  # fmt: skip


@pytest.mark.parametrize("front", INSIDE)
def test_one_system_message_at_the_start_for_templates_that_take_no_other(front: str) -> None:
    body, lost = sent(front, "openai-chat", INSIDE[front], system_inside="hoist")
    assert [(m["role"], m["content"]) for m in body["messages"]] == [("system", "A\n\nB"), ("user", "q")]
    assert "system" in lost
    kept, _ = sent(front, "openai-chat", INSIDE[front])
    assert sorted(m["content"] for m in kept["messages"]) == ["A", "B", "q"]


@pytest.mark.parametrize(("back", "option"), [("anthropic-messages", "system"), ("gemini", "user")])
def test_system_messages_inside_stay_where_an_option_says_so(back: str, option: str) -> None:
    moved, kept = (sent("openai-chat", back, INSIDE["openai-chat"], **o)[0] for o in ({}, {"system_inside": option}))
    assert json.dumps(moved.get("system", moved.get("systemInstruction"))).count('"B"') == 1
    assert '"B"' in json.dumps(kept.get("messages", kept.get("contents")))


# ---------------------------------------------------------------------- media

PNG, JPEG = (base64.b64encode(head + bytes(20)).decode() for head in (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0"))


@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize(
    ("mime", "data", "wanted"),
    [
        ("image/jpg", JPEG, "image/jpeg"), ("image/x-png", PNG, "image/png"), ("image/*", PNG, "image/png"),
        ("image", JPEG, "image/jpeg"), ("IMAGE/JPG", "AAAA", "image/jpeg"), ("image/jpeg", PNG, "image/png"),
        ("image/png", PNG, "image/png"), ("image/webp", "AAAA", "image/webp"),
    ],
)  # fmt: skip
def test_images_have_a_registered_type_and_that_of_their_bytes(back: str, mime: str, data: str, wanted: str) -> None:
    picture = Media(MediaKind.IMAGE, Inline(data), mime)
    shown = [Message("user", [picture]), Message("assistant", [ToolCall("k", "f", "{}")]),
             Message("tool", [ToolResult("k", [picture])])]  # fmt: skip
    request = required(Request(shown), registry.get(back).capabilities.demands, Losses())
    inside = request.messages[2].parts[0]
    assert isinstance(inside, ToolResult)
    assert [p.mime for p in (*request.messages[0].parts, *inside.parts) if isinstance(p, Media)] == [wanted] * 2
    assert picture.mime == mime


def test_a_linked_picture_without_a_type_has_none() -> None:
    request = Request([Message("user", [Media(MediaKind.IMAGE, Url("https://x.test/a"), "image/*")])])
    changed = required(request, Demands(media_types=True), Losses()).messages[0].parts[0]
    assert changed == Media(MediaKind.IMAGE, Url("https://x.test/a"))


# ---------------------------------------------------------------------- texts


@pytest.mark.parametrize("back", ["anthropic-messages", "gemini"])
def test_a_text_without_a_visible_character_is_left_out_beside_others(back: str) -> None:
    demands = registry.get(back).capabilities.demands
    kept: list[Part] = [Text("a"), Media(MediaKind.IMAGE, Inline(PNG), "image/png")]
    said = [Message("user", [Text(" "), *kept, Text("")], places=("m", "p0", "p1", "p2", "p3")),
            Message("assistant", [ToolCall("k", "f", "{}")]),
            Message("tool", [ToolResult("k", [Text(""), *kept])]), Message("user", [Text("")])]  # fmt: skip
    request = required(Request(said), demands, Losses())
    assert (request.messages[0].parts, request.messages[0].places) == (kept, ("m", "p1", "p2"))
    assert request.messages[2].parts == [ToolResult("k", kept)]
    assert request.messages[3] is said[3]
    assert len(said[0].parts) == 4
    signed = [Message("assistant", [Text("", {"gemini": {"thoughtSignature": "s"}}), Text("a")])]
    assert required(Request(signed), demands, Losses()).messages == signed


# ---------------------------------------------------------------------- fields


@pytest.mark.parametrize(
    ("temperature", "top_p", "wanted", "lost"),
    [
        (0.7, 1, {"temperature": 0.7}, False), (1, 0.9, {"top_p": 0.9}, False), (1, 1, {"temperature": 1}, False),
        (0.7, 0.9, {"temperature": 0.7}, True), (None, 0.9, {"top_p": 0.9}, False), (0, 0, {"temperature": 0}, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("front", ["openai-chat", "openai-responses", "gemini", "agentscope"])
def test_temperature_and_top_p_are_not_sent_together(
    front: str, temperature: float | None, top_p: float, wanted: dict[str, float], lost: bool
) -> None:
    fields = {"temperature": temperature, "topP" if front == "gemini" else "top_p": top_p}
    fields = {name: value for name, value in fields.items() if value is not None}
    body, losses = sent(
        front, "anthropic-messages", asked(front, **({"generationConfig": fields} if front == "gemini" else fields))
    )
    assert {name: body[name] for name in ("temperature", "top_p") if name in body} == wanted
    assert ("sampling" in losses) is lost


def test_neither_is_sent_beside_a_thinking_budget() -> None:
    body = asked("openai-chat", temperature=0.5, top_p=0.9, reasoning_effort="low", max_tokens=9000)
    thinks, lost = sent("openai-chat", "anthropic-messages", body, effort="thinking")
    assert thinks.keys().isdisjoint({"temperature", "top_p"})
    assert "sampling" in lost
    assert sent("openai-chat", "anthropic-messages", body)[0]["temperature"] == 0.5


def test_a_client_of_the_same_dialect_may_send_both() -> None:
    body = asked("anthropic-messages", temperature=0.7, top_p=0.9)
    assert sent("anthropic-messages", "anthropic-messages", body)[0]["top_p"] == 0.9


@pytest.mark.parametrize("front", ["openai-responses", "agentscope"])
def test_metadata_does_not_go_to_chat_without_store(front: str) -> None:
    body, lost = sent(front, "openai-chat", asked(front, metadata={"a": "b"}))
    assert "metadata" not in body
    assert "metadata" in lost
    kept, _ = sent("openai-chat", "openai-chat", asked("openai-chat", metadata={"a": "b"}))
    assert kept["metadata"] == {"a": "b"}


@pytest.mark.parametrize(
    ("back", "field", "given", "wanted"),
    [
        ("openai-chat", "stop", list("abcdef"), list("abcd")),
        ("gemini", "stopSequences", list("abcdef"), list("abcde")),
        ("anthropic-messages", "stop_sequences", ["\n", "x"], ["x"]),
        ("anthropic-messages", "stop_sequences", [" "], None),
    ],
)  # fmt: skip
def test_stop_sequences(back: str, field: str, given: list[str], wanted: list[str] | None) -> None:
    front = "agentscope" if back == "openai-chat" else "openai-chat"
    body, lost = sent(front, back, asked(front, stop=given))
    assert {**body, **body.get("generationConfig", {})}.get(field) == wanted
    assert "sampling" in lost


@pytest.mark.parametrize("front", ["openai-chat", "anthropic-messages", "agentscope"])
def test_the_smallest_limit_of_an_answer(front: str) -> None:
    body, lost = sent(front, "openai-responses", asked(front) | {"max_tokens": 5})
    assert body["max_output_tokens"] == 16
    assert "sampling" in lost


def test_blanks_at_the_end_of_an_answer_to_continue_are_left_out() -> None:
    body = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "It is \n"}]}
    assert sent("openai-chat", "anthropic-messages", body)[0]["messages"][-1]["content"] == "It is"


@pytest.mark.parametrize("back", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("arguments", ["", " \n", "[1]", "{cut", "null", '{"a": 1}'])
def test_arguments_of_earlier_calls_are_objects(back: str, arguments: str) -> None:
    call, answer = ToolCall("k", "f", arguments), ToolResult("k", [Text("A")])
    request = Request([Message("assistant", [call]), Message("tool", [answer])])
    part = required(request, registry.get(back).capabilities.demands, Losses()).messages[0].parts[0]
    assert isinstance(part, ToolCall)
    assert isinstance(json.loads(part.arguments), dict)
    assert (part is call) is (arguments == '{"a": 1}')


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("Ann Lee", "Ann_Lee"), ("<a|b>", "_a_b_"), ("x" * 70, "x" * 64), ("Änn", "Änn"), ("a\\/b", "a__b")],
)
def test_names_of_people_without_what_chat_refuses(name: str, wanted: str) -> None:
    body = {**asked("ag-ui"), "messages": [{"id": "1", "role": "user", "content": "hi", "name": name}]}
    found, lost = sent("ag-ui", "openai-chat", body)
    assert found["messages"][0]["name"] == wanted
    assert ("message_name" in lost) is (name != wanted)


def test_a_result_that_was_added_has_a_name_that_chat_takes() -> None:
    request = Request([Message("assistant", [ToolCall("k", "a b", "{}")])])
    demands = registry.get("openai-chat").capabilities.demands
    once = required(request, demands, Losses())
    assert [message.name for message in once.messages] == [None, "a_b"]
    assert required(once, demands, Losses()) is once


def test_a_blank_text_separates_no_turn() -> None:
    thought, blank, said = Reasoning("Hm"), Text(" "), Text("Hi")
    demands = Demands(one_message_per_turn=True, no_blank_texts=True)
    turns: list[list[list[Part]]] = [
        [[thought], [blank], [said]], [[blank, thought], [said]], [[thought, blank], [said]]
    ]  # fmt: skip
    for parts in turns:
        once = required(Request([Message("assistant", each) for each in parts]), demands, Losses())
        assert [message.parts for message in once.messages] == [[thought, said]]
        assert required(once, demands, Losses()) is once


def test_a_request_as_demanded_is_the_same_object_for_every_backend() -> None:
    parameters = {"type": "object", "properties": {"a": {}}}
    for name in registry.names():
        request = Request(
            "hi", tools=[Tool("f", parameters=parameters)], sampling=Sampling(temperature=0.5, max_tokens=50)
        )
        assert required(request, registry.get(name).capabilities.demands, Losses()) is request


def test_what_needs_nothing_is_not_looked_at() -> None:
    assert SystemPlace.ANYWHERE is Demands().system
    request = Request([Message("system", [Text("a")])])
    assert required(request, Demands(), Losses()) is request


# ---------------------------------------------------------------------- growth

ALL = Demands(
    longest_call_id=40, results_follow_calls=True, results_in_order=True, one_message_per_turn=True,
    object_arguments=True, system=SystemPlace.ONE, needs_user=True, message_names="[a-z]+", media_types=True,
    unique_tools=True, tool_schemas=_ALL, output_schemas=_ALL, most_stops=4, no_blank_stops=True,
)  # fmt: skip


def _turn(number: int) -> list[Message]:
    call = ToolCall(f"k{number % 3}", "f", "x")
    return [Message("assistant", [Text("a")]), Message("assistant", [call]), Message("user", [Text("b")], name="A B")]


def _nested(depth: int) -> dict[str, Any]:
    return {"anyOf": [{"properties": {f"p{n}": {"minimum": 1, "anyOf": [A, B]}}} for n in range(depth)]}


SHAPES: dict[str, Callable[[int], Request]] = {
    "turns": lambda n: Request([m for number in range(n) for m in _turn(number)]),
    "parts": lambda n: Request([Message("assistant", [ToolCall("k", "f", f"{i}") for i in range(n)])]),
    "results": lambda n: Request([Message("tool", [ToolResult(f"{i % 5}", []) for i in range(n)])]),
    "late results": lambda n: Request(
        [Message("assistant", [ToolCall(f"{i}", "f", "{}")]) for i in range(n)]
        + [Message("user", [ToolResult(f"{n - i}", []), Text("a")]) for i in range(n)]
    ),
    "texts of one assistant": lambda n: Request(
        [Message("assistant", [ToolCall("k", "f", "{}")], extras={"x": {"y": ["z"]}})]
        + [Message("assistant", [Text("a")], extras={"x": {"y": ["z"], "t": "t"}}) for _ in range(n)]
    ),
    "system messages": lambda n: Request([Message("system", [Text("a")]), Message("user", [Text("b")])] * n),
    "pictures": lambda n: Request([Message("user", [Media(MediaKind.IMAGE, Inline(PNG), "image/jpg")] * n)]),
    "tools": lambda n: Request("hi", tools=[Tool(f"f{i % 9}", parameters={"anyOf": [{}]}) for i in range(n)]),
    "a schema": lambda n: Request("hi", tools=[Tool("f", parameters=_nested(n))]),
    "stops": lambda n: Request("hi", sampling=Sampling(stop=[" ", "x"] * n)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_with_the_request(shape: str) -> None:
    """Lines that run, not seconds."""

    def lines(count: int) -> int:
        request, seen = SHAPES[shape](count), 0

        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal seen
            seen += event == "line"
            return trace

        sys.settrace(trace)
        try:
            required(request, ALL, Losses())
        finally:
            sys.settrace(None)
        return seen

    few, many = lines(20), lines(200)
    assert few > 20
    assert many <= 11 * few
