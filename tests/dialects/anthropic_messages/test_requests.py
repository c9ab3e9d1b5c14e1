"""Requests of clients, and what backends get: of the same dialect as it was, of others in the shape the API demands."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from bridge.contract import Feature, WireRequest
from bridge.dialects.anthropic_messages import dialect
from bridge.errors import RequestError, Unsupported
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
from tests.strategies import requests

from .helpers import arranged, asked, back, front, request, sent
from .server import _talk_fault

PDF = base64.b64encode(b"%PDF-1.4 x").decode()
PNG = "iVBORw0KGgo="
CACHE = {"type": "ephemeral"}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def call(call_id: str = "toolu_1", name: str = "f", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str = "toolu_1", content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def changed(kind: str, tool: str | dict[str, Any]) -> dict[str, Any]:
    """A block that adds or removes a tool: one that is declared, by its name, or one that it defines itself."""
    if isinstance(tool, str):
        return {"type": kind, "tool": {"type": "tool_reference", "name": tool}}
    return {"type": kind, "tool": {"type": "tool_definition", "definition": tool}}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


# ---------------------------------------------------------------------- read


def test_the_fields_of_a_request() -> None:
    wanted = request(
        asked(
            system="Be brief.", stream=True, temperature=0.5, top_p=0.9, top_k=5, stop_sequences=["END"],
            metadata={"user_id": "u", "session_id": "s"}, service_tier="auto",
            thinking={"type": "enabled", "budget_tokens": 5000},
        )
    )  # fmt: skip
    assert [(m.role, m.parts) for m in wanted.messages] == [
        ("system", [Text("Be brief.")]),
        ("user", [Text("Hi")]),
    ]
    assert (wanted.model, wanted.stream, wanted.user_id, wanted.thread_id) == ("m", True, "u", "s")
    assert wanted.sampling == Sampling(temperature=0.5, top_p=0.9, max_tokens=100, stop=["END"])
    assert wanted.reasoning_effort == "medium"
    assert wanted.extra(dialect.name) == {
        "top_k": 5, "service_tier": "auto",
        "notes": {"fields": {"thinking": {"type": "enabled", "budget_tokens": 5000}}},
    }  # fmt: skip


def test_a_message_with_results_is_one_for_each_and_one_for_the_rest() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    conversation = [
        user(text("Go")),
        assistant(call("a", "f", x=1), call("b", "g")),
        user(result("a"), result("b", [text("see"), picture], is_error=True), text("And?")),
    ]
    messages = request(asked(conversation)).messages
    assert [m.role for m in messages] == ["user", "assistant", "tool", "tool", "user"]
    assert messages[1].parts == [ToolCall("a", "f", '{"x":1}'), ToolCall("b", "g", "{}")]
    assert messages[2].parts == [ToolResult("a", [Text("ok")], "f")]
    assert messages[3].parts == [
        ToolResult("b", [Text("see"), Media(MediaKind.IMAGE, Inline(PNG), "image/png")], "g", True)
    ]
    assert messages[4].parts == [Text("And?")]


def test_thinking_keeps_its_signature() -> None:
    blocks = [
        {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
        {"type": "thinking", "thinking": "unsigned", "signature": ""},
        {"type": "redacted_thinking", "data": "cmVk"},
    ]
    parts = request(asked([user(text("x")), assistant(*blocks)])).messages[1].parts
    assert parts == [Reasoning("Hm", "c2ln"), Reasoning("unsigned"), Reasoning("", None, "cmVk")]


@pytest.mark.parametrize(
    ("source", "media"),
    [
        ({"type": "base64", "media_type": "application/pdf", "data": PDF}, (Inline(PDF), "application/pdf")),
        ({"type": "text", "media_type": "text/plain", "data": "ü"}, (Inline("w7w="), "text/plain")),
        ({"type": "url", "url": "https://x.test/a.pdf"}, (Url("https://x.test/a.pdf"), None)),
        ({"type": "file", "file_id": "file_1"}, (FileRef("file_1"), None)),
    ],
)
def test_documents(source: Any, media: Any) -> None:
    document = {"type": "document", "source": source, "title": "T", "citations": {"enabled": True}}
    wanted = request(asked([user(document)]))
    (part,) = wanted.messages[0].parts
    assert isinstance(part, Media)
    assert (part.kind, part.source, part.mime, part.filename) == (MediaKind.FILE, *media, "T")
    assert sent(wanted)["messages"] == [user(document)]


@pytest.mark.parametrize(("size", "marks"), [(None, 1), (10, 1), (5000, 2)])
def test_automatic_marks_are_at_the_end_and_at_a_long_prefix(size: int | None, marks: int) -> None:
    wanted = Request([*([Message("system", [Text("x" * size)])] if size else []), Message("user", [Text("Hi")])])
    body = sent(wanted, {"prompt_cache": "auto"})
    assert body["messages"] == [user(text("Hi", cache_control={"type": "ephemeral"}))]
    assert json.dumps(body).count("cache_control") == marks


def test_a_document_of_blocks_is_data() -> None:
    document = {"type": "document", "source": {"type": "content", "content": [text("a")]}, "title": "T"}
    wanted = request(asked([user(document)]))
    assert [part.value for part in wanted.messages[0].parts if isinstance(part, Data)] == [document]
    assert sent(wanted)["messages"] == [user(document)]


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        ({"type": "auto"}, (ToolChoice(ToolMode.AUTO), None)),
        ({"type": "any", "disable_parallel_tool_use": True}, (ToolChoice(ToolMode.REQUIRED), False)),
        (
            {"type": "tool", "name": "f", "disable_parallel_tool_use": False},
            (ToolChoice(ToolMode.REQUIRED, ["f"]), True),
        ),
        ({"type": "none"}, (ToolChoice(ToolMode.NONE), None)),
    ],
)
def test_tool_choices(choice: Any, meant: Any) -> None:
    tools = [{"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": True}]
    wanted = request(asked(tools=tools, tool_choice=choice))
    assert (wanted.tool_choice, wanted.parallel_tool_calls) == meant
    assert wanted.tools == [Tool("f", "d", {"type": "object"}, True)]
    assert sent(wanted)["tool_choice"] == choice


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 32000}}, "high"),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": {"type": "disabled"}}, "none"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "max"),
        ({}, None),
    ],
)
def test_efforts(thinking: Any, effort: str | None) -> None:
    wanted = request(asked(**thinking))
    assert wanted.reasoning_effort == effort
    body = sent(wanted)
    assert {k: body[k] for k in ("thinking", "output_config") if k in body} == thinking
    unsaid = request(asked(**thinking), context=front({"thinking_effort": False})).reasoning_effort
    assert unsaid == thinking.get("output_config", {}).get("effort")


def test_a_format_for_the_answer() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wanted = request(asked(output_config={"format": {"type": "json_schema", "schema": schema}}))
    assert wanted.response_format == ResponseFormat("json_schema", schema=schema)
    assert sent(wanted)["output_config"] == {"format": {"type": "json_schema", "schema": schema}}


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"model": None}, "model: required"),
        ({"max_tokens": None}, "max_tokens: required"),
        ({"max_tokens": "9"}, r"max_tokens: expected a number, got '9'"),
        ({"max_tokens": -1}, "max_tokens: expected a number of at least 0"),
        ({"messages": []}, "messages: expected at least one message"),
        ({"tool_choice": {"type": "any"}}, "tool_choice: requires a tool call, but the request has no tools"),
        (
            {"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "g"}},
            "tool_choice: expected the name of a tool of the request, got 'g'",
        ),
        ({"messages": "Hi"}, "messages: expected a list, got 'Hi'"),
        (
            {"messages": [{"role": "tool", "content": "x"}]},
            r"messages\[0\].role: expected one of assistant, system, user",
        ),
        ({"messages": [{"role": "user"}]}, r"messages\[0\].content: required"),
        ({"messages": [user({"text": "x"})]}, r"messages\[0\].content\[0\].type: required"),
        ({"messages": [user({"type": "text"})]}, r"messages\[0\].content\[0\].text: required"),
        ({"messages": [user({"type": "image"})]}, r"content\[0\].source: required"),
        ({"messages": [user({"type": "image", "source": {"type": "x"}})]}, r"source.type: expected one of base64"),
        ({"messages": [user({"type": "document", "source": {"type": "x"}})]}, r"source.type: expected one of base64"),
        (
            {"messages": [assistant({"type": "tool_use", "id": "a", "name": "f", "input": "x"})]},
            r"input: expected an object",
        ),
        ({"messages": [user({"type": "tool_result"})]}, r"tool_use_id: required"),
        ({"messages": [user(result(content=5))]}, r"content: expected a string or a list"),
        ({"messages": [user(result(is_error="yes"))]}, r"is_error: expected true or false"),
        ({"system": 5}, "system: expected a string or a list of text blocks"),
        ({"system": [{"type": "image"}]}, r"system\[0\].type: expected text"),
        ({"tools": [{"input_schema": {}}]}, r"tools\[0\].name: required"),
        ({"tools": [{"name": "f"}]}, r"tools\[0\].input_schema: required"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice.type: expected one of any, auto, none, tool"),
        ({"tool_choice": "auto"}, "tool_choice: expected an object"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name: required"),
        ({"stop_sequences": 5}, "stop_sequences: expected"),
        ({"metadata": {"user_id": 5}}, "metadata.user_id: expected a string"),
        ({"thinking": {"type": "enabled", "budget_tokens": "x"}}, "thinking.budget_tokens: expected a number"),
        ({"stream": "yes"}, "stream: expected true or false"),
    ],
)
def test_mistakes_are_told_with_their_place(fields: Any, place: str) -> None:
    body = {k: v for k, v in {**asked(), **fields}.items() if v is not None}
    with pytest.raises(RequestError, match=place) as caught:
        request(body)
    assert json.loads(dialect.encode_error(caught.value.failure).body)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"model": NaN}'])
def test_bodies_that_are_no_object(body: bytes) -> None:
    with pytest.raises(RequestError):
        request(body)


# ---------------------------------------------------------------------- the same dialect on both sides


ALIKE: dict[str, Any] = {
    "everything unknown": asked(
        [user(text("a", cache_control=CACHE), {"type": "search_result", "source": "s", "title": "t", "content": []})],
        system=[text("b", cache_control=CACHE), text("c")],
        tools=[{"name": "f", "input_schema": {"type": "object"}, "cache_control": CACHE, "input_examples": [{}]}],
        container="c1", mcp_servers=[{"type": "url"}], context_management={"edits": []}, cache_control=CACHE,
        metadata={"user_id": "u"}, stream=False, top_k=1, temperature=1.5,
    ),
    "a loop with thinking": asked(
        [
            user(text("x")),
            assistant(
                {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "cmVk"},
                text("Let me look."),
                {**call("toolu_1", x=[1.0, None]), "caller": {"type": "code_execution_20260120", "tool_id": "s"}},
                call("toolu_2"),
            ),
            user(result("toolu_1", [text("a"), text("b", cache_control=CACHE)], cache_control=CACHE),
                 result("toolu_2", is_error=True), text("And?")),
        ],
        stream=True,
    ),
    "server tools": asked(
        [
            user(text("x")),
            assistant(
                text("Let me search."),
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"encrypted": "e"}]},
                text("21 degrees.", citations=[{"type": "web_search_result_location"}]),
                {"type": "hologram", "depth": 3},
            ),
            user({"type": "container_upload", "file_id": "f"}, text("Thanks")),
        ],
        tools=[
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
            {"name": "f", "input_schema": {"type": "object"}},
            {"type": "bash_20250124", "name": "bash"},
        ],
        stream=True,
    ),
    "tools that change": asked(
        [
            user(changed("tool_removal", "f"), text("x")),
            assistant(text("z")),
            user(text("y"), changed("tool_addition", {"name": "g", "input_schema": {"type": "object"}})),
        ],
        tools=[{"name": "f", "input_schema": {"type": "object"}}],
        stream=True,
    ),
    "a block of another type with a text alone": asked([user({"type": "memo", "text": "x"})], stream=True),
    "pictures": asked(
        [user({"type": "image", "source": {"type": "url", "url": "https://x.test/a"}},
              {"type": "image", "source": {"type": "file", "file_id": "f"}},
              {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": "AAAA"}})],
        stream=True,
    ),
    "a talk that ends with the assistant": asked([user(text("x")), assistant(text("The answer is ("))], stream=True),
    "instructions on the way": asked(
        [user(text("x")), assistant(text("y")), user(text("z")), {"role": "system", "content": "Be brief."}],
        stream=True,
    ),
}  # fmt: skip


def test_what_answers_have_to_say_of_nothing_is_not_sent_to_a_backend() -> None:
    """Servers that never said these fields refuse them."""
    plain = assistant(text("Let me look."), call("toolu_1"))
    full = assistant(text("Let me look.", citations=[]), {**call("toolu_1"), "caller": {"type": "direct"}})
    talk = [user(text("x")), user(result())]
    bodies = [sent(request(asked([talk[0], message, talk[1]]))) for message in (plain, full)]
    assert bodies[0] == bodies[1]


def normal(value: Any) -> Any:
    """One plain text block is the same as a string."""
    if isinstance(value, dict):
        value = {k: normal(v) for k, v in value.items()}
        for name in ("content", "system"):
            blocks = value.get(name)
            is_one = isinstance(blocks, list) and len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
            if is_one and blocks[0]["type"] == "text":
                value[name] = blocks[0]["text"]
        return value
    return [normal(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ALIKE)
def test_nothing_of_a_request_is_lost_between_two_sides_of_one_dialect(name: str) -> None:
    context = back()
    wanted = request(ALIKE[name])
    context.request = wanted
    assert sent(wanted, context=context) == normal(ALIKE[name])
    assert context.lost.names == []


def test_messages_of_one_role_become_one() -> None:
    conversation = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c"},
    ]
    assert sent(request(asked(conversation)))["messages"] == [
        user(text("a"), text("b")),
        {"role": "assistant", "content": "c"},
    ]


def test_other_dialects_see_neither_half_of_a_server_tool() -> None:
    wanted = request(ALIKE["server tools"])
    parts = [p for m in wanted.messages for p in m.parts]
    assert [p.text for p in parts if isinstance(p, Text)] == ["x", "Let me search.", "21 degrees.", "Thanks"]
    assert all(isinstance(p, Text) for p in parts)
    from bridge.contract import registry

    context = back()
    sent_on = json.loads(registry.get("openai-chat").encode_request(wanted, context).body)
    assert [t["function"]["name"] for t in sent_on["tools"]] == ["f", "bash"]
    assert {"extras", "tools"} <= set(context.lost.names)


@pytest.mark.parametrize(
    ("changes", "offered"),
    [
        ([], ["f", "h"]),
        ([changed("tool_removal", "f")], ["h"]),
        ([changed("tool_removal", "f"), changed("tool_addition", "f")], ["h", "f"]),
        ([changed("tool_addition", {"name": "g", "input_schema": {"type": "object"}})], ["f", "h", "g"]),
        ([changed("tool_removal", "unknown"), changed("tool_addition", "h")], ["f", "h"]),
        ([changed("tool_removal", "f"), changed("tool_removal", "h")], []),
    ],
)
def test_tools_that_a_conversation_changes_are_those_of_other_dialects(changes: list[Any], offered: list[str]) -> None:
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("f", "h")]
    wanted = request(asked([user(text("a"), *changes)], tools=tools))
    from bridge.contract import registry

    sent_on = json.loads(registry.get("openai-chat").encode_request(wanted, back()).body)
    assert [t["function"]["name"] for t in sent_on.get("tools", [])] == offered
    assert sent_on["messages"] == [{"role": "user", "content": "a"}]


# ---------------------------------------------------------------------- from other dialects


def foreign(*messages: Message, **fields: Any) -> Request:
    return Request(list(messages), **fields)


def test_what_the_wire_demands_is_made_up_and_nothing_else() -> None:
    assert sent(foreign(Message("user", [Text("x")]), model="m")) == {
        "model": "m",
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": "x"}],
        "stream": True,
    }
    assert sent(foreign(Message("user", [Text("x")])), {"max_tokens": 9})["max_tokens"] == 9


def test_a_talk_told_in_many_messages() -> None:
    body = arranged(
        foreign(
            Message("system", [Text("one")]),
            Message("developer", [Text("two")]),
            Message("user", [Text("x")]),
            Message("assistant", [Reasoning("Hm", "c2ln")]),
            Message("assistant", [Text("\n\n")]),
            Message("assistant", [ToolCall("a", "f", '{"x":1}')]),
            Message("assistant", [ToolCall("b.c", "g", "")]),
            Message("user", [Text("hurry")]),
            Message("tool", [ToolResult("a", [Text("1")])]),
            Message("tool", [ToolResult("b.c", [Text("")], is_error=True)]),
            Message("assistant", [Text("done"), Refusal("No.")]),
            Message("system", [Text("three")]),
            Message("user", [Text("y"), Text("  ")]),
        )
    )
    assert body["system"] == [text("one"), text("two"), text("three")]
    first, said, answered, done, last = body["messages"]
    assert first == {"role": "user", "content": "x"}
    assert [b["type"] for b in said["content"]] == ["thinking", "tool_use", "tool_use"]
    assert [b["input"] for b in said["content"][1:]] == [{"x": 1}, {}]
    escaped = said["content"][2]["id"]
    assert answered["content"] == [result("a", "1"), result(escaped, "", is_error=True), text("hurry")]
    assert done["content"] == [text("done"), text("No.")]
    assert last == {"role": "user", "content": "y"}
    assert _talk_fault([{**said, "content": said["content"][1:]}, answered, done, last]) is None


def test_an_answer_that_was_kept_goes_back_as_a_request_may() -> None:
    """With its citations, and without the pieces of a block that nobody here knows."""
    cited = Text("x", {dialect.name: {"citations": [{"type": "char_location"}], "deltas": [{"type": "tone_delta"}]}})
    body = sent(foreign(Message("user", [Text("x")]), Message("assistant", [cited])))
    assert body["messages"][1]["content"] == [text("x", citations=[{"type": "char_location"}])]


def test_instructions_on_the_way_may_stay_there() -> None:
    conversation = foreign(Message("user", [Text("x")]), Message("system", [Text("Be brief.")]))
    body = sent(conversation, {"system_inside": "system"})
    assert "system" not in body
    assert body["messages"][1] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    ("option", "kinds"),
    [
        ("signed", ["thinking", "redacted_thinking"]),
        ("never", []),
        ("always", ["thinking", "thinking", "redacted_thinking"]),
    ],
)
def test_which_reasoning_goes_back(option: str, kinds: list[str]) -> None:
    context = back({"reasoning_history": option})
    parts = [Reasoning("a", "c2ln"), Reasoning("b"), Reasoning("", None, "cmVk"), Text("x")]
    body = sent(foreign(Message("user", [Text("x")]), Message("assistant", list(parts))), context=context)
    content = body["messages"][1]["content"]
    blocks = content if isinstance(content, list) else [text(content)]
    assert [b["type"] for b in blocks] == [*kinds, "text"]
    assert ("reasoning_history" in context.lost.names) is (option != "always")


@pytest.mark.parametrize(
    ("media", "block"),
    [
        (
            Media(MediaKind.IMAGE, Inline(PNG)),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        ),
        (
            Media(MediaKind.IMAGE, Url("https://x.test/a")),
            {"type": "image", "source": {"type": "url", "url": "https://x.test/a"}},
        ),
        (
            Media(MediaKind.FILE, Inline(PNG), "image/png"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        ),
        (
            Media(MediaKind.FILE, Inline(PDF), filename="a.pdf"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
                "title": "a.pdf",
            },
        ),
        (
            Media(MediaKind.FILE, Inline("w7w="), "text/csv"),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "ü"}},
        ),
        (Media(MediaKind.FILE, FileRef("f")), {"type": "document", "source": {"type": "file", "file_id": "f"}}),
        (
            Media(MediaKind.FILE, Url("https://x.test/a.pdf")),
            {"type": "document", "source": {"type": "url", "url": "https://x.test/a.pdf"}},
        ),
    ],
)
def test_media_go_in_and_inside_results(media: Media, block: Any) -> None:
    body = sent(foreign(Message("tool", [ToolResult("a", [media])]), Message("user", [media])))
    inside, plain = body["messages"][0]["content"]
    assert plain == block
    assert inside["content"] == [block]


@pytest.mark.parametrize(
    "media",
    [
        Media(MediaKind.AUDIO, Inline("AAAA"), "audio/wav"),
        Media(MediaKind.VIDEO, Url("https://x.test/a")),
        Media(MediaKind.FILE, Inline("AAAA"), "application/zip"),
        Media(MediaKind.FILE, Inline("gICA"), "text/plain"),
        Media(MediaKind.FILE, Inline("!!"), "text/plain"),
    ],
)
def test_media_that_have_no_block(media: Media) -> None:
    conversation = foreign(Message("user", [Text("x"), media]))
    with pytest.raises(Unsupported, match=r"messages\[0\].content\[1\]: this backend accepts no") as caught:
        sent(conversation)
    assert caught.value.failure.param == "messages[0].content[1]"
    context = back({"unsupported_media": "text"})
    assert sent(conversation, context=context)["messages"][0]["content"][1]["type"] == "text"
    assert len(context.lost.names) == 1


def test_what_an_assistant_cannot_show_is_told_as_text() -> None:
    context = back()
    media = Media(MediaKind.IMAGE, Url("https://x.test/a"))
    body = sent(foreign(Message("user", [Text("x")]), Message("assistant", [media, Data([1])])), context=context)
    assert body["messages"][1]["content"] == [text("![image](https://x.test/a)"), text("[1]")]
    assert context.lost.names == ["image_url", "data"]


@pytest.mark.parametrize(
    ("effort", "option", "fields"),
    [
        ("high", "output_config", {"output_config": {"effort": "high"}}),
        ("minimal", "output_config", {"output_config": {"effort": "low"}}),
        ("none", "output_config", {"thinking": {"type": "disabled"}}),
        ("medium", "thinking", {"thinking": {"type": "enabled", "budget_tokens": 4095}}),
        ("low", "thinking", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
        ("high", "drop", {}),
        ("odd", "output_config", {}),
    ],
)
def test_efforts_of_other_dialects(effort: str, option: str, fields: Any) -> None:
    context = back({"effort": option})
    body = sent(foreign(Message("user", [Text("x")]), reasoning_effort=effort), context=context)
    assert {k: body[k] for k in ("thinking", "output_config") if k in body} == fields
    assert context.lost.names == ([] if fields else ["reasoning_effort"])


def test_a_budget_stays_below_the_limit() -> None:
    context = back({"effort": "thinking"})
    wanted = foreign(Message("user", [Text("x")]), reasoning_effort="high", sampling=Sampling(max_tokens=500))
    assert "thinking" not in sent(wanted, context=context)
    assert context.lost.names == ["reasoning_effort"]


@pytest.mark.parametrize(
    ("version", "sampling", "fields", "lost"),
    [
        ("2023-06-01", Sampling(temperature=2.0, top_p=0.5), {"temperature": 1.0}, ["sampling"]),
        ("2023-06-01", Sampling(temperature=0.3), {"temperature": 0.3}, []),
        ("2026-10-21", Sampling(temperature=0.3, top_p=0.5), {}, ["sampling"]),
        ("2026-10-21", Sampling(stop=["x"]), {}, []),
        ("2023-06-01", Sampling(seed=5, n=2), {}, ["sampling"]),
        ("2023-06-01", Sampling(n=1), {}, []),
    ],
)
def test_sampling_of_other_dialects(version: str, sampling: Sampling, fields: Any, lost: list[str]) -> None:
    context = back({"version": version})
    body = arranged(foreign(Message("user", [Text("x")]), sampling=sampling), context=context)
    assert {k: body[k] for k in ("temperature", "top_p", "seed", "n") if k in body} == fields
    assert context.lost.names == lost


def test_choices_among_tools() -> None:
    tools = [Tool("f"), Tool("g", parameters={"properties": {}})]
    wanted = foreign(Message("user", [Text("x")]), tools=tools, tool_choice=ToolChoice(ToolMode.REQUIRED, ["f", "g"]))
    context = back()
    body = arranged(wanted, context=context)
    assert body["tool_choice"] == {"type": "any"}
    assert [t["input_schema"] for t in body["tools"]] == [{"type": "object", "properties": {}}] * 2
    assert context.lost.names == ["tool_choice"]
    wanted = foreign(Message("user", [Text("x")]), tools=tools, parallel_tool_calls=False)
    assert sent(wanted)["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert "tool_choice" not in sent(foreign(Message("user", [Text("x")]), parallel_tool_calls=False))


def test_what_has_no_field_is_named() -> None:
    context = back()
    sent(
        foreign(
            Message("user", [Text("x")], name="Ann"),
            thread_id="t",
            metadata={"a": "b"},
            context=[{"a": 1}],
            state={"a": 1},
            resume=[Resume("i", "resolved")],
            response_format=ResponseFormat("json"),
            extras={"other": {"a": 1}},
        ),
        context=context,
    )
    assert set(context.lost.names) == {
        "message_name", "thread_id", "metadata", "context", "state", "resume", "response_format", "extras",
    }  # fmt: skip
    for name in context.lost.names:
        assert dialect.capabilities.request(Feature(name)) != "exact" or name == "extras"


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(wanted=requests())
def test_any_request_is_one_that_the_api_would_read(wanted: Request) -> None:
    """Roles take turns, results follow their calls, no text is blank."""
    body = sent(wanted, {"unsupported_media": "text", "reasoning_history": "never"})
    roles = [m["role"] for m in body["messages"]]
    assert all(a != b for a, b in pairwise(roles))
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        kinds = [b["type"] for b in blocks]
        assert kinds == sorted(kinds, key=lambda k: k != "tool_result")
        assert all(b["text"].strip() for b in blocks if b["type"] == "text") or len(blocks) == 1
    again = dialect.decode_request(WireRequest(body=json.dumps({"model": "m", **body}).encode()), front())
    assert again.sampling.max_tokens


# ---------------------------------------------------------------------- counting


def test_a_question_for_a_count_needs_no_limit_and_sends_none() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "system": "s", "speed": "fast"}
    wanted = dialect.decode_count_request(WireRequest(body=json.dumps(body).encode()), front())
    wire = dialect.count_request(wanted, back())
    assert wire is not None
    assert (wire.method, wire.path, json.loads(wire.body)) == ("POST", "/v1/messages/count_tokens", body)


SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
FUNCTION = {"name": "f", "input_schema": {"type": "object"}}


@pytest.mark.parametrize("name", ["ag-ui", "agentscope", "agentscope-java", "openai-chat", "openai-responses"])
def test_a_tool_of_anthropics_own_that_another_backend_does_not_have(name: str) -> None:
    from bridge.contract import registry

    context = back()
    registry.get(name).encode_request(request(asked([user(text("x"))], tools=[FUNCTION, SEARCH])), context)
    assert "tools" in context.lost.names
    for choice in ({"type": "tool", "name": "web_search"}, {"type": "any"}):
        tools = [SEARCH] if choice["type"] == "any" else [FUNCTION, SEARCH]
        wanted = request(asked([user(text("x"))], tools=tools, tool_choice=choice))
        with pytest.raises(Unsupported, match="got 'web_search_20250305'"):
            registry.get(name).encode_request(wanted, back())
