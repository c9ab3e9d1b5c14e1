"""Requests of clients and towards backends: what each field means, and what is refused with its place."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from bridge.contract import WireRequest, registry, wire_request
from bridge.dialects.gemini import dialect
from bridge.dialects.gemini.schema import Reducer, json_schema
from bridge.dialects.gemini.wire import SIGNATURE, own
from bridge.errors import RequestError, Unsupported
from bridge.model import (
    Data,
    FileRef,
    Inline,
    Media,
    MediaKind,
    Message,
    Reasoning,
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
from bridge.model.jsontext import MAX_DEPTH
from bridge.toolkit.signed_parts import signed as signed_call
from bridge.translation.library import Translator

from .helpers import back, body_of, front, read, sent, user

HELLO = Message("user", [Text("Hello")])
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def request(*messages: Message, **fields: Any) -> Request:
    return Request(list(messages) or [HELLO], model="m", **fields)


# ---------------------------------------------------------------------- the address


@pytest.mark.parametrize(
    ("path", "model", "stream"),
    [
        ("/v1beta/models/gemini-3-pro:generateContent", "gemini-3-pro", False),
        ("/v1/models/gemini-3-pro:streamGenerateContent?alt=sse", "gemini-3-pro", True),
        ("/v1beta/models/llama3%3A8b:streamGenerateContent?alt=sse", "llama3:8b", True),
        ("/v1beta/tunedModels/mine:generateContent", "tunedModels/mine", False),
        ("/v1/projects/p/locations/l/publishers/google/models/g-1:generateContent", "g-1", False),
        ("/v1beta/models/org/name:generateContent", "org/name", False),
    ],
)
def test_the_address_says_model_and_method(path: str, model: str, stream: bool) -> None:
    found = read({**user(), "model": "ignored"}, path)
    assert (found.model, found.stream) == (model, stream)


def test_a_request_without_a_model_is_refused_where_there_is_no_default() -> None:
    context = front()
    context.model = None
    with pytest.raises(RequestError, match="models/"):
        dialect.decode_request(wire_request({}, json.dumps(user()).encode()), context)


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-3-pro", "/v1beta/models/gemini-3-pro:streamGenerateContent"),
        ("llama3:8b", "/v1beta/models/llama3%3A8b:streamGenerateContent"),
        ("tunedModels/x", "/v1beta/tunedModels/x:streamGenerateContent"),
        ("a?b#c", "/v1beta/models/a%3Fb%23c:streamGenerateContent"),
    ],
)
def test_the_address_of_a_backend(model: str, path: str) -> None:
    wire = sent(request(), back(model))
    assert (wire.path, wire.query) == (path, {"alt": "sse"})
    vertex = back(model, prefix="v1/projects/p/locations/l/publishers/google")
    assert sent(request(stream=False), vertex).path.startswith("/v1/projects/p/locations/l/publishers/google/")


def test_a_translator_is_told_the_address() -> None:
    translator = Translator("openai-chat", "gemini")
    body = json.dumps(user()).encode()
    out = json.loads(translator.request(body, client="gemini", path="/v1beta/models/g%3A1:generateContent?alt=sse"))
    assert (out["model"], out.get("stream", False)) == ("g:1", False)


# ---------------------------------------------------------------------- spelling


def test_names_have_two_spellings_and_users_names_have_one() -> None:
    body = {
        "system_instruction": {"parts": {"text": "Be brief."}},
        "contents": {"parts": {"inline_data": {"mime_type": "image/png", "data": "_-_-"}}},
        "generation_config": {"max_output_tokens": "50", "top_p": 0.5, "thinking_config": {"thinking_budget": 0}},
        "tools": [{"function_declarations": [{"name": "f", "parameters_json_schema": {"properties": {"a_b": {}}}}]}],
        "tool_config": {"function_calling_config": {"mode": "any", "allowed_function_names": ["f"]}},
    }
    found = read(body)
    system, asked = found.messages
    assert (system.role, asked.role) == ("system", "user")
    assert asked.parts == [Media(MediaKind.IMAGE, Inline("/+/+"), "image/png")]
    assert (found.sampling.max_tokens, found.sampling.top_p, found.reasoning_effort) == (50, 0.5, "none")
    assert found.tools is not None
    assert found.tools[0].parameters == {"properties": {"a_b": {}}}
    assert found.tool_choice == ToolChoice(ToolMode.REQUIRED, ["f"])


def test_arguments_and_responses_are_the_users() -> None:
    call = {"function_call": {"name": "f", "args": {"my_key": {"other_key": 1}}}}
    answer = {"function_response": {"name": "f", "response": {"my_result": {"a_b": 1}}}}
    found = read({"contents": [*user()["contents"], {"role": "model", "parts": [call]}, {"parts": [answer]}]})
    (made,), (result,) = found.messages[1].parts, found.messages[2].parts
    assert isinstance(made, ToolCall)
    assert isinstance(result, ToolResult)
    assert json.loads(made.arguments) == {"my_key": {"other_key": 1}}
    assert result.parts == [Text('{"my_result":{"a_b":1}}')]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({}, "contents"),
        ({"contents": []}, "contents"),
        ({"contents": "hello"}, "contents"),
        ({"contents": [{"role": "system", "parts": [{"text": "x"}]}]}, "contents[0].role"),
        ({"contents": [{"parts": []}]}, "contents[0].parts"),
        ({"contents": [{"parts": [{}]}]}, "contents[0].parts[0]"),
        ({"contents": [{"parts": [{"text": 1}]}]}, "contents[0].parts[0].text"),
        ({"contents": [{"parts": [{"inline_data": {"data": "aa"}}]}]}, "contents[0].parts[0].inline_data.mimeType"),
        ({"contents": [{"parts": [{"functionCall": {"name": "f"}}]}]}, "contents[0].parts[0].functionCall"),
        (user(generation_config={"top_p": "hot"}), "generation_config.top_p"),
        (user(generationConfig={"maxOutputTokens": -1}), "generationConfig.maxOutputTokens"),
        (user(tools=[{"functionDeclarations": [{}]}]), "tools[0].functionDeclarations[0].name"),
        (user(tools=[{"googleSearch": 1}]), "tools[0].googleSearch"),
        (user(toolConfig={"functionCallingConfig": {"mode": "MAYBE"}}), "toolConfig.functionCallingConfig.mode"),
        (user(toolConfig={"functionCallingConfig": {"mode": "ANY"}}), "toolConfig.functionCallingConfig"),
        (
            user(
                tools=[{"functionDeclarations": [{"name": "f"}]}],
                tool_config={"function_calling_config": {"mode": "ANY", "allowed_function_names": ["g"]}},
            ),
            "tool_config.function_calling_config",
        ),
        (user(systemInstruction={"parts": [{"inlineData": {}}]}), "systemInstruction.parts[0].text"),
        (user(safetySettings=["x"]), "safetySettings[0]"),
    ],
)
def test_what_is_wrong_is_named_by_its_place_as_the_client_spelled_it(body: dict[str, Any], place: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(body)
    assert caught.value.failure.param == place
    answer = json.loads(dialect.encode_error(caught.value.failure).body)["error"]
    assert (answer["code"], answer["status"]) == (400, "INVALID_ARGUMENT")
    assert [v["field"] for d in answer["details"] for v in d.get("fieldViolations", ())] == [place]


def test_places_of_messages_are_those_of_contents() -> None:
    film = {"fileUri": "https://example.org/a.mp4", "mimeType": "video/mp4"}
    body = {"contents": [*user()["contents"], {"parts": [{"fileData": film}]}]}
    translator = Translator("anthropic-messages", "gemini", model="m")
    with pytest.raises(Unsupported) as caught:
        translator.request(json.dumps(body).encode(), client="gemini")
    assert caught.value.failure.param == "contents[1].parts[0]"


# ---------------------------------------------------------------------- fields


def test_fields_that_only_gemini_has_go_to_gemini_and_are_named_elsewhere() -> None:
    more = {
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        "cachedContent": "cachedContents/1",
        "generationConfig": {"topK": 20.0, "responseModalities": ["TEXT"], "temperature": 0.5},
        "tools": [{"googleSearch": {}}, {"codeExecution": {}, "urlContext": {}}, {"mcpServers": [SERVER]}],
        "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}, "retrievalConfig": {"languageCode": "de"}},
    }
    body = user(**more)
    out = body_of(read(body))
    assert {name: out[name] for name in more if name != "tools"} == {n: v for n, v in more.items() if n != "tools"}
    assert out["tools"] == [{"googleSearch": {}}, {"codeExecution": {}}, {"urlContext": {}}, {"mcpServers": [SERVER]}]
    translator = Translator("openai-chat", "gemini", model="m")
    translator.request(json.dumps(body).encode(), client="gemini")
    assert {"extras", "tools"} <= set(translator.lost)


def test_a_hosted_tool_that_must_be_used_is_refused_elsewhere() -> None:
    body = user(tools=[{"googleSearch": {}}], toolConfig={"functionCallingConfig": {"mode": "ANY"}})
    with pytest.raises(Unsupported, match="googleSearch"):
        Translator("anthropic-messages", "gemini", model="m").request(json.dumps(body).encode(), client="gemini")


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        ({"thinkingLevel": "HIGH"}, "high"), ({"thinkingLevel": "low"}, "low"), ({"thinkingBudget": 0}, "none"),
        ({"thinkingBudget": -1}, None), ({"thinkingBudget": 1024}, "low"), ({"thinkingBudget": 8192}, "medium"),
        ({"thinkingBudget": "24576"}, "high"), ({"includeThoughts": True}, None),
    ],
)  # fmt: skip
def test_thinking_is_an_effort_elsewhere_and_itself_here(thinking: dict[str, Any], effort: str | None) -> None:
    found = read(user(generationConfig={"thinkingConfig": thinking}))
    assert found.reasoning_effort == effort
    assert body_of(found)["generationConfig"]["thinkingConfig"] == thinking


@pytest.mark.parametrize(
    ("effort", "model", "config", "lost"),
    [
        ("low", "gemini-2.5-flash", {"thinkingBudget": 1024, "includeThoughts": True}, []),
        ("high", "gemini-3-pro-preview", {"thinkingLevel": "HIGH", "includeThoughts": True}, []),
        ("none", "gemini-2.5-flash", {"thinkingBudget": 0}, []),
        ("none", "gemini-3-pro", {"thinkingLevel": "MINIMAL"}, ["reasoning_effort"]),
        ("some", "gemini-3-pro", None, ["reasoning_effort"]),
        (None, "gemini-3-pro", None, []),
    ],
)
def test_an_effort_in_the_words_of_the_model(
    effort: str | None, model: str, config: dict[str, Any] | None, lost: list[str]
) -> None:
    context = back(model)
    body = body_of(request(reasoning_effort=effort), context)
    assert body.get("generationConfig", {}).get("thinkingConfig") == config
    assert context.lost.names == lost


def test_options_of_thinking() -> None:
    assert "generationConfig" not in body_of(request(reasoning_effort="low"), back(effort="drop"))
    always = body_of(request(), back(thoughts="always"))
    assert always["generationConfig"] == {"thinkingConfig": {"includeThoughts": True}}


def test_sampling_and_format() -> None:
    sampling = Sampling(3.0, 0.5, 9, ["END"], 7, 2, 0.1, 0.2)
    wanted = ResponseFormat("json_schema", "x", CITY)
    context = back()
    config = body_of(request(sampling=sampling, response_format=wanted), context)["generationConfig"]
    assert config == {
        "temperature": 2.0, "topP": 0.5, "maxOutputTokens": 9, "stopSequences": ["END"], "seed": 7,
        "candidateCount": 2, "frequencyPenalty": 0.1, "presencePenalty": 0.2,
        "responseMimeType": "application/json", "responseJsonSchema": CITY,
    }  # fmt: skip
    assert context.lost.details == {"sampling": "temperatures above 2 are sent as 2"}
    assert body_of(request(response_format=ResponseFormat("json")))["generationConfig"] == {
        "responseMimeType": "application/json"
    }


def test_the_shape_of_an_answer() -> None:
    google = {"type": "OBJECT", "properties": {"a": {"type": "INTEGER"}}}
    found = read(user(generationConfig={"responseMimeType": "application/json", "responseSchema": google}))
    assert found.response_format == ResponseFormat(
        "json_schema", schema={"type": "object", "properties": {"a": {"type": "integer"}}}
    )
    assert body_of(found)["generationConfig"]["responseSchema"] == google
    enum = {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["a"]}}
    found = read(user(generationConfig=enum))
    assert found.response_format is None
    assert body_of(found)["generationConfig"] == enum
    assert read(user(generationConfig={"responseMimeType": "application/json"})).response_format == ResponseFormat(
        "json"
    )


SERVER = {"name": "docs", "streamableHttpTransport": {"url": "https://mcp.example"}}
SHAPED = ResponseFormat("json_schema", schema=CITY)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"responseFormat": {"text": {"mimeType": "application/json", "schema": CITY}}}, SHAPED),
        ({"response_format": [{"text": {"mime_type": "APPLICATION_JSON", "schema": CITY}}]}, SHAPED),
        ({"responseFormat": {"text": {"mimeType": "APPLICATION_JSON"}}}, ResponseFormat("json")),
        ({"responseFormat": {"text": {"mimeType": "TEXT_PLAIN"}}}, None),
        ({"responseMimeType": "application/json", "_responseJsonSchema": CITY}, SHAPED),
        ({"response_mime_type": "application/json", "_response_json_schema": CITY}, SHAPED),
    ],
)
def test_each_form_in_which_the_documents_ask_for_a_shape(config: Any, wanted: ResponseFormat | None) -> None:
    found = read(user(generationConfig=config))
    assert (found.response_format, found.extra("gemini").get("generationConfig")) == (wanted, None)
    sent = body_of(found)["generationConfig"]
    spelled = {"response_format": "responseFormat", "response_mime_type": "responseMimeType"}
    spelled["_response_json_schema"] = "_responseJsonSchema"
    assert sent == {spelled.get(name, name): value for name, value in config.items()}


def test_arguments_in_pieces_are_named_as_lost() -> None:
    """A call comes whole, which any client reads; this one waits for pieces."""
    calling = {"mode": "ANY", "streamFunctionCallArguments": True}
    body = user(tools=[{"functionDeclarations": [{"name": "f"}]}], toolConfig={"functionCallingConfig": calling})
    translator = Translator("gemini", "gemini", model="m")
    translator.request(json.dumps(body).encode(), client="gemini")
    assert translator.lost_details == {"extras": "streamFunctionCallArguments"}


def test_formats_of_media_are_for_this_dialect_alone() -> None:
    formats = [{"text": {"mimeType": "application/json"}}, {"image": {"aspectRatio": "1:1"}}]
    found = read(user(generationConfig={"responseFormat": formats}))
    assert found.response_format == ResponseFormat("json")
    assert found.extra("gemini")["generationConfig"] == {"responseFormat": formats}
    assert body_of(found)["generationConfig"] == {"responseFormat": formats}
    with pytest.raises(RequestError, match=r"responseFormat\.text\.schema: expected an object, got 'x'"):
        read(user(generationConfig={"responseFormat": {"text": {"schema": "x"}}}))


def test_losses_are_named() -> None:
    said = request(
        Message("user", [Text("x")], name="ann"), user_id="u", metadata={"a": "b"}, parallel_tool_calls=False,
        context=[{"a": 1}], state={"a": 1}, extras={"other": {"x": 1}},
    )  # fmt: skip
    context = back()
    sent(said, context)
    assert set(context.lost.names) == {
        "message_name", "user_id", "metadata", "parallel_tool_calls", "context", "state", "extras",
    }  # fmt: skip


# ---------------------------------------------------------------------- tools and schemas


def test_tools_in_both_schema_dialects() -> None:
    google = {"type": "OBJECT", "properties": {"city": {"type": "STRING", "nullable": True}}, "required": ["city"]}
    plain = {"type": "object", "properties": {"tz": {"type": ["string", "null"]}}, "additionalProperties": False}
    declared = [
        {"name": "a", "description": "A", "parameters": google},
        {"name": "b", "parametersJsonSchema": plain},
        {"name": "c", "behavior": "BLOCKING"},
    ]
    found = read(user(tools=[{"functionDeclarations": declared[:1]}, {"functionDeclarations": declared[1:]}]))
    assert found.tools is not None
    assert [t.parameters for t in found.tools] == [
        {"type": "object", "properties": {"city": {"type": ["string", "null"]}}, "required": ["city"]},
        plain,
        None,
    ]
    assert body_of(found)["tools"] == [{"functionDeclarations": declared}]


def test_googles_schema_as_json_schema() -> None:
    schema = {
        "type": "OBJECT",
        "property_ordering": ["a_b"],
        "properties": {
            "a_b": {"type": "ARRAY", "items": {"type": "string"}, "min_items": "1"},
            "c": {"anyOf": [{"type": "STRING"}, {"type": "NUMBER"}], "nullable": True},
            "d": {"type": "STRING", "enum": ["x"], "nullable": True, "example": "x"},
        },
    }
    assert json_schema(schema) == {
        "type": "object",
        "properties": {
            "a_b": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "c": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"}]},
            "d": {"type": ["string", "null"], "enum": ["x", None]},
        },
    }


@pytest.mark.parametrize(
    ("schema", "written", "dropped"),
    [
        ({"type": ["string", "null"]}, {"nullable": True, "type": "STRING"}, []),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]}, []),
        ({"const": "x"}, {"enum": ["x"], "type": "STRING"}, []),
        ({"enum": ["a", None]}, {"nullable": True, "enum": ["a"], "type": "STRING"}, []),
        ({"type": "integer", "enum": [1, 2]}, {"type": "INTEGER"}, ["enum"]),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"nullable": True, "type": "STRING"}, []),
        (
            {"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]},
            {"properties": {"a": {}, "b": {}}, "required": ["a", "b"]},
            [],
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string", "description": "A"}}},
            {"type": "STRING", "description": "A"},
            [],
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False, "$schema": "x"},
            {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
            ["additionalProperties"],
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}}},
            {"type": "OBJECT", "properties": {"a": {"type": "OBJECT"}}},
            ["$ref"],
        ),
        ({"$ref": "https://elsewhere.example/a"}, {"type": "OBJECT"}, ["$ref"]),
    ],
)
def test_json_schema_in_googles_words(schema: Any, written: Any, dropped: list[str]) -> None:
    reducer = Reducer(schema)
    assert reducer.reduced() == written
    assert sorted(reducer.dropped) == dropped


def test_references_that_multiply_and_schemas_that_nest_have_an_end() -> None:
    defs = {f"d{n}": {"properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "ab"}} for n in range(60)}
    reducer = Reducer({"$ref": "#/$defs/d0", "$defs": defs})
    assert len(json.dumps(reducer.reduced())) < 500_000
    assert "a schema that is too large" in reducer.dropped
    deep: dict[str, Any] = {}
    for _ in range(MAX_DEPTH):
        deep = {"items": deep}
    assert json_schema(deep)
    assert Reducer(deep).reduced()


def test_the_option_for_older_servers() -> None:
    context = back(schemas="google")
    tool = Tool("f", "F", {**CITY, "additionalProperties": False})
    body = body_of(request(tools=[tool, Tool("g", parameters={"type": "object", "properties": {}})]), context)
    google = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]}
    assert body["tools"][0]["functionDeclarations"] == [
        {"name": "f", "description": "F", "parameters": google}, {"name": "g"},
    ]  # fmt: skip
    assert context.lost.details == {"tools": "of schemas: additionalProperties"}
    wanted = body_of(request(response_format=ResponseFormat("json_schema", schema=CITY)), back(schemas="google"))
    assert wanted["generationConfig"]["responseSchema"] == google


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        (ToolChoice(ToolMode.AUTO), {"mode": "AUTO"}),
        (ToolChoice(ToolMode.NONE), {"mode": "NONE"}),
        (ToolChoice(ToolMode.REQUIRED), {"mode": "ANY"}),
        (ToolChoice(ToolMode.REQUIRED, ["f"]), {"mode": "ANY", "allowedFunctionNames": ["f"]}),
        (ToolChoice(ToolMode.AUTO, ["f"]), {"mode": "VALIDATED", "allowedFunctionNames": ["f"]}),
    ],
)
def test_the_choice_of_tools(choice: ToolChoice, wire: dict[str, Any]) -> None:
    body = body_of(request(tools=[Tool("f")], tool_choice=choice))
    assert body["toolConfig"] == {"functionCallingConfig": wire}
    assert "toolConfig" not in body_of(request(tool_choice=choice))


# ---------------------------------------------------------------------- history


def contents(*messages: Message, model: str = "gemini-2.5-flash", **options: Any) -> Any:
    return body_of(request(*messages), back(model, **options))["contents"]


def call(call_id: str, name: str = "f", extras: Any = None) -> ToolCall:
    return ToolCall(call_id, name, '{"a":1}', extras=extras)


def test_responses_stand_together_in_the_order_of_the_calls() -> None:
    said = contents(
        HELLO,
        Message("assistant", [Text("Let me see."), call("c1"), call("c2", "g")]),
        Message("assistant", [call("c3")]),
        Message("tool", [ToolResult("c3", [Text("three")])]),
        Message("tool", [ToolResult("c1", [Text('{"one": 1}')], is_error=False)]),
        Message("user", [Text("And?")]),
    )
    assert [c["role"] for c in said] == ["user", "model", "user"]
    assert [next(iter(p)) for p in said[1]["parts"]] == ["text", *["functionCall"] * 3]
    *responses, last = said[2]["parts"]
    assert last == {"text": "And?"}
    assert [r["functionResponse"] for r in responses] == [
        {"id": "c1", "name": "f", "response": {"one": 1}},
        {"id": "c2", "name": "g", "response": {"error": "No result was provided."}},
        {"id": "c3", "name": "f", "response": {"output": "three"}},
    ]


def test_a_result_that_failed_and_one_with_a_picture() -> None:
    picture = Media(MediaKind.IMAGE, Inline("iVBORw0KGgo="), "image/png")
    said = contents(
        HELLO,
        Message("assistant", [call("c1"), call("c2")]),
        Message("tool", [ToolResult("c1", [Text("broken")], is_error=True)]),
        Message("tool", [ToolResult("c2", [Text("seen"), picture])]),
    )
    first, second = (p["functionResponse"] for p in said[2]["parts"])
    assert first["response"] == {"error": "broken"}
    assert (second["response"], second["parts"]) == (
        {"output": "seen"},
        [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}],
    )
    again = read({"contents": said})
    failed, seen = (m.parts[0] for m in again.messages[-2:])
    assert isinstance(failed, ToolResult)
    assert isinstance(seen, ToolResult)
    assert (failed.is_error, failed.parts) == (True, [Text("broken")])
    assert seen.parts == [Text("seen"), picture]


@pytest.mark.parametrize(
    ("kind", "address", "mime"),
    [
        (MediaKind.IMAGE, "https://x.test/a.jpg?size=2", "image/jpeg"),
        (MediaKind.IMAGE, "https://x.test/a", "image/png"),
        (MediaKind.IMAGE, "https://x.test/a.pdf", "image/png"),
        (MediaKind.FILE, "https://x.test/a.pdf#page=2", "application/pdf"),
        (MediaKind.FILE, "https://x.test/a", None),
    ],
)
def test_the_type_of_an_address_is_that_of_its_extension(kind: MediaKind, address: str, mime: str | None) -> None:
    (part,) = contents(Message("user", [Media(kind, Url(address))]))[0]["parts"]
    assert part["fileData"] == {"fileUri": address, **({"mimeType": mime} if mime else {})}


def test_a_file_of_unknown_type_is_some_bytes() -> None:
    (part,) = contents(Message("user", [Media(MediaKind.FILE, Inline("AAAA"))]))[0]["parts"]
    assert part["inlineData"]["mimeType"] == "application/octet-stream"


def test_a_talk_that_the_assistant_begins() -> None:
    said = contents(Message("assistant", [Text("Welcome")]), HELLO)
    assert [(c["role"], c["parts"]) for c in said[:2]] == [("user", [{"text": ""}]), ("model", [{"text": "Welcome"}])]


def test_an_answer_in_the_middle_of_whose_message_a_tool_ran_keeps_its_order() -> None:
    said = contents(
        HELLO, Message("assistant", [call("c1"), ToolResult("c1", [Text("ok")]), Text("Done.")]), HELLO
    )  # fmt: skip
    assert [[next(iter(p)) for p in c["parts"]] for c in said] == [
        ["text"], ["functionCall"], ["functionResponse"], ["text"], ["text"],
    ]  # fmt: skip


def test_system_messages() -> None:
    inside = [Message("system", [Text("One.")]), HELLO, Message("developer", [Text("Two.")])]
    body = body_of(request(*inside))
    assert body["systemInstruction"] == {"parts": [{"text": "One."}, {"text": "Two."}]}
    body = body_of(request(*inside), back(system_inside="user"))
    assert body["systemInstruction"] == {"parts": [{"text": "One."}]}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "Hello"}, {"text": "Two."}]}]


@pytest.mark.parametrize(
    ("model", "options", "signed"),
    [
        ("gemini-3-pro", {}, True), ("gemini-3.1-pro-preview", {}, True), ("gemini-2.5-flash", {}, False),
        ("gemini-2.5-flash", {"signatures": "always"}, True), ("gemini-3-pro", {"signatures": "never"}, False),
    ],
)  # fmt: skip
def test_a_call_without_a_signature_fails_soft(model: str, options: dict[str, Any], signed: bool) -> None:
    """Gemini 3 refuses calls without one; only the first call of a turn has it, and Google's own always wins."""
    said = contents(HELLO, Message("assistant", [call("c1"), call("c2")]), model=model, **options)
    marks = [p.get(SIGNATURE) for p in said[1]["parts"]]
    skip = base64.b64encode(b"skip_thought_signature_validator").decode() if signed else None
    assert marks == [skip, None]
    real = signed_call(None, "cmVhbA==")
    said = contents(HELLO, Message("assistant", [call("c1", extras=real), call("c2")]), model=model, **options)
    assert [p.get(SIGNATURE) for p in said[1]["parts"]] == ["cmVhbA==", None]


def test_thoughts_of_other_models_and_their_signatures_stay_away() -> None:
    foreign = Reasoning("hmm", "Zm9yZWlnbg==")
    context = back()
    body = body_of(request(HELLO, Message("assistant", [foreign, Text("Hi")])), context)
    assert body["contents"][1]["parts"] == [{"text": "Hi"}]
    assert context.lost.names == ["reasoning_history"]
    shown = contents(HELLO, Message("assistant", [foreign, Text("Hi")]), reasoning_history="always")
    assert shown[1]["parts"] == [{"text": "hmm", "thought": True}, {"text": "Hi"}]


def test_googles_own_parts_stay_in_their_place_and_others_do_not_see_them() -> None:
    said = [
        {"text": "I compute. "},
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"text": "It is 1."},
        {"text": "", SIGNATURE: "c2ln"},
    ]
    body = {"contents": [*user()["contents"], {"role": "model", "parts": said}, *user()["contents"]]}
    found = read(body)
    assert body_of(found)["contents"][1]["parts"] == said
    translator = Translator("openai-chat", "gemini", model="m")
    out = json.loads(translator.request(json.dumps(body).encode(), client="gemini"))
    assert [part["text"] for part in out["messages"][1]["content"]] == ["I compute. ", "It is 1."]
    assert "extras" in translator.lost
    signed = {"contents": [*user()["contents"], {"role": "model", "parts": said[3:]}, *user()["contents"]]}
    translator = Translator("openai-chat", "gemini", model="m")
    translator.request(json.dumps(signed).encode(), client="gemini")
    assert translator.lost == []


def test_parts_with_a_signature_are_not_joined() -> None:
    said = [{"text": "a"}, {"text": "b", SIGNATURE: "c2ln"}, {"text": "c"}, {"text": "d", "thought": True}]
    found = read({"contents": [*user()["contents"], {"role": "model", "parts": said}]})
    assert [p.text for p in found.messages[1].parts] == ["a", "b", "c", "d"]  # type: ignore[union-attr]
    assert [own(p.extras).get(SIGNATURE) for p in found.messages[1].parts] == [None, "c2ln", None, None]


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("https://example.org/a.png", Url("https://example.org/a.png")),
        ("gs://bucket/a.png", FileRef("gs://bucket/a.png")),
        (
            "https://generativelanguage.googleapis.com/v1beta/files/abc",
            FileRef("https://generativelanguage.googleapis.com/v1beta/files/abc"),
        ),
    ],
)
def test_files_by_address(address: str, source: Any) -> None:
    part = {"fileData": {"mimeType": "image/png", "fileUri": address}, "videoMetadata": {"fps": 1}}
    found = read(user(part))
    (medium,) = found.messages[0].parts
    assert isinstance(medium, Media)
    assert (medium.kind, medium.source) == (MediaKind.IMAGE, source)
    assert body_of(found)["contents"][0]["parts"] == [part]


def test_a_file_of_another_server_is_refused_with_its_place() -> None:
    asked = request(HELLO, Message("user", [Text("x"), Media(MediaKind.FILE, FileRef("file-1"))]))
    with pytest.raises(Unsupported) as caught:
        sent(asked)
    assert caught.value.failure.param == "messages[1].content[1]"


def test_data_is_text() -> None:
    context = back()
    assert body_of(request(Message("user", [Data({"a": 1})])), context)["contents"][0]["parts"] == [{"text": '{"a":1}'}]
    assert context.lost.names == ["data"]


def test_ids_can_be_left_out_for_servers_that_refuse_them() -> None:
    said = contents(
        HELLO, Message("assistant", [call("c1")]), Message("tool", [ToolResult("c1", [Text("x")])]), call_ids="none"
    )  # fmt: skip
    assert '"id"' not in json.dumps(said)


# ---------------------------------------------------------------------- counting


@pytest.mark.parametrize("wrap", [lambda body: body, lambda body: {"generateContentRequest": {"model": "x", **body}}])
def test_a_count_in_both_forms(wrap: Any) -> None:
    body = wrap(user(systemInstruction={"parts": [{"text": "Be brief."}]}))
    wire = wire_request({}, json.dumps(body).encode(), "/v1beta/models/g:countTokens")
    found = dialect.decode_count_request(wire, front())
    assert [m.role for m in found.messages] == ["system", "user"]
    assert (found.model, found.stream) == ("g", False)


def test_a_backend_is_asked_to_count_everything() -> None:
    wire: WireRequest = dialect.count_request(request(tools=[Tool("f")]), back("g"))
    asked = json.loads(wire.body)["generateContentRequest"]
    assert wire.path == "/v1beta/models/g:countTokens"
    assert asked["model"] == "models/g"
    assert {"contents", "tools"} <= asked.keys()


def test_vertex_is_asked_to_count_the_fields_themselves() -> None:
    prefix = "v1/projects/p/locations/l/publishers/google"
    wire: WireRequest = dialect.count_request(request(tools=[Tool("f")]), back("g", prefix=prefix))
    assert wire.path == f"/{prefix}/models/g:countTokens"
    assert json.loads(wire.body).keys() == {"contents", "tools"}


@pytest.mark.parametrize("name", ["openai-chat", "anthropic-messages", "openai-responses", "agentscope"])
def test_others_get_a_request_that_they_read(name: str) -> None:
    parts = [{"text": "", SIGNATURE: "c2ln"}, {"functionCall": {"name": "f", "args": {"a": 1}}, SIGNATURE: "c2ln"}]
    body = {
        "contents": [
            *user()["contents"],
            {"role": "model", "parts": parts},
            {"parts": [{"functionResponse": {"name": "f", "response": {"result": "ok"}}}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}}]}],
    }
    translator = Translator(name, "gemini", model="m")
    out = translator.request(json.dumps(body).encode(), client="gemini")
    target = registry.get(name)
    context = front()
    context.options = target.front_options()
    assert target.decode_request(wire_request({}, out), context).messages
    if name == "openai-chat":  # Google's own chat completions have a place for the signature of a call
        (told,) = json.loads(out)["messages"][1]["tool_calls"]
        assert told["extra_content"] == {"google": {"thought_signature": "c2ln"}}
    else:
        assert b"c2ln" not in out
