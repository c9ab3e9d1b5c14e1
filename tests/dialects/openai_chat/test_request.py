"""Requests: what clients send is understood or refused by name, and leaves for a backend with the same meaning."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.contract import Context, Feature, WireRequest, registry
from bridge.dialects.openai_chat import dialect
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
    Part,
    Reasoning,
    Refusal,
    Request,
    ResponseFormat,
    Resume,
    Text,
    ToolCall,
    ToolChoice,
    ToolMode,
    ToolResult,
    Url,
    url_of,
)

from .helpers import INDEX, arranged, asked, back, front, request, sent

NAME = "openai-chat"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "strict": True,
    },
}
FULL: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "user",
            "name": "ann",
            "content": [
                {"type": "text", "text": "See", "cache_control": {"type": "ephemeral"}},
                {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                {"type": "input_audio", "input_audio": {"data": "UklG", "format": "mp3"}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}},
                {"type": "video_url", "video_url": {"url": "https://x.test/v.mp4"}},
                {"type": "audio_url", "audio_url": {"url": "https://x.test/a.mp3"}},
                {"type": "novelty", "novelty": {"x": 1}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Let me look",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Oslo" }'},
                    "extra_content": {"google": {"thought_signature": "s"}},
                },
                {
                    "id": "c2",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": "not json", "odd": 1},
                },
                {"id": "c3", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}},
            ],
            "prefix": True,
        },
        {"role": "tool", "tool_call_id": "c1", "content": "cold", "cache": 1},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "warm", "cache_control": {}}]},
        {"role": "assistant", "content": "No.", "refusal": "I can't"},
        {"role": "user", "content": "Why?"},
    ],
    "tools": [WEATHER, {"type": "custom", "custom": {"name": "sql", "description": "d"}}, {"type": "web_search"}],
    "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
    "parallel_tool_calls": False,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "out", "schema": {"type": "object"}, "strict": True, "description": "d"},
    },
    "temperature": 0.5,
    "top_p": 1,
    "n": 2,
    "seed": 7,
    "stop": ["a", "b"],
    "presence_penalty": -1,
    "frequency_penalty": 0.25,
    "max_tokens": 100,
    "reasoning_effort": "low",
    "user": "u1",
    "metadata": {"session_id": "s1", "k": "v"},
    "stream": True,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
    "logprobs": True,
    "top_logprobs": 3,
    "logit_bias": {"50256": -100},
    "modalities": ["text", "audio"],
    "audio": {"voice": "alloy", "format": "wav"},
    "prediction": {"type": "content", "content": "x"},
    "verbosity": "low",
    "store": True,
    "service_tier": "flex",
    "chat_template_kwargs": {"enable_thinking": False},
    "enable_thinking": True,
    "top_k": 5,
    "safety_identifier": None,
}


def test_a_full_request_goes_through_unchanged() -> None:
    assert sent(request(FULL)) == FULL


def test_a_request_read_again_is_the_same() -> None:
    first = request(FULL)
    assert request(sent(first)) == first


@pytest.mark.parametrize("body", [c["request"] for c in INDEX if c.get("request")], ids=lambda b: f"{len(str(b))}")
def test_requests_of_the_captures(body: dict[str, Any]) -> None:
    body = {"model": "m", **body}
    wanted = request(body)
    assert wanted.stream is body.get("stream", False)
    again = sent(wanted)
    options = {"include_usage": True}
    assert again == ({"stream": False, **body} if not wanted.stream else {**body, "stream_options": options})


@pytest.mark.parametrize(
    ("options", "lost"),
    [({"include_usage": True}, set()), ({"include_usage": True, "include_obfuscation": True}, {"extras"})],
)
def test_the_request_for_usage_is_no_loss_where_the_backend_has_none(options: dict[str, Any], lost: set[str]) -> None:
    wanted = request({"model": "m", "messages": [{"role": "user", "content": "x"}], "stream_options": options})
    agentscope = registry.get("agentscope")
    context = Context("r", options=agentscope.back_options())
    agentscope.encode_request(wanted, context)
    assert set(context.lost.details) == lost


ASKED: list[dict[str, Any]] = [
    {"reasoning": {"effort": "low"}},
    {"thinking": {"type": "disabled"}},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"google": {"thinking_config": {"thinking_budget": 0}}},
    {"extra_body": {"google": {"thinking_config": {"thinking_budget": 0}}}},
]


@pytest.mark.parametrize("asked_for", ASKED, ids=lambda value: next(iter(value)))
def test_an_object_of_reasoning_is_translated_unless_it_says_more(asked_for: dict[str, Any]) -> None:
    (name,) = asked_for
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    for more in ({}, {"seed_words": 1}):
        fields = {name: {**asked_for[name], **more}}
        read = request({**body, **fields})
        other = registry.get("anthropic-messages")
        context = Context("run", options=other.back_options(), model="m", request=read)
        other.encode_request(read, context)
        assert (name in read.extra(NAME)) is bool(more), "what no other dialect understands stays, and is named"
        assert (Feature.EXTRAS in context.lost.names) is bool(more)
        assert {**sent(read), **fields} == sent(read), "a chat backend gets the client's own words"


def test_fields_have_their_place() -> None:
    r = request(FULL)
    assert (r.model, r.user_id, r.thread_id, r.stream, r.history) == ("m", "u1", "s1", True, HistoryMode.FULL)
    s = r.sampling
    assert (s.temperature, s.top_p, s.max_tokens, s.stop, s.seed, s.n) == (0.5, 1, 100, ["a", "b"], 7, 2)
    assert (s.presence_penalty, s.frequency_penalty) == (-1, 0.25)
    assert r.tool_choice == ToolChoice(ToolMode.REQUIRED, ["get_weather"])
    assert r.response_format == ResponseFormat("json_schema", "out", {"type": "object"}, True, "d")
    assert (r.reasoning_effort, r.parallel_tool_calls) == ("low", False)
    assert r.tools is not None
    assert [t.name for t in r.tools] == ["get_weather", "sql", "web_search"]
    assert set(r.extra(NAME)) == {
        "notes",
        "stream_options",
        "logit_bias",
        "modalities",
        "audio",
        "prediction",
        "verbosity",
        "store",
        "service_tier",
        "top_k",
        "safety_identifier",
    }
    said = ["chat_template_kwargs", "enable_thinking", "logprobs", "top_logprobs"]
    assert sorted(r.extra(NAME)["notes"]["fields"]) == said
    media = [p for p in r.messages[2].parts if isinstance(p, Media)]
    assert [(m.kind, m.source, m.mime) for m in media] == [
        (MediaKind.IMAGE, Url("https://x.test/a.png"), None),
        (MediaKind.IMAGE, Inline("AAAA"), "image/png"),
        (MediaKind.AUDIO, Inline("UklG"), "audio/mpeg"),
        (MediaKind.FILE, FileRef("file-1"), None),
        (MediaKind.FILE, Inline("JVBE"), "application/pdf"),
        (MediaKind.VIDEO, Url("https://x.test/v.mp4"), None),
        (MediaKind.AUDIO, Url("https://x.test/a.mp3"), None),
    ]
    result = r.messages[4].parts[0]
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.name) == ("c1", "get_weather")


@pytest.mark.parametrize(
    ("fields", "headers", "thread"),
    [
        ({"metadata": {"session_id": "a", "thread_id": "b"}}, {"x-session-id": "c"}, "a"),
        ({"metadata": {"session_id": 5, "thread_id": "b"}}, {"x-session-id": "c"}, "b"),
        ({"metadata": {"session_id": ""}}, {"x-session-id": "c"}, "c"),
        ({}, {"x-session-id": "c"}, "c"),
        ({}, {}, None),
    ],
)
def test_thread(fields: dict[str, Any], headers: dict[str, str], thread: str | None) -> None:
    assert request(asked(**fields), headers).thread_id == thread


def test_what_openai_replaced_is_refused_with_its_successor() -> None:
    old = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    for body, told in (
        (asked(functions=[{"name": "f"}]), "functions: not supported; send tools instead."),
        (asked(function_call="none"), "function_call: not supported; send tool_choice instead."),
        (asked([old]), "messages[0].function_call: not supported; send tool_calls instead."),
    ):
        with pytest.raises(RequestError) as caught:
            request(body)
        assert caught.value.message == told
    # The SDK's messages of earlier answers repeat the empty field.
    assert request(asked([{**old, "function_call": None, "content": "x"}], functions=None)).extra(NAME) == {}


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        ("none", ToolChoice(ToolMode.NONE)),
        ("auto", ToolChoice(ToolMode.AUTO)),
        ("required", ToolChoice(ToolMode.REQUIRED)),
        ({"type": "custom", "custom": {"name": "sql"}}, ToolChoice(ToolMode.REQUIRED, ["sql"])),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [
                        {"type": "function", "function": {"name": "get_weather"}},
                        {"type": "custom", "custom": {"name": "sql"}},
                    ],
                },
            },
            ToolChoice(ToolMode.AUTO, ["get_weather", "sql"]),
        ),
    ],
)
def test_tool_choice(choice: Any, read: ToolChoice) -> None:
    r = request(asked(tools=FULL["tools"], tool_choice=choice))
    assert r.tool_choice == read
    assert sent(r)["tool_choice"] == choice


@pytest.mark.parametrize("kind", ["text", "json_object", "grammar"])
def test_response_format(kind: str) -> None:
    body = asked(response_format={"type": kind})
    assert sent(request(body))["response_format"] == {"type": kind}


def test_small_liberties() -> None:
    r = request(
        asked(
            [
                {"role": "user", "content": [{"type": "image_url", "image_url": "data:image/gif;base64,R0lG"}]},
                {
                    "role": "assistant",
                    "reasoning": "hm",
                    "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}],
                },
                {"role": "tool", "tool_call_id": "a", "content": None},
            ],
            stop=None,
            max_tokens=5,
            max_completion_tokens=6,
            tools=None,
            n=1.0,
        )
    )
    assert r.messages[0].parts == [Media(MediaKind.IMAGE, Inline("R0lG"), "image/gif")]
    assert r.messages[1].parts[1] == ToolCall("a", "f", '{"x":1}')
    assert r.sampling.max_tokens == 6
    assert r.tools is None
    assert sent(r)["messages"][1]["reasoning"] == "hm"
    assert sent(r)["messages"][2] == {"role": "tool", "tool_call_id": "a", "content": ""}


@pytest.mark.parametrize(
    ("results", "answered"),
    [
        ([{"tool_call_id": "b"}, {"tool_call_id": "a"}], ["b", "a"]),
        ([{"id": "b"}, {"id": "a"}], ["b", "a"]),
        ([{"name": "g"}, {"name": "f"}], ["b", "a"]),
        ([{}, {}], ["a", "b"]),
        ([{"id": "made-up", "name": "g"}, {}], ["b", "a"]),
        ([{"tool_call_id": "other"}, {"name": "g"}], ["other", "b"]),
        ([{"tool_call_id": ""}, {"tool_call_id": None}], ["a", "b"]),
    ],
)
def test_a_tool_message_without_the_id_of_its_call(results: list[dict[str, str]], answered: list[str]) -> None:
    functions = [("a", {"name": "f", "arguments": "{}"}), ("b", {"name": "g", "arguments": "{}"})]
    calls = [{"id": name, "type": "function", "function": function} for name, function in functions]
    r = request(
        asked(
            [
                {"role": "assistant", "content": None, "tool_calls": calls},
                *({"role": "tool", "content": "x", **more} for more in results),
            ]
        )
    )
    assert [part.call_id for m in r.messages[1:] for part in m.parts if isinstance(part, ToolResult)] == answered
    assert all("id" not in message for message in sent(r)["messages"][1:])


def test_a_tool_message_that_answers_nothing() -> None:
    with pytest.raises(RequestError, match=r"messages\[0\]\.tool_call_id"):
        request(asked([{"role": "tool", "content": "x"}]))


UNUSUAL: dict[str, dict[str, Any]] = {
    "schema-beside-json-object": asked(response_format={"type": "json_object", "schema": {"type": "object"}}),
    "json-schema-with-more": asked(
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "x": 1}, "y": 2}
    ),
    "name-of-a-tool-message": asked([{"role": "tool", "tool_call_id": "a", "name": "f", "content": "x"}]),
    "picture-in-a-result": asked(
        [
            {
                "role": "tool",
                "tool_call_id": "a",
                "content": [
                    {"type": "text", "text": "x"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
                    {"type": "odd", "x": 1},
                ],
            }
        ]
    ),
    **{
        f"picture-of-{role}": asked(
            [
                {
                    "role": role,
                    "content": [
                        {"type": "text", "text": "x"},
                        {"type": "image_url", "image_url": {"url": "https://x.test/a"}},
                    ],
                }
            ]
        )
        for role in ("system", "assistant")
    },
    "two-assistant-messages": asked(
        [
            {"role": "assistant", "content": "A"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
        ]
    ),
    "audio-as-data-url": asked(
        [
            {
                "role": "user",
                "content": [
                    {"type": "input_audio", "input_audio": {"data": "data:;base64,AAAA", "format": "wav", "x": 1}},
                    {"type": "input_audio", "input_audio": {"data": "https://x.test/a", "format": "mp3"}},
                ],
            }
        ]
    ),
    "file-by-address": asked(
        [{"role": "user", "content": [{"type": "file", "file": {"filename": "a", "file_data": "https://x.test/a"}}]}]
    ),
    "choice-of-another-kind": asked(tools=[{"type": "web_search"}], tool_choice={"type": "web_search"}),
    "allowed-tools-of-another-kind": asked(
        tools=[WEATHER, {"type": "web_search"}],
        tool_choice={
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "auto",
                "tools": [{"type": "function", "function": {"name": "get_weather"}}, {"type": "web_search"}],
            },
        },
    ),
}


@pytest.mark.parametrize("body", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_requests_go_through_unchanged(body: dict[str, Any]) -> None:
    assert sent(request(body)) == {"stream": False, **body}


def test_addresses_and_bytes_in_unusual_places_are_told_apart() -> None:
    parts = (
        request(UNUSUAL["audio-as-data-url"]).messages[0].parts + request(UNUSUAL["file-by-address"]).messages[0].parts
    )
    assert [p.source for p in parts if isinstance(p, Media)] == [
        Inline("AAAA"),
        Url("https://x.test/a"),
        Url("https://x.test/a"),
    ]


@pytest.mark.parametrize(("option", "kept"), [("always", 2), ("never", 0)])
def test_reasoning_under_both_names_is_one_reasoning(option: str, kept: int) -> None:
    """Clients of a route with `reasoning_field: both` send both back."""
    r = request(asked([{"role": "assistant", "content": "A", "reasoning": "r", "reasoning_content": "r"}]))
    assert [p.text for p in r.messages[0].parts if isinstance(p, Reasoning)] == ["r"]
    message = sent(r, {"reasoning_history": option})["messages"][0]
    assert [message.get(name) for name in ("reasoning", "reasoning_content")].count("r") == kept


def user(*parts: Any) -> list[Any]:
    return [{"role": "user", "content": list(parts)}]


USER = [{"role": "user", "content": "x"}]
BAD: list[tuple[Any, str | None, str]] = [
    (b"", None, "empty"),
    (b"{", None, "not valid JSON"),
    (b"[]", None, "must be a JSON object"),
    (b'{"a":' + b"[" * 400 + b"]" * 400 + b"}", None, "nested deeper"),
    ({"messages": [{"role": "user", "content": "x"}]}, "model", "required, expected a string"),
    ({"model": 5, "messages": [{"role": "user", "content": "x"}]}, "model", "expected a string, got 5"),
    ({"model": "m"}, "messages", "required, expected a list"),
    ({"model": "m", "messages": []}, "messages", "at least one message"),
    ({"model": "m", "messages": {}}, "messages", "expected a list, got an object"),
    ({"model": "m", "messages": USER, "tool_choice": "required"}, "tool_choice", "the request has no tools"),
    (
        {
            "model": "m",
            "messages": USER,
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "tool_choice": {"type": "function", "function": {"name": "g"}},
        },
        "tool_choice",
        "a tool of the request, got 'g'",
    ),
    (asked(["x"]), "messages[0]", "expected an object"),
    (asked([{"content": "x"}]), "messages[0].role", "required"),
    (asked([{"role": "robot", "content": "x"}]), "messages[0].role", "one of assistant, developer"),
    (asked([{"role": "user"}]), "messages[0].content", "required"),
    (asked([{"role": "user", "content": None}]), "messages[0].content", "got null"),
    (asked([{"role": "user", "content": 5}]), "messages[0].content", "a string or a list of parts"),
    (asked([{"role": "user", "content": "x", "name": 5}]), "messages[0].name", "a string"),
    (asked(user("x")), "messages[0].content[0]", "an object"),
    (asked(user({"text": "x"})), "messages[0].content[0].type", "required"),
    (asked(user({"type": "text"})), "messages[0].content[0].text", "required"),
    (asked(user({"type": "text", "text": 5})), "messages[0].content[0].text", "got 5"),
    (asked(user({"type": "refusal"})), "messages[0].content[0].refusal", "required"),
    (asked(user({"type": "image_url"})), "messages[0].content[0].image_url", "required"),
    (asked(user({"type": "image_url", "image_url": {}})), "messages[0].content[0].image_url.url", "required"),
    (asked(user({"type": "video_url", "video_url": 5})), "messages[0].content[0].video_url", "an object"),
    (asked(user({"type": "input_audio", "input_audio": {}})), "messages[0].content[0].input_audio.data", "required"),
    (asked(user({"type": "file", "file": {}})), "messages[0].content[0].file.file_data", "file_id or file_data"),
    (asked([{"role": "assistant", "content": 5}]), "messages[0].content", "a string or a list"),
    (asked([{"role": "assistant", "tool_calls": {}}]), "messages[0].tool_calls", "a list"),
    (asked([{"role": "assistant", "tool_calls": [{}]}]), "messages[0].tool_calls[0].id", "required"),
    (asked([{"role": "assistant", "tool_calls": [{"id": "a"}]}]), "messages[0].tool_calls[0].function", "required"),
    (
        asked([{"role": "assistant", "tool_calls": [{"id": "a", "type": "x"}]}]),
        "messages[0].tool_calls[0].type",
        "one of",
    ),
    (
        asked([{"role": "assistant", "tool_calls": [{"id": "a", "function": {}}]}]),
        "messages[0].tool_calls[0].function.name",
        "required",
    ),
    (
        asked([{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": 5}}]}]),
        "messages[0].tool_calls[0].function.arguments",
        "a string, got 5",
    ),
    (
        asked([{"role": "assistant", "content": "x", "reasoning_content": 5}]),
        "messages[0].reasoning_content",
        "a string",
    ),
    (asked([{"role": "tool", "content": "x"}]), "messages[0].tool_call_id", "required"),
    (asked([{"role": "function", "name": "f", "content": "x"}]), "messages[0].role", "tool, user, got 'function'"),
    (asked(stream="yes"), "stream", "true or false"),
    (asked(stream_options=5), "stream_options", "an object"),
    (asked(stream_options={"include_usage": 1}), "stream_options.include_usage", "true or false"),
    (asked(verbosity=1), "verbosity", "a string"),
    (asked(prompt_cache_key=["x"]), "prompt_cache_key", "a string"),
    (asked(temperature="hot"), "temperature", "a number, got 'hot'"),
    (asked(top_p=True), "top_p", "a number"),
    (asked(n=0), "n", "at least 1"),
    (asked(seed=1.5), "seed", "a whole number"),
    (asked(max_tokens="5"), "max_tokens", "a number"),
    (asked(max_completion_tokens=[]), "max_completion_tokens", "a number"),
    (asked(stop=[1]), "stop", "a string or a list of strings"),
    (asked(presence_penalty={}), "presence_penalty", "a number"),
    (asked(frequency_penalty=""), "frequency_penalty", "a number"),
    (asked(user=5), "user", "a string"),
    (asked(metadata=[]), "metadata", "an object"),
    (asked(reasoning_effort=5), "reasoning_effort", "a string"),
    (asked(parallel_tool_calls="no"), "parallel_tool_calls", "true or false"),
    (asked(tools={}), "tools", "a list"),
    (asked(tools=[5]), "tools[0]", "an object"),
    (asked(tools=[{"type": 5}]), "tools[0].type", "a string"),
    (asked(tools=[{"type": "function"}]), "tools[0].function", "required"),
    (asked(tools=[{"function": {}}]), "tools[0].function.name", "required"),
    (asked(tools=[{"function": {"name": "f", "parameters": []}}]), "tools[0].function.parameters", "an object"),
    (asked(tools=[{"function": {"name": "f", "strict": 1}}]), "tools[0].function.strict", "true or false"),
    (asked(tool_choice="maybe"), "tool_choice", "one of auto, none, required"),
    (asked(tool_choice=5), "tool_choice", "none, auto, required or an object"),
    (asked(tool_choice={}), "tool_choice.type", "required"),
    (asked(tool_choice={"type": "x"}), "tool_choice.type", "one of allowed_tools"),
    (asked(tool_choice={"type": "function"}), "tool_choice.function", "required"),
    (
        asked(tool_choice={"type": "allowed_tools", "allowed_tools": {"tools": 5}}),
        "tool_choice.allowed_tools.tools",
        "a list",
    ),
    (asked(response_format="json"), "response_format", "an object"),
    (asked(response_format={}), "response_format.type", "required"),
    (asked(response_format={"type": "json_schema"}), "response_format.json_schema", "required"),
    (
        asked(response_format={"type": "json_schema", "json_schema": {"schema": 5}}),
        "response_format.json_schema.schema",
        "an object",
    ),
]


@pytest.mark.parametrize(("body", "place", "words"), BAD, ids=[f"{i}-{b[1]}" for i, b in enumerate(BAD)])
def test_wrong_fields_are_named(body: Any, place: str | None, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        request(body)
    failure = caught.value.failure
    assert failure.param == place
    assert words in failure.message
    shown = json.loads(dialect.encode_error(failure).body)["error"]
    assert (shown["type"], shown["param"]) == ("invalid_request_error", place)


# ------------------------------------------------------------------ towards a backend


def told(*messages: Message, options: dict[str, Any] | None = None, **fields: Any) -> list[Any]:
    body = sent(Request(list(messages), model="m", **fields), options)
    found: list[Any] = body["messages"]
    return found


def says(*parts: Part) -> Message:
    return Message("assistant", list(parts))


def test_the_messages_of_an_agent_become_turns() -> None:
    """agentscope.md section 18: one message for each call there, one for all calls of a turn here."""
    conversation = [
        Message("user", [Text("q")]),
        says(Reasoning("hm")),
        says(Text("wait")),
        says(ToolCall("a", "f", "{}")),
        says(ToolCall("b", "g", "")),
        Message("tool", [ToolResult("a", [Text("1")])]),
        Message("tool", [ToolResult("b", [Data({"x": 2}), Text("!")])]),
        says(Text("done")),
        says(Text("really")),
    ]
    assert arranged(Request(conversation))["messages"] == [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": "wait",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": '{"x":2}!'},
        {"role": "assistant", "content": "done"},
        {"role": "assistant", "content": "really"},
    ]


def test_results_inside_other_messages_stand_alone() -> None:
    call = ToolCall("a", "f", "{}")
    result = ToolResult("a", [Text("1")])
    roles = [
        m["role"] for m in told(says(call, result), Message("user", [result, Text("and?")]), Message("user", [result]))
    ]
    assert roles == ["assistant", "tool", "tool", "user", "tool"]


@pytest.mark.parametrize(
    ("option", "in_calls", "in_text"),
    [("tool_turns", True, False), ("always", True, True), ("never", False, False)],
)
def test_reasoning_history(option: str, in_calls: bool, in_text: bool) -> None:
    with_call = says(Reasoning("hm"), ToolCall("a", "f", "{}"))
    plain = says(Reasoning("hm"), Text("x"))
    context = back({"reasoning_history": option})
    wire = sent(Request([with_call, Message("user", [Text("q")]), plain]), context=context)["messages"]
    assert ["reasoning_content" in m for m in wire] == [in_calls, False, in_text]
    assert bool(context.lost) is not (in_calls and in_text)


@pytest.mark.parametrize("role", ["user", "tool"])
def test_results_are_of_the_turn_of_their_call_whose_message_they_are(role: str) -> None:
    with_call = says(Reasoning("hm"), ToolCall("a", "f", "{}"))
    messages = [with_call, Message(role, [ToolResult("a", [Text("1")])]), says(Reasoning("so"), Text("x"))]
    assert [m.get("reasoning_content") for m in told(*messages)] == ["hm", None, "so"]


def test_backend_options() -> None:
    wanted = Request([Message("developer", [Text("d")])], model="asked", stream=True)
    wanted.sampling.max_tokens = 9
    options = {"developer_role": "system", "max_tokens_field": "max_completion_tokens", "include_usage": False}
    assert sent(wanted, context=back(options, model="mapped")) == {
        "model": "mapped",
        "messages": [{"role": "system", "content": "d"}],
        "stream": True,
        "max_completion_tokens": 9,
    }
    assert sent(wanted)["stream_options"] == {"include_usage": True}
    wanted.stream = False
    wanted.extras = {NAME: {"stream_options": {"include_usage": True}}}
    assert "stream_options" not in sent(wanted)


REFUSED = [
    Media(MediaKind.VIDEO, Url("https://x.test/v")),
    Media(MediaKind.VIDEO, Inline("AAAA"), "video/mp4"),
    Media(MediaKind.AUDIO, Url("https://x.test/a")),
    Media(MediaKind.AUDIO, FileRef("f")),
    Media(MediaKind.FILE, Url("https://x.test/f")),
    Media(MediaKind.IMAGE, FileRef("f")),
]


@pytest.mark.parametrize("media", REFUSED, ids=lambda m: f"{m.kind}-{type(m.source).__name__}")
def test_media_that_cannot_be_sent(media: Media) -> None:
    messages = [Message("system", [Text("s")]), Message("user", [Text("see"), media])]
    with pytest.raises(Unsupported) as caught:
        sent(Request(messages))
    assert caught.value.failure.param == "messages[1].content[1]"
    assert "messages[1].content[1]" in caught.value.message
    context = back({"unsupported_media": "text"})
    parts = sent(Request(messages), context=context)["messages"][1]["content"]
    assert [p["type"] for p in parts] == ["text", "text"]
    assert context.lost


def test_the_card_tells_what_is_refused() -> None:
    by_url = {m.kind for m in REFUSED if isinstance(m.source, Url)}
    refused = {f for f, e in dialect.capabilities.requests.items() if e.support == "refused"}
    assert refused == {Feature(f"{kind}_url") for kind in by_url} | {Feature.VIDEO_INLINE, Feature.RESUME}


def test_media_in_places_without_media() -> None:
    image = Media(MediaKind.IMAGE, Url("https://x.test/a"))
    with pytest.raises(Unsupported):
        told(Message("system", [image]))
    context = back()
    wire = sent(Request([says(Text("see "), image)]), context=context)["messages"]
    assert wire[0]["content"] == [
        {"type": "text", "text": "see "},
        {"type": "text", "text": "![image](https://x.test/a)"},
    ]
    assert context.lost.names == ["image_url"]


@pytest.mark.parametrize(
    ("start", "mime"),
    [("/9j/AA", "image/jpeg"), ("iVBORw", "image/png"), ("R0lGOD", "image/gif"), ("UklGRiQAAABXRUJQ", "image/webp")],
)
def test_a_picture_without_a_type_gets_the_one_it_has(start: str, mime: str) -> None:
    wire = told(Message("user", [Media(MediaKind.IMAGE, Inline(start))]))
    assert wire[0]["content"][0]["image_url"]["url"] == f"data:{mime};base64,{start}"


def test_audio_formats() -> None:
    def form(mime: str | None) -> str:
        wire = told(Message("user", [Media(MediaKind.AUDIO, Inline("AA"), mime)]))
        found: str = wire[0]["content"][0]["input_audio"]["format"]
        return found

    assert [form(m) for m in ("audio/mpeg", "audio/x-wav", None, "audio/flac")] == ["mp3", "wav", "wav", "flac"]


def test_refusals_in_history() -> None:
    assert told(says(Refusal("no"))) == [{"role": "assistant", "content": None, "refusal": "no"}]
    assert told(says(Refusal("no"), Text("but")))[0]["content"] == [
        {"type": "refusal", "refusal": "no"},
        {"type": "text", "text": "but"},
    ]
    assert told(Message("user", [Refusal("no")])) == [{"role": "user", "content": "no"}]


def test_empty_messages_keep_a_content() -> None:
    assert told(Message("user", []), says()) == [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]


def test_what_a_result_shows_follows_after_the_last_result() -> None:
    """A tool's message holds text only: a picture as text would be its bytes, a hundred thousand tokens of base64."""
    picture, unknown = Media(MediaKind.IMAGE, Inline("iVBORw0KGgo=")), Media(MediaKind.VIDEO, Url("https://x.test/v"))
    results = [
        Message("tool", [ToolResult("a", [Text("see "), picture])]),
        Message("tool", [ToolResult("b", [Text("ok"), unknown])]),
    ]
    calls = says(ToolCall("a", "f", "{}"), ToolCall("b", "g", "{}"))
    shown = [
        {"type": "text", "text": "The image in the result of call a:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    ]
    alone = told(calls, *results)
    assert [m["role"] for m in alone] == ["assistant", "tool", "tool", "user"]
    assert [m["content"] for m in alone[1:]] == ["see [image: shown below]", "ok[video](https://x.test/v)", shown]
    asked_on = told(calls, *results, Message("user", [Text("And?")]))
    assert [m["role"] for m in asked_on] == ["assistant", "tool", "tool", "user"]
    assert asked_on[3]["content"] == [*shown, {"type": "text", "text": "And?"}]
    said_on = told(calls, *results, says(Text("Nice.")), Message("user", [picture]))
    assert [m["role"] for m in said_on] == ["assistant", "tool", "tool", "user", "assistant", "user"]
    assert said_on[3]["content"] == shown


def test_every_loss_is_recorded() -> None:
    context = back()
    wanted = Request(
        [
            Message("user", [Data(1), Reasoning("x"), ToolCall("a", "f", "")]),
            says(Reasoning("x", "signature"), ToolCall("a", "f", "", Origin.MCP)),
            Message("tool", [ToolResult("a", [], is_error=True), Text("stray")]),
        ],
        thread_id="t",
        state={"x": 1},
        context=[{"a": 1}],
        metadata={"deep": {}},
        extras={"ag-ui": {"x": 1}},
    )
    body = sent(wanted, context=context)
    assert set(context.lost.names) == {
        "data",
        "reasoning_history",
        "tool_history",
        "tool_origin",
        "thread_id",
        "state",
        "context",
        "metadata",
        "extras",
    }
    assert "metadata" not in body
    assert set(body) == {"messages", "stream", "stream_options"}


def test_an_answer_to_an_interrupt_is_refused() -> None:
    """Left out, a person's "no" would be lost, and an agent's talk would go on without it."""
    with pytest.raises(Unsupported, match="resume"):
        sent(Request([Message("user", [Text("x")])], resume=[Resume("i", "cancelled")]))


def test_tool_fields_only_with_tools() -> None:
    wanted = Request([Message("user", [Text("x")])], tools=[], tool_choice=ToolChoice(ToolMode.AUTO))
    assert not {"tools", "tool_choice"} & set(sent(wanted))


def test_a_schema_without_a_name_gets_one() -> None:
    wanted = Request([Message("user", [Text("x")])], response_format=ResponseFormat("json_schema", schema={}))
    assert sent(wanted)["response_format"]["json_schema"] == {"name": "answer", "schema": {}}


@pytest.mark.parametrize("stream", [True, False])
def test_example_request(stream: bool) -> None:
    wire = dialect.example_request("Hello", stream)
    r = dialect.decode_request(wire, back())
    assert (r.messages, r.stream) == ([Message("user", [Text("Hello")])], stream)
    assert (wire.method, wire.path) == ("POST", "/chat/completions")


def test_a_user_longer_than_the_apis_take_is_left_out() -> None:
    from bridge.contract import registry

    metadata = {"user_id": json.dumps({"device_id": "a" * 64, "session_id": "s1"})}
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "metadata": metadata}
    wire = WireRequest("POST", "/v1/messages", {"content-type": "application/json"}, body=json.dumps(body).encode())
    read = registry.get("anthropic-messages").decode_request(wire, back())
    for name in ("openai-chat", "openai-responses"):
        context = back()
        assert "user" not in json.loads(registry.get(name).encode_request(read, context).body)
        assert context.lost.names == ["user_id"]
        read.user_id, kept = "u" * 64, read.user_id
        assert json.loads(registry.get(name).encode_request(read, back()).body)["user"] == "u" * 64
        read.user_id = kept
    assert sent(request(asked(user="u" * 65)))["user"] == "u" * 65


@pytest.mark.parametrize(
    "media",
    [
        Media(MediaKind.AUDIO, Url("https://x.test/a.mp3")),
        Media(MediaKind.VIDEO, Url("https://x.test/a.mp4")),
        Media(MediaKind.FILE, Url("https://x.test/a.pdf")),
        Media(MediaKind.VIDEO, Inline("AAAAIGZ0eXBpc29t")),
    ],
)
def test_media_in_parts_of_other_servers_by_option(media: Media) -> None:
    context = back({"unsupported_media": "parts"})
    wire = sent(Request([Message("user", [Text("see"), media])], model="m"), context=context)
    part = wire["messages"][0]["content"][1]
    kind = f"{media.kind}_url"
    assert part == {"type": kind, kind: {"url": url_of(media)}}
    assert not context.lost.names
    read = request(asked([{"role": "user", "content": [part]}])).messages[0].parts[0]
    assert isinstance(read, Media)
    assert (read.kind, url_of(read)) == (media.kind, url_of(media))
    assert sent(request(asked([{"role": "user", "content": [part]}])))["messages"][0]["content"] == [part]


def test_reasoning_details_of_a_client_are_reasoning_with_signatures() -> None:
    details = [
        {"type": "reasoning.text", "text": "hm", "signature": "c2ln", "index": 0},
        {"type": "reasoning.encrypted", "data": "c2VjcmV0", "index": 1},
        {"type": "reasoning.summary", "summary": "short"},
        "odd",
        {},
    ]
    message = {"role": "assistant", "content": "x", "reasoning": "hm", "reasoning_details": details}
    wanted = request(asked([message, {"role": "user", "content": "y"}]))
    thoughts = [p for p in wanted.messages[0].parts if isinstance(p, Reasoning)]
    assert [(p.text, p.signature, p.redacted) for p in thoughts] == [
        ("hm", "c2ln", None), ("", None, "c2VjcmV0"), ("short", None, None)
    ]  # fmt: skip
    context = back({"reasoning_history": "always"})
    assert sent(wanted, context=context)["messages"][0]["reasoning_details"] == details
    assert not context.lost.names


@pytest.mark.parametrize("notes", ["x", 5, [], {"limit": "x"}])
def test_a_field_with_the_name_of_our_notes_is_left_out_and_named(notes: Any) -> None:
    context = front()
    body = asked(notes=notes, max_completion_tokens=5, logprobs=True, stream_options={"include_usage": True})
    read = dialect.decode_request(WireRequest(body=json.dumps(body).encode()), context)
    assert sent(read)["max_completion_tokens"] == 5
    assert "notes" not in sent(read)
    assert context.lost.details["extras"] == "notes"
